"""What bounds serving adds up, whatever the model is made of; a part of a pass runs as often for all accounts."""

import dataclasses

import pytest

import dse
from dse.doors.serving import bounds, step_bounds
from dse.model import Batch, stage_of
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.step import narrow_shard_slowdown
from dse.model.serving.work import step_work
from dse.types import Engine
from tests.designs import KERNELS
from tests.programs import by_numpy, served

LOADED = dict(tp=8, concurrency=64, prompt_tokens=8192)
FP8 = LOADED | dict(precision="fp8")

#: Kinds of models, and of steps.
PANEL = {
    "dense": ("llama-3-70b", FP8),
    "experts behind dense layers, latent attention": ("deepseek-v3", FP8 | dict(ep=8)),
    "experts in every other layer": ("llama-4-maverick", FP8 | dict(ep=8)),
    "windows": ("gemma-3-27b", LOADED),
    "windows and experts": ("gpt-oss-120b", LOADED),
    "sparse attention": ("glm-5", FP8 | dict(ep=8)),
    "states alone, Mamba": ("mamba-2-2-7b", LOADED),
    "states alone, RWKV": ("rwkv-6-7b", LOADED),
    "states beside attention": ("nemotron-nano-12b-v2", LOADED),
    "states, attention and experts": ("minimax-text-01", FP8 | dict(ep=8)),
    "stages": ("llama-3-70b", FP8 | dict(tp=2, pp=4)),
    "stages, few requests": ("deepseek-v3", FP8 | dict(pp=2, ep=8, concurrency=1)),
    "stages of states": ("mamba-2-2-7b", LOADED | dict(tp=2, pp=4)),
    "parts of a batch": ("deepseek-v3", FP8 | dict(ep=8, concurrency=512, nano_batches=2)),
    "drafts": ("deepseek-v3", FP8 | dict(ep=8, drafts=3, acceptance=0.6)),
    "prompts apart": ("llama-3-70b", FP8 | dict(mixed=0)),
    "static": ("rwkv-6-7b", LOADED | dict(load="static")),
    "offline": ("mamba-2-2-7b", LOADED | dict(load="offline")),
}


#: What bounds a token, and what bounds each kind of step.
accounts_of = by_numpy(lambda design: (bounds(design), step_bounds(design)))


@pytest.mark.parametrize(("workload", "settings"), PANEL.values(), ids=PANEL)
def test_what_bounds_a_token_adds_up(workload, settings):
    """To the time of the token, and of each kind of step; attention and states are read, so some of it is memory's."""
    design = dse.design(workload, "h200", "vllm", any_option=True, **settings)
    (by_token, by_step), found = accounts_of(design), served(design)
    assert sum(map(float, by_token)) == pytest.approx(float(found.time_per_output_token), rel=1e-5)
    assert min(map(float, (*by_token, *by_step.decode, *by_step.prefill))) >= 0.0
    attention = float(found.time_per_output_token_attention)
    assert attention > 0.0 and float(by_step.decode.memory) > 0.0
    kernels = attention + float(found.time_per_output_token_matrix)
    speed = float(by_step.decode.rest) / float(found.time_per_output_token_host)
    assert float(by_step.decode.compute + by_step.decode.memory) == pytest.approx(speed * kernels, rel=1e-5)


def _alone(workload="deepseek-v3", drafts=0.0, tokens=16.0, **settings):
    """A stage whose kernels all wait for memory, an engine that adds nothing to them, and one of its passes."""
    mapping = dict(tp=8) if workload == "llama-3-70b" else dict(tp=8, ep=8)
    design = dse.design(
        workload, "h200", "vllm", any_option=True, precision="fp8", drafts=drafts, **mapping, **settings
    )
    accelerator = design.system.accelerator
    rates = {name: 1e4 * rate for name, rate in vars(accelerator.matrix_rate).items()}
    accelerator = dataclasses.replace(
        accelerator,
        kernels=dataclasses.replace(KERNELS, roofline_blend=0.0),
        vector_rate=1e4 * accelerator.vector_rate,
        matrix_rate=dataclasses.replace(accelerator.matrix_rate, **rates),
    )
    stage = stage_of(dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=accelerator)))
    batch = Batch(tokens, 8192.0, 0.0, 0.0, drafts)
    work = step_work(stage, 1.0, design.mapping.serving, batch)
    return stage, design.mapping.serving, Engine(narrow_expert=0.0, narrow_rate=1.0), work, batch


def test_a_pass_runs_each_of_its_layers_once():
    """Of 61 layers three are dense; drafts are a layer with experts and a head each; attention is in all of them."""
    stage, _, _, work, batch = _alone(drafts=3.0)
    ran = stage_pass(stage, work, batch)
    experts, dense, head = ran.other_operators
    assert (ran.layers, ran.expert_layers) == (64.0, 61.0)
    assert (experts.times, dense.times, head.times, ran.attention.times) == (61.0, 3.0, 4.0, 64.0)
    assert {o.name for o in head.operators} == {"head"}
    assert {o.name for o in ran.attention.operators} == {"decode_attention", "prefill_attention"}
    held = [*experts.operators, *ran.attention.operators]
    assert sorted(o.name for o in held) == sorted(o.name for o in work.layer)


def test_slices_of_experts_are_slow_where_they_are_narrow():
    """By the square of the width at which they are half as fast: whole experts of 2,048 bytes are as fast as ever."""
    slices, whole = (
        stage_of(dse.design("deepseek-v3", "h200", "vllm", any_option=True, precision="fp8", tp=8, ep=ep))
        for ep in (1, 8)
    )
    slower = [float(narrow_shard_slowdown(Engine(narrow_expert=256.0), one, one.rates)) for one in (slices, whole)]
    assert slower == pytest.approx([1.0, 1.0 / 64.0])
