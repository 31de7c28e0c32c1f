#!/bin/bash
#SBATCH --job-name=serve-l33
#SBATCH --nodes=1
#SBATCH --gres=gpu:h100:4
#SBATCH --time=04:00:00
set -euo pipefail
export HF_HOME=${SCRATCH:-/tmp}/hf
export VLLM_LOGGING_LEVEL=INFO
PORT=${PORT:-8000}
# first try was with two cards, see the last option
srun --ntasks=1 vllm serve meta-llama/Llama-3.3-70B-Instruct \
    --port $PORT \
    --tensor_parallel_size 2 \
    --max_num_seqs=192 \
    --max-model-len 16k \
    --gpu_memory_utilization 0.92 \
    --max-num-batched-tokens 4096 \
    --disable-log-requests \
    --served-model-name llama-33 default \
    -tp 4
