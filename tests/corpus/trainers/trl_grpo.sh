#!/bin/bash
MODEL=Qwen/Qwen2.5-7B
CUDA_VISIBLE_DEVICES=6,7 trl vllm-serve --model $MODEL --tensor-parallel-size 2 --gpu-memory-utilization 0.9 &
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 accelerate launch --multi_gpu --num_processes 6 --mixed_precision bf16 \
  grpo.py --model_name_or_path $MODEL --config trl_grpo.yaml
wait
