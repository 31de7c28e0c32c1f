#!/bin/bash
export GPU_MAX_HW_QUEUES=${GPU_MAX_HW_QUEUES:-2}
GPUS_PER_NODE=8
NNODES="${NNODES:-1}"
MODEL_SIZE="${MODEL_SIZE:-8}"
TP="${TP:-1}"; PP="${PP:-1}"; CP="${CP:-1}"
MBS="${MBS:-2}"; BS="${BS:-8}"
SEQ_LENGTH="${SEQ_LENGTH:-2048}"
FSDP="${FSDP:-0}"; RECOMPUTE="${RECOMPUTE:-0}"; SEQ_PARALLEL="${SEQ_PARALLEL:-1}"; TE_FP8="${TE_FP8:-1}"
if [[ $MODEL_SIZE -eq 8 ]]; then
  HIDDEN_SIZE=4096; FFN=14336; NUM_LAYERS=32; NUM_HEADS=32
elif [[ $MODEL_SIZE -eq 70 ]]; then
  HIDDEN_SIZE=8192; FFN=28672; NUM_LAYERS=80; NUM_HEADS=64
fi
GPT_ARGS=" --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --context-parallel-size ${CP} \
 --num-layers $NUM_LAYERS --hidden-size $HIDDEN_SIZE --ffn-hidden-size $FFN --num-attention-heads $NUM_HEADS \
 --group-query-attention --num-query-groups 8 --seq-length $SEQ_LENGTH --max-position-embeddings 131072 \
 --swiglu --untie-embeddings-and-output-weights --position-embedding-type rope --no-masked-softmax-fusion \
 --micro-batch-size $MBS --global-batch-size $BS --bf16 "
if [ "$RECOMPUTE" -eq 1 ]; then
  GPT_ARGS="$GPT_ARGS --recompute-num-layers $NUM_LAYERS --recompute-granularity full --recompute-method block"
fi
EXTRA_ARGS=" --no-gradient-accumulation-fusion --overlap-grad-reduce "
if [ "$FSDP" -eq 1 ]; then
  EXTRA_ARGS="$EXTRA_ARGS --use-torch-fsdp2"; SEQ_PARALLEL=0
else
  EXTRA_ARGS="$EXTRA_ARGS --use-distributed-optimizer --overlap-param-gather"
fi
if [ "$SEQ_PARALLEL" -eq 1 ]; then EXTRA_ARGS="$EXTRA_ARGS --sequence-parallel"; fi
if [ "$TE_FP8" -eq 1 ]; then EXTRA_ARGS="$EXTRA_ARGS --fp8-format=hybrid --fp8-margin=0"; fi
run_cmd="torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py $GPT_ARGS $EXTRA_ARGS --mock-data |& tee log"
eval $run_cmd
