python3 benchmarks/benchmark_runner.py xpk --project=$PROJECT --zone=$ZONE --device_type=v6e-256 --num_slices=2 \
  --cluster_name=${CLUSTER_NAME} --base_output_directory=${OUTPUT_DIR} \
  --model_name="llama3_1_70b_8192" --libtpu_version=20241209 --base_docker_image maxtext_base_image --num_steps=20
