"""Percentiles of latencies in closed form: cumulants of independent parts add up, and give the quantiles.

A sum's first four cumulants are those of its parts (Kendall and Stuart 1977, chapter 3). Mean, variance and skewness
make a shifted lognormal distribution, whose quantiles have a closed form; the flat part, the rest of a running step,
makes the tail shorter by the term of the fourth cumulant of Cornish and Fisher (1937).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import given
from dse.model.serving.arrivals import poisson_share
from dse.model.serving.intake import tokens_of_a_step
from dse.model.serving.steady import Served
from dse.types import Load, Requests, Scalar, Serving

#: Percentile → quantile of a normal distribution, share of requests beyond it.
NORMAL = {"p50": (0.0, 0.5), "p90": (1.2815516, 0.1), "p95": (1.6448536, 0.05), "p99": (2.3263479, 0.01)}


#: Seconds of deviation above which powers of a time may exceed single precision.
_LONGEST = 1e6


class Cumulants(NamedTuple):
    """Mean, variance, third and fourth cumulant of a time."""

    mean: Scalar
    second: Scalar = 0.0
    third: Scalar = 0.0
    fourth: Scalar = 0.0  # of flat parts alone

    def plus(self, other: Cumulants, times: Scalar = 1.0) -> Cumulants:
        """That of the sum with ``times`` an independent time."""
        return Cumulants(*(a + b * times**k for k, (a, b) in enumerate(zip(self, other, strict=True), 1)))

    def quantile(self, z: float) -> Scalar:
        """The value below which a share ``Phi(z)`` lies.

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
        shorter = (z**3 - 3.0 * z) / 24.0 * self.fourth / (second * second)
        found = jnp.maximum(self.mean + deviation * (skewed + shorter), 0.0)  # of very clumped arrivals
        return jnp.where(deviation < _LONGEST, found, self.mean)


def lognormal(mean: Scalar, spread: Scalar) -> Cumulants:
    """A lognormal time by its relative standard deviation ``s``: skewness ``s (3 + s^2)``."""
    squared = spread * spread
    return Cumulants(mean, squared * mean**2, squared * squared * (3.0 + squared) * mean**3)


class Tails(NamedTuple):
    """Distributions of the latencies of a request."""

    first: Cumulants  # time to first token without the wait for a place, s
    token: Cumulants  # time per output token, mean over an answer, s
    latency: Cumulants  # request latency without the wait for a place, s
    place: Scalar  # mean wait for a place of the requests that have one, s
    full: Scalar  # their share

    def waits(self, beyond: float) -> Scalar:
        """Seconds that a share ``beyond`` of the requests wait longer for a place: exponential, as of many servers."""
        return self.place * jnp.maximum(jnp.log(jnp.maximum(self.full, 1e-30) / beyond), 0.0)


class OtherSequences(NamedTuple):
    """Sequences that decode at the same time as a request; their number varies."""

    variance: Scalar  # of their number
    share: Scalar  # of a step's time that grows with their number


def other_sequences(requests: Requests, found: Served, turns: Scalar, speed: Scalar) -> OtherSequences:
    """Number of decoding sequences: constant in closed loops; at a rate of variance ``n / (1 - phi)``.

    ``phi`` is the share of a step that grows with them: the number comes back to its mean by ``(1 - phi) / L`` a
    second, with the time ``L`` of an answer.
    """
    many = jnp.where(requests.load == float(Load.rate), found.rate * turns * found.token * speed, 0.0)
    grows = jnp.minimum(many * found.a_sequence / (found.decode.total * speed), 0.9)
    return OtherSequences(found.variation * many / (1.0 - grows), grows)


def tails(requests: Requests, serving: Serving, found: Served, request_time: Scalar) -> Tails:
    """Distributions of the time to first token, the time per output token and the latency of a request."""
    later, speed = requests.output_tokens - 1.0, tokens_of_a_step(serving)
    turns = jnp.maximum(later / speed, 1.0)
    others = other_sequences(requests, found, turns, speed)
    first = first_token(requests, serving, found, others, speed)
    token = output_token(requests, found, others, turns, speed)
    answer = lognormal(later, given(requests.answer_spread, 0.0))
    mean = later * token.mean
    decode = Cumulants(mean, token.second * (later * later + answer.second))
    decode = decode.plus(lognormal(mean, given(requests.answer_spread, 0.0))._replace(mean=0.0))
    outside = Cumulants(request_time)
    place = jnp.maximum(found.waiting - found.placed, 0.0) / jnp.maximum(found.full, 1e-30)
    return Tails(first.plus(outside), token, first.plus(decode).plus(outside), place, found.full)


