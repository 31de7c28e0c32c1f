#!/bin/bash
# engines of 2024
TP=4 PP=2
python examples/llama/convert_checkpoint.py --model_dir ./Llama-2-70b-hf \
  --output_dir ./ckpt --dtype float16 --tp_size $TP --pp_size $PP \
  --use_weight_only --weight_only_precision int8 --int8_kv_cache
trtllm-build --checkpoint_dir ./ckpt --output_dir ./engine --workers 8 \
  --gemm_plugin float16 --gpt_attention_plugin float16 \
  --max_batch_size 64 --max_input_len 2048 --max_seq_len 2560 --max_num_tokens 8192 \
  --remove_input_padding enable --multiple_profiles enable
mpirun -n $((TP * PP)) --allow-run-as-root python examples/run.py \
  --engine_dir ./engine --tokenizer_dir ./Llama-2-70b-hf --max_output_len 512
