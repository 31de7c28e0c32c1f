#!/bin/bash
#SBATCH -N 4
#SBATCH --ntasks-per-node 8
#SBATCH --gres=gpu:h100:8
TP=2
PP=2
read -r -d '' cmd <<EOF
cd /opt/NeMo; git rev-parse HEAD; \
CUDA_DEVICE_MAX_CONNECTIONS=1 python3 -u examples/nlp/language_modeling/megatron_gpt_pretraining.py \
  --config-path=/cfg --config-name=base \
  trainer.precision=bf16-mixed trainer.num_nodes=${SLURM_JOB_NUM_NODES:-4} trainer.devices=8 \
  ++cluster_type=BCP \
  model.tensor_model_parallel_size=${TP} model.pipeline_model_parallel_size=${PP} \
  model.sequence_parallel=False \
  model.micro_batch_size=1 model.global_batch_size=128 \
  model.num_layers=40 model.hidden_size=5120 model.ffn_hidden_size=13824 model.num_attention_heads=40 \
  model.encoder_seq_length=4096 model.data.seq_length=4096 \
  model.activations_checkpoint_granularity=full model.activations_checkpoint_method=block \
  model.activations_checkpoint_num_layers=8 \
  model.transformer_engine=True ++model.fp8=True ++model.fp8_hybrid=True ++model.fp8_e4m3=False \
  model.optim.name=fused_adam \
  exp_manager.create_wandb_logger=False
EOF
srun --container-image ${IMG} bash -c "${cmd}"
