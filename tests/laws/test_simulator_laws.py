"""Laws of the simulator of requests, for any scheduler's limits: on a step time that is linear in all that it holds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse.lab.simulator.limits import BLOCK, SchedulerLimits
from dse.lab.simulator.load import RequestList
from dse.lab.simulator.scheduler import RankResult, Scheduler
from dse.lab.simulator.table import StepTable

AXES = [0.0, 1.0, 512.0], [0.0, 5000.0], [0.0, 1.0, 9000.0], [0.0, 5000.0]


def seconds(n: float, context: float, prompt: float, reach: float) -> float:
    return 5e-3 + 2e-5 * n + 1e-8 * n * context + 2e-5 * prompt + 1e-9 * prompt * reach


TABLE = StepTable(*AXES, [seconds(*point) for point in itertools.product(*AXES)])


@st.composite
def limits(draw, mixed=None):
    return SchedulerLimits(
        chunk=draw(st.sampled_from([64, 500, 2048])),
        sequences=draw(st.sampled_from([1, 4, 64])),
        blocks=draw(st.sampled_from([70, 150, 5000])),
        per_token=1.0,
        fixed=draw(st.sampled_from([0.0, 40.0])),
        reserved=draw(st.sampled_from([0.0, 0.5, 1.0])),
        mixed=draw(st.booleans()) if mixed is None else mixed,
        admission_steps=draw(st.sampled_from([1, 3])),
        speed=draw(st.sampled_from([1.0, 2.5])),
        rows=1.0,
        request_time=0.02,
    )


def asked(seed: int, count: int, rate: float, prefixes: int = 0) -> RequestList:
    random = np.random.default_rng(seed)
    prompt, answer = random.integers(1, 500, count), random.integers(1, 400, count)
    prefix = random.integers(-1, prefixes, count) if prefixes else np.full(count, -1)
    shared = np.where(prefix >= 0, np.minimum(prompt, 20 * (prefix + 2)), 0)
    return RequestList(np.cumsum(random.exponential(1.0 / rate, count)), prompt, answer, prefix, shared)


def served(one: SchedulerLimits, requests: RequestList, in_flight: int | None = None) -> RankResult:
    return Scheduler(one, TABLE, requests, in_flight, keep=True).run()


CASES = given(limits(), st.integers(0, 1000), st.sampled_from([1.0, 10.0, 200.0]), st.sampled_from([0, 3, 12]))


@CASES
@settings(max_examples=60, deadline=None)
def test_all_requests_end_in_order_and_within_the_cache(one, seed, rate, prefixes):
    requests = asked(seed, 60, rate, prefixes)
    found = served(one, requests)
    assert np.all(np.isfinite(found.finish)) and np.all(found.hit <= np.maximum(requests.prompt - 1, 0))
    assert np.all(requests.arrival <= found.admitted) and np.all(found.admitted < found.first)
    assert np.all(found.first <= found.finish) and np.all((found.first < found.finish) == (requests.answer > 1))
    assert np.all(np.diff(found.admitted) >= 0.0), "first come, first served"
    assert max(record.blocks for record in found.records) <= found.most_used <= one.blocks
    assert max(record.running for record in found.records) <= one.sequences
    assert all(r.prompt + r.sequences * one.rows * (r.prompt > 0) <= max(one.chunk, r.sequences) for r in found.records)


@CASES
@settings(max_examples=40, deadline=None)
def test_every_token_is_computed_once(one, seed, rate, prefixes):
    """Prompt tokens but those in the cache, and answers: where no cache was taken, which computes tokens again."""
    requests = asked(seed, 60, rate, prefixes)
    found = served(one, requests)
    prompts = sum(record.prompt for record in found.records)
    steps = sum(record.steps * record.sequences for record in found.records)
    fresh, later = int(np.sum(requests.prompt - found.hit)), int(np.sum(np.ceil((requests.answer - 1) / one.speed)))
    if not found.preemptions.any():
        assert (prompts, steps) == (fresh, later)
    assert prompts >= fresh and sum(record.steps for record in found.records) == found.steps
    assert found.busy == pytest.approx(sum(record.seconds for record in found.records))


@given(limits(), st.integers(0, 1000), st.sampled_from([1.0, 10.0, 200.0]))
@settings(max_examples=40, deadline=None)
def test_no_request_ends_before_its_lone_time(one, seed, rate):
    requests = asked(seed, 25, rate)
    together = served(one, requests)
    for i in range(requests.size):
        alone = served(one, requests.subset(np.array([i])))
        lone = alone.finish[0] - alone.requests.arrival[0]
        assert together.finish[i] - requests.arrival[i] >= lone * (1.0 - 1e-9)


@given(limits(), st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_the_same_requests_give_the_same_result(one, seed):
    first, second = (served(one, asked(seed, 50, 20.0, 3)) for _ in range(2))
    for before, after in zip(first[1:], second[1:], strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("mixed", [True, False])
def test_requests_in_the_engine_are_rate_times_latency(mixed):
    """Little's law, of what steps count and what requests take."""
    one = SchedulerLimits(2048, 64, 5000, 1.0, 0.0, 0.0, mixed, 1, 1.0, 1.0, 0.0)
    found = served(one, asked(1, 6000, 15.0))
    arrival = found.requests.arrival
    inside = sum((r.waiting + r.running) * r.seconds for r in found.records)
    assert inside == pytest.approx(np.sum(found.finish - arrival), rel=0.01)
    assert sum(r.running * r.seconds for r in found.records) == pytest.approx(np.sum(found.finish - found.admitted))


