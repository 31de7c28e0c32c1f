"""What engines take where nothing is said, what their options are read as, and what their clients say of the load.

Sources of the defaults: vllm/engine/arg_utils.py and vllm/config of vLLM 0.17, 0.20 and 0.29;
python/sglang/srt/server_args.py of SGLang 0.5.5; tensorrt_llm/commands/serve.py of TensorRT-LLM 1.1.
"""

from __future__ import annotations

import pytest

import dse
from dse.designs import short_name
from dse.doors import STUDIES
from dse.tools import TOOLS, launch, read_arguments, settings, tool_of
from dse.tools.checkpoints import format_leaves, model_format
from dse.tools.reading import read
from dse.tools.rows import defaults_of
from dse.tools.sglang import static_share
from dse.tools.statuses import DEFAULT

DEFAULTS = [
    ("vllm", "", "h100-sxm-80gb", {"--max-num-batched-tokens": "8192", "--max-num-seqs": "1024"}),
    ("vllm", "", "a100-sxm-80gb", {"--max-num-batched-tokens": "2048", "--max-num-seqs": "256"}),
    ("vllm", "", "l40s", {"--max-num-batched-tokens": "2048"}),
    ("vllm", "0.15", "b200-sxm-180gb", {"--max-num-batched-tokens": "8192", "--gpu-memory-utilization": "0.9"}),
    ("vllm", "0.33.0", "b200-sxm-180gb", {"--max-num-batched-tokens": "16384", "--gpu-memory-utilization": "0.92"}),
    ("vllm", "", "tpu-v6e", {"--max-num-batched-tokens": "1024", "--max-num-seqs": "256"}),
    ("sglang", "", "h200-sxm-141gb", {"--chunked-prefill-size": "8192"}),
    ("sglang", "", "mi300x", {"--chunked-prefill-size": "16384"}),
    ("sglang", "", "rtx-4090", {"--chunked-prefill-size": "2048"}),
    ("tensorrt-llm", "", "h100-sxm-80gb", {"--max_num_tokens": "8192", "--max_batch_size": "2048"}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "version", "chip", "texts"), DEFAULTS)
def test_defaults_are_those_of_the_version_and_the_chip(tool, version, chip, texts):
    defaults = defaults_of(tool_of(tool), version, chip)
    assert {name: defaults[name] for name in texts} == texts


def values_of(text, name="run.sh", **keywords):
    """Return short name → value of what a file states or leaves to its tool."""
    return {short_name(path): value for path, value in read({name: text}, TOOLS, **keywords).values.items()}


VLLM = "vllm serve deepseek-ai/DeepSeek-V3 "
SGLANG = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 "
TRT = "trtllm-serve deepseek-ai/DeepSeek-V3 "

