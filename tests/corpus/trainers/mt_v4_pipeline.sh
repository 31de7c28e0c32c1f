#!/bin/bash
# one slice, circular pipeline
gcloud alpha compute tpus queued-resources create gpt3-qr --node-id=gpt3 \
  --accelerator-type=v4-512 --runtime-version=tpu-ubuntu2204-base --zone=${ZONE}

STAGES=8
python3 multihost_runner.py --TPU_PREFIX=gpt3 --COMMAND="bash setup.sh && \
  python3 MaxText/train.py MaxText/configs/base.yml model_name=gpt3-175b run_name=pp_${STAGES} \
  ici_pipeline_parallelism=${STAGES} ici_fsdp_parallelism=-1 dcn_data_parallelism=1 \
  num_layers_per_pipeline_stage=3 num_pipeline_microbatches=$((STAGES * 2)) \
  per_device_batch_size=4 max_target_length=2048 remat_policy=full scan_layers=False \
  enable_checkpointing=false dataset_type=synthetic"
