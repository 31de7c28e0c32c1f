#!/bin/bash
GPUS_PER_NODE=8
TP=$((GPUS_PER_NODE / 2))
DP=$((GPUS_PER_NODE / TP))
EXTRA=""
[[ "${ASYNC:-1}" == 1 ]] && EXTRA="--async-scheduling"
ARGS=(
  --tensor-parallel-size "$TP"
  --data-parallel-size "$DP"
  --enable-expert-parallel          # experts over all eight
  --all2all-backend allgather_reducescatter
  --max-num-batched-tokens $((4 * 1024))
  --max-num-seqs 512
  --no-enable-prefix-caching
  --gpu-memory-utilization 0.9
  --load-format runai_streamer
)
vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507 "${ARGS[@]}" $EXTRA
