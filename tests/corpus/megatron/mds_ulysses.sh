#!/bin/bash
seq_len=32768
num_layers=64; hidden_size=6144; num_attn_heads=64
global_batch_size=32
batch_size=1
mp_size=1
sp_size=4
pp_size=1
no_pp="true"
zero_stage=3
train_tokens=$((300 * 1000 * 1000 * 1000))

megatron_options=" \
    --tensor-model-parallel-size ${mp_size} \
    --ds-sequence-parallel-size ${sp_size} \
    --micro-batch-size ${batch_size} \
    --global-batch-size ${global_batch_size} \
    --num-layers ${num_layers} --hidden-size ${hidden_size} --num-attention-heads ${num_attn_heads} \
    --seq-length ${seq_len} --max-position-embeddings ${seq_len} \
    --train-tokens ${train_tokens} \
    --split 949,50,1 --hysteresis 2 --num-workers 0 \
    --fp16 --use-flash-attn-v2 --checkpoint-activations"
deepspeed_options=" \
    --deepspeed --deepspeed_config mds_ulysses.json \
    --zero-stage ${zero_stage} --pipeline-model-parallel-size ${pp_size} \
    --deepspeed-activation-checkpointing"
if [[ "${no_pp}" = "true" ]]; then
deepspeed_options="${deepspeed_options} --no-pipeline-parallel"
fi
deepspeed --hostfile hosts --num_nodes 2 --num_gpus 8 pretrain_gpt.py ${megatron_options} ${deepspeed_options}
