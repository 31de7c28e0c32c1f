"""Engines in manifests, charts and tables of pools: which is read, on what, and as what."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from dse.designs import short_name
from dse.errors import InputError
from dse.tools import TOOLS
from dse.tools.reading import read

SERVER = """
      containers:
      - name: server
        image: vllm/vllm-openai:v0.10.1
        envFrom: [{configMapRef: {name: settings}}]
        args: ["--model", "$(MODEL)", "--tensor-parallel-size", "$(TP)", "--gpu-memory-utilization=0.95"]
        resources: {limits: {nvidia.com/gpu: "8"}}
"""

DEPLOYMENT = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{TP: "8", MODEL: meta-llama/Llama-3.1-405B-Instruct-FP8}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: server}}
spec:
  replicas: 2
  template:
    spec:
      nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-h100-80gb}}{SERVER}"""

GROUP = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: server}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - name: leader
          command: [sh, -c, "start_ray.sh leader; vllm serve m/Llama-3.1-405B -tp 8 --pipeline_parallel_size 2"]
          resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate:
      spec:
        containers: [{name: worker, command: [sh, -c, start_ray.sh worker], image: vllm/vllm-openai:v0.9.1}]
"""

GRAPH = """
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: pools}
spec:
  services:
    Frontend: {componentType: frontend, extraPodSpec: {mainContainer: {image: x/sglang-runtime:1}}}
    decode:
      subComponentType: decode
      resources: {limits: {gpu: "8"}}
      multinode: {nodeCount: 2}
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.sglang]
          args: [--model-path, deepseek-ai/DeepSeek-R1, --tp, "16", --dp, "16", --enable-dp-attention,
                 --moe-a2a-backend, deepep, --disaggregation-mode, decode]
    prefill:
      subComponentType: prefill
      resources: {limits: {gpu: "8"}}
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.sglang]
          args: [--model-path, deepseek-ai/DeepSeek-R1, --tp, "8", --disaggregation-mode, prefill]
"""

FILES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: engines}
data:
  prefill.yaml: |
    tensor_parallel_size: 2
    max_num_tokens: 9000
  decode.yaml: |
    tensor_parallel_size: 8
    moe_expert_parallel_size: 8
    enable_attention_dp: true
    kv_cache_config: {dtype: fp8}
---
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: pools}
spec:
  services:
    PrefillWorker:
      extraPodSpec:
        mainContainer:
          args: ["python3 -m dynamo.trtllm --model-path nvidia/DeepSeek-R1-NVFP4 --extra-engine-args /c/prefill.yaml"]
          volumeMounts: [{name: c, mountPath: /c}]
        volumes: [{name: c, configMap: {name: engines}}]
    DecodeWorker:
      extraPodSpec:
        mainContainer:
          args: ["python3 -m dynamo.trtllm --model-path nvidia/DeepSeek-R1-NVFP4 --extra-engine-args /c/decode.yaml"]
          volumeMounts: [{name: c, mountPath: /c}]
        volumes: [{name: c, configMap: {name: engines}}]
"""

STACK = """
servingEngineSpec:
  modelSpec:
  - name: llama
    repository: vllm/vllm-openai
    tag: v0.9.2
    modelURL: meta-llama/Llama-3.1-70B-Instruct
    requestGPU: 4
    vllmConfig: {enableChunkedPrefill: false, tensorParallelSize: 4, extraArgs: ["--max-num-seqs=128"]}
    nodeSelectorTerms: [{matchExpressions: [{key: product, values: [NVIDIA-A100-SXM4-80GB]}]}]
"""

CHART = """
modelArtifacts: {uri: "hf://deepseek-ai/DeepSeek-R1-0528", name: deepseek-ai/DeepSeek-R1-0528}
decode:
  parallelism: {tensor: 1, data: 16, dataLocal: 8}
  containers:
  - name: vllm
    command: [/bin/bash, -c]
    args: ["exec vllm serve deepseek-ai/DeepSeek-R1-0528 --enable-expert-parallel --all2all-backend deepep_low_latency"]
    resources: {limits: {nvidia.com/gpu: "8"}}
prefill: {create: false}
"""

SERVICE = """
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-235B-A22B-FP8", name: qwen}
  parallelism: {tensor: 1, data: 8, dataLocal: 8, expert: true}
  template:
    containers: [{name: main, env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 512"}]}]
"""

PREDICTOR = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      args: ["--model_name=llama3", "--tensor-parallel-size=2"]
      storageUri: hf://meta-llama/Llama-3.1-8B-Instruct
      resources: {limits: {nvidia.com/gpu: "2"}}
