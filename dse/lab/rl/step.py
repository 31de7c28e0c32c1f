"""A step of reinforcement learning from the seconds of its parts, and its rollouts.

Colocated, all devices generate, change over and train: the step is the sum. Split, two pools take turns with
staleness 0; with a bound of ``k`` steps rollouts of ``k`` batches run through while the trainer works on earlier ones,
the weights are sent once for the ``k``, and the step is the longer pool's work: ``max(rollout + reward,
log-probabilities + critic + training) + weights / k`` (one step off policy with ``k = 1``: Noukhovitch et al. 2025). A
pool idles the rest of the step, so that the parts of each add up to it.

Of rollouts the lengths of answers have a long tail, which decides the batches that an engine works off. Answers are
lognormal with relative standard deviation ``c``, cut at ``M`` tokens: ``L = min(X, M)``. With the share
``S(t) = P(L > t)`` still running after ``t`` tokens, ``Q`` its inverse and ``m = E[L]``, those that run at a random
moment have ``E[L^2] / (2 m)`` tokens left, a share ``S_e(t) = int_t^M S / m`` of them more than ``t`` (renewal theory:
Cox 1962, chapter 5), ``Q_e`` its inverse.

A rank with ``B`` answers and room for ``r = min(B, room)`` keeps ``r`` running while others wait, then drains. After
``t_n = (1 - w) Q(v_n) + w Q_e(v_n)`` tokens of the drain ``n`` answers are left: expected order statistics at the
plotting position ``v_n = (n - 3/8) / (r + 1/4)`` (Blom 1958), where ``w = min(B / r - 1, 1)`` goes from answers that
all start together to a steady state. The last answer is the longest of all ranks. The drain is summed over levels of
``n`` in a geometric series; before it the engine makes all other tokens at ``r`` a step, so that tokens are kept. Equal
answers (``c`` below 0.3) end in waves instead, which this smooths: up to a quarter of a rollout of two waves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri

from dse.doors import step_time
from dse.doors.evaluation import stages
from dse.equations import ScalarFunction
from dse.model import Batch
from dse.sweep.engine.programs import persistent_jit
from dse.types import Design, Scalar, Serving

#: Levels of the drain, and bisections of an inverse.
_LEVELS, _BISECTIONS = 32, 40


class AnswerLengths(NamedTuple):
    """Lognormal answers cut at a limit, in tokens."""

    location: Scalar  # of the logarithm
    scale: Scalar
    longest: Scalar

    def cut_mean(self, limit: Scalar) -> Scalar:
        """Return ``E[min(X, limit)]``, in tokens."""
        score = (jnp.log(limit) - self.location) / self.scale
        return jnp.exp(self.location + 0.5 * self.scale**2) * ndtr(score - self.scale) + limit * ndtr(-score)

    @property
    def mean(self) -> Scalar:
        """``E[L]``, in tokens."""
        return self.cut_mean(self.longest)

    @property
    def remaining(self) -> Scalar:
        """``E[L^2] / (2 E[L])``: tokens that answers of a steady state have left, and have made, on average."""
        score = (jnp.log(self.longest) - self.location) / self.scale
        second_moment = jnp.exp(2.0 * (self.location + self.scale**2)) * ndtr(score - 2.0 * self.scale)
        return 0.5 * (second_moment + self.longest**2 * ndtr(-score)) / self.mean

    def quantile(self, share: Scalar) -> Scalar:
        """Return ``Q(share)``: tokens after which ``share`` of answers that started together still run."""
        return jnp.minimum(jnp.exp(self.location - self.scale * ndtri(share)), self.longest)

    def steady_quantile(self, share: Scalar) -> Scalar:
        """Return ``Q_e(share)``: tokens after which ``share`` of answers in a steady state still run."""
        target = (1.0 - share) * self.mean
        return _bisect(lambda t: self.cut_mean(t) < target, jnp.full_like(target, 1e-3), self.longest + 0.0 * target)


@persistent_jit()
def answer_lengths(mean: Scalar, spread: Scalar, longest: Scalar) -> AnswerLengths:
    """Return the distribution of lengths of answers that has a mean after the cut.

    Args:
        mean: tokens, below ``longest``.
        spread: relative standard deviation before the cut.
        longest: most tokens of an answer.
    """
    scale = jnp.maximum(jnp.sqrt(jnp.log1p(jnp.square(jnp.asarray(spread)))), 1e-3)
    low, high = jnp.log(mean) - scale**2 - 1.0, jnp.log(longest) + 8.0 * scale
    location = _bisect(lambda candidate: AnswerLengths(candidate, scale, longest).mean < mean, low, high)
    return AnswerLengths(location, scale, longest)


def _bisect(is_low: Callable[[Scalar], Scalar], low: Scalar, high: Scalar) -> Scalar:
    """Return where, between ``low`` and ``high``, ``is_low`` turns false, of numbers or arrays."""

    def halve(_: int, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        middle = 0.5 * (ends[0] + ends[1])
        is_below = is_low(middle)
        return jnp.where(is_below, middle, ends[0]), jnp.where(is_below, ends[1], middle)

    low, high = jnp.broadcast_arrays(jnp.asarray(low, float), jnp.asarray(high, float))
    ends = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    return 0.5 * (ends[0] + ends[1])


class DecodeSteps(NamedTuple):
    """Engine steps that decode, by level [levels]: first those before the drain."""

    steps: Scalar
    sequences: Scalar
    context: Scalar  # cached tokens per sequence, mean


def decode_steps(answers: AnswerLengths, prompt: Scalar, requests: Scalar, room: Scalar, total: Scalar) -> DecodeSteps:
    """Return the steps [level] in which the slowest rank of an engine makes its answers.

    Args:
        answers: their lengths.
        prompt: tokens of a prompt.
        requests: answers of the rank, 1 or more.
        room: sequences that it can run at once, 1 or more.
        total: answers of all ranks, whose longest decides.
    """
    running = jnp.minimum(requests, room)
    steady = jnp.minimum(requests / running - 1.0, 1.0)
    level = jnp.arange(-1.0, _LEVELS + 1.0)  # -1 before the drain, 0 until its first end, then between ends

    def answers_left(level_index: Scalar) -> Scalar:
        """Answers left at a level."""
        return running ** (1.0 - jnp.clip(level_index, 0.0, _LEVELS - 1.0) / (_LEVELS - 1.0))

    def tokens(share: Scalar) -> Scalar:
        """Tokens of the drain until a share is left."""
        return (1.0 - steady) * answers.quantile(share) + steady * answers.steady_quantile(share)

    last = 0.625 / (jnp.maximum(total, requests) * running / requests + 0.25)
    start = jnp.where(level > 0.0, tokens((answers_left(level - 1.0) - 0.375) / (running + 0.25)), 0.0)
    end = tokens(jnp.where(level < _LEVELS, (answers_left(level) - 0.375) / (running + 0.25), last))
    drain_tokens = (1.0 - steady) * answers.mean + steady * answers.remaining
    steps_before_drain = jnp.maximum(requests / running * answers.mean - drain_tokens, 0.0)
    answer_tokens = jnp.minimum(steady * answers.remaining + 0.5 * (start + end), answers.longest)
    return DecodeSteps(
        steps=jnp.where(level < 0.0, steps_before_drain, end - start),
        sequences=jnp.where(level == _LEVELS, 1.0, 0.5 * (answers_left(level - 1.0) + answers_left(level))),
        context=prompt + jnp.where(level < 0.0, answers.remaining, answer_tokens),
    )


#: Algorithms: with a critic, and without.
PPO, GRPO = "ppo", "grpo"


class RlWork(NamedTuple):
    """Seconds of the parts of a step, each on its own pool; arrays of one shape."""

    rollout: Scalar  # of a batch, where several run through its share of them
    reward: Scalar
    log_probs: Scalar
    critic: Scalar
    training: Scalar
    weights: Scalar  # sent from the trainer to the rollout engines
    switch: Scalar  # moving the training state out and in again; of colocated devices


class RlStep(NamedTuple):
    """Seconds of a step and of its parts."""

    total: Scalar
    rollout: Scalar
    reward: Scalar
    log_probs: Scalar
    critic: Scalar
    training: Scalar
    weights: Scalar
    switch: Scalar
    rollout_idle: Scalar  # of the rollout pool, within the step
    training_idle: Scalar  # of the training pool


def rl_step(work: RlWork, colocated: bool, staleness: int) -> RlStep:
    """Return the seconds of a step and its parts: on all devices, or on two pools with weights of a bounded age.

    Args:
        work: seconds of the parts.
        colocated: all devices do all parts in turn.
        staleness: steps by which weights of rollouts may be old; of two pools.
    """
    trained = work.log_probs + work.critic + work.training
    generated = work.rollout + work.reward
    if colocated:
        total = generated + trained + work.weights + work.switch
        return RlStep(total, **work._asdict(), rollout_idle=work.reward, training_idle=work.reward)
    weights = work.weights / max(staleness, 1)
    busy: Any = np.maximum(generated, trained) if staleness else generated + trained
    total = busy + weights
    shared_work = work._replace(weights=weights, switch=0.0 * total)
    return RlStep(
        total,
        **shared_work._asdict(),
        rollout_idle=total - weights - work.rollout,
        training_idle=total - weights - trained,
    )


def algorithm_work(algorithm: str, reference: bool, forward: Scalar, update: Scalar) -> tuple[Scalar, Scalar]:
    """Return the seconds of log-probabilities, and of a critic as large as the policy, 0 without one.

    The policy's old log-probabilities and those of a reference are a forward pass each; a critic takes one for its
    values, and an update.
    """
    critic = forward + update if algorithm == PPO else 0.0 * update
    return (2.0 if reference else 1.0) * forward, critic


def weights_time(shard: Scalar, model_bytes: Scalar, senders: Scalar, bandwidth: Scalar) -> Scalar:
    """Return the seconds of sending all weights once.

    Each receiver takes its shard, and the senders share the model.

    Pipelined broadcasts take the time of one copy whatever the number of replicas.

    Args:
        shard: bytes of a receiving device.
        model_bytes: bytes of the model.
        senders: devices that hold it between them.
        bandwidth: of a device over the slowest network between them, B/s.
    """
    seconds: Any = np.maximum(shard, model_bytes / senders) / bandwidth
    return seconds


def rollout_time(
    designs: list[Design],
    rooms: np.ndarray,
    counts: np.ndarray,
    answers: AnswerLengths,
    prompt: float,
    samples: float,
    total: float,
) -> np.ndarray:
    """Return the seconds [design, split] in which the slowest rank of each design makes its answers.

    A prompt is computed once for its samples, whose engine caches it, in steps of whole chunks before decoding.

    Args:
        designs: of one structure; a replica each.
        rooms: sequences that a rank of each runs at once [designs].
        counts: answers of a rank [designs, splits].
        answers: their lengths.
        prompt: tokens of a prompt.
        samples: answers of a prompt.
        total: answers of all ranks.

    Returns:
        Seconds [designs, splits].
    """
    shape = counts.shape
    ranks = (np.maximum(counts, 1.0), np.broadcast_to(np.maximum(rooms, 1.0)[:, None], shape), np.full(shape, total))
    decode = _decode_steps(answers, prompt, *(column.ravel() for column in ranks))
    steps, sequences, context = (np.asarray(column, np.float64).reshape(*shape, -1) for column in decode)
    levels = steps.shape[-1]
    chunk = np.array([float((design.mapping.serving or Serving()).chunk) for design in designs])
    prompts = np.maximum(counts / samples, 1.0) * prompt
    chunk_tokens = np.minimum(prompts, chunk[:, None])
    steps = np.concatenate([steps, (prompts / chunk_tokens)[..., None]], -1)
    zero = np.zeros(shape)[..., None]
    work: list[Any] = [
        np.concatenate([sequences, zero], -1).ravel(), np.concatenate([context, zero], -1).ravel(),
        np.concatenate([np.zeros((*shape, levels)), chunk_tokens[..., None]], -1).ravel(),
        np.full(steps.size, 0.5 * prompt),
    ]  # fmt: skip
    batch = Batch(*work)
    repeats = steps.size // len(designs)
    design_columns = jax.tree.map(lambda *leaves: np.repeat(np.array(leaves, np.float32), repeats), *designs)
    seconds = np.asarray(_step_seconds.batch_values(steps.size, design_columns, batch), np.float64).reshape(steps.shape)
    return (steps * seconds).sum(-1)


def forward_time(designs: list[Design]) -> np.ndarray:
    """Return the seconds [designs] of a forward pass over the batch of a training step.

    ``(n + pp - 1)`` intervals of the slowest stage: its layers with their exposed messages, and the larger of
    embedding and head beyond the layers that its stage lacks.
    """
    design_columns = jax.tree.map(lambda *leaves: np.array(leaves, np.float32), *designs)
    return np.asarray(_forward.batch_values(len(designs), design_columns), np.float64)


def _forward_pass(design: Design) -> tuple[Any, None]:
    """Return the seconds of a forward pass over the batch of a training step, and None: no static part."""
    times, pp, chunks = stages(design), design.mapping.pp, design.mapping.virtual_stages
    pass_bound = jnp.where(times.awaited > 0.0, times.awaited, times.launch / (1.0 + design.workload.backward))
    layer = jnp.maximum(times.layer.forward, pass_bound)
    first = times.embedding.forward - times.first_lacks * layer
    last = times.head.forward - times.last_lacks * layer
    ends = jnp.where(pp > 1.0, jnp.maximum(jnp.maximum(first, last), 0.0), first + last)
    dense = times.dense_layers * (times.dense_layer.forward - times.layer.forward)
    stage = times.chunk_layers * chunks * layer + ends + jnp.where(pp > 1.0, times.message * times.waited, dense)
    return (times.micro_batches + pp - 1.0) * stage, None


@persistent_jit()
def _decode_steps(
    answers: AnswerLengths, prompt: Scalar, requests: Scalar, rooms: Scalar, totals: Scalar
) -> DecodeSteps:
    """Return :func:`decode_steps` of many ranks [ranks, levels], by a program that is kept on disk."""
    steps: DecodeSteps = jax.vmap(decode_steps, (None, None, 0, 0, 0))(answers, prompt, requests, rooms, totals)
    return steps


_step_seconds = ScalarFunction(lambda design, batch: (step_time(design, batch), None), "rollout step")
_forward = ScalarFunction(_forward_pass, "forward pass")
