#!/bin/bash
# 8x H20-96GB on one host
python3 -m sglang_router.launch_server \
  --model-path Qwen/Qwen2.5-72B-Instruct \
  --dp 4 --tp 2 \
  --context-length 32768 --mem-fraction-static 0.88 \
  --schedule-conservativeness 0.5 --schedule-policy lpm \
  --router-policy cache_aware --router-eviction-interval-secs 300 \
  --host 0.0.0.0 --port 6006
