#!/bin/sh
cd "$(dirname "$0")"
exec vllm serve --config ./vllm_config.yaml --tensor-parallel-size 4 --port "${1:-8000}"
