python3 -m sglang.launch_server \
  --model-path Qwen/Qwen3-32B \
  --tensor-parallel-size 2 \
  --enable-hierarchical-cache --hicache-size 100 --hicache-ratio 2 \
  --hicache-write-policy write_through --hicache-io-backend kernel \
  --chunked-prefill-size 6144 --max-running-requests 160 \
  --kv-cache-dtype fp8_e4m3 --mem-fraction-static 0.86 \
  --json-model-override-args '{"rope_scaling":{"rope_type":"yarn","factor":2.0,"original_max_position_embeddings":32768}}'
