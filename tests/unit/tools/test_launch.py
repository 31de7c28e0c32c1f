"""Launch lines: options that exist, what has none, and designs read back."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs import leaf, replace
from dse.designs.records import PLAIN_MAPPING
from dse.doors import STUDIES
from dse.errors import InputError
from dse.tools import TOOLS, launch, read_arguments, settings as read, unsupported_hardware
from dse.tools.deepspeed import HOST_UPDATE
from dse.tools.engines import longest_request
from dse.tools.options import CACHE_TOKENS
from dse.types import Precision, Recompute

DOCUMENTED = tomllib.loads((Path(__file__).parent / "options.toml").read_text())

RECORDS = {
    "cp_comm_type": "p2p",
    "secondary": 0,
    "storage_optimizer": 0,
    "moment_bytes": "4 B",
    "parameter_bytes": "4 B",
    "keeps_products": 1,
}
DENSE = dse.design("llama-3-70b", "eos", tp=8, pp=4, dp=16, global_batch=512, **RECORDS)
EXPERTS = dse.design(
    "deepseek-v3", "h800-cluster", "deepseek-dualpipe", pp=16, dp=128, ep=64, global_batch=15360, **RECORDS
)
SERVED = dse.design("deepseek-v3", "h200", kind="serving", dp=8, ep=8, dense_tp=1, precision="fp8")
BASES = {"training": (DENSE, EXPERTS), "serving": (SERVED,)}

#: Values that an option may have, by leaf: every way to write or to leave out an option comes up.
VALUES = {
    "mapping.recompute": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "mapping.recompute_share": [0.5, 1.0],
    "mapping.zero_stage": [0.0, 1.0, 2.0, 3.0],
    "mapping.dp_replicate": [1.0, 2.0],
    "mapping.cp": [1.0, 2.0],
    "mapping.virtual_stages": [1.0, 5.0],
    "mapping.sequence_parallel": [0.0, 1.0, 2.0, 3.0],
    "mapping.overlap_dp": [0.0, 1.0],
    "mapping.overlap_tp": [0.0, 1.0],
    "mapping.placement": [0.0, 1.0],
    "mapping.offload_optimizer": [0.0, 0.5, 1.0],
    "mapping.offload_weights": [0.0, 1.0],
    "mapping.precision": [float(code) for code in Precision],
    "mapping.schedule": [0.0, 1.0, 2.0, 4.0, 5.0],
    "mapping.graph": [0.0, 1.0, 2.0],
    "mapping.context.cp_comm_type": [0.0, 1.0, 2.0, 3.0],
    "mapping.tiers.storage_optimizer": [0.0, 1.0],
    "mapping.sharding.secondary": [0.0, 1.0],
    "software.moment_bytes": [2.0, 4.0],
    "software.weight_message_bytes": [1.0, 2.0],
    "software.keeps_products": [0.0, 1.0],
    "software.parameter_bytes": [0.0, 2.0, 3.0, 4.0],
}
OF_SERVING = {
    "mapping.precision": VALUES["mapping.precision"], "mapping.serving.cache_bytes": [2.0, 1.0, 0.5],
    "mapping.serving.drafts": [0.0, 3.0], "mapping.serving.mixed": [0.0, 1.0], "mapping.tp": [1.0, 2.0],
    "mapping.experts.ep": [1.0, 8.0, 16.0], "mapping.dp": [1.0, 8.0],
    "mapping.slices.dense_tp": [1.0, 8.0], "mapping.slices.head_tp": [1.0, 8.0, 16.0],
    "mapping.serving.redundant_experts": [-1.0, 0.0, 32.0], "mapping.serving.expert_balance": [0.0, 1.0, 2.0],
    "mapping.serving.step_overlap": [0.0, 1.0, 2.0], "mapping.serving.graphs": [0.0, 1.0],
    "mapping.serving.prompt_balance": [0.0, 1.0], "mapping.serving.prompt_timeout": [30.0, 50.0],
    "mapping.serving.prompt_batching": [0.0, 10.0], "mapping.serving.reserved_answer": [0.0, 0.3, 0.6, 1.0],
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(data=st.data(), tool=st.sampled_from(sorted(name for name in TOOLS if not TOOLS[name].reads_only)))
def test_options_are_those_that_the_documentation_names(data, tool):
    """And whatever a design asks for is either an option or told to have none."""
    study = TOOLS[tool].study
    values = OF_SERVING if study == "serving" else VALUES
    chosen = {path: data.draw(st.sampled_from(of), path) for path, of in values.items()}
    line = launch(replace(data.draw(st.sampled_from(BASES[study])), chosen), tool, STUDIES[study])
    assert {name for name, _ in line.options} <= set(DOCUMENTED[tool]["names"].split())
    # vLLM splits experts where nothing is said, torchtitan the state over ranks of context parallelism, DeepSpeed
    # updates an offloaded state on the host, messages of DDP and FSDP overlap
    # and SGLang has shared experts in slices
    implied = {
        "mapping.experts.ep",
        "mapping.experts.etp",
        "mapping.slices.shared_tp",
        "mapping.zero_stage",
        "mapping.overlap_dp",
        *HOST_UPDATE,
    }
    assert not {name for name in {*line.unsupported} - implied if chosen.get(name) == PLAIN_MAPPING.get(name, None)}
    assert all(value.count('"') % 2 == 0 for _, value in line.options)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    tool=st.sampled_from(["megatron-lm", "megatron-bridge", "maxtext", "torchtitan", "vllm", "sglang", "tensorrt-llm"]),
)
def test_a_line_is_read_back(data, tool):
    """What a line states is what the design had, but for what the tool has no option for."""
    study = TOOLS[tool].study
    chosen = {
        path: data.draw(st.sampled_from(of), path)
        for path, of in (OF_SERVING if study == "serving" else VALUES).items()
        if path not in ("mapping.recompute_share", "mapping.offload_weights")
    }
    design = replace(data.draw(st.sampled_from(BASES[study])), chosen)
    line = launch(design, tool, STUDIES[study])
    stated = {dse.designs.leaves.leaf_path(name): value for name, value in read(tool, line.text, design).items()}
    assert stated, line.text
    assert_stated(stated, design, line)


#: Values that a tool has one name for.
ALIKE = {
    "mapping.sequence_parallel": [{1.0, 2.0}],
    "mapping.precision": [{4.0, 5.0, 9.0}],
    # off or on by the ranks of experts, and as many copies as these need
    "mapping.serving.expert_balance": [{0.0, 2.0}, {1.0, 2.0}],
    "mapping.serving.step_overlap": [{0.0, 2.0}, {1.0, 2.0}],
    "mapping.serving.redundant_experts": [{-1.0, 0.0}, {-1.0, 32.0}],
    "software.uneven_layers": [{0.0, 1.0}],  # of a layout, which a line has where layers are not divisible
}


def assert_stated(stated, design, line):
    """The values are those of the design, but for what the tool has no option for."""
    for path, value in stated.items():
        had = float(leaf(design, path) or 0.0)
        same = value == pytest.approx(had, rel=1e-5) or any({value, had} <= one for one in ALIKE.get(path, []))
        of_experts = path == "mapping.experts.etp" and "mapping.experts.ep" in line.unsupported
        # the Trainer has no option of gradients: their format is that of the weights
        weights = 2.0 if "dtype" in dict(line.options) else 4.0
        of_weights = path == "software.gradient_bytes" and line.tool.stack_tool == "fsdp" and value == weights
        assert same or path in line.unsupported or of_experts or of_weights, (path, value, had, line.text)


@pytest.mark.parametrize(
    ("mapping", "flag", "lacks"),
    [(dict(tp=8), False, False), (dict(tp=8, ep=8), True, False), (dict(tp=4, dp=2), False, True),
     (dict(tp=8, ep=4), False, True), (dict(tp=1, dp=8, etp=8), False, False)],
)  # fmt: skip
def test_vllm_splits_experts_over_all_ranks(mapping, flag, lacks):
    """By whole experts with its flag, by their width without it; replicas that hold all of them are other processes."""
    design = STUDIES["serving"].complete(dse.design("mixtral-8x7b", "h100", "vllm", **mapping))
    line = launch(design, "vllm", STUDIES["serving"])
    assert (("--enable-expert-parallel", "") in line.options) == flag
    assert ("mapping.experts.ep" in line.unsupported) == lacks


@pytest.mark.parametrize(("system", "nodes"), [("ascend-910c", "4 nodes of 8"), ("dgx-gb200", "8 nodes of 4"),
                                               ("gh200-144gb", "16 nodes of 2"), ("h200", "4 nodes of 8")])  # fmt: skip
def test_hosts_are_those_of_the_catalogue(system, nodes):
    """A domain of many hosts does not say how many devices one has."""
    study = STUDIES["serving"]
    design = study.complete(dse.design("llama-3-70b", system, kind="serving", tp=1, pp=1, dp=32, any_option=True))
    assert nodes in " ".join(launch(design, "vllm", study, system=system).notes)


def engine_line(tool, workload="llama-3-70b", system="h100", names=("", ""), stack=None, **mapping):
    design = STUDIES["serving"].complete(dse.design(workload, system, stack, **mapping))
    return design, launch(design, tool, STUDIES["serving"], *names)


@given(drafts=st.integers(0, 16), own=st.booleans(), tool=st.sampled_from(["vllm", "sglang"]))
@settings(max_examples=30, deadline=None)
def test_speculation_is_whole_and_read_back(drafts, own, tool):
    """A method wherever tokens are drafted by the model's own layers; else a note that says what must be named."""
    name = "deepseek-v3" if own else "llama-3-70b"
    line = engine_line(tool, name, "h200", (name, tool), drafts=drafts, tp=8, precision="fp8")[1]
    options = dict(line.options)
    assert read(tool, line.text).get("drafts", 0.0) == drafts
    assert any("name what drafts" in told for told in line.notes) == (drafts > 0 and not own)
    if drafts and tool == "sglang":
        assert options["--speculative-num-draft-tokens"] == f"{drafts + 1}"
        assert options["--speculative-num-steps"] == f"{drafts}" and options["--speculative-eagle-topk"] == "1"
        assert options["--speculative-algorithm"] == ("NEXTN" if own else "EAGLE")
    if drafts and tool == "vllm":
        method = {"method": "mtp"} if own else {}
        assert json.loads(options["--speculative-config"]) == method | {"num_speculative_tokens": drafts}


