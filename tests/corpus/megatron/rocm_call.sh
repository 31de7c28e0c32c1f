# one node of 8 MI300X
docker run -it --device=/dev/dri --device=/dev/kfd --ipc=host --shm-size 64G -v $HOME:/w rocm/megatron-lm:v25.6 \
 bash -c "cd /workspace/Megatron-LM && TEE_OUTPUT=1 MBS=3 BS=24 TP=8 TE_FP8=0 RECOMPUTE=1 SEQ_LENGTH=8192 MODEL_SIZE=70 TOTAL_ITERS=50 bash examples/llama/rocm_body.sh"
