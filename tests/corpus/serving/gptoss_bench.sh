#!/bin/bash
#SBATCH --gres=gpu:mi300x:8
export VLLM_ROCM_USE_AITER=1
export HSA_NO_SCRATCH_RECLAIM=1
MODEL=openai/gpt-oss-120b
CONC=64; ISL=1024; OSL=512
vllm serve $MODEL --port 8888 --tensor-parallel-size=8 --gpu-memory-utilization 0.95 \
  --max-model-len $((ISL + OSL + 200)) --block-size=64 --no-enable-prefix-caching \
  --compilation-config '{"cudagraph_mode": "FULL_AND_PIECEWISE"}' \
  --max-num-seqs $CONC --disable-log-requests > server.log 2>&1 &
until curl -sf localhost:8888/health; do sleep 5; done
vllm bench serve --model $MODEL --port 8888 --dataset-name random \
  --random-input-len $ISL --random-output-len $OSL --random-range-ratio 0.2 \
  --ignore-eos --num-prompts $((CONC * 10)) --max-concurrency $CONC \
  --percentile-metrics ttft,tpot,itl,e2el --save-result
kill %1
