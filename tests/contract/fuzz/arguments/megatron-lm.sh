#!/bin/bash
DISTRIBUTED_ARGS=( --nproc_per_node 8 --nnodes 64 )
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --group-query-attention
    --num-query-groups 8
    --seq-length 2048
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    --micro-batch-size 1 --global-batch-size 1536 --fp16 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 3 \
    --recompute-granularity selective --recompute-modules core_attn --use-distributed-optimizer --overlap-grad-reduce