def first_token(
    requests: Requests, serving: Serving, found: Served, others: OtherSequences, speed: Scalar
) -> Cumulants:
    """Time to the first token in the engine: rest of the running step, own step, queue of prompts.

    A request meets a step of ``B`` seconds, has its rest before it, uniform, and shares its own step with the others
    that arrived meanwhile, Poisson: ``U B + p K`` seconds, with the moments of :func:`_step_met`. Prompt lengths
    are lognormal; arrivals of another variation ``v`` spread like prompts of another length.
    """
    longer, v = 1.0 + requests.length_spread * requests.length_spread, found.variation
    m2, m3, m4 = longer + v - 1.0, longer**3 + v**2 - 1.0, longer**6 + v**3 - 1.0
    # Of a piece, where a prompt takes several steps; none where prompts are apart, and queue.
    p = jnp.where(serving.mixed > 0.0, found.a_further * jnp.minimum(found.holds, 1.0), 0.0)
    rho = jnp.where(serving.mixed > 0.0, jnp.minimum(found.rate * found.a_further, 0.9), 0.0)
    poisson = poisson_share(v)
    step = speed * (found.decode.total + jnp.where(serving.mixed > 0.0, found.prefill, 0.0))
    step, rho = found.met + poisson * (step - found.met), rho * poisson
    b1, b2, b3 = _step_met(step, p, rho, (m2, m3, m4))
    x1 = b1 * (0.5 + rho)
    x2 = b2 * (1.0 / 3.0 + rho + rho**2) + p * rho * m2 * b1
    x3 = b3 * (0.25 + rho + 1.5 * rho**2 + rho**3) + b2 * p * m2 * rho * (1.5 + 3.0 * rho) + p**2 * m3 * rho * b1
    slower = (1.0 + (0.5 + rho) / (1.0 - rho)) * found.a_sequence
    second, third = others.variance * slower**2 + x2 - x1**2, x3 - 3.0 * x2 * x1 + 2.0 * x1**3
    shared = Cumulants(0.5 * found.met, second, third, -(b1**4) / 120.0)
    own = lognormal(jnp.minimum(found.a_further, found.prompt), requests.length_spread)._replace(mean=found.prompt)
    return shared.plus(own).plus(_waits(serving, found))


def _waits(serving: Serving, found: Served) -> Cumulants:
    """Waits beyond the running step: for earlier prompts, and for those that are computed in the same step."""
    p, more = found.a_further, 0.5 * jnp.maximum(found.variation - 1.0, 0.0) * found.a_further
    queue = _queue(jnp.maximum(found.placed - 0.5 * found.met - more, 0.0), p)
    same_step = jnp.where(serving.mixed > 0.0, 0.0, found.rate * found.waiting)
    mean = found.placed - 0.5 * found.met
    return queue.plus(Cumulants(0.0, same_step * p**2, same_step * p**3))._replace(mean=mean)


def _step_met(
    step: Scalar, p: Scalar, rho: Scalar, moments: tuple[Scalar, Scalar, Scalar]
) -> tuple[Scalar, Scalar, Scalar]:
    """First three moments of the step that an arrival meets: by its length, ``E[B^k] = E[S^(k + 1)] / E[S]``.

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


def _queue(mean: Scalar, x: Scalar) -> Cumulants:
    """Wait for others that take ``x`` seconds each: a geometric number of the rests of them, uniform (M/G/1)."""
    many = mean / jnp.maximum(0.5 * x, 1e-12)
    second = many * x * x / 3.0 + mean**2
    return Cumulants(mean, second, many * x**3 / 4.0 + 0.5 * many**2 * x**3 + 2.0 * mean**3)


def output_token(requests: Requests, found: Served, others: OtherSequences, turns: Scalar, speed: Scalar) -> Cumulants:
    """Time per output token of a request, the mean over its ``t`` steps.

    Prompts of others: ``p^2 lambda D / ((1 - rho)^3 t)``, the variance of a busy period of ``t`` steps of ``D`` seconds
    over ``t^2``. Other sequences: the mean over an answer keeps two thirds of the variance of their number where it is
    independent of the step time, all of it where it hardly changes. Who arrives meanwhile slows a request down twice,
    by a prompt and for the rest of the time as a sequence, which adds a covariance.
    """
    p, alone, answers = found.a_further, found.decode.total * speed, given(requests.answer_spread, 0.0) ** 2
    rho = jnp.minimum(found.rate * p, 0.9)
    lengths = 1.0 + requests.length_spread * requests.length_spread
    varied = p * p * (lengths - 1.0 + found.variation) * (1.0 + answers)
    prompts = varied * found.rate * alone / ((1.0 - rho) ** 3 * turns)
    kept, a_prompt, a_sequence = 1.0 - (1.0 - others.share) / 3.0, p / turns, found.a_sequence
    together = others.variance * a_sequence * (kept * a_sequence + a_prompt) / (1.0 - rho) ** 2
    second = (prompts + together) / (speed * speed)
    return Cumulants(found.token, second, 3.0 * second * second / found.token)
