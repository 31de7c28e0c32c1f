"""Hit rates of prefix caches: laws, and the simulator's caches as the oracle."""

import dataclasses

import jax
import numpy as np
import pytest

import dse
from dse.designs import replace
from dse.designs.records import with_serving_defaults
from dse.doors import serve
from dse.errors import InputError
from dse.lab.simulator.run import simulate
from dse.lab.simulator.summary import statistics
from dse.model.serving.reuse import CacheContents, characteristic_time, popularity
from dse.types import Reuse
from tests.conftest import slow

BASE = dict(prompt_tokens=4000, output_tokens=200)
GROUPS = dict(BASE, prefix_share=0.5)


def design(**settings):
    return with_serving_defaults(dse.design("llama-3-8b", "h100-sxm-80gb", "vllm", kind="serving", **settings))


@pytest.mark.parametrize(("groups", "skew"), [(1.0, 1.0), (7.0, 0.5), (300.0, 1.0), (1e5, 0.8)])
def test_popularity_is_zipfs_law(groups, skew):
    found = popularity(Reuse(prefix_groups=groups, prefix_skew=skew))
    assert sum(float(many * share) for many, share in found) == pytest.approx(1.0)
    assert sum(float(many) for many, _ in found) == pytest.approx(groups, rel=1e-3)
    exact = np.arange(1.0, groups + 1.0) ** -skew
    assert float(found[0].request_share) == pytest.approx(1.0 / exact.sum(), rel=5e-3)


@pytest.mark.parametrize("groups", [10.0, 1000.0, 1e5])
@pytest.mark.parametrize("size", [0.01, 0.3, 0.9])
def test_characteristic_time_fills_the_cache(groups, size):
    """What is used within it is the capacity; by summing over all prefixes too."""
    reuse = Reuse(prefix_groups=groups, prefix_skew=1.0)
    contents = CacheContents(popularity(reuse), 1000.0, 3.0, 1.0, 50.0, 4.0, 20.0)
    capacity = size * 1000.0 * groups + 5000.0
    time = characteristic_time(contents, capacity)
    assert float(contents.tokens_used(time)[0]) == pytest.approx(capacity, rel=1e-3)
    shares = np.arange(1.0, groups + 1.0) ** -1.0
    rates = 3.0 * shares / shares.sum()
    inside = 1000.0 * np.sum(-np.expm1(-rates * (float(time) + 1.0)))
    inside += 3.0 * 50.0 * (1.5 * 20.0 * -np.expm1(-float(time) / 20.0) + float(time))
    assert inside == pytest.approx(capacity, rel=0.02)


@pytest.mark.parametrize(
    "case",
    [
        slow(dict(GROUPS, request_rate=5, prefix_groups=30)),
        dict(GROUPS, request_rate=5, prefix_groups=300),
        slow(dict(GROUPS, request_rate=5, prefix_groups=3000, prefix_skew=0.6)),
        dict(GROUPS, request_rate=5, prefix_groups=1000, host_cache=1e11, disk_cache=5e11),
        dict(GROUPS, concurrency=64, prefix_groups=300),
        dict(BASE, request_rate=5, turns=8, think_time=3),
        slow(dict(BASE, request_rate=5, turns=8, think_time=30)),
        dict(BASE, request_rate=5, turns=8, think_time=30, host_cache=1e11),
        dict(BASE, request_rate=5, turns=8, think_time=30, prefix_share=0.2, prefix_groups=100),
        slow(dict(BASE, request_rate=5, turns=2, think_time=60, length_spread=0.5, answer_spread=0.5)),
    ],
    ids=lambda case: ", ".join(f"{name} {value:g}" for name, value in case.items() if name not in BASE),
)
def test_hits_are_those_of_the_simulator(case):
    """Within 5 points of a cache of blocks that evicts the least recently used; first tokens within 12 %."""
    one = design(**case)
    found, simulated = serve(one), statistics(simulate(one, count=10_000))
    assert found.cache_hit_rate == pytest.approx(simulated["cache_hit_rate"], abs=0.05)
    assert found.device_cache_hit_rate <= found.cache_hit_rate * (1.0 + 1e-6)
    assert found.time_to_first_token == pytest.approx(simulated["mean_time_to_first_token"], rel=0.12)


def test_loads_that_only_hits_make_servable_are_served():
    """Without hits 1.15 times what can be served, and no room for a cache: an engine never gets there."""
    case = dict(prompt_tokens=8000, output_tokens=200, request_rate=2)
    asked = dict(workload="llama-3-1-70b", system="h200", software="vllm", tp=4, kind="serving", **case)
    plain, found = (serve(with_serving_defaults(dse.design(**asked, **more))) for more in ({}, dict(turns=10)))
    assert plain.utilisation > 1.0 and found.utilisation < 0.5 and found.cache_hit_rate > 0.8


def test_a_record_of_one_prefix_and_one_turn_changes_nothing():
    plain = design(**GROUPS, request_rate=5)
    neutral = dataclasses.replace(plain, workload=dataclasses.replace(plain.workload, reuse=Reuse()))
    for before, after in zip(jax.tree.leaves(serve(plain)), jax.tree.leaves(serve(neutral)), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-3)


def test_hits_grow_with_the_cache_and_have_slopes():
    """Of more host memory, fewer prefixes and shorter thinking; gradients have the sign of differences."""
    groups = [float(serve(design(**GROUPS, request_rate=5, prefix_groups=n)).cache_hit_rate) for n in (10, 100, 1000)]
    assert groups == sorted(groups, reverse=True)
    names = ("host_cache", "think_time", "memory.capacity")
    one = design(**BASE, request_rate=5, turns=8, think_time=60, host_cache=5e10)
    values, slopes = dse.value_and_grad("cache_hit_rate", one, names)({"host_cache": np.array([5e10, 5.1e10])})
    assert np.diff(values)[0] / 1e9 == pytest.approx(slopes["host_cache"].mean(), rel=0.1)
    assert slopes["think_time"][0] < 0.0 < slopes["memory.capacity"][0]


def test_turns_need_prompts_that_hold_them():
    with pytest.raises(InputError, match="turns"):
        design(prompt_tokens=1000, output_tokens=500, turns=8, request_rate=1)


def test_loops_of_sessions_are_not_simulated():
    with pytest.raises(InputError, match="turns per session without a rate"):
        simulate(design(**BASE, turns=4, concurrency=8), count=10)


@pytest.mark.parametrize("answer", [200.0, 768.0, 4000.0, 20000.0])
@pytest.mark.parametrize("turns", [1.0, 2.0, 4.0, 16.0])
def test_no_more_is_found_than_was_asked(answer, turns):
    """However long the answers of a session are for the mean of its prompts, as in arrays, which nothing refuses."""
    stated = design(**BASE, turns=2, think_time=10, request_rate=0.2)
    found = serve(
        replace(
            stated,
            {
                "workload.requests.prompt_tokens": 1024.0,
                "workload.requests.output_tokens": answer,
                "workload.reuse.turns": turns,
            },
        )
    )
    assert 0.0 <= found.device_cache_hit_rate <= found.cache_hit_rate < 1.0
    assert found.time_per_output_token_prefill >= 0.0 and found.time_to_first_token_waiting >= 0.0
