export NEMO_HOME=/scratch/nemo
nemo llm pretrain --yes --factory "llama3_70b(num_nodes=16, name='trial')" \
   trainer.devices=8 trainer.max_steps=100 \
   trainer.strategy.tensor_model_parallel_size=8 \
   trainer.strategy.pipeline_model_parallel_size=4 \
   trainer.strategy.virtual_pipeline_model_parallel_size=5 \
   trainer.strategy.context_parallel_size=2 \
   trainer.strategy.sequence_parallel=True \
   data.seq_length=8192 data.micro_batch_size=1 data.global_batch_size=256 \
   optim.config.lr=1.5e-4 log.ckpt.save_top_k=1
