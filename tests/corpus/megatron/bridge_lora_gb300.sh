python scripts/performance/setup_experiment.py -a acct -p gb300 --gpu gb300 --num_gpus 8 --gpus_per_node 4 \
  -m llama -mr llama3_70b --task lora --compute_dtype fp8_mx \
  -tp 1 -pp 1 -cp 1 -vp None -ep 1 -et \
  -mb 1 -gb 32 -sl 4096 \
  --data squad_packed --packed_sequence --dataset_root ${SQUAD} \
  --cuda_graph_impl transformer_engine --cuda_graph_scope mlp,attn \
  -E NCCL_DEBUG=WARN -E TORCH_NCCL_AVOID_RECORD_STREAMS=1 -d
