python train.py trainer.num_nodes=8 model.tensor_model_parallel_size=8 ++model.pipeline_model_parallel_size=4 \
    +model.sequence_parallel=True model.recompute_granularity=full train.micro_batch_size=1 train.global_batch_size=256
