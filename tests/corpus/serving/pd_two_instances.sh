#!/bin/bash
# one node with 8 A100-80GB: four cards for prompts, four for answers
MODEL=Qwen/Qwen2.5-32B-Instruct
COMMON="--tensor-parallel-size 2 --max-model-len 20000 --gpu-memory-utilization 0.9 --enforce-eager"
KV='"kv_connector":"NixlConnector","kv_load_failure_policy":"fail"'
CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_NIXL_SIDE_CHANNEL_PORT=5600 \
  vllm serve $MODEL --port 8100 $COMMON -dp 2 --max-num-seqs 16 --max-num-batched-tokens 16384 \
  --kv-transfer-config "{$KV,\"kv_role\":\"kv_producer\"}" &
CUDA_VISIBLE_DEVICES=4,5,6,7 VLLM_NIXL_SIDE_CHANNEL_PORT=5601 \
  vllm serve $MODEL --port 8200 ${COMMON/size 2/size 4} --max-num-seqs 256 --max-num-batched-tokens 2048 \
  --kv-transfer-config "{$KV,\"kv_role\":\"kv_consumer\"}" &
python3 proxy_server.py --port 8000 --prefiller-ports 8100 --decoder-ports 8200
