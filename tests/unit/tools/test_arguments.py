"""Argument lists as people write them, right and wrong, become designs or are refused."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.doors import STUDIES
from dse.errors import InputError
from dse.tools import read_arguments, settings

SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes 64
)
GPT_MODEL_ARGS=( --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 )
TRAINING_ARGS=(
    --micro-batch-size 1  # sequences
    --global-batch-size 1536
    --fp16
)
MODEL_PARALLEL_ARGS=(
\t--tensor-model-parallel-size 8
\t--pipeline-model-parallel-size 16
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]}
"""

#: Tool, arguments, and some of what they state.
RIGHT = {
    "a shell script for Megatron-LM": ("megatron-lm", SCRIPT, {"tp": 8, "pp": 16, "global_batch": 1536}),
    "overrides of NeMo": (
        "megatron-bridge",
        "python train.py trainer.num_nodes=8 model.tensor_model_parallel_size=8 ++model.pipeline_model_parallel_size=4 "
        "+model.sequence_parallel=True model.micro_batch_size=1 model.global_batch_size=256",
        {"tp": 8, "pp": 4, "sequence_parallel": 1, "micro_batch": 1, "global_batch": 256},
    ),
    "short options of vLLM": (
        "vllm", "vllm serve deepseek-ai/DeepSeek-V3 -tp 1 -dp=8 --enable-expert-parallel --max_num_seqs 256",
        {"tp": 1, "dp": 8, "ep": 8, "most_sequences": 256},
    ),
    "ranks of SGLang": (
        "sglang", "python3 -m sglang.launch_server --model-path m --tp 16 --dp 8 --enable-dp-attention",
        {"tp": 2, "dp": 8},
    ),
    "drafts of vLLM": (
        "vllm", """vllm serve m --speculative-config '{"method": "eagle3", "num_speculative_tokens": 3}'""",
        {"drafts": 3},
    ),
    "copies of experts of vLLM": ("vllm", """--enable-eplb --eplb-config '{"num_redundant_experts": 32}'""",
                                  {"redundant_experts": 32}),
    "copies of experts of vLLM behind dots": ("vllm", "--eplb-config.num_redundant_experts 16",
                                              {"redundant_experts": 16}),
    "copies of experts of SGLang": ("sglang", "--enable-eplb --ep-num-redundant-experts 32",
                                    {"redundant_experts": 32}),
    "drafts of vLLM behind dots": ("vllm", "--speculative-config.num_speculative_tokens 2", {"drafts": 2}),
    "no chunks": ("vllm", "vllm serve m --enable-chunked-prefill --no-enable-chunked-prefill", {"mixed": 0}),
    "chunks after all": ("vllm", "vllm serve m --no-enable-chunked-prefill --enable-chunked-prefill", {"mixed": 1}),
    "a tree of SGLang": (
        "sglang", "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16",
        {"drafts": 3},
    ),
    "drafts of SGLang with their root": ("sglang", "--speculative-num-draft-tokens 4", {"drafts": 3}),
    "numbers of all ranks": (
        "sglang", "--tp 8 --dp 8 --enable-dp-attention --chunked-prefill-size 32768 --max-running-requests 100",
        {"chunk": 4096, "most_sequences": 12},
    ),
    "ranks of TensorRT-LLM": (
        "tensorrt-llm", "cat > o.yml <<EOF\nenable_attention_dp: true\nEOF\ntrtllm-serve m --tp_size 8 --ep_size 8",
        {"tp": 1, "dp": 8, "ep": 8},
    ),
    "TensorRT-LLM": ("tensorrt-llm", "trtllm-serve m --tp_size 8 --ep_size 8 --max_batch_size 64", {"tp": 8, "ep": 8}),
    "lines of Windows": (
        "megatron-lm", "--tensor-model-parallel-size 8 \\\r\n --micro-batch-size 2\r\n", {"micro_batch": 2},
    ),
    "one that is given twice": (
        "megatron-lm", "--tensor-model-parallel-size 8 --tensor-model-parallel-size 4", {"tp": 4},
    ),
}  # fmt: skip

