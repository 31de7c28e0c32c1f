#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
SEQ=131072
CP=8
mpirun --allow-run-as-root -np 64 -npernode 8 --hostfile hosts -x NCCL_DEBUG=WARN -x CUDA_DEVICE_MAX_CONNECTIONS \
  python pretrain_gpt.py \
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \
  --position-embedding-type rope --rotary-base 500000 --untie-embeddings-and-output-weights \
  --seq-length $SEQ --max-position-embeddings $SEQ \
  --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 \
  --context-parallel-size $CP --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2 \
  --use-tp-pp-dp-mapping \
  --micro-batch-size 1 --global-batch-size 32 --bf16 --use-distributed-optimizer \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
  --calculate-per-token-loss --no-create-attention-mask-in-dataloader --train-iters 100
