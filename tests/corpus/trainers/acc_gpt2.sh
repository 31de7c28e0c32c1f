#!/bin/bash
cat > acc.yaml <<EOF
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
gpu_ids: all
mixed_precision: 'no'
num_machines: 1
num_processes: 4
EOF
accelerate launch --config_file acc.yaml examples/pytorch/language-modeling/run_clm_no_trainer.py \
  --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 \
  --config_name openai-community/gpt2-xl --tokenizer_name openai-community/gpt2-xl \
  --block_size 1024 --seed 7