def test_layers_that_a_design_states_draft_too():
    design = replace(SERVED, {"workload.experts.n_predict": 1.0, "mapping.serving.drafts": 2.0})
    assert '"method": "mtp"' in launch(design, "vllm", STUDIES["serving"]).text


@pytest.mark.parametrize("tool", ["vllm", "sglang"])
def test_a_mean_of_drafts_is_no_option(tool):
    with pytest.raises(InputError, match=r"got 2\.5; allowed a whole number.*drafts=2 or drafts=3"):
        engine_line(tool, drafts=2.5, tp=4)


def test_vllm_is_told_not_to_chunk():
    """It does so unless told; then its step must hold a whole prompt."""
    line = engine_line("vllm", mixed=False, prompt_tokens=9000, tp=4)[1]
    assert "--no-enable-chunked-prefill" in line.text and read("vllm", line.text)["mixed"] == 0.0
    assert any("set chunk=10024" in told for told in line.notes)
    assert not engine_line("vllm", mixed=False, chunk=16384, prompt_tokens=9000, tp=4)[1].notes


@pytest.mark.parametrize(
    ("settings", "tokens", "why"),
    [
        ({}, 5248, "4 x the mean prompt and 4 x the mean answer"),  # 4 (1000 + 300) = 5200, in blocks of 64
        # 1000 exp(3.0902 sqrt(ln 1.25) - ln(1.25) / 2) = 3850 and 300 exp(3.0902 sqrt(ln 2) - ln(2) / 2) = 2780: 6630
        (dict(length_spread=0.5, answer_spread=1), 6656, "99.9th percentile of answers"),
        (dict(load="offline", queue=100, longest_answer=2000), 6016, "the longest answer"),  # 4000 + 2000
        (dict(prompt_tokens=40000), 131072, "up to the context of the model"),  # of 4 (40,000 + 300) = 161,200
        (dict(mixed=False, chunk=4096), 4096, "up to the limit of a step"),
        # a mean request at least: the reason is then its length, not the limit
        (dict(mixed=False, chunk=1024), 1300, "the mean prompt and answer, which exceed the limit of a step (1024"),
        (dict(prompt_tokens=140000), 140300, "mean prompt and answer, which exceed the context of the model (131072"),
    ],
    ids=str,
)
def test_engines_are_started_for_the_longest_requests(settings, tokens, why):
    """Means of lengths that vary, as they were, had engines refuse every second request."""
    asked = dict(tp=8, prompt_tokens=1000, output_tokens=300) | settings
    line = engine_line("vllm", "llama-3-1-70b", "h100", ("llama-3-1-70b", "vllm"), **asked)[1]
    assert dict(line.options)["--max-model-len"] == str(tokens) and why in line.comments[0]


