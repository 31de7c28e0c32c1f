#!/usr/bin/env bash
set -euo pipefail
cat > /tmp/qwen3_32b.toml <<'EOF'
[model]
name = "qwen3"
flavor = "32B"

[training]
local_batch_size = 1
global_batch_size = 16
seq_len = 32768
steps = 500

[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
context_parallel_degree = 2
context_parallel_rotate_method = "alltoall"

[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
EOF
GPUS=8
torchrun --nnodes=4 --nproc-per-node=$GPUS --node-rank=${RANK:?} --local-ranks-filter 0 --role rank --tee 3 \
  -m torchtitan.train --job.config-file /tmp/qwen3_32b.toml --metrics.enable_wandb --comm.train_timeout_seconds 600
