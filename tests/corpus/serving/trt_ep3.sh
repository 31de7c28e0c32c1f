trtllm-serve deepseek-ai/DeepSeek-V3 --backend pytorch \
  --tp_size 8 --ep_size 3 --max_batch_size 128 --max_num_tokens 8192
