#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
CKPT=${1:-"out/a"}
TOKENIZER_ARG=${2:-"MOCK"}
DTYPE=${DTYPE:-"fp8"}
GPUS_PER_NODE=8
NUM_NODES=4
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP_SIZE=1
CP_SIZE=2
PP_SIZE=1
MODEL_ARGS=( --use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128
  --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 1000000
  --swiglu --untie-embeddings-and-output-weights --disable-bias-linear --attention-backend fused )
TRAINING_ARGS=( --micro-batch-size 1 --global-batch-size 128 --train-samples 1953125000
  --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc --empty-unused-memory-level 1 )
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
  DTYPE_ARGS+=( --fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather )
fi
MODEL_PARALLEL_ARGS=( --tensor-model-parallel-size $TP_SIZE --context-parallel-size $CP_SIZE --sequence-parallel )
DDP_ARGS=( --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather )
if [[ "$TOKENIZER_ARG" == "MOCK" ]]; then
  DATA=( --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 )
else
  DATA=( --data-path $3 --tokenizer-model $TOKENIZER_ARG )
fi
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]} \
  --bf16 ${DTYPE_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]} ${DDP_ARGS[@]} ${DATA[@]} --save $CKPT
