tune run --nnodes 1 --nproc_per_node 8 full_finetune_distributed --config tune_70b.yaml batch_size=4 optimizer.fused=False
