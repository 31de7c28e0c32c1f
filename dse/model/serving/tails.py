"""Percentiles of latencies in closed form: cumulants of independent parts add up, and give the quantiles.

A sum's first four cumulants are those of its parts (Kendall and Stuart 1977, chapter 3). Mean, variance and skewness
make a shifted lognormal distribution, whose quantiles have a closed form; the flat part, the rest of a running step,
makes the tail shorter by the term of the fourth cumulant of Cornish and Fisher (1937).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import value_or
from dse.model.serving.arrivals import poisson_share
from dse.model.serving.intake import output_tokens_per_step
from dse.model.serving.steady import SteadyState
from dse.types import Load, Requests, Scalar, Serving

#: Percentile → quantile of a normal distribution, share of requests beyond it.
NORMAL = {"p50": (0.0, 0.5), "p90": (1.2815516, 0.1), "p95": (1.6448536, 0.05), "p99": (2.3263479, 0.01)}


#: Seconds of deviation above which powers of a time may exceed single precision.
_MAX_DEVIATION = 1e6


class Cumulants(NamedTuple):
    """Mean, variance, third and fourth cumulant of a time."""

    mean: Scalar
    second: Scalar = 0.0
    third: Scalar = 0.0
    fourth: Scalar = 0.0  # of flat parts alone

    def plus(self, other: Cumulants, times: Scalar = 1.0) -> Cumulants:
        """Return the cumulants of the sum with ``times`` times an independent time."""
        return Cumulants(*(a + b * times**k for k, (a, b) in enumerate(zip(self, other, strict=True), 1)))

    def quantile(self, z: float) -> Scalar:
        """Return the time below which a share ``Phi(z)`` lies, at least 0, for ``z`` of a standard normal variable.

        With the skewness ``g``, the coefficient of variation ``c`` of the lognormal about its shift solves
        ``c^3 + 3 c = g``. Times beyond all use, as of a precision that the machine lacks, have no spread.
        """
        second = jnp.maximum(self.second, 1e-12 * self.mean * self.mean + 1e-24)
        deviation = jnp.sqrt(second)
        g = jnp.maximum(self.third / (second * deviation), 1e-3)
        root = (0.5 * g + jnp.sqrt(0.25 * g * g + 1.0)) ** (1.0 / 3.0)
        c = root - 1.0 / root
        variance = jnp.log1p(c * c)
        skewed = jnp.expm1(jnp.sqrt(variance) * z - 0.5 * variance) / c
        tail_correction = (z**3 - 3.0 * z) / 24.0 * self.fourth / (second * second)
        value = jnp.maximum(self.mean + deviation * (skewed + tail_correction), 0.0)  # of very clumped arrivals
        return jnp.where(deviation < _MAX_DEVIATION, value, self.mean)


def lognormal(mean: Scalar, spread: Scalar) -> Cumulants:
    """Return the cumulants of a lognormal time by mean and relative standard deviation ``s``: skewness ``s (3 + s^2)``.

    The fourth cumulant is 0.
    """
    squared = spread * spread
    return Cumulants(mean, squared * mean**2, squared * squared * (3.0 + squared) * mean**3)


class Tails(NamedTuple):
    """Distributions of the latencies of a request."""

    first: Cumulants  # time to first token without the wait for a place, s
    token: Cumulants  # time per output token, mean over an answer, s
    latency: Cumulants  # request latency without the wait for a place, s
    slot_wait: Scalar  # mean wait for a place of the requests that have one, s
    wait_fraction: Scalar  # their share

    def slot_wait_quantile(self, tail_share: float) -> Scalar:
        """Return the wait for a slot, s, that a share ``tail_share`` of all requests exceeds, 0 where none do.

        The wait is exponential, as that of many servers.
        """
        return self.slot_wait * jnp.maximum(jnp.log(jnp.maximum(self.wait_fraction, 1e-30) / tail_share), 0.0)


class OtherSequences(NamedTuple):
    """Sequences that decode at the same time as a request, whose number varies."""

    variance: Scalar  # of their number
    step_time_share: Scalar  # of a step's time that grows with their number


def other_sequences(
    requests: Requests, state: SteadyState, answer_steps: Scalar, tokens_per_step: Scalar
) -> OtherSequences:
    """Return the variance of the number of decoding sequences and their share of a step's time, 0 in closed loops.

    At a rate its variance is ``n / (1 - phi)``.

    ``phi`` is the share of a step that grows with them: the number comes back to its mean by ``(1 - phi) / L`` a
    second, with the time ``L`` of an answer.
    """
    sequences = jnp.where(
        requests.load == float(Load.rate), state.rate * answer_steps * state.token * tokens_per_step, 0.0
    )
    growth_share = jnp.minimum(sequences * state.sequence_time / (state.decode.total * tokens_per_step), 0.9)
    return OtherSequences(state.variation * sequences / (1.0 - growth_share), growth_share)


def tails(requests: Requests, serving: Serving, state: SteadyState, request_time: Scalar) -> Tails:
    """Return the cumulants of time to first token, time per output token and latency of a request, and slot waits.

    Args:
        requests: with their spreads.
        serving: how the engine serves.
        state: mean latencies of the rank.
        request_time: time of a request outside of the engine, s.
    """
    later_tokens, tokens_per_step = requests.output_tokens - 1.0, output_tokens_per_step(serving)
    answer_steps = jnp.maximum(later_tokens / tokens_per_step, 1.0)
    other_decoding = other_sequences(requests, state, answer_steps, tokens_per_step)
    first = first_token(requests, serving, state, other_decoding, tokens_per_step)
    token = output_token(requests, state, other_decoding, answer_steps, tokens_per_step)
    answer = lognormal(later_tokens, value_or(requests.answer_spread, 0.0))
    mean = later_tokens * token.mean
    decode = Cumulants(mean, token.second * (later_tokens * later_tokens + answer.second))
    decode = decode.plus(lognormal(mean, value_or(requests.answer_spread, 0.0))._replace(mean=0.0))
    request_part = Cumulants(request_time)
    slot_wait = jnp.maximum(state.waiting - state.wait_in_slot, 0.0) / jnp.maximum(state.wait_fraction, 1e-30)
    return Tails(first.plus(request_part), token, first.plus(decode).plus(request_part), slot_wait, state.wait_fraction)


def first_token(
    requests: Requests, serving: Serving, state: SteadyState, other_decoding: OtherSequences, tokens_per_step: Scalar
) -> Cumulants:
    """Return the cumulants of the time to the first token in the engine: running step, own step, queue of prompts.

    A request meets a step of ``B`` seconds, has its rest before it, uniform, and shares its own step with the others
    that arrived meanwhile, Poisson: ``U B + p K`` seconds, with the moments of :func:`_arrival_step_moments`. Prompt
    lengths are lognormal; arrivals of another variation ``v`` spread like prompts of another length.
    """
    length_moment, v = 1.0 + requests.length_spread * requests.length_spread, state.variation
    m2, m3, m4 = length_moment + v - 1.0, length_moment**3 + v**2 - 1.0, length_moment**6 + v**3 - 1.0
    # Of a piece, where a prompt takes several steps; none where prompts are apart, and queue.
    p = jnp.where(serving.mixed > 0.0, state.extra_prompt_time * jnp.minimum(state.prompts_per_step, 1.0), 0.0)
    rho = jnp.where(serving.mixed > 0.0, jnp.minimum(state.rate * state.extra_prompt_time, 0.9), 0.0)
    poisson = poisson_share(v)
    mean_step_time = tokens_per_step * (state.decode.total + jnp.where(serving.mixed > 0.0, state.prefill, 0.0))
    mean_step_time, rho = state.arrival_step_time + poisson * (mean_step_time - state.arrival_step_time), rho * poisson
    b1, b2, b3 = _arrival_step_moments(mean_step_time, p, rho, (m2, m3, m4))
    x1 = b1 * (0.5 + rho)
    x2 = b2 * (1.0 / 3.0 + rho + rho**2) + p * rho * m2 * b1
    x3 = b3 * (0.25 + rho + 1.5 * rho**2 + rho**3) + b2 * p * m2 * rho * (1.5 + 3.0 * rho) + p**2 * m3 * rho * b1
    seconds_per_sequence = (1.0 + (0.5 + rho) / (1.0 - rho)) * state.sequence_time
    second, third = other_decoding.variance * seconds_per_sequence**2 + x2 - x1**2, x3 - 3.0 * x2 * x1 + 2.0 * x1**3
    shared_step = Cumulants(0.5 * state.arrival_step_time, second, third, -(b1**4) / 120.0)
    own_prompt = lognormal(jnp.minimum(state.extra_prompt_time, state.prompt), requests.length_spread)._replace(
        mean=state.prompt
    )
    return shared_step.plus(own_prompt).plus(_prompt_waits(serving, state))


def _prompt_waits(serving: Serving, state: SteadyState) -> Cumulants:
    """Return the cumulants of waits after the running step: for earlier prompts, and for those of the same step."""
    p, burst_wait = state.extra_prompt_time, 0.5 * jnp.maximum(state.variation - 1.0, 0.0) * state.extra_prompt_time
    queue = _queue_wait(jnp.maximum(state.wait_in_slot - 0.5 * state.arrival_step_time - burst_wait, 0.0), p)
    same_step = jnp.where(serving.mixed > 0.0, 0.0, state.rate * state.waiting)
    mean = state.wait_in_slot - 0.5 * state.arrival_step_time
    return queue.plus(Cumulants(0.0, same_step * p**2, same_step * p**3))._replace(mean=mean)


def _arrival_step_moments(
    step: Scalar, p: Scalar, rho: Scalar, moments: tuple[Scalar, Scalar, Scalar]
) -> tuple[Scalar, Scalar, Scalar]:
    """Return the first three moments (s, s^2, s^3) of the step of an arrival: ``E[B^k] = E[S^(k + 1)] / E[S]``.

    A step of ``S`` seconds carries the prompts that arrived in the one before, ``p`` seconds each: given that one, its
    cumulants are ``p^k lambda S`` times the moments of prompt lengths, so its own follow by the law of total cumulance
    (Brillinger 1969).

    Args:
        step: mean time of a step, s.
        p: time that a prompt adds, s.
        rho: share of the time that prompts take.
        moments: second to fourth of prompt lengths over their mean.
    """
    m2, m3, m4 = moments
    v = p * rho * m2 * step / (1.0 - rho**2)
    k3 = (p**2 * m3 * rho * step + 3.0 * p * m2 * rho**2 * v) / (1.0 - rho**3)
    k4 = p**3 * m4 * rho * step + (4.0 * m3 + 3.0 * m2**2) * p**2 * rho**2 * v + 6.0 * p * m2 * rho**3 * k3
    k4 = k4 / (1.0 - rho**4)
    s2, s3 = v + step**2, k3 + 3.0 * v * step + step**3
    s4 = k4 + 4.0 * k3 * step + 3.0 * v**2 + 6.0 * v * step**2 + step**4
    return s2 / step, s3 / step, s4 / step


def _queue_wait(mean: Scalar, x: Scalar) -> Cumulants:
    """Return the cumulants of the wait for others of ``x`` seconds: a geometric number of uniform rests (M/G/1)."""
    mean_count = mean / jnp.maximum(0.5 * x, 1e-12)
    variance = mean_count * x * x / 3.0 + mean**2
    return Cumulants(mean, variance, mean_count * x**3 / 4.0 + 0.5 * mean_count**2 * x**3 + 2.0 * mean**3)


def output_token(
    requests: Requests,
    state: SteadyState,
    other_decoding: OtherSequences,
    answer_steps: Scalar,
    tokens_per_step: Scalar,
) -> Cumulants:
    """Return the cumulants of a request's time per output token, the mean over its ``t`` steps.

    Prompts of others: ``p^2 lambda D / ((1 - rho)^3 t)``, the variance of a busy period of ``t`` steps of ``D`` seconds
    over ``t^2``. Other sequences: the mean over an answer keeps two thirds of the variance of their number where it is
    independent of the step time, all of it where it hardly changes. Who arrives meanwhile slows a request down twice,
    by a prompt and for the rest of the time as a sequence, which adds a covariance.
    """
    p = state.extra_prompt_time
    decode_step = state.decode.total * tokens_per_step
    answers = value_or(requests.answer_spread, 0.0) ** 2
    rho = jnp.minimum(state.rate * p, 0.9)
    lengths = 1.0 + requests.length_spread * requests.length_spread
    length_variance = p * p * (lengths - 1.0 + state.variation) * (1.0 + answers)
    prompt_variance = length_variance * state.rate * decode_step / ((1.0 - rho) ** 3 * answer_steps)
    variance_share = 1.0 - (1.0 - other_decoding.step_time_share) / 3.0
    prompt_time = p / answer_steps
    sequence_time = state.sequence_time
    sequence_variance = (
        other_decoding.variance * sequence_time * (variance_share * sequence_time + prompt_time) / (1.0 - rho) ** 2
    )
    variance = (prompt_variance + sequence_variance) / (tokens_per_step * tokens_per_step)
    return Cumulants(state.token, variance, 3.0 * variance * variance / state.token)
