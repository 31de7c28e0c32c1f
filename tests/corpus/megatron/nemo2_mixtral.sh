# defaults of the recipe are kept where nothing is said
nemo llm pretrain --factory mixtral_8x7b trainer.num_nodes=8 trainer.devices=8 \
  trainer.strategy.tensor_model_parallel_size=1 \
  trainer.strategy.pipeline_model_parallel_size=4 trainer.strategy.virtual_pipeline_model_parallel_size=8 \
  trainer.strategy.expert_model_parallel_size=8 \
  data.global_batch_size=256 \
  trainer.val_check_interval=1000 run.skip_confirmation=True
