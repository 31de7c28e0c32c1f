"""Percentiles in numbers: cumulants of sums by hand, a queue and steps with prompts also as drawn at random."""

from __future__ import annotations

import math
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest

from dse.model.serving import tails
from dse.model.serving.tails import Cumulants, OtherSequences, Tails, first_token, lognormal, other_sequences
from dse.types import Load, Requests, Serving

NONE = OtherSequences(0.0, 0.0)


def cumulants(drawn):
    """Mean, variance and third cumulant of a sample."""
    away = drawn - drawn.mean()
    return drawn.mean(), (away**2).mean(), (away**3).mean()


def served(**values):
    """A rank that is busy with nothing but what is stated."""
    plain = dict(
        prefill=0.0,
        arrival_step_time=0.02,
        prompt=0.1,
        wait_in_slot=0.01,
        waiting=0.01,
        rate=5.0,
        extra_prompt_time=0.1,
        sequence_time=0.0,
        prompts_per_step=9.0,
        steps_per_prompt=1.0,
        variation=1.0,
        wait_fraction=1.0,
        token=0.04,
    )
    return SimpleNamespace(**plain | values, decode=SimpleNamespace(total=0.02))


def test_quantiles_of_the_normal_distribution():
    for z, beyond in tails.NORMAL.values():
        assert z == pytest.approx(NormalDist().inv_cdf(1.0 - beyond), abs=1e-6)
    assert {name: beyond for name, (_, beyond) in tails.NORMAL.items()} == {
        "p50": 0.5,
        "p90": 0.1,
        "p95": 0.05,
        "p99": 0.01,
    }


def test_a_sum_of_times():
    """With three times an independent one: 3, 9, 27 and 81 times its cumulants."""
    found = Cumulants(1.0, 2.0, 3.0, 4.0).plus(Cumulants(10.0, 20.0, 30.0, 40.0), 3.0)
    assert tuple(found) == (31.0, 182.0, 813.0, 3244.0)


def test_a_lognormal_time():
    """Mean 4, standard deviation 2: skewness 0.5 (3 + 0.25). Quantiles: e^(mu + sigma z), sigma^2 = ln 1.25."""
    found = lognormal(4.0, 0.5)
    assert tuple(found)[:3] == pytest.approx((4.0, 4.0, 13.0))
    sigma = math.sqrt(math.log(1.25))
    for z, _ in tails.NORMAL.values():
        assert float(found.quantile(z)) == pytest.approx(4.0 / math.sqrt(1.25) * math.exp(sigma * z), rel=1e-5)


def test_a_flat_time_has_a_short_tail():
    """Of 0 to 1 s: variance 1/12, fourth cumulant -1/120, excess -1.2: z - 1.2 (z^3 - 3 z) / 24 deviations.

    At z = 1.6449 that is 1.6449 + 0.0242, of 0.28868 s: 0.9818 s (0.95 itself); at 2.3263 it is 2.3263 - 0.2805.
    """
    flat = Cumulants(0.5, 1.0 / 12.0, 0.0, -1.0 / 120.0)
    assert float(flat.quantile(1.6448536)) == pytest.approx(0.9818, abs=1e-3)
    assert float(flat.quantile(2.3263479)) == pytest.approx(0.5 + 2.0458 * 0.28868, abs=1e-3)


def test_waits_for_a_place():
    """A fifth wait, 10 s in the mean: a twentieth longer than 10 ln 4 s; half of all wait for none."""
    found = Tails(Cumulants(0.0), Cumulants(0.0), Cumulants(0.0), 10.0, 0.2)
    assert float(found.slot_wait_quantile(0.05)) == pytest.approx(10.0 * math.log(4.0))
    assert float(found.slot_wait_quantile(0.5)) == 0.0


def test_sequences_at_a_time():
    """2 a second for 100 steps of 10 ms: 2, each a tenth of a decode step of 10 ms: a fifth of it; 2 / 0.8.

    The same in steps of two tokens: half as many turns of twice the time.
    """
    found = served(rate=2.0, token=0.01, sequence_time=1e-3)
    found.decode.total = 0.01
    at_rate = Requests(load=float(Load.rate), request_rate=2.0)
    assert tuple(map(float, other_sequences(at_rate, found, 100.0, 1.0))) == pytest.approx((2.5, 0.2))
    found.variation = 3.0
    assert float(other_sequences(at_rate, found, 50.0, 2.0).variance) == pytest.approx(3.0 * 2.0 / 0.9)
    assert tuple(map(float, other_sequences(Requests(), found, 100.0, 1.0))) == (0.0, 0.0)


