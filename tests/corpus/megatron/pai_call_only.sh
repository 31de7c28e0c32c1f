cd /workspace/Pai-Megatron-Patch/examples/qwen2_5
sh run_mcore_qwen.sh  \
dsw  \
7B   \
1    \
64 \
1e-5   \
1e-6   \
4096  \
4096  \
bf16  \
2   \
2  \
1 \
true \
true \
true \
false \
sel   \
false \
100000  \
${DATASET} \
${DATASET} \
${CKPT} \
100000000   \
10000   \
${OUT}
