#!/bin/bash
trtllm-serve Qwen/Qwen3-235B-A22B-FP8 \
  --host 0.0.0.0 --port 8000 --backend pytorch \
  --tensor_parallel_size 4 --max_batch_size 256 --max_num_tokens 4096 \
  --kv_cache_free_gpu_memory_fraction 0.9 \
  --num_postprocess_workers 4 \
  --config ./trt_override.yaml
