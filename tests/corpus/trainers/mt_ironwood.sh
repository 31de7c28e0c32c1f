#!/bin/bash
export WORKLOAD_NAME="$(printf "%.26s" "${USER//_/-}-dsv3-4096")-$(date +%Y%m%d-%H%M)"
XLA_FLAGS=" \
  --xla_tpu_scoped_vmem_limit_kib=65536 \
  --xla_tpu_enable_sparse_core_collective_offload_all_gather=true "
MAXTEXT_ARGS="\
model_name=deepseek3-671b per_device_batch_size=4.0 max_target_length=4096 \
dcn_pipeline_parallelism=1 dcn_data_parallelism=-1 ici_pipeline_parallelism=1 \
ici_fsdp_transpose_parallelism=1 ici_fsdp_parallelism=-1 allow_split_physical_axes=True \
remat_policy=custom decoder_layer_input=offload opt_type=adamw mu_dtype=bfloat16 grad_dtype=bfloat16 \
use_random_routing=True megablox=True sparse_matmul=True sa_block_q=2048 attention=flash \
dataset_type=synthetic enable_checkpointing=False steps=30 run_name=${WORKLOAD_NAME}"

xpk workload create --cluster=$CLUSTER_NAME --priority=very-high --max-restarts=0 \
  --device-type=tpu7x-4x4x8 --num-slices=1 --docker-image="${WORKLOAD_IMAGE}" --workload="${WORKLOAD_NAME}" \
  --command="set -e && export LIBTPU_INIT_ARGS='${XLA_FLAGS}' && export JAX_PLATFORMS='tpu,cpu' && \
python3 -m MaxText.train MaxText/configs/base.yml ${MAXTEXT_ARGS}"
