#!/bin/bash
#SBATCH -N 1 --gres=gpu:a100:4 -C a100_80gb
module load cuda/12.4
export VLLM_ATTENTION_BACKEND=FLASHINFER
uvx --from vllm==0.10.1 vllm serve meta-llama/Llama-3.1-8B-Instruct \
  -dp 4 -tp 1 --dtype bfloat16 \
  --kv-cache-dtype=fp8_e5m2 --max-logprobs 5