WRONG = (
    "",
    "# nothing",
    "--lr 1e-4",
    "--tensor-parallel-size 8 -tp 4",
    "--tensor-model-parallel-size",
    "--tensor-model-parallel-size 8,",
    "--tensor-model-parallel-size ${TP}",
    "--tensor-model-parallel-size 8 4",
    "--tensor-model-parallel-size nan",
    "--tensor-model-parallel-size 1e999",
    "--hidden-size 0 --num-attention-heads 0",
    "--tensor-model-parallel-size 'abc",
    " ".join(f"--o{i} 1" for i in range(5000)),
    "\x00--\x00",
    "--",
    "(" * 2000,
)


#: Those of engines.
WRONG_OF_ENGINES = (
    ("vllm", "--speculative-config '{num_speculative_tokens: 3}'"), ("vllm", f"--speculative-config {'[' * 5000}"),
    ("vllm", """--speculative-config '{"num_speculative_tokens": 2.5}'"""), ("sglang", "--speculative-num-steps 2.5"),
    ("vllm", """--speculative-config '{"num_speculative_tokens": 1e999}'"""),
    ("vllm", """--speculative-config '{"num_speculative_tokens": null}'"""), ("sglang", "--speculative-num-steps -1"),
    ("sglang", "--speculative-num-draft-tokens 0"), ("sglang", "--mem-fraction-static nan"),
    ("sglang", "--dp-size 0 --tp-size 8 --enable-dp-attention"),
)  # fmt: skip


@pytest.mark.parametrize(("tool", "text"), WRONG_OF_ENGINES, ids=range(len(WRONG_OF_ENGINES)))
def test_wrong_options_of_engines_are_refused(tool, text):
    with pytest.raises(InputError) as refused:
        settings(tool, text)
    assert refused.value.where == "arguments"


def test_what_is_not_read_as_it_is_is_told():
    tree = "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16"
    assert "counts as a chain" in read_arguments("sglang", tree).notes[0]
    assert not read_arguments("sglang", tree.replace("topk 4", "topk 1")).notes
    slots = "cat > c.yml <<EOF\nmoe_config: {load_balancer: {num_slots: 288}}\nEOF\ntrtllm-serve m --tp_size 8"
    assert any("set redundant_experts" in note for note in read_arguments("tensorrt-llm", slots).notes)
    assert "set drafts" in read_arguments("sglang", "--tp 8 --speculative-algorithm EAGLE3").notes[0]
    assert "set drafts" in read_arguments("vllm", """-tp 8 --speculative-config '{"method": "mtp"}'""").notes[0]


@pytest.mark.parametrize("name", RIGHT)
def test_lists_as_people_write_them(name):
    tool, text, wanted = RIGHT[name]
    found = settings(tool, text)
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_wrong_lists_are_refused(text):
    with pytest.raises(InputError) as refused:
        settings("megatron-lm", text)
    assert refused.value.where == "arguments"


def test_options_of_other_tools_are_told():
    found = read_arguments("megatron-lm", "--micro-batch-size 2 --tensor-parallel-size 8 --context_length 4096")
    assert found.foreign_options == {"--tensor-parallel-size": "tp"}
    whole = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    assert read_arguments("megatron-lm", whole).foreign_options == {}


def test_a_leaf_has_one_value_whatever_it_is_called(tmp_path):
    file = tmp_path / "arguments.txt"
    file.write_text("--tensor-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 64 --tp-size 3")
    asked = ["launch", "-w", "llama-3-8b", "-s", "h100", "-n", "8", "--for", "megatron-lm", "--arguments", str(file)]
    done = CliRunner().invoke(app, [*asked, "--set", "mapping.tp=8", "--set", "workload.global_batch=64"])
    assert done.exit_code == 0, done.output
    assert "--tensor-model-parallel-size 8" in done.stdout and "--tensor-model-parallel-size 4" not in done.stdout
    assert "tp: the arguments state 4, --set 8, which counts" in done.stderr
    assert "global_batch:" not in done.stderr  # both say the same
    assert "stated: --set micro_batch=2" in done.stderr and "--set tp=4" not in done.stderr
    told = json.loads(CliRunner().invoke(app, [*asked, "--set", "mapping.tp=8", "--json"]).stdout)
    assert told["settings"]["tp"] == 4 and "size 8" in told["line"]
    assert CliRunner().invoke(app, [*asked, "--set", "tp=many"]).exit_code == 2
    assert CliRunner().invoke(app, [*asked, "--set", "nonsense=1"]).exit_code == 2


