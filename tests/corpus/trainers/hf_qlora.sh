CUDA_VISIBLE_DEVICES=0 python qlora.py \
    --model_name_or_path huggyllama/llama-65b \
    --bits 4 --quant_type nf4 --double_quant --bf16 \
    --lora_r 64 --lora_alpha 16 --lora_modules all --full_finetune False \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --gradient_checkpointing True \
    --source_max_len 16 --target_max_len 512 --max_steps 1875 \
    --optim paged_adamw_32bit --eval_dataset_size 1024 --do_mmlu_eval