LINES = [
    # experts: whole over all ranks, or in width over all of them (FusedMoEParallelConfig.make)
    (VLLM + "-tp 2 -dp 8 -ep", {"tp": 2, "dp": 8, "ep": 16, "all_to_all": 3}),
    (VLLM + "-dp=8", {"tp": 1, "dp": 8, "ep": 1, "etp": 8}),
    (VLLM + "--data_parallel_size 8 --enable-expert-parallel --all2all-backend deepep_high_throughput",
     {"ep": 8, "all_to_all": 2}),
    ("vllm serve meta-llama/Llama-3.1-8B -dp 8", {"dp": 8}),
    (VLLM + "-tp 8 --enable-eplb --eplb-config.num_redundant_experts=32", {"redundant_experts": 32}),
    # graphs: twice the sequences up to 512, none in eager mode, of decode alone none for prompts
    (VLLM + "-tp 8 --max-num-seqs 64", {"most_sequences": 64, "graph_tokens": 128}),
    (VLLM + "-tp 8 --enforce-eager", {"graphs": 0}),
    (VLLM + "-tp 8 -O0", {"graphs": 0}),
    (VLLM + "-tp 8 -O3", {"graph_tokens": 512}),
    (VLLM + "-tp 8 -cc.cudagraph_mode FULL_DECODE_ONLY", {"graph_tokens": 0}),
    (VLLM + """-tp 8 --compilation-config '{"cudagraph_capture_sizes": [1, 2, 4, 8], "level": 3}'""",
     {"graph_tokens": 8}),
    (VLLM + "-tp 8 --max-num-batched-tokens 16k --no-async-scheduling --disable-custom-all-reduce",
     {"chunk": 16000, "host_overlap": 0, "own_message_bytes": 0}),
    (VLLM + "-tp 8 --kv-cache-dtype fp8_e5m2 --no-enable-chunked-prefill", {"cache_bytes": 1, "mixed": 0}),
    (VLLM + """-tp 8 -sc '{"method": "mtp", "num_speculative_tokens": 2}'""", {"drafts": 2}),
    (VLLM + "-tp 8 --quantization awq", {"precision": 2, "weight_bytes": 0.53125}),
    # experts on many ranks: what is not said is off
    (VLLM + "-dp 16 -ep --enable-dbo --enable-eplb",
     {"step_overlap": 1, "expert_balance": 1, "redundant_experts": 0}),
    (VLLM + "-dp 16 -ep", {"step_overlap": 0, "expert_balance": 0, "redundant_experts": 0}),
    (SGLANG + "--tp 16 --dp 16 --enable-dp-attention --moe-a2a-backend deepep --enable-two-batch-overlap "
     "--ep-num-redundant-experts 32 --init-expert-location loads.json",
     {"step_overlap": 1, "expert_balance": 1, "redundant_experts": 32}),
    (SGLANG + "--tp 72 --dp 72 --enable-dp-attention --moe-a2a-backend deepep --ep-num-redundant-experts 32",
     {"step_overlap": 0, "expert_balance": 0, "redundant_experts": 32}),
    (SGLANG + "--tp 8 --dp 8 --enable-dp-attention --moe-a2a-backend deepep --enable-eplb --enable-prefill-delayer",
     {"expert_balance": 1, "prompt_balance": 1, "prompt_timeout": 30}),
    (SGLANG + "--tp 8 --disable-cuda-graph", {"graphs": 0}),
    (TRT + "--tp_size 16 --ep_size 16 --enable_attention_dp true",
     {"step_overlap": 0, "expert_balance": 0, "redundant_experts": 0}),
    # attention apart on dp ranks of the tp ranks, which hold the experts once
    (SGLANG + "--tp 8 --dp 8 --enable-dp-attention", {"tp": 1, "dp": 8, "ep": 1, "etp": 8, "chunk": 1024}),
    (SGLANG + "--tp 8 --dp 4 --enable-dp-attention --ep 8",
     {"tp": 2, "dp": 4, "ep": 8, "all_to_all": 3, "reserved_answer": 0.09}),
    (SGLANG + "--tp 16 --moe-a2a-backend deepep", {"tp": 16, "ep": 16, "all_to_all": 2}),
    (SGLANG + "--tp 4 --dp 2", {"tp": 4, "dp": 2, "mixed": 0, "reserved_answer": 0.3}),
    (SGLANG + "--tp 8 --chunked-prefill-size -1", {"chunk": 16384, "whole_prompts": 1}),
    (SGLANG + "--tp 8 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
     "--speculative-num-draft-tokens 4 --disable-overlap-schedule", {"drafts": 3, "host_overlap": 0}),
    (SGLANG + "--tp 8 --speculative-algorithm NEXTN", {"drafts": 3}),
    (VLLM.replace("deepseek-ai/DeepSeek-V3", "nvidia/DeepSeek-R1-NVFP4") + "-tp 8 --quantization modelopt",
     {"precision": 2, "weight_bytes": 0.5625}),
    (VLLM.replace("deepseek-ai/DeepSeek-V3", "x/DeepSeek-R1") + "-tp 8 --quantization modelopt", {"precision": 4}),
    # all names of the ranks of experts; both kinds multiply to tp
    (TRT + "--tp_size 8 --ep_size 4", {"tp": 8, "ep": 4, "whole_prompts": 1, "reserved_answer": 1}),
    ("trtllm-bench --model deepseek-ai/DeepSeek-V3 throughput --tp 8 --ep 8 --enable_chunked_context true",
     {"tp": 8, "ep": 8, "whole_prompts": 0}),
    ("python3 -m dynamo.trtllm --model-path deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8 --max-batch-size 64 "
     """--override-engine-args '{"kv_cache_config": {"dtype": "fp8"}, "enable_attention_dp": true}'""",
     {"tp": 1, "dp": 8, "ep": 1, "etp": 8, "most_sequences": 64, "cache_bytes": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "leaves"), LINES, ids=range(len(LINES)))
def test_lines_of_engines(text, leaves):
    values = values_of(text, system="h200")
    assert {name: values[name] for name in leaves} == leaves


def test_a_dense_model_has_no_ranks_of_experts():
    values = values_of("vllm serve meta-llama/Llama-3.1-8B -dp 8", system="h200")
    assert "ep" not in values and "etp" not in values
    text = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 8 --dp 8 --enable-dp-attention"
    reading = read({"run.sh": text}, TOOLS, system="h200")
    assert not any(path.startswith("mapping.experts") for path in reading.values)
    slices = {path.rpartition(".")[2]: value for path, value in reading.values.items() if "slices" in path}
    assert slices == {"dense_tp": 8.0, "shared_tp": 1.0, "head_tp": 8.0}


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ("--tp 8 --dp 8 --enable-dp-attention", (8, 8, 8)),
        ("--tp 16 --dp 4 --enable-dp-attention --ep 4", (16, 16, 16)),
        ("--tp 8 --dp 8 --enable-dp-attention --enable-dp-lm-head --moe-dense-tp-size 1", (1, 8, 1)),
        ("--tp 8 --dp 8 --enable-dp-attention --moe-a2a-backend deepep", (8, 1, 8)),
        ("--tp 8 --dp 8", (None, None, None)),
        ("--tp 8 --ep 8", (None, None, None)),
    ],
)
def test_slices_over_the_ranks_of_attention(options, sizes):
    """All ranks of tp hold feed-forwards of DeepSeek-R1 once, in slices, unless told otherwise (deepseek_v2.py)."""
    text = f"python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 {options}"
    values = {short_name(path): value for path, value in read({"a.sh": text}, TOOLS, system="h200").values.items()}
    assert tuple(values.get(name) for name in ("dense_tp", "shared_tp", "head_tp")) == sizes


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        (dict(dense_tp=8, shared_tp=8, head_tp=8), "--tp-size 8 --dp-size 8 --enable-dp-attention"),
        (dict(dense_tp=1, shared_tp=8, head_tp=8), "--moe-dense-tp-size 1"),
        (dict(dense_tp=8, shared_tp=8), "--enable-dp-lm-head"),
        (dict(dense_tp=1, all_to_all="by-node"), "--enable-dp-lm-head"),
        (dict(dense_tp=8, shared_tp=8, head_tp=8, all_to_all="gather"), "--ep-size 8"),
    ],
)
def test_a_line_of_slices_is_read_back(sizes, options):
    study = STUDIES["serving"]
    mapping = dict(tp=1, dp=8, etp=8) if "all_to_all" not in sizes else dict(tp=1, dp=8, ep=8)
    design = study.complete(dse.design("deepseek-v3", "h200", "sglang", precision="fp8", **mapping, **sizes))
    line = launch(design, "sglang", study)
    assert not {path for path in line.unsupported if "slices" in path or "all_to_all" in path} and not line.notes
    text = line.text.replace("\\\n", " ")
    assert all(option in " ".join(text.split()) for option in options.split(" --")), text
    found = settings("sglang", line.text)
    assert {name: found[name] for name in sizes if name.endswith("_tp")} == {
        name: value for name, value in sizes.items() if name.endswith("_tp")
    }
    assert found["dp"] == 8.0 and found.get("etp", 1.0) == mapping.get("etp", 1.0)


