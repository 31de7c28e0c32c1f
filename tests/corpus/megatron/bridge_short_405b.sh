CONTAINER="nvcr.io/nvidia/nemo:26.04"
JOB="l405_gb200"
uv run python scripts/performance/setup_experiment.py \
  --account acct -p batch -i ${CONTAINER} -t "00:45:00" \
  -m llama -mr llama31_405b \
  -g gb200 -gn 4 -ng 512 \
  -c fp8_cs \
  -tp 4 -pp 8 -cp 2 -vp 8 \
  -mb 1 -gb 1024 -sl 8192 \
  -ms 30 -vb true -cv v1 \
  --log_dir results/${JOB}
