export RUN_NAME="${MODEL}-bench"
export GB200_CLUSTER=1
export NVLINK_DOMAIN_SIZE=72
export MODEL=${MODEL:-Qwen3-235B-A22B}
export MBS=${MBS:-2}
export SEQ_LEN=${SEQ_LEN:-4096}
export PROFILE=0

# bf16
NCCL_GRAPH_REGISTER=0 DISPATCHER=hybridep SEGMENT=4 PR=bf16 A2A_OVERLAP=0 TP=1 PP=8 VPP=1 EP=16 NNODES=32 MBS=1 GBS=4096 bash ./sbatch_benchmarking.sh --moe-router-force-load-balancing --cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router
