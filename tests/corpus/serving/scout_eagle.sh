#!/bin/bash
# 8x H100
MODEL=meta-llama/Llama-4-Scout-17B-16E-Instruct
SPEC='{"method": "eagle3", "model": "drafts/scout-eagle3", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}'
VLLM_DISABLE_COMPILE_CACHE=1 vllm serve "$MODEL" \
  --tensor-parallel-size 8 \
  --max-model-len 131072 \
  --hf-overrides '{"attn_temperature_tuning": true}' \
  --limit-mm-per-prompt '{"image": 4}' \
  --override-generation-config='{"temperature": 0.6}' \
  --speculative-config "$SPEC" \
  --max-num-batched-tokens 8192 \
  --max-num-seqs 128
