accelerate launch --config_file acc_hybrid.yaml --num_machines 2 --num_processes 16 \
  --machine_rank "$RANK" --main_process_ip "$MASTER_ADDR" --main_process_port 6000 --rdzv_backend static \
  train.py --model_name_or_path meta-llama/Llama-2-13b-hf --max_seq_length 4096 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --num_train_epochs 1 --use_flash_attn True
