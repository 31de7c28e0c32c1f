"""Policy of an engine: halves of steps by hand, and balance and copies of experts against packed draws."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import dse
from dse.designs.records import with_serving_defaults
from dse.doors.serving import step_time
from dse.lab.simulator.run import simulate
from dse.lab.simulator.summary import statistics
from dse.model import Batch
from dse.model.serving.intake import prompt_hold
from dse.model.serving.nano_batches import in_two_halves
from dse.model.serving.policy import OVERLAP_TOKENS, busiest_over_mean, copies_in, is_balanced
from dse.model.serving.work import busiest_rank
from dse.sweep import execute, from_text
from dse.types import Infeasible, Requests, Serving
from dse.types.choices import PromptOrder
from tests.programs import served


def fleet(ranks: int, **settings):
    mapping = dict(tp=1, dp=ranks, ep=ranks, n_devices=ranks, precision="fp8", concurrency=128 * ranks)
    return dse.design("deepseek-v3", "h100-sxm-80gb", "sglang", **(mapping | settings))


def test_halves_of_a_step_by_hand():
    """Of 10 s of a half 3 are in experts, 4 in dispatch and combine, so 2 each way, and 3 are the rest: 2 (3 + 3)."""
    assert float(in_two_halves(2.0, 10.0, 3.0, 4.0)) == pytest.approx(12.0)
    # 8 s of exchange take 4 each way, longer than either: 4 times 4.
    assert float(in_two_halves(2.0, 14.0, 3.0, 8.0)) == pytest.approx(16.0)
    assert float(in_two_halves(1.0, 14.0, 3.0, 8.0)) == 14.0


@given(st.floats(1e-4, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_halves_take_no_less_than_kernels_or_links_and_no_more_than_one_after_the_other(rest, experts, exchange):
    chain = rest + experts + exchange
    halves = float(in_two_halves(2.0, chain, experts, exchange))
    assert max(2.0 * (rest + experts), 2.0 * exchange) * (1 - 1e-5) <= halves <= 2.0 * chain * (1 + 1e-5)


def test_halves_save_time_where_the_exchange_is_long_and_cost_time_where_steps_are_small():
    def seconds(sequences, overlap):
        return float(step_time(fleet(64, step_overlap=overlap), Batch(float(sequences), 2000.0, 0.0, 0.0)))

    assert seconds(256, "on") < 0.8 * seconds(256, "off")
    assert seconds(4, "on") > 1.2 * seconds(4, "off")  # weights are read twice
    assert seconds(1, "on") == pytest.approx(seconds(1, "off"))  # one sequence has no halves
    # On many ranks from 32 tokens on.
    assert seconds(OVERLAP_TOKENS - 1, "wide") == pytest.approx(seconds(OVERLAP_TOKENS - 1, "off"))
    assert seconds(OVERLAP_TOKENS, "wide") == pytest.approx(seconds(OVERLAP_TOKENS, "on"))


def test_few_ranks_are_not_wide():
    plain, wide = (served(fleet(8, step_overlap=overlap)) for overlap in ("off", "wide"))
    assert float(plain.time_per_output_token) == pytest.approx(float(wide.time_per_output_token))
    assert not bool(is_balanced(2.0, -1.0, 8.0)) and bool(is_balanced(2.0, -1.0, 16.0))


@pytest.mark.parametrize(("ranks", "copies"), [(8, 0), (16, 32), (32, 32), (48, 32), (72, 32), (144, 32), (320, 64)])
def test_copies_that_ranks_need(ranks, copies):
    """256 experts: an eighth on many ranks, and as many more as give each rank the same number."""
    design = fleet(ranks)
    assert float(copies_in(design.workload, design.mapping)) == copies
    unbalanced = fleet(ranks, expert_balance="off")
    assert float(copies_in(unbalanced.workload, unbalanced.mapping)) == -256 % ranks


def packed(popular: np.ndarray, ranks: int, copies: int) -> float:
    """The busiest rank over the mean: the busiest experts copied, then each slot on the emptiest rank with room."""
    count = np.ones(popular.size, int)
    for _ in range(copies):
        count[np.argmax(popular / count)] += 1
    slots = -np.sort(-np.repeat(popular / count, count))
    load, held = np.zeros(ranks), np.zeros(ranks, int)
    for slot in slots:
        rank = min(np.flatnonzero(held < slots.size // ranks), key=lambda i: load[i])
        load[rank], held[rank] = load[rank] + slot, held[rank] + 1
    return load.max() / load.mean()


@pytest.mark.parametrize("spread", [0.5, 1.0])
@pytest.mark.parametrize(("ranks", "copies"), [(8, 0), (32, 0), (64, 0), (128, 0), (32, 32), (72, 32), (144, 32)])
def test_the_busiest_rank_of_balanced_experts(ranks, copies, spread):
    rng = np.random.default_rng(0)
    expected = np.mean([packed(rng.gamma(spread**-2, spread**2, 256), ranks, copies) for _ in range(40)])
    design = fleet(ranks, expert_balance="on", redundant_experts=copies)
    requests = dataclasses.replace(Requests(), expert_skew=spread)
    design = dataclasses.replace(design, workload=dataclasses.replace(design.workload, requests=requests))
    unbalanced = busiest_rank(design.workload, jnp.float32(256), jnp.float32(ranks))
    assert float(busiest_over_mean(design, float(copies), unbalanced)) == pytest.approx(expected, rel=0.15)
    off = dataclasses.replace(design.mapping, serving=dataclasses.replace(design.mapping.serving, expert_balance=0.0))
    numbered = busiest_over_mean(dataclasses.replace(design, mapping=off), float(copies), unbalanced)
    assert float(numbered) == pytest.approx(float(unbalanced))


@pytest.mark.parametrize(
    "settings",
    [dict(ep=1, tp=8, dp=1, n_devices=8), dict(nano_batches=2)],
    ids=["experts on one rank", "nano-batches"],
)
def test_halves_that_no_engine_runs_are_infeasible(settings):
    stated, open_one = (
        int(served(fleet(64, **(settings | dict(step_overlap=option)))).infeasible_reason) for option in ("on", "wide")
    )
    assert stated & Infeasible.stack_lacks and not open_one & Infeasible.stack_lacks


@pytest.mark.parametrize(("timeout", "batching"), [(5, 0), (50, 0), (50, 10), (500, 0)])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_steps_until_all_ranks_have_prompts(ranks, timeout, batching):
    """Ranks of 33 requests of 500 steps each: prompts come every 15.6 steps to each of them."""
    serving = Serving(prompt_balance=float(PromptOrder.together), prompt_timeout=timeout, prompt_batching=batching)
    found = prompt_hold(Requests(output_tokens=500.0), serving, 33.0, jnp.float32(ranks))
    comes = np.random.default_rng(0).exponential(500.0 / 32.0, (20_000, ranks))
    all_have, limit = comes.max(1), comes.min(1) + timeout
    steps = np.where(all_have < limit, all_have + batching, limit).mean()
    assert float(found.steps) == pytest.approx(steps, rel=0.05)
    assert float(found.prompts) == pytest.approx(steps * 32.0 / 500.0, rel=0.05)


#: Name → settings of 8 ranks with common experts under each value of a policy.
POLICIES = {
    "prompts apart": dict(prompt_balance="independent"),
    "prompts together": dict(prompt_balance="together", prompt_timeout=50),
    "prompts together, soon": dict(prompt_balance="together", prompt_timeout=10),
    "prompts together, and more of them": dict(prompt_balance="together", prompt_timeout=50, prompt_batching=10),
    "prompts together, alone in their steps": dict(prompt_balance="together", prompt_timeout=30, mixed=0, chunk=32768),
    "halves": dict(step_overlap="on"),
    "balance": dict(expert_balance="on"),
    "numbered experts": dict(expert_balance="off"),
    "copies": dict(expert_balance="on", redundant_experts=64),
    "no graphs": dict(graphs=0),
    "small steps": dict(chunk=1024),
    "whole prompts": dict(chunk=1600, whole_prompts=1),
    "rare admissions": dict(admission_steps=4),
    "answers reserved": dict(reserved_answer=1.0),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_in_closed_form_and_in_the_simulator(policy):
    settings = dict(tp=1, dp=8, ep=8, n_devices=8, precision="fp8", concurrency=256, prompt_tokens=1000)
    design = dse.design("deepseek-v3", "h200-sxm-141gb", "vllm", output_tokens=500, **settings, **POLICIES[policy])
    found, simulated = served(design), statistics(simulate(with_serving_defaults(design), count=4_000))
    for name in ("output_tokens_per_second", "time_per_output_token"):
        name_simulated = name if name in simulated else f"mean_{name}"
        assert float(getattr(found, name)) == pytest.approx(simulated[name_simulated], rel=0.08), name


def test_ranks_that_take_prompts_together_serve_more_where_prompts_are_long():
    def rate(**policy):
        settings = dict(tp=1, dp=8, ep=8, n_devices=8, precision="fp8", concurrency=512, prompt_tokens=8000)
        design = dse.design("deepseek-v3", "h200-sxm-141gb", "vllm", output_tokens=1000, **settings, **policy)
        simulated = statistics(simulate(with_serving_defaults(design), count=2_000))
        return np.array([float(served(design).output_tokens_per_second), simulated["output_tokens_per_second"]])

    together, apart = rate(prompt_balance="together", prompt_timeout=50), rate(prompt_balance="independent")
    assert np.all(together > 1.5 * apart)


SWEEP = """
[workload]
name = "deepseek-v3"
[system]
name = "h200-sxm-141gb"
[axes]
software = ["vllm", "tensorrt-llm-1-1"]
n_devices = [8, 72]
ep = [8, 72]
step_overlap = ["off", "wide"]
redundant_experts = [-1, 0, 32]
prompt_balance = ["independent", "together"]
graphs = [0, 1]
[mapping]
tp = 1
precision = "fp8"
[serving]
concurrency = 4096
prompt_timeout = 50
"""


def test_policies_are_axes_of_sweeps():
    """Each point is the model of its options; 72 ranks hold 256 experts with 32 copies, chosen or stated."""
    found, _ = execute(from_text(SWEEP), output=False)
    for stack, overlap, copies, order, graphs in itertools.product(
        ("vllm", "tensorrt-llm-1-1"), ("off", "wide"), (-1, 0, 32), ("independent", "together"), (0, 1)
    ):
        options = dict(step_overlap=overlap, redundant_experts=copies, prompt_balance=order, graphs=graphs)
        points = found.sel(software=stack, **options)
        for ranks in (8, 72):
            point = points.isel(mapping=int(np.flatnonzero((points.ep == ranks) & (points.n_devices == ranks))[0]))
            mapping = dict(tp=1, dp=ranks, ep=ranks, n_devices=ranks, precision="fp8", concurrency=4096)
            one = served(dse.design("deepseek-v3", "h200-sxm-141gb", stack, **mapping, **options, prompt_timeout=50))
            assert int(point.infeasible_reason) == int(one.infeasible_reason)
            divides = (256 + (32 if ranks == 72 and copies < 0 else max(copies, 0))) % ranks == 0
            assert bool(int(point.infeasible_reason) & Infeasible.experts_not_divisible) != divides
            if not point.feasible:
                continue
            assert float(point.time_per_output_token) == pytest.approx(float(one.time_per_output_token), rel=1e-4)
