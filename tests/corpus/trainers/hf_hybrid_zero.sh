#!/bin/bash
# elastic: any number of nodes
RUN=(python -m torch.distributed.run --nnodes="${NNODES:?}" --nproc-per-node=gpu --node-rank="$NODE_RANK")
BATCH=1; BATCH=2
"${RUN[@]}" train.py \
  --model_name_or_path bigscience/bloom --fp16 True \
  --per_device_train_batch_size=$BATCH --gradient_accumulation_steps=64 \
  --fsdp "shard_grad_op auto_wrap" --fsdp_config '{"backward_prefetch": "backward_pre", "activation_checkpointing": true}' \
  --model_max_length 2048 --logging_steps 1 --ddp_timeout 18000 --dataloader_num_workers 4
