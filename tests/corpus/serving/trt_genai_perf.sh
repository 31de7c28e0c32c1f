#!/bin/bash
#SBATCH --gpus=h200:2
M=mistralai/Mistral-Large-Instruct-2407
NAME=mistral-large
echo "kv_cache_config: {free_gpu_memory_fraction: 0.85, dtype: fp8}" > /tmp/o.yaml
trtllm-serve serve $M --tp_size 2 --max_batch_size 128 --max_num_tokens 4096 \
  --max_seq_len 8192 --extra_llm_api_options /tmp/o.yaml --log_level warning &
sleep 300
for CONCURRENCY in 50; do
genai-perf profile -m $M --tokenizer $M --endpoint-type chat --streaming -u localhost:8000 \
  --synthetic-input-tokens-mean 3000 --synthetic-input-tokens-stddev 300 \
  --output-tokens-mean 150 --output-tokens-stddev 0 \
  --extra-inputs min_tokens:150 --extra-inputs ignore_eos:true \
  --concurrency $CONCURRENCY --request-count $((CONCURRENCY * 10)) --random-seed 100 \
  -- -v --max-threads 256
done
