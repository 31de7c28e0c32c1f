#!/bin/bash
# role by the first argument; prompts on one H200 node, answers on two
MODEL_PATH=deepseek-ai/DeepSeek-V3-0324
COMMON=(--model-path "$MODEL_PATH" --trust-remote-code --disaggregation-transfer-backend mooncake
        --disaggregation-ib-device mlx5_0,mlx5_1 --host 0.0.0.0 --mem-fraction-static 0.85)
case "$1" in
prefill)
  python -m sglang.launch_server "${COMMON[@]}" --disaggregation-mode prefill \
    --tp-size 8 --ep-size 8 --chunked-prefill-size 16384 --max-running-requests 64 --port 30000 ;;
decode)
  python -m sglang.launch_server "${COMMON[@]}" --disaggregation-mode decode \
    --tp-size 16 --dp-size 16 --enable-dp-attention --moe-a2a-backend deepep --deepep-mode low_latency \
    --max-running-requests 2048 --cuda-graph-max-bs 128 --nnodes 2 --node-rank "$2" \
    --dist-init-addr "${DECODE_HEAD}:50000" --port 30001 ;;
*)
  python -m sglang_router.launch_router --pd-disaggregation \
    --prefill "http://${PREFILL_HEAD}:30000" --decode "http://${DECODE_HEAD}:30001" --port 8000 ;;
esac