"""

COMPOSE = """
services:
  server:
    image: vllm/vllm-openai:v0.11.0
    command: --model Qwen/Qwen3-32B-AWQ --tensor-parallel-size ${TP:-2} --enforce-eager
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
  page: {image: open-webui}
"""

RAY = """
applications:
- name: app
  args:
    llm_configs:
    - model_loading_config: {model_id: qwen, model_source: Qwen/Qwen2.5-72B-Instruct}
      accelerator_type: H100
      engine_kwargs: {tensor_parallel_size: 8, max_num_batched_tokens: 4096, enable_chunked_prefill: true}
"""

POOLS = """
model: {path: deepseek-ai/DeepSeek-R1, container: lmsysorg/sglang:v0.5.5}
resources: {gpu_type: gb200, prefill_nodes: 2, prefill_workers: 1, decode_nodes: 8, decode_workers: 1, gpus_per_node: 4}
backend:
  sglang_config:
    prefill: {model-path: deepseek-ai/DeepSeek-R1, tensor-parallel-size: 8}
    decode: {model-path: deepseek-ai/DeepSeek-R1, tensor-parallel-size: 32, data-parallel-size: 32,
             enable-dp-attention: true, moe-a2a-backend: deepep}
"""

NODES = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: decode, labels: {llm-d.ai/role: decode}}
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - name: server
          command: [/bin/bash, -c]
          args:
          - |-
            START_RANK=$(( ${LWS_WORKER_INDEX:-0} * DP_SIZE_LOCAL ))
            exec vllm serve deepseek-ai/DeepSeek-R1-0528 --enable-expert-parallel \\
              --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL)) --data-parallel-size-local $DP_SIZE_LOCAL
          env: [{name: DP_SIZE_LOCAL, value: "8"}, {name: VLLM_ALL2ALL_BACKEND, value: deepep_low_latency}]
          resources: {limits: {nvidia.com/gpu: "8"}}
"""

COMPONENTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  worker.yaml: |-
    model-path: deepseek-ai/DeepSeek-V3.1
    tp-size: 4
    ep-size: 4
    max-running-requests: 64
---
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  components:
  - name: Worker
    type: worker
    podTemplate:
      spec:
        containers:
        - name: main
          command: [python3, -m, dynamo.sglang]
          args: [--config, /etc/sglang/worker.yaml]
          resources: {limits: {nvidia.com/gpu: "4"}}
          volumeMounts: [{name: settings, mountPath: /etc/sglang}]
        volumes: [{name: settings, configMap: {name: settings}}]
"""

SERVERS = """
hostname: localhost
model: meta-llama/Llama-3.1-8B-Instruct
context_servers: {num_instances: 1, tensor_parallel_size: 1, urls: ["localhost:8001"]}
generation_servers: {num_instances: 1, tensor_parallel_size: 2, urls: ["localhost:8002"]}
"""

RUN = """
benchmark: {concurrency_list: "16", input_length: 1024, output_length: 512}
hardware: {gpus_per_node: 4}
environment: {model_path: /models/DeepSeek-R1-0528-FP4, trtllm_repo: x}
worker_config:
  gen: {tensor_parallel_size: 8, moe_expert_parallel_size: 8, enable_attention_dp: true, max_batch_size: 256,
        cuda_graph_config: {max_batch_size: 64}, speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 1}}
  ctx: {tensor_parallel_size: 4, max_batch_size: 4}
"""

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: measure}
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: instance-type, operator: In, values: [p5.48xlarge]}]}]
      containers:
      - name: server
        image: rocm/vllm:rocm6.4.1_vllm_0.9.1
        command: ["/bin/bash", "-c"]
        args:
        - |
          vllm serve meta-llama/Llama-3.1-405B-Instruct-FP8 -tp ${TP} --kv-cache-dtype fp8 &
          sleep 300
          vllm bench serve --random-input-len 2048 --random-output-len 512 --max-concurrency 64
        env: [{name: TP, value: "8"}]
        resources: {limits: {amd.com/gpu: "8"}}
"""