def test_an_engine_is_started_for_no_longer_requests_than_its_cache_holds():
    """70.6e9 parameters in 2 bytes leave two H100 of 85e9 bytes 0.9 x 170 - 141 - 5 = 7 GB, of 327,680 B a token."""
    line = engine_line("vllm", "llama-3-1-70b", "h100", ("llama-3-1-70b", "vllm"), tp=2, prompt_tokens=15000)[1]
    assert 18e3 < float(dict(line.options)["--max-model-len"]) < 28e3 and "cache of a rank" in line.comments[0]


def test_a_cache_without_room_is_a_limit_of_no_tokens():
    """0 tokens of room are a limit below the mean request of 1000 + 300; no limit at all had 4 x 1300 = 5200."""
    values = {
        CACHE_TOKENS: 0.0,
        "workload.requests.prompt_tokens": 1000.0,
        "workload.requests.output_tokens": 300.0,
    }
    tokens, why = longest_request(values.get)
    assert tokens == 1300.0
    assert why == "the mean prompt and answer, which exceed what the cache of a rank has room for (0 tokens)"


def test_other_engines_are_started_for_the_longest_requests():
    for tool, option in (("sglang", "--context-length"), ("tensorrt-llm", "--max_seq_len")):
        line = engine_line(tool, "llama-3-1-70b", "h100", ("llama-3-1-70b", tool), tp=8)[1]
        assert dict(line.options)[option] == "8192" and line.comments[0].startswith(option)
    design = dse.design("llama-3-1-70b", "h100", "tensorrt-llm", kind="serving", tp=8)
    options = dict(launch(design, "tensorrt-llm", STUDIES["serving"], "llama-3-1-70b", role="decode").options)
    assert "max_tokens_in_buffer: 4096}" in options["cache_transceiver_config"]  # the longest prompt


def test_comments_state_the_load_of_a_design():
    asked = ["launch", "-w", "llama-3-70b", "-s", "h100", "--for", "vllm", "--set", "tp=8"]
    loads = ((["--set", "request_rate=3.5"], "3.50 requests/s"), ([], "32 requests in flight"))
    for more, words in loads:
        assert f"# load of the design: {words}" in CliRunner().invoke(app, [*asked, *more]).stdout


def test_tensorrt_llm_attends_apart_by_an_entry_of_its_file():
    design, line = engine_line("tensorrt-llm", "deepseek-v3", "h200", dp=8, ep=8, precision="fp8")
    assert "enable_attention_dp: true\n" in line.text and "--extra_llm_api_options" in line.text
    assert dict(line.options)["--tp_size"] == "8" and "mapping.dp" not in line.unsupported
    stated = read("tensorrt-llm", line.text, design)
    assert stated["dp"] == 8 and stated["tp"] == 1 and stated["ep"] == 8
    by_two = engine_line("tensorrt-llm", "deepseek-v3", "h200", tp=2, dp=4, ep=8)[1]
    assert {"mapping.tp", "mapping.dp"} <= by_two.unsupported.keys() and "enable" not in by_two.text
    replicas = engine_line("tensorrt-llm", tp=4, dp=2)[1]
    assert "--tp_size 4" in replicas.text and replicas.unsupported["mapping.dp"] == 2.0
    assert any("2 replicas" in told for told in replicas.notes)


