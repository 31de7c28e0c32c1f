TP=8
PP=2
python tools/checkpoint/convert.py --model-type GPT --loader llama_mistral --saver core \
  --model-size llama3 --checkpoint-type hf --load-dir ${HF} --save-dir ${OUT}/tp${TP}pp${PP} \
  --target-tensor-parallel-size ${TP} --target-pipeline-parallel-size ${PP} --bf16
