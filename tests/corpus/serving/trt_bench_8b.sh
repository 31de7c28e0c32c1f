#!/bin/bash
# one H100
model=nvidia/Llama-3.1-8B-Instruct-FP8
isl=1000 osl=1000 n=1500
python benchmarks/cpp/prepare_dataset.py --tokenizer=$model --stdout token-norm-dist \
  --num-requests=$n --input-mean=$isl --output-mean=$osl --input-stdev=0 --output-stdev=0 > /tmp/data.txt
cat > llm_options.yml <<'EOF'
cuda_graph_config:
  enable_padding: true
  batch_sizes: [1, 2, 4, 8, 16, 32, 64, 128, 256, 384]
kv_cache_config:
  dtype: "fp8"
EOF
trtllm-bench --model $model throughput \
  --dataset /tmp/data.txt --backend pytorch \
  --max_batch_size 384 --max_num_tokens 2048 \
  --kv_cache_free_gpu_mem_fraction 0.95 --concurrency 128 --warmup 0 \
  --extra_llm_api_options llm_options.yml --streaming --report_json out.json
