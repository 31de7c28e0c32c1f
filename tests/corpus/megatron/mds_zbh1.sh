#!/bin/bash
NUM_GPUS=16
batch_size=1
global_batch_size=64
pp_size=8
zero_stage=0
# no recompute in this run
activation_checkpoint="false"
opts="--tensor-model-parallel-size 1 --micro-batch-size ${batch_size} --global-batch-size ${global_batch_size} \
 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
 --train-samples 300000000 --lr 2.0e-4 --fp16 --log-optimizer-states-to-tensorboard"
if [ "${activation_checkpoint}" = "true" ]; then
  opts="${opts} --checkpoint-activations"
fi
ds="--deepspeed --deepspeed_config mds_zbh1.json --zero-stage ${zero_stage} \
 --enable-zbh1-pipeline --enable-zbh1-exact-semantics --pipeline-model-parallel-size ${pp_size}"
deepspeed --num_nodes $((NUM_GPUS / 8)) --num_gpus 8 pretrain_gpt.py ${opts} ${ds}
