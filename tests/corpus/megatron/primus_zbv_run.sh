#!/bin/bash
export DOCKER_IMAGE="docker.io/rocm/primus:v25.9"
export CLEAN_DOCKER_CONTAINER=1
export NNODES=4
export GPUS_PER_NODE=8
export PRIMUS_PP=2
export NCCL_IB_HCA=rdma0,rdma1
export HSA_NO_SCRATCH_RECLAIM=1
MBS=4
GBS=$((MBS * 16 * 8))
FEATURES=(--patch_zero_bubble True --zero_bubble_v_schedule True --zero_bubble_v_schedule_mem_setup zb)
FEATURES+=(--no_persist_layer_norm True)
export EXP="examples/megatron/configs/MI355X/primus_zbv.yaml"
bash ./examples/run_slurm_pretrain.sh \
    --micro_batch_size "$MBS" --global_batch_size "$GBS" \
    "${FEATURES[@]}" --train_iters 5 2>&1 | tee log.txt