@pytest.mark.parametrize(
    ("tool", "mapping", "words"),
    [
        ("sglang", dict(tp=1, dp=8, ep=1, etp=8), ["--tp-size 8", "--dp-size 8", "--enable-dp-attention"]),
        ("vllm", dict(tp=1, dp=8, ep=1, etp=8), ["--data-parallel-size 8"]),
        ("vllm", dict(tp=2, dp=4, ep=1, etp=8), ["--tensor-parallel-size 2", "--data-parallel-size 4"]),
        ("tensorrt-llm", dict(tp=1, dp=8, ep=1, etp=8), ["--tp_size 8", "enable_attention_dp: true"]),
        ("tensorrt-llm", dict(tp=1, dp=8, ep=2, etp=4), ["--tp_size 8", "--ep_size 2", "enable_attention_dp: true"]),
        ("sglang", dict(tp=1, dp=8, ep=4, etp=2), ["--tp-size 8", "--ep-size 4", "--enable-dp-attention"]),
    ],
)
def test_experts_in_slices_over_ranks_of_attention_are_read_back_from_all_engines(tool, mapping, words):
    """Of R1 on 8 devices: attention whole on each rank, an expert in ``etp`` slices, ``ep etp`` are all ranks."""
    study = STUDIES["serving"]
    design = study.complete(dse.design("deepseek-v3", "h200", tool, precision="fp8", **mapping))
    line = launch(design, tool, study)
    text = " ".join(line.text.replace("\\\n", " ").split())
    assert all(word in text for word in words) and "expert-parallel" not in text, text
    values = read_arguments(tool, line.text, workload="deepseek-v3")
    found = {**values.defaults, **values.settings}
    assert {name: found.get(name, 1.0) for name in mapping} == mapping


