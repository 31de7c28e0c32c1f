#!/usr/bin/env bash
source "$(dirname "$0")/lib.sh"
require_env MODEL TP CONC ISL OSL MAX_MODEL_LEN RESULT_FILENAME
SERVER_LOG=$(mktemp /tmp/server-XXXX.log)
PORT=${PORT:-8888}
cat > config.yaml << EOF
async-scheduling: true
no-enable-prefix-caching: true
max-cudagraph-capture-size: 2048
max-num-batched-tokens: 8192
max-model-len: $MAX_MODEL_LEN
EOF
set -x
vllm serve $MODEL --host=0.0.0.0 --port=$PORT --config config.yaml \
  --gpu-memory-utilization=0.9 --tensor-parallel-size=$TP \
  --max-num-seqs=$CONC > $SERVER_LOG 2>&1 &
wait_ready --port "$PORT"
run_benchmark --model "$MODEL" --input-len "$ISL" --output-len "$OSL" \
  --num-prompts "$((CONC * 10))" --max-concurrency "$CONC"
