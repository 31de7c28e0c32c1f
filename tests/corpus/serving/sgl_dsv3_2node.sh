#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --partition=h800
export NCCL_IB_GID_INDEX=3 SGLANG_ENABLE_JIT_DEEPGEMM=1
MASTER=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1)
srun bash -c 'python3 -m sglang.launch_server \
  --model-path deepseek-ai/DeepSeek-V3 --trust-remote-code \
  --tp-size 16 --nnodes $SLURM_NNODES --node-rank $SLURM_PROCID \
  --dist-init-addr '"$MASTER"':5000 \
  --mem-fraction-static 0.85 --max-running-requests 128 \
  --cuda-graph-max-bs 128 --watchdog-timeout 1000000 --host 0.0.0.0 --port 30000'
