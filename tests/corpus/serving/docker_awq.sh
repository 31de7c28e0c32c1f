docker run -d --rm --name qwen-awq \
    --gpus '"device=2,3"' \
    --shm-size=16g --ipc=host -p 8001:8000 \
    -v "$HF_HOME:/hf-cache" \
    -e HUGGING_FACE_HUB_TOKEN \
    vllm/vllm-openai:v0.8.5.post1 \
    --model Qwen/Qwen2.5-72B-Instruct-AWQ \
    --quantization awq_marlin --dtype half \
    --tensor-parallel-size 2 \
    --kv-cache-dtype fp8_e5m2 \
    --max-num-seqs 64 --gpu-memory-utilization .95 \
    --enable-auto-tool-choice --tool-call-parser hermes
