#!/usr/bin/env bash
# runner: b200-8gpu
MODEL=${MODEL:-deepseek-ai/DeepSeek-R1-0528}
TP=8 EP_SIZE=1 CONC=64 ISL=1024 OSL=1024 RANDOM_RANGE_RATIO=1
if [[ $TP -ne 8 ]]; then echo "only TP=8"; exit 1; fi
if [[ $CONC -ge 16 ]]; then RECV=30; else RECV=10; fi
MAX_RUNNING_REQUESTS=256
MEM_FRAC_STATIC=0.82
CHUNKED_PREFILL_SIZE=32768
NUM_STEPS=2
PYTHONNOUSERSITE=1 python3 -m sglang.launch_server --model-path=$MODEL --port=8888 \
--tensor-parallel-size=$TP --data-parallel-size=1 --ep-size $EP_SIZE \
--cuda-graph-max-bs $MAX_RUNNING_REQUESTS --max-running-requests $MAX_RUNNING_REQUESTS \
--mem-fraction-static $MEM_FRAC_STATIC --kv-cache-dtype fp8_e4m3 \
--chunked-prefill-size $CHUNKED_PREFILL_SIZE --max-prefill-tokens $CHUNKED_PREFILL_SIZE \
--scheduler-recv-interval $RECV --disable-radix-cache --attention-backend trtllm_mla \
--moe-runner-backend flashinfer_trtllm --quantization fp8 --speculative-algorithm EAGLE \
--speculative-num-steps $NUM_STEPS --speculative-num-draft-tokens $((NUM_STEPS + 1)) --speculative-eagle-topk 1 &
python3 bench/benchmark_serving.py --model "$MODEL" --port 8888 --backend vllm --dataset-name random \
  --random-input-len "$ISL" --random-output-len "$OSL" --random-range-ratio "$RANDOM_RANGE_RATIO" \
  --num-prompts "$((CONC * 10))" --max-concurrency "$CONC" --ignore-eos
