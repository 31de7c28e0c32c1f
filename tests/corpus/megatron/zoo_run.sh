export MODEL=DeepSeek-V3
export COMMENT=try
export RUN_TIME=00:40:00
export SEQ_LEN=${SEQ_LEN:-4096}

# earlier attempt
# TP=1 PP=16 VPP=2 EP=16 NNODES=64 MBS=1 GBS=8192 bash ./sbatch_benchmarking.sh
A2A_OVERLAP=0 TP=2 PP=8 VPP=4 CP=1 EP=32 NNODES=32 MBS=1 GBS=2048 bash ./sbatch_benchmarking.sh \
   --pipeline-model-parallel-layout "Et*3|(tt|)*29m|L" --mtp-num-layers 1 \
   --fp8-format e4m3 --fp8-recipe blockwise \
   --recompute-granularity selective --recompute-modules mla_up_proj layernorm
