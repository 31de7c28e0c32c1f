# call: the numbers go by place
export NNODES=4 GPUS_PER_NODE=8
bash pai_body.sh 1 128 8192 bf16 4 2 1 1 8 true true full
