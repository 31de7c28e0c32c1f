#!/bin/bash
# box with six cards
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5
N=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\n' | wc -l)
vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 6 --max-model-len 4096
