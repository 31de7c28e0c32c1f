#!/bin/bash
set -e
trap 'kill 0' EXIT
MODEL="Qwen/Qwen3-8B"
python -m dynamo.frontend --router-mode kv --http-port ${DYN_HTTP_PORT:-8000} &
for i in 0 1; do   # two workers for answers
  DYN_SYSTEM_PORT=$((8081 + i)) CUDA_VISIBLE_DEVICES=$i python3 -m dynamo.vllm \
    --model "$MODEL" --block-size 64 --enforce-eager --max-num-seqs 128 &
done
CUDA_VISIBLE_DEVICES=2,3 VLLM_NIXL_SIDE_CHANNEL_PORT=20097 python3 -m dynamo.vllm \
  --model "$MODEL" --block-size 64 --enforce-eager --is-prefill-worker \
  --tensor-parallel-size 2 --max-num-batched-tokens 32768 &
wait