@given(share=st.floats(0.3, 1.0), chunk=st.sampled_from([2048, 65536]), tp=st.sampled_from([4, 8]))
@settings(max_examples=20, deadline=None)
def test_shares_of_memory_are_of_the_same_bytes(share, chunk, tp):
    """The cache that an option leaves is the cache of the design: SGLang's share holds weights and cache alone, that of
    TensorRT-LLM is of what weights and activations leave free."""
    design, line = engine_line("sglang", memory_share=share, chunk=chunk, tp=tp)
    found = dse.serve(design)
    capacity = float(design.system.accelerator.memory.capacity)
    weights, runtime = float(found.peak_memory_weights) / capacity, float(found.peak_memory_runtime) / capacity
    cache = share - weights - runtime
    option = float(dict(line.options)["--mem-fraction-static"])
    assert option - weights == pytest.approx(cache, abs=1e-5)
    options = dict(launch(design, "tensorrt-llm", STUDIES["serving"]).options)
    told = options.get("--kv_cache_free_gpu_memory_fraction")
    assert (told is None) == (cache <= 0.0)
    if told:
        assert float(told) * (1.0 - weights - runtime) == pytest.approx(cache, abs=1e-5)


def test_a_share_of_memory_takes_a_design_to_be_read():
    found = read_arguments("sglang", "--mem-fraction-static 0.8 --tp 4")
    assert (
        found.settings == {"tp": 4.0}
        and found.design_dependent == ("--mem-fraction-static",)
        and "left out" in found.notes[0]
    )
    assert read("sglang", "--mem-fraction-static 0.8") == {}
    with pytest.raises(InputError, match="is not a share"):
        read("tensorrt-llm", "--kv_cache_free_gpu_memory_fraction 1.5")


def test_sglang_counts_tokens_and_requests_of_all_ranks_that_attend_apart():
    line = engine_line("sglang", "deepseek-v3", "h200", dp=8, ep=8, precision="fp8", chunk=4096, most_sequences=64)[1]
    options = dict(line.options)
    assert options["--chunked-prefill-size"] == "32768" and options["--max-running-requests"] == "512"
    stated = read("sglang", line.text)
    assert stated["chunk"] == 4096 and stated["most_sequences"] == 64
    replicas = dict(engine_line("sglang", tp=4, dp=2, chunk=4096)[1].options)
    assert replicas["--chunked-prefill-size"] == "4096" and "--enable-dp-attention" not in replicas


@pytest.mark.parametrize("tool", ["vllm", "sglang", "tensorrt-llm"])
def test_what_one_line_does_not_start_is_told(tool):
    """Several nodes, another engine's stack, sequences that the model does not take; nothing where all is as it is."""
    names = ("llama-3-70b", "vllm-2025")
    notes = engine_line(tool, "llama-3-70b", "eos", names, tp=16, prompt_tokens=9000)[1].notes
    assert sum("16 devices of one replica are on 2 nodes of 8" in told for told in notes) == 1
    assert sum("longer than the context" in told for told in notes) == 1
    assert sum(f"--software {tool}" in told for told in notes) == (tool != "vllm")
    assert engine_line(tool, "llama-3-70b", "eos", ("llama-3-70b", tool), tp=8)[1].notes == ()


def test_ranks_on_other_nodes_are_started_there():
    notes = engine_line("vllm", "deepseek-v3", "h200", dp=16, ep=16, precision="fp8")[1].notes
    assert len(notes) == 1 and "2 nodes of 8" in notes[0] and "--headless" in notes[0]


def test_megatron_is_told_of_positions_norms_and_biases():
    """Without --max-position-embeddings it does not start; without the others it trains another model than Llama."""
    options = launch(DENSE, "megatron-lm", STUDIES["training"]).options
    assert {
        ("--max-position-embeddings", "8192"),
        ("--position-embedding-type", "rope"),
        ("--normalization", "RMSNorm"),
        ("--disable-bias-linear", ""),
    } <= set(options)
    options = dict(launch(dse.design("gpt-3-175b", "selene", tp=8), "megatron-lm", STUDIES["training"]).options)
    assert options["--position-embedding-type"] == "learned_absolute" and options["--max-position-embeddings"] == "2048"
    assert not {"--normalization", "--disable-bias-linear"} & options.keys()


@pytest.mark.parametrize(("precision", "written", "listed"), [
    ("bf16", False, False), ("fp8", True, False), ("mxfp8", True, False), ("nvfp4", False, True),
])  # fmt: skip
@pytest.mark.parametrize("tool", ["megatron-lm", "megatron-bridge"])
def test_weights_are_gathered_in_8_bits_where_they_are_cast_to_them(tool, precision, written, listed):
    """The stack of GB200 does so under 8-bit formats; without one Megatron has nothing to gather."""
    line = launch(dse.design("llama-3-70b", "dgx-gb200", precision=precision), tool, STUDIES["training"])
    assert ("fp8-param-gather" in line.text.replace("_", "-")) == written
    assert ("software.weight_message_bytes" in line.unsupported) == listed