#: Name → (text, role, tool, version, devices, chip, leaves).
RIGHT = {
    "job": (JOB, "", "vllm", "0.9.1", 8, "h100-sxm-80gb",
            {"tp": 8, "cache_bytes": 1, "prompt_tokens": 2048, "concurrency": 64}),
    "deployment": (DEPLOYMENT, "", "vllm", "0.10.1", 16, "h100-sxm-80gb",
                   {"tp": 8, "memory_share": 0.95, "precision": 9, "chunk": 8192}),
    "group": (GROUP, "", "vllm", "", 16, None, {"tp": 8, "pp": 2}),
    "graph": (GRAPH, "decode", "sglang", "", 16, None, {"tp": 1, "dp": 16, "ep": 16, "all_to_all": 2}),
    "graph, prefill": (GRAPH, "prefill", "sglang", "", 8, None, {"tp": 8, "dp": 1}),
    "files": (FILES, "decode", "tensorrt-llm", "", None, None,
              {"tp": 1, "dp": 8, "ep": 8, "cache_bytes": 1, "precision": 11, "chunk": 8192}),
    "files, prefill": (FILES, "prefill", "tensorrt-llm", "", None, None, {"tp": 2, "chunk": 9000}),
    "stack": (STACK, "", "vllm", "0.9.2", 4, "a100-sxm-80gb",
              {"tp": 4, "mixed": 0, "most_sequences": 128, "chunk": 2048}),
    "chart": (CHART, "", "vllm", "", 16, None, {"tp": 1, "dp": 16, "ep": 16, "all_to_all": 0}),
    "service": (SERVICE, "", "vllm", "", None, None, {"dp": 8, "ep": 8, "most_sequences": 512, "all_to_all": 3}),
    "predictor": (PREDICTOR, "", "vllm", "", 2, None, {"tp": 2}),
    "compose": (COMPOSE, "", "vllm", "0.11.0", 2, None, {"tp": 2, "weight_bytes": 0.53125, "graphs": 0}),
    "ray": (RAY, "", "vllm", "", None, "h100-sxm-80gb", {"tp": 8, "chunk": 4096, "mixed": 1}),
    "nodes": (NODES, "", "vllm", "", 16, None, {"dp": 16, "ep": 16, "all_to_all": 0}),
    "components": (COMPONENTS, "", "sglang", "", 4, None, {"tp": 4, "ep": 4, "most_sequences": 64}),
    "servers": (SERVERS, "decode", "tensorrt-llm", "", None, None, {"tp": 2}),
    "run": (RUN, "decode", "tensorrt-llm", "", 8, None,
            {"tp": 1, "dp": 8, "most_sequences": 256, "drafts": 1, "precision": 11, "concurrency": 16,
             "prompt_tokens": 1024}),
    "pools": (POOLS, "decode", "sglang", "0.5.5", 32, "gb200-nvl72", {"tp": 1, "dp": 32, "ep": 32, "chunk": 512}),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_an_engine_of_a_manifest(name):
    text, role, tool, version, devices, chip, leaves = RIGHT[name]
    reading = read({"manifest.yaml": text}, TOOLS, role=role)
    values = {short_name(path): value for path, value in reading.values.items()}
    assert reading.tool.name == tool and reading.workload
    assert version in ("", reading.version)
    assert devices in (None, reading.devices.total)
    assert chip in (None, reading.chip and reading.chip.name)
    assert {leaf: values[leaf] for leaf in leaves} == leaves


@pytest.mark.parametrize("text", [GRAPH, FILES, POOLS, SERVERS, RUN])
def test_two_pools_want_a_role(text):
    with pytest.raises(InputError, match=r"two pools of engines: prefill and decode.*--role"):
        read({"manifest.yaml": text}, TOOLS)


def test_a_role_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="--role"):
        read({"manifest.yaml": GRAPH.replace("prefill", "other")}, TOOLS, role="prefill")


def test_several_engines_without_roles_are_noted():
    model = STACK[STACK.index("  - name") :]
    reading = read({"values.yaml": STACK + model.replace("Size: 4", "Size: 8").lstrip("\n")}, TOOLS)
    assert "the first is read" in reading.notes[0] and reading.values["mapping.tp"] == 4


TOKENS = ("null", "[]", "{}", "-1", "1e999", "''", "true", "{a: b}", "[1, {x: 2}]", "$(X)", "${Y:-}", "\0", ": ",
          "- ", "|", "nan", "&a *a", "<<: *x", "9" * 400)  # fmt: skip


def mutated(text: str, random: Random) -> str:
    """Return a text with a part removed, a word replaced, a line repeated or a token put in."""
    start = random.randrange(len(text))
    words, lines = text.split(" "), text.split("\n")
    words[random.randrange(len(words))] = random.choice(TOKENS)
    lines.insert(random.randrange(len(lines)), random.choice(lines))
    removed = text[:start] + text[start + random.randrange(1, 40) :]
    extended = text[:start] + random.choice(TOKENS) + text[start:]
    return random.choice([removed, " ".join(words), "\n".join(lines), extended])


@pytest.mark.parametrize("name", RIGHT)
def test_mutants_are_read_or_refused(name):
    """None ends with another exception; 20,000 of them were tried once."""
    text, role, *_ = RIGHT[name]
    random = Random(name)
    for _ in range(30):
        with contextlib.suppress(InputError):
            read({"manifest.yaml": mutated(text, random)}, TOOLS, role=random.choice([role, ""]))
