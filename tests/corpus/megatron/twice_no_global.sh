#!/bin/bash
#SBATCH --job-name=seven
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8
#SBATCH --time=04:00:00

BASE="--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32
      --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1"
EXTRA="--no-position-embedding --use-rotary-position-embeddings --no-rope-fusion --no-bias-swiglu-fusion
       --no-gradient-accumulation-fusion --no-save-optim --no-load-rng"

srun torchrun --standalone --nproc_per_node=8 pretrain_gpt.py $BASE $EXTRA \
    --swiglu --untie-embeddings-and-output-weights --disable-bias-linear \
    --sequence-parallel \
    --bf16 --grad-reduce-in-bf16 --overlap-grad-reduce \
    --attention-dropout 0.0 --hidden-dropout 0.0 \
    --train-iters 200 --lr 3e-4 \
    --micro-batch-size 4   # wins over the one in BASE