@pytest.mark.parametrize(
    ("tool", "system", "told"),
    [("megatron-lm", "tpu-v5p", "tpu-v5p of Google"), ("tensorrt-llm", "mi300x", "mi300x of AMD"),
     ("megatron-lm", "eos", ""), ("vllm", "mi300x-cluster", ""), ("maxtext", "tpu-v5p-pod", ""), ("vllm", "gpu", "")],
)  # fmt: skip
def test_hardware_that_a_tool_does_not_run_on_is_told(tool, system, told):
    found = unsupported_hardware(tool, system)
    assert found.startswith(told) and bool(found) == bool(told)


def test_the_command_tells_of_hardware_and_formats():
    asked = ["launch", "-w", "llama-3-8b", "-s", "mi300x", "--for", "tensorrt-llm", "--set", "precision=fp8"]
    done = CliRunner().invoke(app, asked)
    assert "has no option for mi300x of AMD (it runs on those of NVIDIA)" in done.stderr
    assert "# no option of tensorrt-llm 1.1: precision = fp8\n" in done.stdout


def test_the_command_has_the_stack_of_its_tool_and_comments_on_what_no_option_says():
    asked = ["launch", "-w", "deepseek-v3", "-s", "h200", "--for", "sglang", "--set", "ep=8", "--set", "dp=8",
             "--set", "drafts=3", "--set", "acceptance=0.6", "--set", "batch_size=64"]  # fmt: skip
    done = CliRunner().invoke(app, asked)
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("# load of the design: 64 requests in flight, 1024 prompt") and "0.6" in second
    assert "the design is of the stack" not in done.stderr and "--chunked-prefill-size 262144" in done.stdout
    named = CliRunner().invoke(app, [*asked, "--software", "vllm"])
    assert "the design is of the stack vllm" in named.stderr


@pytest.mark.parametrize("tool", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize(("model", "other"), [("deepseek-v3", "nvfp4"), ("gpt-oss-120b", "fp8")])
def test_a_checkpoint_says_its_own_format(tool, model, other):
    """No option where it is served as published; an option (or a comment) for another checkpoint of the model."""
    asked = ["launch", "-w", model, "-s", "b200", "--for", tool, "--set", "ep=8", "--set", "dp=8"]
    own = CliRunner().invoke(app, asked).stdout
    assert "--quantization" not in own and "precision" not in own
    changed = CliRunner().invoke(app, [*asked, "--set", f"precision={other}"]).stdout
    assert "--quantization" in changed or f"precision = {other}" in changed


def test_published_arguments_of_megatron():
    """GPT-3 175B of Megatron-LM's README, shortened: tp 8, pp 16, sequence parallelism, a distributed optimiser."""
    found = read(
        "megatron-lm",
        """
        --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
        --micro-batch-size 1 --global-batch-size 1536 --weight-decay 0.1 --fp16  # and so on
        --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --sequence-parallel
        --num-layers-per-virtual-pipeline-stage 3 --recompute-activations --use-distributed-optimizer
    """,
    )
    assert found["tp"] == 8 and found["pp"] == 16 and found["virtual_stages"] == 2 and found["zero_stage"] == 1
    assert found["recompute"] == Recompute.selective and found["head_dim"] == 128 and found["n_kv_heads"] == 96
    made = dse.design("gpt-3-175b", "selene", n_devices=1024, **found)
    assert float(made.mapping.dp) == 8


def test_deepspeed_is_a_file_of_json():
    line = launch(
        replace(DENSE, {"mapping.zero_stage": 3.0, "mapping.offload_optimizer": 1.0}), "deepspeed", STUDIES["training"]
    )
    document = json.loads(line.text)
    assert document["zero_optimization"] | {"overlap_comm": True} == {
        "stage": 3,
        "overlap_comm": True,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
    }
    assert document["gradient_accumulation_steps"] * document["train_micro_batch_size_per_gpu"] * 16 == 512
    assert line.unsupported["mapping.pp"] == 4.0


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"device": "cpu"}, {"pinned": 0.0}),  # pin_memory is off by default
        ({"device": "cpu", "pin_memory": True}, {"pinned": 1.0}),
        ({"device": "nvme"}, {"pinned": 1.0, "storage_optimizer": 1.0}),
        (
            {"device": "nvme", "pipeline_read": True, "pipeline_write": True},
            {"pinned": 1.0, "storage_optimizer": 1.0, "pipeline_read": 1.0, "pipeline_write": 1.0},
        ),
    ],
)
def test_deepspeed_states_the_schedule_of_its_swaps(state, expected):
    """And a design of it writes the same."""
    text = json.dumps({"zero_optimization": {"stage": 3, "offload_optimizer": state, "sub_group_size": 1e8}})
    settings = read("deepspeed", text)
    assert settings.items() >= {**expected, "offload_optimizer": 1.0, "sub_group_size": 1e8}.items()
    tiers = {f"mapping.tiers.{name}": value for name, value in {**expected, "sub_group_size": 1e8}.items()}
    written = launch(
        replace(DENSE, {"mapping.zero_stage": 3.0, "mapping.offload_optimizer": 1.0, **tiers}),
        "deepspeed",
        STUDIES["training"],
    )
    assert json.loads(written.text)["zero_optimization"]["offload_optimizer"] == state


@pytest.mark.parametrize(("tool", "told"), [("vllm", "a tool of serving"), ("megatron", "megatron-lm")])
def test_tools_that_do_not_run_a_design_are_told(tool, told):
    with pytest.raises(InputError, match=told):
        launch(DENSE, tool, STUDIES["training"])


