#!/bin/bash
set -ex
DS_CONFIG=./out/deepspeed.json
TP=4
PP=2
ZERO_STAGE=1
NNODES=4
GPUS_PER_NODE=8
MICRO=2
GLOBAL=256
SEQ=4096
activation_checkpoint="true"

cat <<EOT > $DS_CONFIG
{
  "train_batch_size" : $GLOBAL,
  "train_micro_batch_size_per_gpu": $MICRO,
  "steps_per_print": 1,
  "zero_optimization": { "stage": $ZERO_STAGE },
  "bf16": { "enabled": true },
  "data_types": { "grad_accum_dtype": "fp32" }
}
EOT

ds_args=" --deepspeed --deepspeed_config=$DS_CONFIG --zero-stage=$ZERO_STAGE"
if [ "${activation_checkpoint}" = "true" ]; then
  ds_args="--deepspeed-activation-checkpointing --recompute-granularity full --recompute-method uniform ${ds_args}"
fi
deepspeed --num_nodes $NNODES --num_gpus $GPUS_PER_NODE pretrain_gpt.py \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --num-key-value-heads 8 \
  --micro-batch-size $MICRO --global-batch-size $GLOBAL --seq-length $SEQ --max-position-embeddings $SEQ \
  --use-rotary-position-embeddings --untie-embeddings-and-output-weights --swiglu --normalization rmsnorm \
  --disable-bias-linear --no-query-key-layer-scaling --attention-dropout 0 --hidden-dropout 0 \
  --tokenizer-type GPTSentencePieceTokenizer --data-impl mmap --train-iters 250000 --bf16 $ds_args
