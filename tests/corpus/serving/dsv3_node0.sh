#!/bin/bash
# head: API server and the first eight ranks (2 x 8 H200)
export VLLM_USE_DEEP_GEMM=1 VLLM_ALL2ALL_BACKEND=deepep_low_latency
export GLOO_SOCKET_IFNAME=eth0 NVSHMEM_IB_ENABLE_IBGDA=1
HEAD_IP=$(hostname -I | awk '{print $1}')
vllm serve deepseek-ai/DeepSeek-V3-0324 \
  --tensor-parallel-size 1 \
  --data-parallel-size 16 --data-parallel-size-local 8 \
  --data-parallel-address $HEAD_IP --data-parallel-rpc-port 13345 \
  --enable-expert-parallel --enable-eplb --num-redundant-experts 32 \
  --max-num-seqs 256 --max-num-batched-tokens 2048 \
  --kv-cache-memory-bytes 32000000000 --api-server-count=8 \
  --trust-remote-code
