#!/bin/bash
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V2-Lite-Chat \
  --tp-size 8 --dp-size 3 --enable-dp-attention --trust-remote-code --port 30000