def test_the_command_reads_shares_of_memory_by_the_weights(tmp_path):
    """Of the design that the other options make."""
    file = tmp_path / "arguments.txt"
    file.write_text("trtllm-serve m --tp_size 4 --kv_cache_free_gpu_memory_fraction 0.8")
    asked = ["launch", "-w", "llama-3-70b", "-s", "h100", "--for", "tensorrt-llm", "--arguments", str(file), "--json",
             "--software", "tensorrt-llm"]  # fmt: skip
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    assert 0.8 < found["settings"]["memory_share"] < 0.95 and found["notes"] == []
    assert float(found["line"].split("memory_fraction ")[1].split()[0]) == pytest.approx(0.8, abs=1e-5)


def test_the_command_reads_and_writes(tmp_path):
    file = tmp_path / "arguments.txt"
    file.write_text("--tensor-model-parallel-size 4 --global-batch-size 256 --recompute-activations")
    asked = ["launch", "-w", "llama-3-8b", "-s", "h100", "-n", "8", "--for", "megatron-lm", "--arguments", str(file)]
    done = CliRunner().invoke(app, [*asked, "--set", "schedule=gpipe", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["settings"]["tp"] == 4 and "--global-batch-size 256" in found["line"]
    assert found["no_option"] == {"schedule": 1.0} or found["no_option"] == {}
    file.write_text("--tensor-model-parallel-size many")
    bad = CliRunner().invoke(app, asked)
    assert bad.exit_code == 2 and "numbers for tp" in bad.output
    assert CliRunner().invoke(app, [*asked[:-1], str(tmp_path / "none")]).exit_code == 2


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("-w llama-3-70b -s h100 --for vllm --set tp=3", "tp=3, heads=64"),
        ("-w llama-3-70b -s h100 --for sglang --set tp=1", "weights 141.1 GB of 84.9 GB"),
        ("-w gpt-oss-120b -s h100 --for vllm --set precision=mxfp4", "expert_bytes=0.53 B"),
        ("-w llama-3-8b -s h100 --for megatron-lm --set tp=3 --set global_batch=3", "tp=3, heads=32"),
    ],
)
def test_a_line_that_cannot_start_is_told_so(asked, told):
    """By the reasons of dse evaluate, and its exit status; the line is there all the same."""
    done = CliRunner().invoke(app, ["launch", *asked.split()])
    assert done.exit_code == 1 and "cannot run\n" in done.stderr and told in done.stderr
    assert done.stdout and "cannot run" not in done.stdout
    document = CliRunner().invoke(app, ["launch", *asked.split(), "--json"])
    found = json.loads(document.stdout)
    assert document.exit_code == 1 and not found["feasible"]
    assert any(told in reason["numbers"] for reason in found["reasons"])


