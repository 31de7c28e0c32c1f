xpk workload create --cluster=v5p-c --tpu-type=v5p-64 --num-slices=1 --workload=mix \
 --command="python3 -m MaxText.train MaxText/configs/base.yml model_name=mixtral-8x7b ici_fsdp_parallelism=16 ici_tensor_parallelism=4 ici_expert_parallelism=1 per_device_batch_size=4 max_target_length=4096"
