"""The two doors as parts of reinforcement learning: rollouts by the engine's step, forward passes by the trainer's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.doors.scalars import ScalarFunction
from dse.lab.rl.step import Lengths, decode_steps
from dse.model.work.batch import Batch
from dse.types import Design, Serving


def rollout_time(
    designs: list[Design],
    rooms: np.ndarray,
    counts: np.ndarray,
    answers: Lengths,
    prompt: float,
    samples: float,
    total: float,
) -> np.ndarray:
    """Seconds in which the slowest rank of each design makes its answers.

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
    plan = _decode_steps(answers, prompt, *(one.ravel() for one in ranks))
    steps, sequences, context = (np.asarray(one, np.float64).reshape(*shape, -1) for one in plan)
    levels = steps.shape[-1]
    chunk = np.array([float((design.mapping.serving or Serving()).chunk) for design in designs])
    prompts = np.maximum(counts / samples, 1.0) * prompt
    taken = np.minimum(prompts, chunk[:, None])
    steps = np.concatenate([steps, (prompts / taken)[..., None]], -1)
    zero = np.zeros(shape)[..., None]
    work: list[Any] = [
        np.concatenate([sequences, zero], -1).ravel(), np.concatenate([context, zero], -1).ravel(),
        np.concatenate([np.zeros((*shape, levels)), taken[..., None]], -1).ravel(),
        np.full(steps.size, 0.5 * prompt),
    ]  # fmt: skip
    batch = Batch(*work)
    each = steps.size // len(designs)
    stacked = jax.tree.map(lambda *leaves: np.repeat(np.array(leaves, np.float32), each), *designs)
    seconds = np.asarray(_step_seconds.over(steps.size, stacked, batch), np.float64).reshape(steps.shape)
    return (steps * seconds).sum(-1)


def forward_time(designs: list[Design]) -> np.ndarray:
    """Seconds of a forward pass over the batch of a training step of each design [designs].

    ``(n + pp - 1)`` intervals of the slowest stage: its layers with their exposed messages, and the larger of
    embedding and head beyond the layers that its stage lacks.
    """
    stacked = jax.tree.map(lambda *leaves: np.array(leaves, np.float32), *designs)
    return np.asarray(_forward.over(len(designs), stacked), np.float64)


def _forward_pass(design: Design) -> tuple[Any, None]:
    from dse.doors.evaluation import stages

    one, pp, chunks = stages(design), design.mapping.pp, design.mapping.virtual_stages
    a_pass = jnp.where(one.awaited > 0.0, one.awaited, one.launch / (1.0 + design.workload.backward))
    layer = jnp.maximum(one.layer.forward, a_pass)
    first = one.embedding.forward - one.first_lacks * layer
    last = one.head.forward - one.last_lacks * layer
    ends = jnp.where(pp > 1.0, jnp.maximum(jnp.maximum(first, last), 0.0), first + last)
    dense = one.dense_layers * (one.dense_layer.forward - one.layer.forward)
    stage = one.chunk_layers * chunks * layer + ends + jnp.where(pp > 1.0, one.message * one.waited, dense)
    return (one.micro_batches + pp - 1.0) * stage, None


def _step(design: Design, batch: Batch) -> tuple[Any, None]:
    from dse.doors.serving import step_time

    return step_time(design, batch), None


_decode_steps = jax.jit(jax.vmap(decode_steps, (None, None, 0, 0, 0)))
_step_seconds = ScalarFunction(_step, "rollout step")
_forward = ScalarFunction(_forward_pass, "forward pass")
