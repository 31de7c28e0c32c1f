#!/bin/bash
export PROJECT=p ZONE=z CLUSTER=c
WORKLOAD="llama-405b-$(date +%m%d)"
LIBTPU_INIT_ARGS="--xla_tpu_enable_data_parallel_all_reduce_opt=true --xla_enable_async_all_gather=true"

python3 ~/xpk/xpk.py workload create --cluster ${CLUSTER} --workload ${WORKLOAD} \
  --tpu-type=v5p-256 --num-slices=2 --base-docker-image=maxtext_base_image --priority=high \
  --command "export LIBTPU_INIT_ARGS='${LIBTPU_INIT_ARGS}' && \
  python3 -m MaxText.train MaxText/configs/base.yml run_name=${WORKLOAD} model_name=llama3.1-405b \
  base_output_directory=${OUT} dataset_type=synthetic steps=20 \
  per_device_batch_size=1 max_target_length=8192 remat_policy=full attention=flash \
  dcn_data_parallelism=2 ici_fsdp_parallelism=-1 ici_tensor_parallelism=4 \
  sa_block_q=1024 gcs_metrics=True"
