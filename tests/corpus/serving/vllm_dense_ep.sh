vllm serve Qwen/Qwen2.5-7B-Instruct \
  --tensor-parallel-size 2 --enable-expert-parallel \
  --all2all-backend naive --max-num-seqs 128
