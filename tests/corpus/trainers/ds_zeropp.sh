#!/bin/bash
OUT=./out
deepspeed --num_nodes 4 --num_gpus 8 --hostfile=/job/hostfile --master_port 29600 \
  run_clm.py \
  --model_name_or_path mistralai/Mistral-7B-v0.1 \
  --train_file data.jsonl --block_size 4096 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 4 \
  --gradient_checkpointing true --bf16 \
  --learning_rate 2e-5 --lr_scheduler_type cosine --warmup_ratio 0.03 \
  --deepspeed ds_zeropp.json --output_dir $OUT 2>&1 | tee $OUT/log
