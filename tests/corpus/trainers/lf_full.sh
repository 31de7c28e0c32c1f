#!/bin/bash
export FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=${1:-0} MASTER_PORT=29500
NPROC_PER_NODE=8 llamafactory-cli train lf_full.yaml
