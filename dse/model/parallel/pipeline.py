"""Pipeline schedules in closed form: 1F1B and interleaved 1F1B (Narayanan et al. 2021, section 2.2)."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Scalar


class Stages(NamedTuple):
    """Forward + backward seconds of one micro-batch on the stages of a pipeline."""

    middle: Scalar  # the layers of the fullest stage
    first: Scalar  # what the first stage adds: its embedding, less the layer that it may lack
    last: Scalar  # what the last stage adds: head and loss, less the layer that it may lack
    spare: Scalar = 0.0  # what other stages with a layer less leave of that, all together


def slowest_extra(stages: Stages, pp: Scalar) -> Scalar:
    """Seconds a micro-batch that embedding or head adds to the slowest stage; none where both ends are lighter."""
    apart = jnp.maximum(jnp.maximum(stages.first, stages.last), 0.0)
    return jnp.where(pp > 1.0, apart, stages.first + stages.last)


def bubble_time(stages: Stages, pp: Scalar, virtual_stages: Scalar) -> Scalar:
    """Seconds of a step in which the slowest stage waits: fill and drain.

    A micro-batch crosses every other stage once, ``(p - 1)(t_f + t_b)`` for equal stages; with ``v``
    chunks a stage waits for one chunk of each only: ``/ v``. With n micro-batches the makespan is
    ``n`` intervals plus this. The lighter end is crossed whole, stages with fewer layers sooner. Ends that are
    lighter than the other stages let some of these catch up, which is left out: a layer of 1F1B, less than three of
    an interleaved schedule, of one micro-batch.
    """
    ends = stages.first + stages.last - slowest_extra(stages, pp)
    others = (pp - 1.0) * stages.middle - stages.spare
    return jnp.where(pp > 1.0, others / virtual_stages + ends, 0.0)


def in_flight(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar, stage: Scalar = 0.0) -> Scalar:
    """Micro-batches (of a whole stage) whose activations stage ``s``, counted from 0, holds at its peak.

    1F1B: ``min(n, p - s)``. Interleaved: ``p v + p - 1 - 2 s`` chunks, on the first stage ``p (1 + (p - 1)/(p v))``
    micro-batches (Korthikanti et al. 2022, section 4.2.3), never more than all of them.
    """
    chunks = jnp.where(virtual_stages > 1.0, pp * virtual_stages + pp - 1.0 - 2.0 * stage, pp - stage)
    return jnp.minimum(n_micro_batches, chunks / virtual_stages)


def in_first_chunk(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar) -> Scalar:
    """Of these, the micro-batches in the first stage's first chunk: all of 1F1B, ``2 p - 1`` of an interleaved one."""
    return jnp.minimum(n_micro_batches, jnp.where(virtual_stages > 1.0, 2.0 * pp - 1.0, pp))


def in_last_chunk(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar) -> Scalar:
    """The same of the last stage's last chunk: one, or none where later micro-batches are on their way."""
    return jnp.where((virtual_stages > 1.0) & (n_micro_batches > pp), 0.0, 1.0)


def exposed_sends(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar, overlap: Scalar) -> Scalar:
    """Point-to-point messages of a step that a stage waits for, as a number of one-way messages.

    Every micro-batch and chunk crosses a stage border forward and backward. A stage that waits for each
    message waits for all of them and for fill and drain (``2 (p - 1)`` hops); where all else is hidden,
    the first micro-batch still crosses every chunk and the last comes back: ``2 (p v - 1)`` hops.
    """
    waiting = 2.0 * n_micro_batches * virtual_stages + 2.0 * (pp - 1.0)
    hidden = 2.0 * (pp * virtual_stages - 1.0)
    return jnp.where(pp > 1.0, (1.0 - overlap) * waiting + overlap * hidden, 0.0)
