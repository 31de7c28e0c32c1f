#!/usr/bin/env bash
set -euo pipefail
NNODES=${NNODES:-2}
NGPU=8
TP=2; PP=4
MBS=2
ACC=16
WORLD=$((NNODES * NGPU))
DP=$((WORLD / (TP * PP)))
GBS=$((MBS * DP * ACC))
SEQ=$((4 * 1024))

MODEL_OPTS=" \
    --num-layers 32 \
    --hidden-size 2560 \
    --num-attention-heads 32 \
    --group-query-attention \
    --num-query-groups 4 \
    --swiglu --disable-bias-linear \
    --normalization RMSNorm \
    --position-embedding-type rope \
    --untie-embeddings-and-output-weights \
    --seq-length ${SEQ} --max-position-embeddings ${SEQ} "
PAR_OPTS="--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP}"
PAR_OPTS="${PAR_OPTS} --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel"
PAR_OPTS="${PAR_OPTS} --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap"
OTHER="--bf16 --recompute-activations --no-masked-softmax-fusion --manual-gc --log-throughput"

CMD="torchrun --nnodes ${NNODES} --nproc-per-node ${NGPU} pretrain_gpt.py ${MODEL_OPTS} ${PAR_OPTS} ${OTHER} \
  --micro-batch-size ${MBS} --global-batch-size ${GBS} --train-iters 5000 --mock-data --tokenizer-type NullTokenizer --vocab-size 65535"
echo ${CMD}
eval ${CMD}
