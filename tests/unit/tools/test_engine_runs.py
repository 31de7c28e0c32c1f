"""Engines in files: how many there are, what versions and programs take by default, caches of hosts, arrivals."""

from __future__ import annotations

import pytest

from dse.designs import short_name
from dse.errors import InputError
from dse.tools import TOOLS, read_files
from dse.tools.reading import Reading, read
from dse.tools.recognition import model_of

GIB = 2.0**30
SGLANG = "python -m sglang.launch_server --model-path"
BUILD = "pip install vllm"


def values_of(reading: Reading) -> dict[str, float]:
    return {short_name(path): value for path, value in reading.values.items()}


POD = """
          containers:
          - name: server
            image: vllm/vllm-openai:v0.10.1
            args: ["--model", "Qwen/Qwen3-32B", "--tensor-parallel-size=2"]
            resources: {limits: {nvidia.com/gpu: "2"}}
"""

DEPLOYMENT = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: server}}
spec:
  replicas: 3
  template:
        spec:{POD}"""

GROUPS = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: server}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
        spec:{POD}"""

NODES = DEPLOYMENT.replace("Deployment", "StatefulSet").replace('size=2"', 'size=2", "--nnodes", "3"')

CHART = """
servingEngineSpec:
  modelSpec:
  - {name: a, modelURL: Qwen/Qwen3-32B, replicaCount: 4, requestGPU: 2, vllmConfig: {tensorParallelSize: 2}}
"""

SERVERS = """
model: Qwen/Qwen3-32B
backend: pytorch
context_servers: {num_instances: 3, tensor_parallel_size: 2, max_num_tokens: 8192}
generation_servers: {num_instances: 1, tensor_parallel_size: 4, max_batch_size: 64}
"""

LOOP = """
for i in {0..3}; do
  CUDA_VISIBLE_DEVICES=$i vllm serve Qwen/Qwen3-8B --max-num-seqs 64 --port $((8000 + i)) &
done
"""

TWICE = """
CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-8B -tp 2 --port 8000 &
CUDA_VISIBLE_DEVICES=2,3 vllm serve Qwen/Qwen3-8B -tp 2 --port 8001 &
"""

RUNS_AGAIN = """
for conc in 1 2 4; do
  vllm serve Qwen/Qwen3-8B -tp 2 --max-num-seqs $conc &
  kill %1
done
"""

