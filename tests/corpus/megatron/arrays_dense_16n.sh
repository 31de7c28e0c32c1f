#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
MASTER_ADDR=${MASTER_ADDR:-localhost}
NUM_NODES=16
NODE_RANK=${SLURM_NODEID:-0}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))

CHECKPOINT_PATH=$1
DATA_PATH=$2

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --node_rank $NODE_RANK
    --master_addr $MASTER_ADDR
)
NET=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto
)
TRAIN=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --train-samples 146484375
    --weight-decay 0.1
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5 --min-lr 6.0e-6
)
SPLIT=(
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 8
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${NET[@]} ${TRAIN[@]} ${SPLIT[@]} \
    --data-path $DATA_PATH --save $CHECKPOINT_PATH --save-interval 10000
