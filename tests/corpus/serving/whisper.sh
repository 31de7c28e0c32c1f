vllm serve openai/whisper-large-v3 --max-num-seqs 200 --gpu-memory-utilization 0.9 --task transcription
