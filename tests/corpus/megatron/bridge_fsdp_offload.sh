#!/bin/bash
# llama 3 70b, fully sharded
NGPU=64
args="--model_family_name llama --model_recipe_name llama3_70b --gpu b200 --num_gpus ${NGPU}"
args+=" --task pretrain --compute_dtype bf16"
args+=" --tensor_model_parallel_size 1 --pipeline_model_parallel_size 1 --context_parallel_size 1"
args+=" --virtual_pipeline_model_parallel_size None"
args+=" --use_megatron_fsdp true --nccl_ub true --activation_offload_layers 20"
args+=" --micro_batch_size 1 --global_batch_size 128 --seq_length 8192"
args+=" --cuda_graph_impl none --max_steps 50"
python -m torch.distributed.run --nnodes=8 --nproc_per_node=8 scripts/performance/run_script.py ${args}
