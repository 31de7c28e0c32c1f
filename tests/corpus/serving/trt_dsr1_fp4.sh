#!/bin/bash
#SBATCH --gres=gpu:b200:8
MODEL=nvidia/DeepSeek-R1-0528-FP4
TP=8; EP_SIZE=8; CONC=256; ISL=1024; OSL=1024; DP_ATTENTION=true
EXTRA=/tmp/extra-$SLURM_JOB_ID.yml
MAX_NUM_TOKENS=$(( (CONC + ISL + 64 + 63) / 64 * 64 ))
cat > $EXTRA << EOF
cuda_graph_config:
    enable_padding: true
    max_batch_size: 64
enable_attention_dp: $DP_ATTENTION
print_iter_log: true
kv_cache_config:
    dtype: fp8
    free_gpu_memory_fraction: 0.8
    enable_block_reuse: false
stream_interval: 10
moe_config:
    backend: CUTLASS
EOF
if [[ "$DP_ATTENTION" == "true" ]]; then
cat << EOF >> $EXTRA
attention_dp_config:
    enable_balance: true
    batching_wait_iters: 0
speculative_config:
    decoding_type: MTP
    num_nextn_predict_layers: 3
EOF
fi
mpirun -n 1 --oversubscribe --allow-run-as-root \
  trtllm-serve $MODEL --port=8000 --backend=pytorch --trust_remote_code \
  --max_batch_size=64 --max_seq_len=$((ISL + OSL + 20)) --max_num_tokens=$MAX_NUM_TOKENS \
  --tp_size=$TP --ep_size=$EP_SIZE --extra_llm_api_options=$EXTRA
