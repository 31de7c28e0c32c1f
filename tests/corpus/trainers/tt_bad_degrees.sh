#!/bin/bash
export CONFIG=/tmp/d.toml
printf '[model]\nname="qwen3"\nflavor="14B"\n[training]\nlocal_batch_size=2\nseq_len=4096\n' > $CONFIG
mpirun -np 64 --hostfile hosts -x NCCL_DEBUG=WARN -npernode 8 \
  python -m torchtitan.train --job.config_file=$CONFIG \
  --parallelism.data_parallel_replicate_degree=2 --parallelism.data_parallel_shard_degree=8 \
  --parallelism.tensor_parallel_degree=4 --parallelism.pipeline_parallel_degree=2
