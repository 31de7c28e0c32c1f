cd $RECIPE_ROOT
helm install -f mt_gke_values.yaml \
    --set-file workload_launcher=launcher.sh \
    --set-file workload_config=mt_gke_llama70b.yaml \
    --set workload.image=${ARTIFACT_REGISTRY}/maxtext-gpu \
    --set workload.gpus=256 \
    --set workload.run_name=$USER-llama70b \
    --set volumes.gcsMounts[0].bucketName=${GCS_BUCKET} \
    $USER-llama70b src/helm-charts/a3ultra/maxtext-training
