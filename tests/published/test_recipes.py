"""Recipes of training tools: their defaults, and published orders and ratios of what they run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dse
from dse.designs import catalog
from dse.sweep import execute, from_text
from dse.tools import settings
from dse.types import AllToAll
from tests.programs import metrics_of

#: Option left open → default, by tool, from the configuration named.
DEFAULTS = {
    # torchtitan/config/job_config.py: data_parallel_shard_degree = -1, enable_async_tensor_parallel = False;
    # torchtitan/models/llama3/infra/parallelize.py, apply_tp: SequenceParallel norms, Shard(1) between blocks.
    "torchtitan": dict(zero_stage=3, sequence_parallel=1, overlap_dp=1, overlap_tp=0),
    # src/MaxText/configs/base.yml: ici_fsdp_parallelism: -1; logical_axis_rules: activation_embed over tensor.
    "maxtext": dict(zero_stage=3, sequence_parallel=2, overlap_dp=1, overlap_tp=1),
    "maxtext on GPUs": dict(zero_stage=3, sequence_parallel=2, overlap_dp=1, overlap_tp=0),
    # deepspeed/runtime/zero/config.py: stage = 0; overlap_comm where the stage is 3.
    "deepspeed": dict(zero_stage=0, sequence_parallel=0, overlap_dp=0, overlap_tp=0),
}

STACKS = {
    "torchtitan": ("torchtitan", "torchtitan-eager"),
    "maxtext": ("maxtext", "maxtext-v4", "maxtext-v5e", "maxtext-v5p", "maxtext-v6e"),
    "maxtext on GPUs": ("jax-toolbox-a100", "jax-toolbox-h100"),
    "deepspeed": ("deepspeed-zero-2021", "megatron-deepspeed", "megatron-deepspeed-node"),
}


@pytest.mark.parametrize(("tool", "stack"), [(tool, stack) for tool in STACKS for stack in STACKS[tool]])
def test_open_options_of_a_stack_are_the_defaults_of_its_tool(tool, stack):
    assert catalog.mapping_defaults(stack) == DEFAULTS[tool]


#: ZeRO stage → overlap of DeepSpeed where nothing is said (overlap_comm_valid of deepspeed/runtime/zero/config.py).
BY_STAGE = {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0}


@pytest.mark.parametrize("stack", STACKS["deepspeed"])
def test_deepspeed_overlaps_by_the_stage_where_nothing_is_said(stack):
    def overlap(**stated):
        return float(dse.design("llama-2-7b", "a100", stack, n_devices=16, **stated).mapping.overlap_dp)

    assert {stage: overlap(zero_stage=stage) for stage in BY_STAGE} == BY_STAGE
    assert overlap(zero_stage=3, overlap_dp=0) == 0.0 and overlap(zero_stage=1, overlap_dp=1) == 1.0


def sweep(*lines):
    head = [
        "[workload]",
        'name = "llama-2-7b"',
        "[system]",
        'name = "a100"',
        "n_devices = 16",
        "[software]",
        'name = "deepspeed-zero-2021"',
    ]
    return execute(from_text("\n".join([*head, *lines])), output=False, keep="all")[0]


def test_sweeps_over_stages_of_deepspeed_overlap_by_the_stage():
    along = sweep("[axes]", "tp = [1, 2]", "zero_stage = [0, 1, 2, 3]")
    np.testing.assert_array_equal(along.overlap_dp, along.zero_stage == 3)
    for stage in BY_STAGE:
        alone = sweep("[mapping]", f"zero_stage = {stage}", "[axes]", "tp = [1, 2]")
        np.testing.assert_allclose(alone.step_time, along.step_time[along.zero_stage == stage], rtol=1e-6)
    stated = sweep("[mapping]", "overlap_dp = true", "[axes]", "tp = [1, 2]", "zero_stage = [0, 3]")
    assert "overlap_dp" not in stated.coords or stated.overlap_dp.all()


def test_stacks_of_a_sweep_overlap_by_the_stage_of_their_own():
    """Each design takes the time of the same design alone, though the stages decide the overlap of one stack only."""
    stages, stacks = (1, 2, 3), ("deepspeed-zero-2021", "fsdp", "megatron-deepspeed")
    text = f"""
[workload]
name = "llama-3-8b"
[system]
name = "eos"
n_devices = 64
[mapping]
tp = 1
micro_batch = 1
[axes]
software = {json.dumps(stacks)}
zero_stage = {list(stages)}
"""
    found = execute(from_text(text), output=False, keep="all")[0].stack(design=("software", "mapping"))
    found = found.isel(design=np.isfinite(found.step_time))
    columns = (found[name].values.tolist() for name in ("software", "zero_stage", "step_time"))
    times = {(stack, stage): time for stack, stage, time in zip(*columns, strict=True)}
    plain = dict(n_devices=64, tp=1, micro_batch=1)
    alone = {
        (stack, stage): float(metrics_of(dse.design("llama-3-8b", "eos", stack, zero_stage=stage, **plain)).step_time)
        for stack in stacks
        for stage in stages
    }
    assert times == pytest.approx(alone, rel=1e-5) and found.sizes["design"] == 9
    overlaps = found.overlap_dp.values == ((found.software == "fsdp") | (found.zero_stage == 3)).values
    assert overlaps.all()


def test_models_of_two_structures_share_stages_that_decide_the_overlap():
    """A dense model and a mixture: the same mapping twice in the table of either."""
    text = """
