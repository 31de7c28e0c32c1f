GPU=h100
NUM_GPUS=1024
python scripts/performance/setup_experiment.py \
    --partition batch --account acct --gpu $GPU --num_gpus $NUM_GPUS \
    -m deepseek -mr deepseek_v3 -c fp8_sc \
    -tp 2 -pp 8 -vp 4 -ep 64 -et 1 \
    -mb 1 -gb 8192 -sl 4096 \
    --moe_flex_dispatcher_backend deepep --moe_a2a_overlap false \
    --recompute_modules mla_up_proj \
    --optimizer_type adam --enable_nsys --profiling_ranks 0,8
