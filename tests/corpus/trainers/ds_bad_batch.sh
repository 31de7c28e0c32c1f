deepspeed --num_gpus=4 finetune.py --model facebook/opt-6.7b --deepspeed_config ds_bad_batch.json