[workload]
[system]
name = "a100"
n_devices = 16
[software]
name = "deepspeed-zero-2021"
[axes]
workload = ["llama-2-7b", "mixtral-8x7b"]
zero_stage = [1, 2, 3]
"""
    found = execute(from_text(text), output=False, keep="all")[0]
    assert found.zero_stage.values.tolist() == [1, 2, 3] and found.overlap_dp.values.tolist() == [False, False, True]
    alone = sweep("[axes]", "zero_stage = [1, 2, 3]")
    dense = found.step_time.sel(workload="llama-2-7b")
    np.testing.assert_allclose(dense.values.ravel(), alone.step_time.values.ravel(), rtol=1e-6)


@pytest.mark.parametrize(
    ("stated", "overlap"), [({}, None), ({"overlap_comm": False}, 0.0), ({"overlap_comm": True}, 1.0)]
)
@pytest.mark.parametrize("stage", BY_STAGE)
def test_a_file_of_deepspeed_leaves_the_overlap_to_the_stage(stage, stated, overlap):
    read = settings("deepspeed", json.dumps({"zero_optimization": {"stage": stage} | stated}))
    assert read["zero_stage"] == stage
    assert read["overlap_dp"] == (BY_STAGE[stage] if overlap is None else overlap)


def llama_405b(**stated):
    """Llama-3.1-405B on 128 H100 of torchtitan's cluster, as in pytorch/torchtitan#481, which ran."""
    plain = dict(tp=8, zero_stage=3, micro_batch=1, recompute="full", seq_len=8192)
    return metrics_of(dse.design("llama-3-1-405b", "torchtitan-h100", n_devices=128, **plain | stated))


def test_tensor_parallelism_of_torchtitan_splits_the_sequence():
    ran, stated, whole = llama_405b(), llama_405b(sequence_parallel=1), llama_405b(sequence_parallel=0)
    assert bool(ran.feasible) and float(ran.peak_memory) == float(stated.peak_memory)
    assert float(ran.peak_memory) == pytest.approx(62.6 * 2.0**30, rel=0.01)
    assert float(whole.peak_memory) == pytest.approx(90.1 * 2.0**30, rel=0.01)  # more than the 80 GB of most H100


def deepseek_v3(system="dgx-b200", stack="megatron-bridge-26-02", **stated):
    """tokens/s a device of DeepSeek-V3 on 256 devices in MXFP8, 4,096 sequences of 4,096 a step."""
    plain = dict(micro_batch=1, global_batch=4096, seq_len=4096, precision="mxfp8")
    return float(
        metrics_of(
            dse.design("deepseek-v3", system, stack, n_devices=256, **plain | stated)
        ).tokens_per_second_per_device
    )


def test_experts_between_nodes_of_b200_win_as_published():
    """2,815 with ep 8 in the node (Megatron-Bridge 26.04), 3,328 with ep 32 over four nodes (26.04.01), to 20 %."""
    inside, across = deepseek_v3(pp=16, ep=8), deepseek_v3(pp=8, virtual_stages=2, ep=32)
    assert inside < across
    assert (inside, across) == (pytest.approx(2815.0, rel=0.2), pytest.approx(3328.0, rel=0.2))


BLACKWELL = ["megatron-bridge", "megatron-bridge-26-02", "megatron-bridge-26-06"]


@pytest.mark.parametrize("stack", BLACKWELL)
def test_stacks_for_blackwell_overlap_what_leaves_the_domain(stack):
    """Interleaved chunks alone: Megatron-Bridge leaves the overlap off without a pipeline. Dispatch is in 16 bits."""
    across = dict(system="dgx-b200", stack=stack, ep=32, pp=8, virtual_stages=2)
    assert deepseek_v3(**across) == deepseek_v3(**across, overlap_ep=1) > deepseek_v3(**across, overlap_ep=0)
    flat = across | dict(pp=1, virtual_stages=1, ep=64)
    assert deepseek_v3(**flat) == deepseek_v3(**flat, overlap_ep=0) < deepseek_v3(**flat, overlap_ep=1)
    # megatron/core/transformer/moe/fused_a2a.py: "HybridEP dispatcher does not support fp8 dispatch now"
    assert deepseek_v3(**across) == deepseek_v3(**across, dispatch_precision="bf16")
    assert catalog.expert_options(stack)["all_to_all"] == AllToAll.by_node


#: Model, devices, recompute, sequences a pass → throughput of fp8 and of fp8-row over that of bf16: torchtitan on H100
#: with tp 8, without asynchronous tensor parallelism (benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md). Of 4 to
#: 12 sequences a pass the ratios of the first differ by 0.01.
EIGHT_BITS = {
    ("llama-3-8b", 64, "selective-op", 4): (1.16, 0.85),
    ("llama-3-70b", 256, "full", 16): (1.36, 1.00),
}


@pytest.mark.parametrize("run", EIGHT_BITS)
def test_a_scale_a_row_costs_what_torchtitan_published(run):
    """To 8 %. The rate of products by row is one number for both ratios; nothing is fitted to those by tensor."""
    model, devices, recompute, batch = run

    def throughput(precision):
        plain = dict(tp=8, micro_batch=batch, global_batch=batch * devices // 8, seq_len=8192, recompute=recompute)
        design = dse.design(model, "torchtitan-h100", n_devices=devices, precision=precision, **plain)
        return float(metrics_of(design).tokens_per_second_per_device)

    wide = throughput("bf16")
    assert tuple(throughput(name) / wide for name in ("fp8", "fp8-row")) == pytest.approx(EIGHT_BITS[run], rel=0.08)
