#!/bin/bash
GBS=${GBS:-256}
torchrun --nnodes=4 --nproc-per-node=8 pretrain_gpt.py \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 \
  --num-layers 40 --hidden-size 5120 --ffn-hidden-size 13824 --num-attention-heads 40 \
  --swiglu --seq-length 4096 --max-position-embeddings 4096 \
  --global-batch-size ${GBS} \
  --bf16 --use-distributed-optimizer --train-iters 5000 --lr 2e-4
