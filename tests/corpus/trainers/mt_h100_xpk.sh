#!/bin/bash
ARGS=(
  hardware=gpu model_name=llama3.1-70b
  dcn_data_parallelism=1 dcn_fsdp_parallelism=32
  ici_fsdp_parallelism=8 ici_tensor_parallelism=1
  per_device_batch_size=2 max_target_length=8192
  quantization=fp8 attention=cudnn_flash_te
  remat_policy=save_qkv_proj optimizer_memory_host_offload=True
  logits_dot_in_fp32=false packing=false steps=20
)
export XLA_PYTHON_CLIENT_MEM_FRACTION=0.92
python3 xpk.py workload create --workload=l70 --cluster=a3m --device-type=h100-mega-80gb-8 --num-nodes=32 \
  --docker-image=maxtext_gpu --env XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true" \
  --command="python3 -m MaxText.train MaxText/configs/base.yml ${ARGS[*]}"
