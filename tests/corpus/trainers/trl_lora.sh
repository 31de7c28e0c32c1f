accelerate launch --config_file=trl_zero3.yaml \
  trl/scripts/sft.py \
  --model_name_or_path Qwen/Qwen2.5-14B --dataset_name trl-lib/Capybara \
  --max_length 4096 --packing \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --gradient_checkpointing \
  --use_peft --lora_r 32 --lora_alpha 16 --lora_target_modules q_proj k_proj v_proj o_proj \
  --learning_rate 2e-4 --eval_strategy steps --bf16
