#!/bin/bash
#SBATCH --job-name=titan-405b
#SBATCH --nodes=16
#SBATCH --ntasks=16
#SBATCH --gres=gpu:h100:8
#SBATCH --cpus-per-task=96

nodes=( $(scontrol show hostnames "$SLURM_JOB_NODELIST") )
head=${nodes[0]}
export NCCL_IB_HCA=mlx5 FI_PROVIDER=efa
export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
CONFIG_FILE=${CONFIG_FILE:-"./tt_405b.toml"}

dcgmi profile --pause
srun torchrun --nnodes ${SLURM_NNODES} --nproc_per_node 8 --rdzv_id 101 \
  --rdzv_backend c10d --rdzv_endpoint "$head:29500" \
  -m torchtitan.train --job.config_file ${CONFIG_FILE} \
  --parallelism.tensor_parallel_degree 8 --training.local_batch_size=2 "$@"
