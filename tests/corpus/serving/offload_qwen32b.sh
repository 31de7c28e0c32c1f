#!/bin/bash
# weights do not fit beside the cache on these cards (4 x L40S)
vllm serve Qwen/Qwen3-32B \
    --tensor-parallel-size=4 \
    --cpu-offload-gb 4 \
    --kv-offloading-size 64 --kv-offloading-backend native \
    --kv-cache-dtype fp8 --calculate-kv-scales \
    --max-num-batched-tokens 2048 --max-num-seqs 96 \
    --hf-overrides '{"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}}' \
    --disable-custom-all-reduce
