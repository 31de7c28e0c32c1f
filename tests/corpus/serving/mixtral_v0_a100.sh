#!/usr/bin/env bash
# 2 x A100 80GB, old engine
export VLLM_USE_V1=0
export CUDA_VISIBLE_DEVICES=0,1
export NCCL_P2P_LEVEL=NVL
pip install -q "vllm==0.7.3"
python -m vllm.entrypoints.openai.api_server \
  --model=mistralai/Mixtral-8x7B-Instruct-v0.1 \
  --host 0.0.0.0 --port 8080 \
  --dtype float16 \
  --tensor-parallel-size "2" \
  --max-model-len 16384 \
  --num-scheduler-steps 8 \
  --swap-space 16 \
  --seed 1234 \
  --api-key "$API_KEY" 2>&1 | tee server.log
