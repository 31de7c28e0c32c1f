vllm serve deepseek-ai/DeepSeek-V3 -tp 1 -dp=8 --enable-expert-parallel --max_num_seqs 256 \
    --gpu-memory-utilization 0.92 --kv-cache-dtype fp8 --max-num-batched-tokens 8192