def test_the_rest_of_a_running_step():
    """Alone: flat over a step of 20 ms, 0.02^2 / 12 and -0.02^4 / 120; then 300 ms, of which 100 are spread."""
    requests = Requests(length_spread=0.5)
    found = first_token(requests, Serving(), served(rate=1e-6, prompt=0.3), NONE, 1.0)
    own = lognormal(0.1, 0.5)
    assert float(found.mean) == pytest.approx(0.31)
    assert float(found.second) == pytest.approx(0.02**2 / 12.0 + own.second, rel=1e-4)
    assert float(found.third) == pytest.approx(own.third, rel=1e-4)
    assert float(found.fourth) == pytest.approx(-(0.02**4) / 120.0, rel=1e-4)


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_a_step_with_prompts_is_that_drawn_at_random(spread):
    """Steps of 20 ms and 10 ms a prompt of those that arrived in the one before, 50 a second: half of the time.

    An arrival meets a step by its length, waits for a flat share of it and computes with all that arrive in it.
    """
    random, sigma = np.random.default_rng(5), math.sqrt(math.log1p(spread**2))

    def prompts(during):
        """Seconds of the prompts that arrive in so many seconds."""
        arrived = random.poisson(50.0 * during)
        lengths = random.lognormal(-0.5 * sigma**2, sigma, arrived.sum())
        return 0.01 * np.bincount(np.repeat(np.arange(arrived.size), arrived), lengths, arrived.size)

    step = np.full(200_000, 0.04)
    for _ in range(12):
        step = 0.02 + prompts(step)
    met = random.choice(step, step.size, p=step / step.sum())
    _, second, third = cumulants(met * random.random(step.size) + prompts(met))
    mean = float(met.mean())
    busy = served(
        rate=50.0,
        extra_prompt_time=0.01,
        prompt=0.01,
        arrival_step_time=mean,
        wait_in_slot=0.5 * mean,
        prefill=0.02,
        sequence_time=1e-3,
    )
    requests, own = Requests(length_spread=spread), lognormal(0.01, spread)
    found = first_token(requests, Serving(), busy, NONE, 1.0)
    assert float(found.second - own.second) == pytest.approx(second, rel=0.02)
    assert float(found.third - own.third) == pytest.approx(third, rel=0.06)
    # Sequences that vary by 4, 1 ms each: in the own step, and (0.5 + 0.5) / 0.5 times more before it.
    others = first_token(requests, Serving(), busy, OtherSequences(4.0, 0.0), 1.0)
    assert float(others.second - found.second) == pytest.approx(4.0 * (3.0 * 1e-3) ** 2, rel=1e-4)


def test_regular_arrivals_share_their_step_with_nobody():
    """As often as above: the rest of a step of 20 ms, flat."""
    found = first_token(Requests(), Serving(), served(rate=50.0, extra_prompt_time=0.01, variation=0.0), NONE, 1.0)
    assert float(found.second) == pytest.approx(0.02**2 / 12.0, rel=1e-4)
    assert float(found.third) == pytest.approx(0.0, abs=1e-12)


def test_clumped_arrivals_wait_for_each_other():
    """Of arrivals that vary by 3 one more comes with each: 0.1 s of 0.2; the rest is the queue, two for 0.1 s each."""
    found = tails._prompt_waits(Serving(), served(variation=3.0, wait_in_slot=0.21))
    assert tuple(map(float, found))[:2] == pytest.approx((0.2, 2.0 * 0.1**2 / 3.0 + 0.1**2))


def test_moments_of_a_step_with_prompts():
    """Steps of 2 s in the mean, half of it prompts of 1 s, each 1: Poisson given the step before, all cumulants S / 2.

    By the law of total cumulance, with c = 1/2: v = c S + c^2 v = 1 + v / 4 = 4/3; k3 = c S + 3 c^2 v + c^3 k3 = 2 +
    k3 / 8 = 16/7; k4 = c S + (4 + 3) c^2 v + 6 c^3 k3 + c^4 k4 = 1 + 7/3 + 12/7 + k4 / 16 = 16/15 x 106/21.

    Moments about 0: v + 4 = 16/3, k3 + 6 v + 8 = 128/7, k4 + 8 k3 + 3 v^2 + 24 v + 16; over S those of the step met.
    """
    v, k3, k4 = 4.0 / 3.0, 16.0 / 7.0, 16.0 / 15.0 * 106.0 / 21.0
    expected = (8.0 / 3.0, 64.0 / 7.0, (k4 + 8.0 * k3 + 3.0 * v * v + 24.0 * v + 16.0) / 2.0)
    assert tuple(map(float, tails._arrival_step_moments(2.0, 1.0, 0.5, (1.0, 1.0, 1.0)))) == pytest.approx(expected)
    # Prompts of half the length with other moments: cumulants S / 2 times 2 / 2, 3 / 4 and 4 / 8 of c2, c3 and c4.
    v = 1.0 / 0.75
    k3 = (0.75 + 3.0 * 0.5 * 0.5 * v) / 0.875
    k4 = (0.5 + (4.0 * 0.375 * 0.5 + 3.0 * 0.25) * v + 6.0 * 0.5 * 0.25 * k3) / (15.0 / 16.0)
    expected = (0.5 * (v + 4.0), 0.5 * (k3 + 6.0 * v + 8.0), 0.5 * (k4 + 8.0 * k3 + 3.0 * v * v + 24.0 * v + 16.0))
    assert tuple(map(float, tails._arrival_step_moments(2.0, 0.5, 0.5, (2.0, 3.0, 4.0)))) == pytest.approx(expected)


