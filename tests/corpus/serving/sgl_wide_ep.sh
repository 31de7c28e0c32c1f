#!/bin/bash
# 4 nodes of 8 x H100, the same line on each with its RANK
NNODES=4
GPUS=$((NNODES * 8))
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1-0528 \
  --tp $GPUS --dp-size $GPUS --enable-dp-attention --enable-dp-lm-head \
  --moe-a2a-backend deepep --deepep-mode auto --moe-dense-tp-size 1 \
  --ep-num-redundant-experts 32 --eplb-algorithm deepseek --enable-eplb \
  --chunked-prefill-size 262144 --max-running-requests 8192 \
  --mem-fraction-static 0.82 --kv-cache-dtype auto --page-size 1 \
  --disable-radix-cache --decode-log-interval 1 \
  --nnodes $NNODES --node-rank ${RANK:?} --dist-init-addr ${MASTER_ADDR}:5757