COUNTS = {
    "deployment": ("a.yaml", DEPLOYMENT, "", 6, 3),
    "groups": ("a.yaml", GROUPS, "", 4, 2),
    "nodes of one engine": ("a.yaml", NODES, "", 2, 1),
    "chart": ("a.yaml", CHART, "", 8, 4),
    "servers": ("a.yaml", SERVERS, "prefill", 6, 3),
    "one server": ("a.yaml", SERVERS, "decode", 4, 1),
    "loop over devices": ("a.sh", LOOP, "", 4, 4),
    "two commands": ("a.sh", TWICE, "", 4, 2),
    "loop over loads": ("a.sh", RUNS_AGAIN, "", 2, 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_engines_alike(name):
    file, text, role, n_devices, n_engines = COUNTS[name]
    reading = read({file: text}, TOOLS, system="h100", role=role)
    assert reading.devices.total == n_devices
    assert any(note.startswith(f"{n_engines} engines of") for note in reading.notes) is (n_engines > 1)


# vllm/config.py of 0.7 (SchedulerConfig.__post_init__); get_batch_defaults of vllm/engine/arg_utils.py (LLM_CLASS)
DEFAULTS = [
    (f"{BUILD}==0.7.3\nvllm serve Qwen/Qwen3-8B --max-model-len 16384", "a100", (16384, 0, 256)),
    (f"{BUILD}==0.7.3\nvllm serve Qwen/Qwen3-8B --max-model-len 1024", "h100", (2048, 0, 256)),
    (f"{BUILD}==0.7.3\nvllm serve Qwen/Qwen3-8B --max-model-len 65536", "h100", (2048, 1, 256)),
    (f"{BUILD}==0.7.3\nvllm serve Qwen/Qwen3-8B -tp 1 --enable-chunked-prefill", "h100", (2048, 1, 256)),
    ("export VLLM_USE_V1=0\npip install vllm==0.8.5\n"
     "vllm serve Qwen/Qwen3-8B --max-model-len 4096", "h100", (4096, 0, 256)),
    (f"{BUILD}==0.8.5\nvllm serve Qwen/Qwen3-8B --max-model-len 4096", "h100", (8192, 1, 1024)),
    ("vllm bench throughput --model Qwen/Qwen3-8B --input-len 8 --output-len 8", "h100", (16384, 1, 1024)),
    ("vllm bench latency --model Qwen/Qwen3-8B --input-len 8 --output-len 8", "a100", (8192, 1, 256)),
    ("vllm serve Qwen/Qwen3-8B", "a100", (2048, 1, 256)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "chip", "right"), DEFAULTS)
def test_defaults_of_engines_and_programs(text, chip, right):
    values = values_of(read({"a.sh": text}, TOOLS, system=chip))
    assert tuple(values[name] for name in ("chunk", "mixed", "most_sequences")) == right


CACHES = [
    ("vllm serve Qwen/Qwen3-32B -tp 4 -pp 2 --kv-offloading-size 64", 8 * GIB),
    ("LMCACHE_MAX_LOCAL_CPU_SIZE=20 vllm serve Qwen/Qwen3-32B -tp 4", 20 * GIB),
    ("vllm serve Qwen/Qwen3-32B -tp 4 --swap-space 16", None),
    (f"{SGLANG} Qwen/Qwen3-32B --tp 2 --enable-hierarchical-cache --hicache-size 50", 50e9),
    (f"{SGLANG} Qwen/Qwen3-32B --tp 2 --hicache-size 50", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "right"), CACHES)
def test_caches_of_hosts(text, right):
    assert values_of(read({"a.sh": text}, TOOLS, system="h100")).get("host_cache") == right


def test_a_ratio_of_the_cache_of_a_host():
    """Twice the static share of the memory without the weights (hicache-ratio of SGLang)."""
    text = f"{SGLANG} Qwen/Qwen3-32B --tp 2 --enable-hierarchical-cache"
    reading = read({"a.sh": f"{text} --mem-fraction-static 0.8"}, TOOLS, system="h100")
    sizes = {"launch.capacity": 80e9, "launch.weights": 34e9, "launch.runtime": 2e9}
    assert reading.shares(sizes.get)["mapping.cache_tiers.host_cache"] == pytest.approx(2 * (0.8 * 80e9 - 34e9))


ARRIVALS = [
    ("--request-rate 4 --burstiness 0.5", 2.0),
    ("--request-rate 4", None),
    ("--burstiness 0.5", None),
]


@pytest.mark.parametrize(("text", "right"), ARRIVALS)
def test_variation_of_arrivals(text, right):
    """Gamma distribution with the burstiness as its shape: squared variation 1 over it."""
    line = f"vllm serve Qwen/Qwen3-8B\nvllm bench serve --random-input-len 8 --random-output-len 8 {text}"
    assert values_of(read({"a.sh": line}, TOOLS, system="h100")).get("arrival_variation") == right


BUILT = [
    ("--use_weight_only --weight_only_precision int8 --int8_kv_cache",
     {"weight_bytes": 1, "cache_bytes": 1, "precision": 3}),
    ("--use_weight_only --weight_only_precision int4", {"weight_bytes": 0.53125, "precision": 3}),
    ("--use_fp8_rowwise --fp8_kv_cache", {"precision": 9, "cache_bytes": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "right"), BUILT)
def test_formats_of_converted_checkpoints(text, right):
    lines = f"python convert_checkpoint.py --model_dir ./Llama-2-70b-hf --dtype float16 --tp_size 4 {text}\n"
    lines += "trtllm-build --checkpoint_dir ./ckpt --max_batch_size 64\n"
    values = values_of(read({"a.sh": lines}, TOOLS, system="h100"))
    assert {name: values[name] for name in right} == right


def test_options_that_echo_writes_into_a_file():
    text = 'echo "kv_cache_config: {dtype: fp8}" > /tmp/o.yaml\n'
    text += "trtllm-serve Qwen/Qwen3-32B --extra_llm_api_options /tmp/o.yaml"
    assert values_of(read({"a.sh": text}, TOOLS, system="h100"))["cache_bytes"] == 1


BY_ROLE = """
start() {
  vllm serve Qwen/Qwen3-8B -tp $1 --max-num-seqs $2
}
case "${1}" in
  prefill) start 2 16 ;;
  decode) start 4 256 ;;
esac
"""

BY_TEST = """
ROLE=$1
if [ "$ROLE" = "prefill" ]; then TP=2 SEQS=16; else TP=4 SEQS=256; fi
vllm serve Qwen/Qwen3-8B -tp $TP --max-num-seqs $SEQS
"""


@pytest.mark.parametrize("text", [BY_ROLE, BY_TEST], ids=["case", "test"])
def test_a_role_that_an_argument_decides(text):
    for role, right in (("prefill", (2, 16)), ("decode", (4, 256))):
        values = values_of(read({"a.sh": text}, TOOLS, system="h100", role=role))
        assert (values["tp"], values["most_sequences"]) == right
    with pytest.raises(InputError, match=r"prefill or decode.*--role"):
        read({"a.sh": text}, TOOLS, system="h100")


WRONG = [
    ("trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --ep_size 3", ("3", "8", "ep_size")),
    (f"{SGLANG} Qwen/Qwen3-30B-A3B --tp 8 --ep 3", ("3", "8", "ep-size")),
    (f"{SGLANG} Qwen/Qwen3-30B-A3B --tp 8 --dp 3 --enable-dp-attention", ("3", "8", "dp-size")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_degrees_that_contradict(text, words):
    with pytest.raises(InputError) as error:
        read_files({"a.sh": text}, system="h100")
    assert all(word in str(error.value) for word in words)


def test_models_that_are_no_decoders_are_refused_by_name():
    with pytest.raises(InputError, match=r"openai/whisper-large-v3, a speech model"):
        read({"a.sh": "vllm serve openai/whisper-large-v3 --max-num-seqs 200"}, TOOLS)
    with pytest.raises(InputError, match=r"BAAI/bge-m3, a model of embeddings"):
        read({"a.sh": "vllm serve BAAI/bge-m3 --max-num-seqs 200"}, TOOLS)
    assert read({"a.sh": "vllm serve openai/whisper-large-v3"}, TOOLS, workload="qwen3-8b").workload == "qwen3-8b"


def test_engines_of_two_models_are_refused_by_name():
    chart = CHART + "  - {name: b, modelURL: Qwen/Qwen2.5-7B-Instruct, vllmConfig: {tensorParallelSize: 1}}\n"
    with pytest.raises(InputError, match=r"2 models: Qwen/Qwen3-32B, Qwen/Qwen2\.5-7B-Instruct"):
        read({"a.yaml": chart}, TOOLS)


CHIPS = [
    ("nodeSelector: {node.kubernetes.io/instance-type: p5e.48xlarge}", "h200-sxm-141gb"),
    ("nodeSelector: {node.kubernetes.io/instance-type: g6e.12xlarge}", "l40s"),
    ("nodeSelector: {node.kubernetes.io/instance-type: p4de.24xlarge}", "a100-sxm-80gb"),
]


@pytest.mark.parametrize(("text", "chip"), CHIPS)
def test_chips_by_instance_types(text, chip):
    manifest = DEPLOYMENT.replace("          containers:", f"          {text}\n          containers:")
    assert read({"a.yaml": manifest}, TOOLS).chip.name == chip


def test_a_chip_that_a_script_asks_for():
    text = "nvidia-smi | grep -q B200 || exit 1\nvllm serve Qwen/Qwen3-8B -tp 2"
    assert read({"a.sh": text}, TOOLS).chip.name == "b200-sxm-180gb"


@pytest.mark.parametrize(
    ("text", "slug"),
    [("dsr1-0528", "deepseek-v3"), ("dsr1-fp4-disagg.yaml", "deepseek-v3"), ("gptoss-120b", "gpt-oss-120b")],
)
def test_short_names_of_models(text, slug):
    assert model_of(text) == slug


def test_a_model_whose_mount_says_nothing():
    """As in srt-slurm: the recipe's table names it, and the path is that within its container."""
    text = """
model: {path: dsr1-0528, precision: fp8}
resources: {gpu_type: gb200, gpus_per_node: 4, prefill_nodes: 4, prefill_workers: 2, decode_nodes: 2, decode_workers: 1}
backend:
  type: sglang
  sglang_config:
    prefill: {model-path: /model/, tensor-parallel-size: 8, disaggregation-mode: prefill}
    decode: {model-path: /model/, tensor-parallel-size: 8, disaggregation-mode: decode}
"""
    reading = read({"a.yaml": text}, TOOLS, role="prefill")
    assert (reading.workload, reading.devices.total) == ("deepseek-v3", 16)
    assert values_of(reading)["precision"] == 5
