docker run --rm --device /dev/dri --device /dev/kfd --network host --ipc host --group-add video \
  --cap-add SYS_PTRACE --security-opt seccomp=unconfined --privileged --shm-size 128G \
  -v $PWD:/workspace/Primus -w /workspace/Primus \
  -e HF_TOKEN -e NNODES=1 -e GPUS_PER_NODE=8 -e GPU_MAX_HW_QUEUES=2 \
  -e EXP=examples/torchtitan/configs/MI300X/primus_titan_moe.yaml \
  rocm/primus:v25.10 \
  bash examples/run_pretrain.sh --training.local_batch_size 4 --parallelism.expert_parallel_degree 8 --metrics.enable_tensorboard false