def test_a_line_that_starts_is_told_no_reason():
    asked = "-w llama-3-70b -s h100 --for vllm --set tp=4"
    done = CliRunner().invoke(app, ["launch", *asked.split(), "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["feasible"] and found["reasons"] == []


@pytest.mark.parametrize("tool", ["vllm", "sglang"])
@pytest.mark.parametrize(("text", "held"), [("mxfp4", {"expert_bytes": 0.53125}), ("awq", {"weight_bytes": 0.53125})])
def test_weights_that_are_kept_in_four_bits_are_multiplied_in_sixteen(tool, text, held):
    """As gpt-oss keeps its experts (MXFP4), and AWQ all weights: read as such a design, and written from one."""
    line = engine_line(tool, "gpt-oss-120b", **held)[1]
    assert ("--quantization", text) in line.options and not {*line.unsupported} & {"mapping.serving.expert_bytes"}
    assert read(tool, line.text) | held == read(tool, line.text)
    assert read(tool, f"--quantization {text}") == held | {"precision": float(Precision.bf16)}
    multiplied = engine_line(tool, "gpt-oss-120b", "b200", precision="mxfp4")[1]
    assert multiplied.unsupported["mapping.precision"] == Precision.mxfp4 and "--quantization" not in multiplied.text
    both = engine_line(tool, "gpt-oss-120b", precision="fp8", **held)[1]
    assert {f"mapping.serving.{name}" for name in held} <= both.unsupported.keys() and "--quantization" not in both.text


def test_what_a_line_states_is_told_by_name_and_unit(tmp_path):
    """And runs: the checkpoint of gpt-oss on a device without matrix units of four bits."""
    file = tmp_path / "arguments.txt"
    file.write_text("vllm serve openai/gpt-oss-120b --quantization mxfp4")
    asked = ["launch", "-w", "gpt-oss-120b", "-s", "h100", "--for", "vllm", "--arguments", str(file)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "stated: --set precision=bf16 --set expert_bytes=0.53125B" in done.stderr
    assert "no option" not in done.stderr and "no unit" not in done.stderr


def test_a_step_that_is_cut_is_told():
    """By the values that its record has by itself too: without the record no step is cut."""
    line = engine_line("vllm", stack="vllm", tp=4, nano_batches=2)[1]
    uncut = engine_line("vllm", stack="vllm", tp=4)[1].unsupported
    assert line.unsupported == uncut | {"mapping.nano.nano_batches": 2.0}
    assert not any(path.startswith("mapping.nano") for path in uncut)


def test_weights_in_the_memory_of_the_host_are_gib_of_a_device():
    design, line = engine_line("vllm", tp=2, far_weights=0.25)
    whole = float(dse.serve(engine_line("vllm", tp=2)[0]).peak_memory_weights)
    assert float(dict(line.options)["--cpu-offload-gb"]) == pytest.approx(0.25 * whole / 2**30, rel=1e-5)
    assert read("vllm", line.text, design)["far_weights"] == pytest.approx(0.25, rel=1e-5)
    assert "far_weights" not in read("vllm", line.text) and read_arguments("vllm", line.text).design_dependent
    assert read("vllm", "-tp 2 --cpu-offload-gb 4000", design)["far_weights"] == 1.0
    with pytest.raises(InputError, match="is not a size in GiB"):
        read("vllm", "-tp 2 --cpu-offload-gb -1")
    elsewhere = engine_line("vllm", tp=2, far_weights=0.25, **{"far.capacity": "64 GB", "far.bandwidth": "50 GB/s"})[1]
    assert elsewhere.unsupported["mapping.spill.far_weights"] == 0.25 and "--cpu-offload" not in elsewhere.text


@pytest.mark.parametrize(("tool", "option"), [("vllm", "--all2all-backend"), ("sglang", "--moe-a2a-backend")])
def test_messages_that_nodes_forward_are_those_of_a_library(tool, option):
    line = engine_line(tool, "deepseek-v3", "h200", dp=16, ep=16, precision="fp8", all_to_all="by-node")[1]
    assert option in dict(line.options) and read(tool, line.text)["all_to_all"] == 2.0
    by_rank = engine_line(tool, "deepseek-v3", "h200", dp=16, ep=16, precision="fp8", all_to_all="by-rank")[1]
    assert by_rank.unsupported["mapping.experts.all_to_all"] == 1.0


def test_tensorrt_llm_has_its_cache_and_drafts_in_its_file():
    """The entry of the cache takes the place of the option for memory: it states the same share."""
    design, line = engine_line(
        "tensorrt-llm",
        "deepseek-v3",
        "h200",
        ("deepseek-v3", "tensorrt-llm"),
        dp=8,
        ep=8,
        precision="fp8",
        cache_bytes=1,
        drafts=3,
    )
    assert "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}" in line.text
    share = dict(line.options)["--kv_cache_free_gpu_memory_fraction"]
    assert f"kv_cache_config: {{dtype: fp8, free_gpu_memory_fraction: {share}}}" in line.text
    stated = read("tensorrt-llm", line.text, design)
    assert stated["cache_bytes"] == 1.0 and stated["drafts"] == 3.0
    assert not read_arguments("tensorrt-llm", line.text, design).notes
    drafted_elsewhere = engine_line("tensorrt-llm", tp=8, drafts=3)[1]
    assert drafted_elsewhere.unsupported["mapping.serving.drafts"] == 3.0


@pytest.mark.parametrize(
    ("tool", "kept", "wanted"),
    [("sglang", 0.3, ()), ("sglang", 0.6, ("--schedule-conservativeness", "2")), ("vllm", 0.0, ()),
     ("tensorrt-llm", 1.0, ()),
     ("tensorrt-llm", 0.0, ("scheduler_config", "{capacity_scheduler_policy: MAX_UTILIZATION}"))],
)  # fmt: skip
def test_what_admission_keeps_free(tool, kept, wanted):
    """Each engine's own way is no option, another one is, or is told."""
    line = engine_line(tool, stack=tool, tp=8, any_option=True, reserved_answer=kept)[1]
    assert "mapping.serving.reserved_answer" not in line.unsupported
    assert not wanted or wanted in line.options
    assert wanted or not {"--schedule-conservativeness", "scheduler_config"} & dict(line.options).keys()


def test_vllm_keeps_nothing_free():
    line = engine_line("vllm", stack="vllm", tp=8, any_option=True, reserved_answer=1)[1]
    assert "mapping.serving.reserved_answer" in line.unsupported


@pytest.mark.parametrize(("recompute", "policy"), [
    (Recompute.none, "minimal_with_context"), (Recompute.selective_op, "minimal"), (Recompute.full, "full"),
])  # fmt: skip
def test_remat_policies_of_maxtext_are_what_they_are_read_as(recompute, policy):
    """Without recompute the kernel's output is kept too, which ``minimal`` leaves out."""
    line = launch(dse.design("llama-3-8b", "tpu-v5p", recompute=float(recompute)), "maxtext", STUDIES["training"])
    assert ("remat_policy", policy) in line.options and "mapping.recompute" not in line.unsupported
    assert read("maxtext", f"remat_policy={policy}")["recompute"] == float(recompute)
    assert read("maxtext", "remat_policy=minimal_flash") == {"recompute": float(Recompute.none)}


@pytest.mark.parametrize(("tool", "keeps"), [("maxtext", 0.0), ("torchtitan", 1.0)])
def test_what_recompute_keeps_is_told_or_listed(tool, keeps):
    """MaxText keeps the outputs of all products, torchtitan of every other one: neither does as the other."""
    for other, listed in ((keeps, True), (1.0 - keeps, False)):
        asked = dict(any_option=True, recompute="selective-op", keeps_products=other)
        line = launch(dse.design("llama-3-8b", "h100-sxm-80gb", **asked), tool, STUDIES["training"])
        assert ("mapping.recompute" in line.unsupported) == listed


@pytest.mark.parametrize(("tool", "size", "listed"), [
    ("maxtext", 4.0, False), ("maxtext", 3.0, True), ("maxtext", 0.0, False), ("torchtitan", 4.0, False),
    ("megatron-lm", 4.0, True), ("megatron-lm", 0.0, False), ("deepspeed", 4.0, True),
])  # fmt: skip
def test_bytes_of_weights_are_told_or_listed(tool, size, listed):
    line = launch(dse.design("llama-3-8b", "h100-sxm-80gb", parameter_bytes=size), tool, STUDIES["training"])
    assert ("software.parameter_bytes" in line.unsupported) == listed


def test_maxtext_is_told_of_layers_side_by_side():
    lines = [launch(dse.design(name, "tpu-v4"), "maxtext", STUDIES["training"]) for name in ("palm-8b", "llama-3-8b")]
    assert [dict(line.options).get("decoder_block") for line in lines] == ["default", None]
    assert read("maxtext", "decoder_block=default") == {"parallel_block": 1.0}


#: Tool, policy of an engine on 16 ranks, words of its line, and what a reading of the line gives besides the policy.
POLICIES = [
    ("sglang", dict(step_overlap=1, expert_balance=1, redundant_experts=32),
     ("--enable-two-batch-overlap", "--enable-eplb", "--ep-num-redundant-experts 32")),
    ("sglang", dict(step_overlap=0, expert_balance=0, redundant_experts=16), ("--ep-num-redundant-experts 16",)),
    ("sglang", dict(prompt_balance=1, prompt_timeout=12),
     ("--enable-prefill-delayer", "--prefill-delayer-max-delay-passes 12")),
    ("sglang", dict(graphs=0, mixed=1, chunk=4096),
     ("--disable-cuda-graph", "--enable-mixed-chunk", "--chunked-prefill-size 65536")),
    ("vllm", dict(step_overlap=1, expert_balance=1, redundant_experts=32),
     ("--enable-dbo", "--enable-eplb", """--eplb-config '{"num_redundant_experts": 32}'""")),
    ("vllm", dict(step_overlap=0, expert_balance=1, redundant_experts=0), ("--enable-eplb",)),
    ("vllm", dict(graphs=0, chunk=4096), ("--enforce-eager", "--max-num-batched-tokens 4096")),
    ("tensorrt-llm", dict(expert_balance=1, redundant_experts=32), ("moe_config: {load_balancer: {num_slots: 288}}",)),
    ("tensorrt-llm", dict(prompt_balance=1, prompt_timeout=40, prompt_batching=5),
     ("attention_dp_config: {enable_balance: true, timeout_iters: 40, batching_wait_iters: 5}",)),
    ("tensorrt-llm", dict(graphs=0, chunk=4096, reserved_answer=0),
     ("cuda_graph_config: null", "--max_num_tokens 4096", "MAX_UTILIZATION")),
]  # fmt: skip


def on_ranks(tool, ranks=16, **policy):
    chips = dict(tp=1, dp=ranks, ep=ranks, n_devices=ranks, precision="fp8-block", concurrency=64 * ranks)
    software = {"tensorrt-llm": "tensorrt-llm-1-1"}.get(tool, tool)
    return dse.design("deepseek-v3", "h200-sxm-141gb", software, kind="serving", **chips, **policy)


def lacking(line):
    """Options of an engine that the tool has not."""
    return [path for path in line.unsupported if path.startswith("mapping.serving.")]


@pytest.mark.parametrize(("tool", "policy", "words"), POLICIES)
def test_a_policy_is_written_and_read_back(tool, policy, words):
    line = launch(on_ranks(tool, **policy), tool, STUDIES["serving"])
    assert not lacking(line) and all(word in line.text for word in words), line.text
    values = read(tool, line.text, on_ranks(tool))
    # Slots count the experts of the model too, which this line does not name.
    known = [name for name in policy if (tool, name) != ("tensorrt-llm", "redundant_experts")]
    assert {name: values[name] for name in known} == {name: policy[name] for name in known}


@pytest.mark.parametrize(
    ("tool", "words"),
    [("sglang", ("--enable-two-batch-overlap", "--enable-eplb", "--ep-num-redundant-experts 32")),
     ("vllm", ("--enable-dbo", "--enable-eplb", """'{"num_redundant_experts": 32}'""")),
     ("tensorrt-llm", ("num_slots: 288",))],
)  # fmt: skip
def test_a_line_on_many_ranks_states_the_policy_that_is_predicted(tool, words):
    wide, few = (launch(on_ranks(tool, ranks), tool, STUDIES["serving"]) for ranks in (72, 8))
    assert not lacking(wide) and all(word in wide.text for word in words)
    assert not any(word in few.text for word in words)


@pytest.mark.parametrize(
    ("tool", "policy", "lacks"),
    [("tensorrt-llm", dict(step_overlap="on"), "step_overlap"),
     ("vllm", dict(prompt_balance="together", prompt_timeout=30), "prompt_timeout"),
     ("vllm", dict(expert_balance="off", redundant_experts=32), "redundant_experts"),
     ("tensorrt-llm", dict(expert_balance="off", redundant_experts=32), "redundant_experts"),
     ("sglang", dict(prompt_balance="together", prompt_timeout=30, prompt_batching=10), "prompt_batching")],
)  # fmt: skip
def test_a_policy_that_an_engine_lacks_is_said(tool, policy, lacks):
    assert f"mapping.serving.{lacks}" in launch(on_ranks(tool, **policy), tool, STUDIES["serving"]).unsupported
