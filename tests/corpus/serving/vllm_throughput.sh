#!/bin/bash
#SBATCH --gres=gpu:h100:1
# offline: no server
export VLLM_USE_V1=1
pip install vllm==0.10.1
IN=2048; OUT=256
vllm bench throughput --model Qwen/Qwen2.5-14B-Instruct \
  --dataset-name random --input-len $IN --output-len $OUT --num-prompts 2000 \
  --tensor-parallel-size 1 --max-model-len $((IN + OUT + 16)) --output-json /tmp/t.json
