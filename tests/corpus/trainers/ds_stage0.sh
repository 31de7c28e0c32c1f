CUDA_VISIBLE_DEVICES=4,5,6,7 \
deepspeed --include localhost:0,1,2,3 train_gpt.py --deepspeed --deepspeed_config ds_stage0.json --epochs 3
