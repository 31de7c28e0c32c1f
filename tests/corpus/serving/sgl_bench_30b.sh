#!/bin/bash
MODEL="Qwen/Qwen3-30B-A3B"
IN=3000 OUT=1000
python3 -m sglang.launch_server --model-path "$MODEL" --tp 2 --ep 2 --quantization fp8 \
  --attention-backend fa3 --chunked-prefill-size 4096 --enable-mixed-chunk \
  --mem-fraction-static 0.8 --disable-radix-cache --port 30000 &
SERVER=$!
sleep 180
python3 -m sglang.bench_serving --backend sglang --port 30000 --dataset-name random \
  --random-input $IN --random-output $OUT --random-range-ratio 0.5 \
  --num-prompts 1024 --max-concurrency 128 --request-rate inf --output-file bench.jsonl
kill $SERVER
