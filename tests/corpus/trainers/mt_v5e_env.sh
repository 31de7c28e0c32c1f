#!/bin/bash
echo "gemma on v5e"
set -e
export EXECUTABLE="train.py"
for ARGUMENT in "$@"; do
  IFS='=' read -r KEY VALUE <<< "$ARGUMENT"
  export "$KEY"="$VALUE"
done
NUM_SLICES=${NUM_SLICES:-4}
CMD="export M_PER_DEVICE_BATCH_SIZE=2 M_ENABLE_CHECKPOINTING=false && python3 MaxText/$EXECUTABLE MaxText/configs/base.yml model_name=gemma2-27b quantization=int8 \
 ici_fsdp_parallelism=16 ici_tensor_parallelism=16 dcn_data_parallelism=-1 \
 use_iota_embed=true reuse_example_batch=1 profiler=xplane"
xpk workload create --workload gemma --cluster c5e --tpu-type=v5litepod-256 --num-slices $NUM_SLICES --command "$CMD"