def test_tensor_parallel_experts_of_tensorrt_llm_are_their_width():
    values = settings("tensorrt-llm", "trtllm-serve m --tp_size 8 --enable_attention_dp --moe_tensor_parallel_size 4")
    assert (values["dp"], values["ep"], values["etp"]) == (8.0, 2.0, 4.0)


@pytest.mark.parametrize("model", ["llama-3-70b", "qwen3-235b-a22b"])
def test_models_without_shared_experts_lack_no_option_for_them(model):
    study = STUDIES["serving"]
    mapping = dict(tp=1, dp=8, dense_tp=8, head_tp=8) | (dict(ep=8) if "qwen" in model else {})
    line = launch(study.complete(dse.design(model, "h200", "sglang", precision="fp8", **mapping)), "sglang", study)
    assert ("--enable-dp-attention", "") in line.options and "mapping.slices.shared_tp" not in line.unsupported


def test_other_engines_have_no_slices_but_those_of_experts():
    """vLLM and TensorRT-LLM split dense layers over tp alone; a line of SGLang tells what a design has otherwise."""
    study = STUDIES["serving"]
    for tool in ("vllm", "tensorrt-llm", "sglang"):
        mapping = dict(tp=1, dp=8, etp=8, precision="fp8")
        sliced = study.complete(dse.design("deepseek-v3", "h200", tool, **mapping, dense_tp=8))
        assert ("mapping.slices.dense_tp" in launch(sliced, tool, study).unsupported) == (tool != "sglang")
        plain = launch(study.complete(dse.design("deepseek-v3", "h200", tool, **mapping)), tool, study)
        assert any("shared_tp" in note for note in plain.notes) == (tool == "sglang")


def test_a_file_of_tensorrt_llm_counts_before_its_line():
    text = (
        "cat > c.yml <<EOF\nmax-num-tokens: 4096\nkv-cache-config:\n  free-gpu-memory-fraction: 0.8\n  dtype: fp8\n"
        "moe_config:\n  load_balancer: {num_slots: 288}\n  backend: WIDEEP\nenable_attention_dp: true\n"
        "attention_dp_config: {enable_balance: true, timeout_iters: 20}\ncuda_graph_config: null\nEOF\n"
        "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --max_num_tokens 8192 --config c.yml"
    )
    reading = read({"run.sh": text}, TOOLS, system="b200")
    values = {short_name(path): value for path, value in reading.values.items()}
    assert values["chunk"] == 4096 and values["cache_bytes"] == 1 and values["redundant_experts"] == 32
    assert values["expert_balance"] == 1 and values["graphs"] == 0
    assert (values["prompt_balance"], values["prompt_timeout"], values["prompt_batching"]) == (1, 20, 10)
    assert reading.raw["--kv_cache_free_gpu_memory_fraction"] == "0.8"
    assert {row.option: row.moves for row in reading.options}["moe_config.backend"] == "time"


def test_defaults_are_told_apart():
    reading = read({"run.sh": VLLM + "-tp 8"}, TOOLS, system="h200")
    defaults = {row.option for row in reading.options if row.status == DEFAULT}
    assert {
        "--max-num-batched-tokens",
        "--gpu-memory-utilization",
    } <= defaults and "--tensor-parallel-size" not in defaults


def test_the_static_share_of_sglang():
    """On H100 with tp 8: 512 + 1.5 x 8192 + 2 x 512 + 1024 MiB of 81559 MiB (_handle_gpu_memory_settings of 0.5.5)."""
    assert static_share({"--tp-size": "8"}, 81559 * 2.0**20) == pytest.approx((81559 - 14848) / 81559)
    apart = {"--tp-size": "8", "--dp-size": "8", "--enable-dp-attention": ""}
    assert static_share(apart, 143771 * 2.0**20) == pytest.approx((143771 - 14848 - 512 * 8 * 4.5) / 143771)


