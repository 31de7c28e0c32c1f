#!/bin/bash
N=${SLURM_NNODES:-2}
EP=4
torchrun --nnodes=$N --nproc-per-node=8 scripts/training/run_recipe.py \
    --recipe qwen3_30b_a3b_pretrain_config \
    model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=2 \
    model.virtual_pipeline_model_parallel_size=null \
    model.expert_model_parallel_size=$EP model.expert_tensor_parallel_size=1 \
    model.sequence_parallel=True model.seq_length=4096 dataset.sequence_length=4096 \
    model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=1 \
    model.moe_token_dispatcher_type=alltoall \
    train.micro_batch_size=1 train.global_batch_size=256 train.train_iters=100 \
    ddp.use_distributed_optimizer=true ddp.overlap_grad_reduce=true ddp.overlap_param_gather=true \
    comm_overlap.tp_comm_overlap=false \
    mixed_precision=bf16_with_mxfp8_mixed \
    scheduler.lr_warmup_iters=10 logger.log_interval=1