@given(limits(), st.integers(1, 40), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_closed_loop_keeps_its_number_in_flight(one, in_flight, seed):
    pauses = np.where(np.arange(80) < in_flight, 0.0, one.request_time)
    requests = asked(seed, 80, 1.0)._replace(arrival=pauses)
    found = served(one, requests, in_flight)
    arrival, finish = found.requests.arrival, found.finish
    last = (1.0 - 1e-9) * arrival.max()  # two that end together have one successor then
    for now in np.linspace(0.0, last, 30):
        inside = np.sum((arrival <= now) & (now < finish + one.request_time * (1.0 - 1e-9)))
        assert inside == min(in_flight, 80)


def test_caches_that_are_full_are_taken_from_the_last():
    """Answers that outgrow the cache: the first ones keep theirs, and all end."""
    one = SchedulerLimits(2048, 64, 40, 1.0, 0.0, 0.0, True, 1, 1.0, 1.0, 0.0)
    requests = RequestList(np.zeros(4), np.full(4, 100), np.full(4, 300), np.full(4, -1), np.zeros(4, np.int64))
    found = served(one, requests)
    assert found.preemptions[0] == 0 and found.preemptions[-1] > 0 and np.all(np.diff(found.finish) >= 0.0)
    kept = served(one._replace(reserved=1.0), requests)
    assert not kept.preemptions.any()


def test_prefixes_are_found_until_they_are_evicted():
    """Three prefixes in turn: all are found again where they fit, none where the cache holds two (LRU)."""
    count = 30
    requests = RequestList(
        np.arange(count) * 10.0,
        np.full(count, 20 * BLOCK + 1),
        np.ones(count, np.int64),
        np.arange(count) % 3,
        np.full(count, 20 * BLOCK),
    )
    wide, narrow = (
        served(SchedulerLimits(9000, 64, blocks, 1.0, 0.0, 0.0, True, 1, 1.0, 1.0, 0.0), requests)
        for blocks in (70, 50)
    )
    assert wide.hit.tolist() == [0] * 3 + [20 * BLOCK] * (count - 3)
    assert not narrow.hit.any()
    assert np.all((wide.first - requests.arrival)[3:] < (narrow.first - requests.arrival)[3:])
