export WANDB_MODE=offline
deepspeed --num_gpus=8 examples/pytorch/summarization/run_summarization.py \
 --model_name_or_path google/flan-t5-xxl --source_prefix "summarize: " \
 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --gradient_checkpointing --fp16 --max_source_length 512 --max_target_length 64 \
 --deepspeed ds_infinity.json