FORMATS = [
    ("nvidia/Llama-3.1-70B-Instruct-FP8", "fp8"), ("RedHatAI/Qwen3-32B-FP8-dynamic", "fp8-row"),
    ("Qwen/Qwen2.5-72B-Instruct-AWQ", "w4a16"), ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "w4a16"),
    ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "w8a16"), ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "w4a16"),
    ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "int8"), ("nvidia/DeepSeek-R1-0528-NVFP4", "nvfp4"),
    ("nvidia/DeepSeek-R1-FP4", "nvfp4"), ("openai/gpt-oss-120b", "mxfp4-experts"), ("amd/DeepSeek-R1-MXFP4", "mxfp4"),
    ("deepseek-ai/DeepSeek-V3.1", "fp8-block"), ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "bf16"),
    ("moonshotai/Kimi-K2-Thinking", "int4-experts"),
    ("moonshotai/Kimi-K2-Instruct", "fp8-block"),
    ("Qwen/Qwen3-235B-A22B-FP8", "fp8-block"), ("nvidia/Qwen3-8B-FP8", "fp8"),
    ("/models/DeepSeek-R1-0528", "fp8-block"),
    ("meta-llama/Llama-3.1-405B-Instruct-FP8", "fp8-row"), ("zai-org/GLM-4.5-Air-FP8", "fp8-row"),
    ("meta-llama/Llama-3.1-8B-Instruct", ""),
]  # fmt: skip


@pytest.mark.parametrize(("model", "form"), FORMATS)
def test_formats_of_checkpoints_by_their_names(model, form):
    assert model_format(model) == form


def test_a_chip_without_a_format_widens_it():
    assert format_leaves("nvfp4", "h100-sxm-80gb") == {"mapping.precision": 2.0, "mapping.serving.weight_bytes": 0.5625}
    assert format_leaves("nvfp4", "b200-sxm-180gb") == {"mapping.precision": 11.0}


CLIENTS = [
    ("vllm bench serve --random-input-len 8192 --random-output-len 1024 --random-range-ratio 0.3 --max-concurrency 64",
     {"prompt_tokens": 8192, "output_tokens": 1024, "load": 0, "concurrency": 64, "length_spread": 0.3 / 3**0.5}),
    ("python3 benchmark_serving.py --dataset-name random --random-input-len 1000 --random-output-len 500 "
     "--request-rate 4", {"load": 4, "request_rate": 4}),
    ("vllm bench serve --random-input-len 1000 --random-output-len 500 --num-prompts 200", {"load": 3, "queue": 200}),
    ("python3 -m sglang.bench_serving --random-input 1000 --random-output 1000 --max-concurrency 8 "
     "--random-range-ratio 1.0", {"prompt_tokens": 1000, "concurrency": 8}),
    # lengths from ratio x L to L: by default from 0
    ("python3 -m sglang.bench_serving --random-input-len 1000 --random-output-len 400 --max-concurrency 8",
     {"prompt_tokens": 500, "output_tokens": 200, "length_spread": 1 / 3**0.5}),
    ("aiperf profile --isl 2000 --isl-stddev 200 --osl 300 --concurrency 32",
     {"prompt_tokens": 2000, "output_tokens": 300, "length_spread": 0.1, "load": 0, "concurrency": 32}),
    ("genai-perf profile --synthetic-input-tokens-mean 3000 --output-tokens-mean 150 --request-rate 2.5",
     {"prompt_tokens": 3000, "output_tokens": 150, "load": 4, "request_rate": 2.5}),
    ("guidellm benchmark --rate-type concurrent --rate 16 --data 'prompt_tokens=256,output_tokens=128'",
     {"prompt_tokens": 256, "output_tokens": 128, "concurrency": 16}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "leaves"), CLIENTS, ids=range(len(CLIENTS)))
def test_loads_of_clients(line, leaves):
    values = values_of(f"{VLLM} -tp 8 &\nsleep 60\n{line} --model m --port 8000\n", system="h200")
    assert {name: values[name] for name in leaves} == pytest.approx(leaves)
    assert values["tp"] == 8


def test_variables_that_name_a_load():
    values = values_of(f"ISL=8192\nOSL=1024\nCONC=64\n{VLLM} -tp 8\nrun_client.sh\n", system="h200")
    assert (values["prompt_tokens"], values["output_tokens"], values["concurrency"]) == (8192, 1024, 64)


