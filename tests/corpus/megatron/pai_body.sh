#!/bin/bash
BATCH_SIZE=$1
GLOBAL_BATCH_SIZE=$2
SEQ_LEN=$3
PR=$4
TP=$5
PP=$6
CP=$7
ETP=$8
EP=$9
SP=${10}
DO=${11}
AC=${12}
if [ $AC = full ]; then
    ac_options=" --recompute-method uniform --recompute-num-layers ${MP_AC_LAYERS:-1} --recompute-granularity full"
elif [ $AC = sel ]; then
    ac_options=" --recompute-activations"
fi
[ $PR = bf16 ] && pr_options=" --bf16"
if [ $PR = fp8 ]; then pr_options=" --bf16 --fp8-format hybrid --fp8-recipe blockwise"; fi
if [ $DO = true ]; then do_option=" --use-distributed-optimizer"; fi
if [ $SP = true ] && [ $TP -gt 1 ]; then sp_option=" --sequence-parallel"; fi
moe_options=" --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-token-dispatcher-type alltoall --moe-grouped-gemm \
   --expert-tensor-parallel-size ${ETP} --expert-model-parallel-size ${EP} "
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_qwen.py \
   --num-layers 48 --hidden-size 2048 --num-attention-heads 32 --ffn-hidden-size 6144 --kv-channels 128 \
   --group-query-attention --num-query-groups 4 --swiglu --untie-embeddings-and-output-weights \
   --micro-batch-size ${BATCH_SIZE} --global-batch-size ${GLOBAL_BATCH_SIZE} \
   --seq-length ${SEQ_LEN} --max-padding-length ${SEQ_LEN} --max-position-embeddings 40960 \
   --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --context-parallel-size ${CP} \
   --patch-tokenizer-type Qwen3Tokenizer --extra-vocab-size 293 \
   ${pr_options} ${ac_options} ${do_option} ${sp_option} ${moe_options}
