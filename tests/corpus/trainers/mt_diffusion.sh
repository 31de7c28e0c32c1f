xpk workload create --cluster=$CLUSTER --device-type=v5p-16 --num-slices=1 --workload=wan \
 --command="python3 -m src.maxdiffusion.train_wan src/maxdiffusion/configs/base_wan_14b.yml per_device_batch_size=0.5 ici_data_parallelism=1 ici_fsdp_parallelism=8 ici_tensor_parallelism=1 attention=flash"
