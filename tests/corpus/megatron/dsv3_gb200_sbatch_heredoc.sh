#!/bin/bash
NODES=64
GPN=4
EP=64
sbatch <<EOF
#!/bin/bash
#SBATCH --nodes=${NODES}
#SBATCH --gpus-per-node=${GPN}
#SBATCH --ntasks-per-node=${GPN}
#SBATCH --partition=gb200
#SBATCH --segment=16
export USE_MNNVL=1
srun --mpi=pmix bash -c "python pretrain_gpt.py \
  --tokenizer-model deepseek-ai/DeepSeek-V3 --multi-latent-attention \
  --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 \
  --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 \
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 \
  --moe-layer-freq '([0]*3+[1]*58)' --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 \
  --decoder-first-pipeline-num-layers 13 --decoder-last-pipeline-num-layers 16 \
  --expert-model-parallel-size ${EP} --expert-tensor-parallel-size 1 \
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 2048 \
  --bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --swiglu --position-embedding-type rope --untie-embeddings-and-output-weights \
  --mtp-num-layers 1 --moe-router-force-load-balancing --train-iters 30"
EOF