def test_a_queue_of_others():
    """Three others in the mean, geometric, for the rest of 2 s each, flat: 3 s.

    Variance: 3 x 2^2 / 12 of the rests and (3 + 9) x 1^2 of their number: 13. Third: 3 x 12 x 1 / 3 of both and the
    third cumulant of the number, 3 + 3 x 9 + 2 x 27: 12 + 84.
    """
    found = tails._queue_wait(3.0, 2.0)
    assert tuple(map(float, found))[:3] == pytest.approx((3.0, 13.0, 96.0))
    # One and a half for 4 s: 1.5 x 16 / 12 and 3.75 x 4; 3 x 3.75 x 2 x 4 / 3 and (1.5 + 6.75 + 6.75) x 8.
    assert tuple(map(float, tails._queue_wait(3.0, 4.0)))[:3] == pytest.approx((3.0, 17.0, 150.0))
    random = np.random.default_rng(3)
    many = random.geometric(0.25, 100_000) - 1
    waits = 2.0 * np.array([random.random(n).sum() for n in many])
    assert cumulants(waits) == pytest.approx((3.0, 13.0, 96.0), rel=0.05)


def test_prompts_apart_share_their_step():
    """4 a second that wait 50 ms: 0.2 others of 100 ms each, Poisson: 0.2 x 0.01 and 0.2 x 0.001 beyond the queue."""
    found = served(rate=4.0, waiting=0.05, wait_in_slot=0.05, arrival_step_time=0.02)
    mixed, apart = (tails._prompt_waits(Serving(mixed=value), found) for value in (1.0, 0.0))
    assert float(mixed.mean) == pytest.approx(0.04) and float(apart.mean) == pytest.approx(0.04)
    assert float(apart.second - mixed.second) == pytest.approx(2e-3)
    assert float(apart.third - mixed.third) == pytest.approx(2e-4)


def test_time_per_output_token():
    """Prompts of 0.1 s, 5 a second, take half of the time: 0.01 x 5 x 0.02 / (0.5^3 x 100) = 8e-5 s^2 over 100 steps.

    With lengths spread by half: a quarter more. Third cumulant of an inverse Gaussian time: 3 x variance^2 / mean.
    """
    found = tails.output_token(Requests(), served(), NONE, 100.0, 1.0)
    assert tuple(map(float, found))[:3] == pytest.approx((0.04, 8e-5, 3.0 * 64e-10 / 0.04))
    spread = tails.output_token(Requests(length_spread=0.5, answer_spread=0.5), served(), NONE, 100.0, 1.0)
    assert float(spread.second) == pytest.approx(8e-5 * 1.25 * 1.25)
    # Two tokens a step: steps of 40 ms for two, so twice the variance of a step, a quarter of it a token.
    assert float(tails.output_token(Requests(), served(), NONE, 100.0, 2.0).second) == pytest.approx(2 * 8e-5 / 4.0)
    # Others that vary by 2.5, a fifth of the step: 1 - 0.8 / 3 of that stays, 1 ms each, and 0.1 s of a prompt in 100.
    others = tails.output_token(Requests(), served(sequence_time=1e-3), OtherSequences(2.5, 0.2), 100.0, 1.0)
    together = 2.5 * 1e-3 * ((1.0 - 0.8 / 3.0) * 1e-3 + 1e-3) / 0.25
    assert float(others.second) == pytest.approx(8e-5 + together)


def test_the_latency_of_a_request():
    """100 tokens of 40 ms after the first, spread by half: variance 8e-5 x (100^2 + 50^2) and 2^2 s^2 of the 4 s.

    Ends of the request take 10 ms. Of 0.3 s of waiting 0.25 are for a place, of the half that wait for one.
    """
    requests = Requests(output_tokens=101.0, answer_spread=0.5)
    found = tails.tails(
        requests, Serving(), served(waiting=0.3, wait_in_slot=0.05, arrival_step_time=0.1, wait_fraction=0.5), 0.01
    )
    first, token, latency = found.first, found.token, found.latency
    assert float(token.second) == pytest.approx(8e-5 * 1.25)
    assert float(latency.mean - first.mean) == pytest.approx(4.0)
    assert float(first.mean) == pytest.approx(0.05 + 0.1 + 0.01)
    assert float(latency.second - first.second) == pytest.approx(8e-5 * 1.25 * 12500.0 + 4.0)
    assert float(latency.third - first.third) == pytest.approx(4.0**3 * 0.25**2 * 3.25, rel=1e-5)
    assert (float(found.slot_wait), float(found.wait_fraction)) == pytest.approx((0.5, 0.5))
    # One and a half tokens a step: 1.5 times as long for two thirds of the steps, each 1 / 1.5^2 a token.
    drafted = tails.tails(requests, Serving(drafts=1.0, acceptance=0.5), served(), 0.01).token
    assert float(drafted.second) == pytest.approx(8e-5 * 1.25)
