#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --constraint=h100
#SBATCH --ntasks-per-node=1
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
srun --nodes=1 --ntasks=1 -w "$head" ray start --head --port=6379 --num-gpus=8 --block &
sleep 20
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
  ray start --address="$head:6379" --num-gpus=8 --block &
sleep 20
srun --overlap --nodes=1 --ntasks=1 -w "$head" vllm serve meta-llama/Llama-3.1-405B-Instruct \
  -tp 8 -pp 2 --distributed-executor-backend ray \
  --max-model-len 8192 --max-num-seqs 64 \
  --quantization fp8 --enable-chunked-prefill
