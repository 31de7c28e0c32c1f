#!/bin/bash
# CUDA_DEVICE_MAX_CONNECTIONS is left unset on purpose
unset CUDA_DEVICE_MAX_CONNECTIONS
ARGS=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --swiglu --untie-embeddings-and-output-weights
  --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope
  --micro-batch-size 1 --global-batch-size 64 --bf16
  --pipeline-model-parallel-size 2
  --use-torch-fsdp2 --no-gradient-accumulation-fusion --ckpt-format torch_dist
)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "${ARGS[@]}" --train-iters 10 --mock-data
