#!/bin/bash
NNODES=${NNODES:-16}
NGPU=${NGPU:-8}
OVERRIDES=(
  --training.local_batch_size 1
  --training.global_batch_size $((NNODES * NGPU / 2))
  --training.seq_len 4096
  --parallelism.tensor_parallel_degree 8
  --parallelism.data_parallel_shard_degree "$((NNODES * NGPU / 8))"
  --parallelism.no_enable_sequence_parallel
  --activation_checkpoint.mode=full
  --optimizer.lr 6e-5
)
torchrun --nproc_per_node=$NGPU --nnodes=$NNODES --rdzv_backend=c10d --rdzv_endpoint=${MASTER_ADDR}:29400 \
  -m torchtitan.train --module llama3 --config llama3_405b "${OVERRIDES[@]}"
