docker run --gpus 2 --ipc host \
  -e VLLM_USE_FLASHINFER_MOE_FP4=0 -e VLLM_ATTENTION_BACKEND=FLASHINFER \
  --entrypoint bash vllm/vllm-openai:v0.11.0 -lc "
    nvidia-smi --query-gpu=name --format=csv | grep -q B200 || exit 1
    vllm serve nvidia/Llama-3.3-70B-Instruct-FP4 \
      --quantization modelopt_fp4 \
      --tensor-parallel-size 2 --kv-cache-dtype fp8 \
      --max-num-batched-tokens 8192 --max-num-seqs 512 \
      --compilation-config '{\"pass_config\": {\"enable_fi_allreduce_fusion\": true, \"enable_noop\": true}}'"
