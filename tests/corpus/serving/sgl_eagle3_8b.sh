# single H100
python -m sglang.launch_server --model meta-llama/Meta-Llama-3.1-8B-Instruct \
  --speculative-algorithm EAGLE3 --speculative-draft-model-path drafts/EAGLE3-LLaMA3.1-8B \
  --speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 \
  --chunked-prefill-size -1 --max-prefill-tokens 16384 \
  --mem-fraction 0.7 --dtype float16 --cuda-graph-max-bs 32 --max-running-requests 32 \
  --tool-call-parser llama3
