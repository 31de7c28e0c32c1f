"""Ranges of a sweep's values: what they decide goes before anything is compiled, and results stay what they are."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.equations import fold, recording
from dse.equations.folding import Ranges, are_integers, decisions
from dse.spec.sweep import from_text
from dse.sweep import plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.numpy_backend import evaluate_few
from dse.sweep.engine.point import equations_of
from tests.unit.sweep.test_folding import SWEEPS, X

#: (function of x and y, values of x, values of y, equations left)
RULES = {
    "larger": (lambda x, y: jnp.maximum(x, y), [3, 8], [1, 2], 0),
    "may be larger": (lambda x, y: jnp.maximum(x, y), [3, 8], [1, 4], 1),
    "larger in each block": (lambda x, y: jnp.maximum(x, 0.5 * x), [1, 2, 3, 4], [1], 0),
    "smaller": (lambda x, y: jnp.minimum(x, y), [3, 8], [8, 9], 0),
    "choice": (lambda x, y: jnp.where(x * y > 20.0, x, jnp.exp(y)), [1, 2], [3, 8], 1),
    "whole numbers meet": (lambda x, y: jnp.where(x * y <= 16.0, x, y), [1, 2], [3, 8], 0),
    "rounded numbers meet": (lambda x, y: jnp.where(x * 0.1 <= y, x, jnp.exp(y)), [1, 3], [0.3], 4),
    "clip": (lambda x, y: jnp.clip(x, 0.0, y), [0.25, 0.5], [0.5, 7.5], 0),
    "straight through": (lambda x, y: jnp.ceil(x) + (x - jax.lax.stop_gradient(x)), [0.5, 7.5], [1], 1),
    "divides": (lambda x, y: jnp.where(x * jnp.round(y / x) == y, x, y), [1, 2, 4], [8, 16], 0),
    "the same over itself": (lambda x, y: jnp.sqrt(x) * (y / y), [1, 2], [0.3], 1),
    "no number": (lambda x, y: jnp.where(x / y > 1.0, x, y), [0, 1], [0, 1], 3),
    "unknown operation": (lambda x, y: jnp.where(jnp.sin(x) > 2.0, x, y), [0, 1], [0, 1], 3),
}


def _ranges(*inputs, one_block=False):
    """Ranges of inputs along an axis each."""
    pairs = {}
    for i, values in enumerate(inputs):
        shape, found = [-1 if i == axis else 1 for axis in range(len(inputs))], np.array(values, np.float32)
        low, high = (found.min(), found.max()) if one_block else (found, found)
        pairs[i] = tuple(np.reshape(end, shape) for end in (low, high)) if one_block else (found.reshape(shape),) * 2
    return Ranges(pairs, [i for i, values in enumerate(inputs) if are_integers(np.array(values))])


@pytest.mark.parametrize("name", RULES)
def test_what_all_designs_share_is_decided(name):
    function, xs, ys, left = RULES[name]
    whole, _ = recording.trace(function, X, X)
    for one_block in (False, True):
        found = fold(whole, {}, decisions(whole, {}, _ranges(xs, ys, one_block=one_block)))
        if not one_block:
            kept = [one for one in found.equations if one.primitive.name != "convert_element_type"]
            assert len(kept) == left, kept
        for x, y in np.array(np.meshgrid(xs, ys), np.float32).reshape(2, -1).T:
            np.testing.assert_array_equal(found(x, y)[0], whole(x, y)[0])


TRAINING = """
[workload]
name = "{model}"
[system]
name = "{system}"
n_devices = {devices}
[objective]
minimize = ["step_time", "peak_memory"]
[axes]
"""
SERVED = """
[workload]
name = "{model}"
[system]
name = "h100-sxm-80gb"
n_devices = 8
[software]
name = "vllm"
any_option = true
[serving]
load = "concurrency"
[constraints]
all = ["time_per_output_token <= '50 ms'"]
[objective]
maximize = ["output_tokens_per_second_per_device", "output_tokens_per_second_per_user"]
[axes]
"""
AXES = {
    TRAINING: {
        "tp": "[1, 2, 4, 8]",
        "pp": "[1, 2, 4, 8]",
        "micro_batch": "[1, 2, 4]",
        "virtual_stages": "[1, 2]",
        "global_batch": "[256, 1024]",
        "recompute": '["none", "selective", "full"]',
        "zero_stage": "[0, 1, 2]",
        "overlap_dp": "[false, true]",
        "memory.capacity": '["8 GB", "80 GB"]',
        "sequence_parallel": "[false, true]",
        "scale_out.bandwidth": "{ from = '10 GB/s', to = '400 GB/s', count = 40 }",
    },
    SERVED: {
        "tp": "[1, 2, 4, 8]",
        "pp": "[1, 2]",
        "precision": '["bf16", "fp8"]',
        "prompt_tokens": "[128, 1024, 8192]",
        "output_tokens": "[16, 1024]",
        "concurrency": "{ from = 1, to = 1024, count = 30 }",
        "cache_bytes": '["2 B", "1 B"]',
        "accelerator": '["h100-sxm-80gb", "b200-sxm-180gb"]',
    },
}


def _random_sweep(seed):
    draw = random.Random(seed)
    text = (TRAINING, SERVED)[seed % 2]
    axes = draw.sample(sorted(AXES[text].items()), draw.randint(2, 6))
    made = text.format(
        model=draw.choice(["megatron-22b", "llama-3-8b", "llama-3-70b"]),
        devices=draw.choice([8, 64]),
        system=draw.choice(["selene", "eos"]),
    )
    return plan(from_text(made + "".join(f"{path} = {values}\n" for path, values in axes)))[0]


def _both(grid):
    """The programs of a sweep as they were, and as they are compiled."""
    engine = SweepEngine(grid, by_numpy=False)
    return engine, engine.program, engine.compiled


def _same(grid, programs, count=500):
    some = np.unique(np.linspace(0, grid.n_designs - 1, count).astype(np.int64))
    found = [evaluate_few(grid.base, grid.values(some), program=program) for program in programs]
    for before, after in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6)
    np.testing.assert_array_equal(*(metrics.infeasible_reason for metrics, _ in found))


@pytest.mark.parametrize("seed", range(6))
def test_random_sweeps_have_the_same_results_and_reasons(seed):
    engine, before, after = _both(_random_sweep(seed))
    assert len(after.decided) > 50
    _same(engine.grid, (before, after))


def _equations(engine, program):
    scores = dataclasses.replace(program, metrics=("infeasible_reason",))
    return len(equations_of(scores, engine._structure)[0].equations)


@pytest.mark.parametrize(
    ("name", "share"), [("megatron_1t_4096_a100", 0.66), ("llama3_70b_serving", 0.66), ("billion_designs", 0.7)]
)
def test_a_sweep_loses_equations(name, share):
    engine, before, after = _both(plan(SWEEPS / f"{name}.toml")[0])
    assert _equations(engine, after) < share * _equations(engine, before)
    _same(engine.grid, (before, after))


def test_sweeps_that_decide_the_same_share_programs():
    text = TRAINING.format(model="megatron-22b", system="selene", devices=64) + "tp = [2, 4]\npp = [2, 4]\n"
    own, *others = (
        SweepEngine(plan(from_text(f"{text}memory.bandwidth = {values}"))[0], by_numpy=False).compiled
        for values in ('["1 TB/s", "2 TB/s"]', '["1 TB/s", "2.1 TB/s"]', '["1 TB/s", "900 TB/s"]')
    )
    assert own == others[0] and str(own) == str(others[0])
    assert own != others[1] and str(own) != str(others[1])


def test_small_sweeps_are_left_as_they_are():
    engine = SweepEngine(plan(SWEEPS / "megatron_1t_4096_a100.toml")[0])
    assert engine.by_numpy and engine.compiled is engine.program
