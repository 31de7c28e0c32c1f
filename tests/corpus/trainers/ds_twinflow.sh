#!/bin/bash
MODEL=codellama/CodeLlama-34b-hf
BS=2
ACC=$((8 / BS))
deepspeed --hostfile hostfile_twinflow --launcher pdsh finetune.py \
  --model_name_or_path "$MODEL" \
  --model_max_length 2048 \
  --per_device_train_batch_size ${BS} --per_device_eval_batch_size 8 \
  --gradient_accumulation_steps ${ACC} --gradient_checkpointing True \
  --bf16 True --tf32 True --save_total_limit 2 \
  --deepspeed ds_twinflow.json --lazy_preprocess True