def test_keys_within_a_table_are_not_those_of_the_engine():
    text = (
        "tensor_parallel_size: 8\nmax_batch_size: 256\ncuda_graph_config: {max_batch_size: 64, enable_padding: true}\n"
    )
    reading = read({"options.yaml": text}, TOOLS, tool="tensorrt-llm", workload="deepseek-v3", system="h200")
    assert reading.values["software.engine.most_sequences"] == 256
    draft = "speculative-config: {model: x/y, num_speculative_tokens: 3}"
    text = f"model: deepseek-ai/DeepSeek-V3\ntensor-parallel-size: 8\n{draft}"
    reading = read({"options.yaml": text}, TOOLS, tool="vllm", system="h200")
    assert reading.workload == "deepseek-v3" and reading.values["mapping.serving.drafts"] == 3


def test_options_of_a_launcher_in_front_are_none_of_the_engine():
    reading = read({"run.sh": f"mpirun -n 1 --oversubscribe {TRT} --tp_size 8"}, TOOLS, system="h200")
    assert {row.option for row in reading.options if row.status == "unknown"} == set()


# What the checkpoint has in blocks an option of 8 bits does not change; half precision, where it is said, or the
# chip has no other (vllm/config/model.py, _resolve_auto_dtype).
TYPES = [
    ("--model deepseek-ai/DeepSeek-R1 --quantization fp8", "h200", {"precision": 5}),
    ("--model meta-llama/Llama-3.1-8B-Instruct --quantization fp8", "h200", {"precision": 4}),
    ("--model Qwen/Qwen3-32B-FP8", "a100", {"precision": 2, "weight_bytes": 1.0}),
    ("--model mistralai/Mixtral-8x7B-v0.1 --dtype half", "a100", {"precision": 3}),
    ("--model Qwen/Qwen2.5-72B-Instruct-AWQ --dtype float16", "a100", {"precision": 3, "weight_bytes": 0.53125}),
    ("--model Qwen/Qwen3-32B-FP8 --dtype float16", "h100", {"precision": 5}),
    ("--model Qwen/Qwen3-8B", "v100-sxm-32gb", {"precision": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "chip", "leaves"), TYPES)
def test_types_of_products(text, chip, leaves):
    reading = read({"a.sh": f"vllm serve {text}"}, TOOLS, system=chip)
    values = {short_name(path): value for path, value in reading.values.items()}
    assert {name: values[name] for name in leaves} == leaves
    assert ("weight_bytes" in values) == ("weight_bytes" in leaves)


PROGRAMS = [
    ("from vllm import LLM, SamplingParams\nTP = 4\nllm = LLM(model='Qwen/Qwen2.5-72B-Instruct-AWQ', "
     "tensor_parallel_size=TP, max_num_seqs=64, speculative_config={'method': 'ngram', 'num_speculative_tokens': 4})\n"
     "SamplingParams(temperature=0.8, max_tokens=64)", "vllm", {"tp": 4, "most_sequences": 64, "drafts": 4}),
    ("import sglang as sgl\nsgl.Engine(model_path='Qwen/Qwen3-235B-A22B', tp_size=8, dp_size=8, "
     "enable_dp_attention=True)", "sglang", {"tp": 1, "dp": 8, "etp": 8}),
    ("from tensorrt_llm import LLM\nfrom tensorrt_llm.llmapi import KvCacheConfig\n"
     "LLM('nvidia/Llama-3.3-70B-Instruct-FP8', tensor_parallel_size=2, max_batch_size=256, "
     "kv_cache_config=KvCacheConfig(dtype='fp8'))", "tensorrt-llm",
     {"tp": 2, "most_sequences": 256, "cache_bytes": 1, "precision": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tool", "leaves"), PROGRAMS, ids=["vllm", "sglang", "tensorrt-llm"])
def test_engines_in_programs(text, tool, leaves):
    reading = read({"run.py": text}, TOOLS, system="h100")
    values = {short_name(path): value for path, value in reading.values.items()}
    assert reading.tool.name == tool and reading.workload
    assert {name: values[name] for name in leaves} == leaves


def test_a_built_engine_has_the_ranks_of_its_checkpoint():
    text = (
        "python convert_checkpoint.py --model_dir ./llama-3-8b --output_dir ./ckpt --tp_size 4\n"
        "trtllm-build --checkpoint_dir ./ckpt --max_batch_size 64 --output_dir ./engine\n"
    )
    reading = read({"build.sh": text}, TOOLS, system="h100")
    assert reading.tool.name == "tensorrt-llm" and "trtllm-build" in reading.notes[0]
    assert reading.values["mapping.tp"] == 4 and reading.values["software.engine.most_sequences"] == 64