def test_options_that_are_not_read_are_listed(tmp_path):
    """Those that say nothing of a design, those that dse does not model, and values of which it knows nothing."""
    text = "vllm serve m -tp 8 --enable-dbo --all2all-backend pplx --kv-cache-dtype turboquant_k8v4 --port 80"
    found = read_arguments("vllm", text)
    assert found.settings == {"tp": 8.0}
    assert set(found.unread) == {"--enable-dbo", "--all2all-backend", "--kv-cache-dtype", "--port"}
    two = read_arguments("sglang", "python3 -m sglang.launch_server --tp 8 --ep 8 --enable-two-batch-overlap")
    assert two.unread == ("--enable-two-batch-overlap",)
    assert read_arguments("megatron-lm", "--tensor-model-parallel-size 8 --lr 1e-4").unread == ("--lr",)
    file = tmp_path / "arguments.txt"
    file.write_text(text)
    asked = ["launch", "-w", "llama-3-70b", "-s", "h100", "--for", "vllm", "--arguments", str(file)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0 and "not read: --enable-dbo, --all2all-backend, --kv-cache-dtype, --port" in done.stderr
    assert json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["not_read"] == list(found.unread)
    file.write_text("vllm serve m -tp 8")
    assert "not read" not in CliRunner().invoke(app, asked).stderr


@pytest.mark.parametrize(
    ("tool", "text", "wanted", "unread"),
    [
        ("vllm", "--enable-expert-parallel -dp 16 --all2all-backend deepep_high_throughput", {"all_to_all": 2}, ()),
        ("sglang", "--tp 16 --ep 16 --moe-a2a-backend deepep", {"all_to_all": 2, "ep": 16}, ()),
        # without ranks the exchange puts experts on the one that there is, whatever --ep says
        ("sglang", "--ep 16 --moe-a2a-backend deepep", {"all_to_all": 2}, ("--ep-size",)),
        ("tensorrt-llm", "enable_attention_dp: true\nspeculative_config:\n  decoding_type: MTP\n"
         "  num_nextn_predict_layers: 3\nkv_cache_config:\n  enable_block_reuse: false\n  dtype: fp8\nEOF\n"
         "trtllm-serve m --tp_size 8", {"drafts": 3, "cache_bytes": 1, "dp": 8, "tp": 1},
         ("speculative_config.decoding_type", "kv_cache_config.enable_block_reuse")),
    ],
)  # fmt: skip
def test_messages_drafts_and_caches_of_engines(tool, text, wanted, unread):
    found = read_arguments(tool, text)
    assert {name: found.settings[name] for name in wanted} == wanted and found.unread == unread


def test_a_share_of_memory_among_the_entries_of_a_file_is_that_of_its_option():
    entries = "kv_cache_config:\n  free_gpu_memory_fraction: 0.8\n  dtype: auto\nEOF\ntrtllm-serve m --tp_size 8"
    alone = read_arguments("tensorrt-llm", entries)
    assert "--kv_cache_free_gpu_memory_fraction is left out" in alone.notes[0] and "memory_share" not in alone.settings
    design = STUDIES["serving"].complete(dse.design("llama-3-70b", "h100", tp=8))
    by_file = read_arguments("tensorrt-llm", entries, design).settings
    line = "trtllm-serve m --tp_size 8 --kv_cache_free_gpu_memory_fraction "
    assert by_file == read_arguments("tensorrt-llm", line + "0.8", design).settings
    assert by_file["memory_share"] > read_arguments("tensorrt-llm", line + "0.5", design).settings["memory_share"]
