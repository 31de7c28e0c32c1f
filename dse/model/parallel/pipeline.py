"""Pipeline schedules in closed form: bubble, micro-batches in flight, exposed messages.

First 1F1B and interleaved 1F1B (Narayanan et al. 2021, section 2.2), the default; then the schedules that a mapping can
name (:class:`dse.types.Schedule`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose, quotient, value_or, where_on
from dse.model.schedules import DEFERRING, PAIRING, is_any_of
from dse.types import Mapping, Scalar, Schedule


class PipelineStages(NamedTuple):
    """Forward + backward seconds of one micro-batch on the stages of a pipeline."""

    middle: Scalar  # layers of the largest stage
    first: Scalar  # added by the first stage: embedding, less the layer that it may lack
    last: Scalar  # added by the last stage: head and loss, less the layer that it may lack
    spare: Scalar = 0.0  # seconds that the other stages together have less


def slowest_extra(stages: PipelineStages, pp: Scalar) -> Scalar:
    """Return the seconds per micro-batch that embedding or head adds to the slowest stage.

    0 where both ends are lighter; that of both ends for a single stage.
    """
    slowest_end = jnp.maximum(jnp.maximum(stages.first, stages.last), 0.0)
    return jnp.where(pp > 1.0, slowest_end, stages.first + stages.last)


def bubble_time(stages: PipelineStages, pp: Scalar, virtual_stages: Scalar) -> Scalar:
    """Return the bubble time of a step, s: fill and drain of the slowest stage.

    A micro-batch crosses every other stage once, ``(p - 1)(t_f + t_b)`` for equal stages; with ``v`` chunks a stage
    waits for one chunk of each only: ``/ v``. The makespan of n micro-batches is ``n`` intervals plus this. The lighter
    end is crossed whole, stages with fewer layers sooner. Neglected: stages that catch up with lighter ends, by a layer
    of one micro-batch in 1F1B, and less than three of an interleaved schedule.
    """
    # first + last - max(first, last, 0), of which the sums would lose digits
    ends = jnp.minimum(stages.first, stages.last) + jnp.minimum(jnp.maximum(stages.first, stages.last), 0.0)
    middle_time = (pp - 1.0) * stages.middle - stages.spare
    return jnp.where(pp > 1.0, middle_time / virtual_stages + ends, 0.0)


def in_flight(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar, stage: Scalar = 0.0) -> Scalar:
    """Return the micro-batches (of a whole stage) whose activations stage ``s``, counted from 0, holds at its peak.

    1F1B: ``min(n, p - s)``. Interleaved: ``p v + p - 1 - 2 s`` chunks, on the first stage ``p (1 + (p - 1)/(p v))``
    micro-batches (Korthikanti et al. 2022, section 4.2.3), at most all of them.
    """
    chunks = jnp.where(virtual_stages > 1.0, pp * virtual_stages + pp - 1.0 - 2.0 * stage, pp - stage)
    return jnp.minimum(n_micro_batches, chunks / virtual_stages)


def in_first_chunk(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar) -> Scalar:
    """Return the count of micro-batches in flight in the first chunk: ``p``, or ``2 p - 1`` when interleaved."""
    return jnp.minimum(n_micro_batches, jnp.where(virtual_stages > 1.0, 2.0 * pp - 1.0, pp))


def in_last_chunk(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar) -> Scalar:
    """Return the count of micro-batches in flight in the last stage's last chunk.

    One, or none while later micro-batches are in transit.
    """
    return jnp.where((virtual_stages > 1.0) & (n_micro_batches > pp), 0.0, 1.0)


def exposed_sends(pp: Scalar, virtual_stages: Scalar, n_micro_batches: Scalar, overlap: Scalar) -> Scalar:
    """Return the count of exposed one-way messages between stages per step, 0 for one stage.

    Every micro-batch and chunk crosses a stage border forward and backward. Without overlap all of them are exposed,
    and those of fill and drain (``2 (p - 1)`` hops); with overlap only the first micro-batch through every chunk and
    the last one back: ``2 (p v - 1)`` hops. Paired passes overlap their messages except in fill and drain.
    """
    waiting = 2.0 * n_micro_batches * virtual_stages + 2.0 * (pp - 1.0)
    hidden = 2.0 * (pp * virtual_stages - 1.0)
    return jnp.where(pp > 1.0, (1.0 - overlap) * waiting + overlap * hidden, 0.0)


# Named schedules


class PassTime(NamedTuple):
    """Seconds of a stage's passes over one micro-batch, or values in proportion to them."""

    forward: Scalar
    input_gradient: Scalar  # recompute included
    weight_gradient: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of forward and backward."""
        return sum(self)


def bubble_share(code: Scalar, passes: PassTime, pp: Scalar, n_micro_batches: Scalar) -> Scalar:
    """Return the ratio of the bubble of a schedule to that of 1F1B, ``(p - 1)(f + b + w)``.

    Stages take ``f``, ``b`` and ``w`` seconds.

    From the first forward to the end of the last pass of any stage, since the gradient norm of the optimiser needs all:

    - GPipe: 1, as 1F1B (Huang et al. 2019).
    - ZB-H1: ``(p - 1)(f + max(b - w, 0))`` (Qi et al. 2024, who have ``f + b - w``: the same where ``b >= w``). The
      memory of 1F1B limits deferred weight gradients, so fewer than ``p`` micro-batches fill less.
    - ZB-V: half of that, since a chunk is half a stage: the wait for the first forward, without any bubble within the
      span of a stage for ``f = b = w``.
    - DualPipe: ``(p/2 - 1)(2 f + max(b - w, 0))``, the published ``(p/2 - 1)(F&B + B - 3 W)`` where ``f = b``.
    - DualPipeV: ``(p - 1)/2`` of the same, for twice as many chunks of half a stage.
    """
    f, b, w = passes
    pass_total = jnp.maximum(f + b + w, 1e-30)
    stages = jnp.maximum(pp - 1.0, 1.0)
    deferred_share = jnp.minimum(n_micro_batches - 1.0, stages) / stages
    exposed_backward = jnp.maximum(b - w, 0.0)
    by_code: dict[Schedule, Scalar] = {
        Schedule._1f1b: 1.0,
        Schedule.gpipe: 1.0,
        Schedule.zb_h1: (f + jnp.maximum(b - deferred_share * w, 0.0)) / pass_total,
        Schedule.zb_v: 0.5 * (f + exposed_backward) / pass_total,
        Schedule.dualpipe: (0.5 * pp - 1.0) / stages * (2.0 * f + exposed_backward) / pass_total,
        Schedule.dualpipev: 0.5 * (2.0 * f + exposed_backward) / pass_total,
    }
    return choose(code, by_code)


def named_bubble_time(
    mapping: Mapping, stages: PipelineStages, passes: PassTime, n_micro_batches: Scalar, unpaired_time: Scalar
) -> Scalar:
    """Return the bubble time of a step under the schedule that a mapping names, s.

    A slower device with both ends of the model, by ``d`` per micro-batch, reduces the bubble, since it starts first,
    ends last and the others wait for it anyway: by ``n d`` for ZB-V, ``2 (p - 1) d`` for DualPipe, ``(2 p - 1) d`` for
    DualPipeV, as in event-driven runs of the schedules.

    ``unpaired_time``: further seconds of an unpaired micro-batch per stage.
    """
    code, pp = value_or(mapping.schedule, float(Schedule._1f1b)), mapping.pp
    interleaved = bubble_time(stages, pp, mapping.virtual_stages)
    unpaired_bubble = bubble_time(stages, pp, 1.0) + jnp.maximum(pp - 1.0, 0.0) * unpaired_time
    share = bubble_share(code, passes, pp, n_micro_batches)
    filled: dict[Schedule, Scalar] = {
        Schedule.zb_v: n_micro_batches,
        Schedule.dualpipe: 2.0 * (pp - 1.0),
        Schedule.dualpipev: 2.0 * pp - 1.0,
    }
    bubble = share * unpaired_bubble - choose(code, filled) * slowest_extra(stages, pp)
    return jnp.where(code == float(Schedule._1f1b), interleaved, jnp.maximum(bubble, 0.0))


def paired_share(mapping: Mapping, n_micro_batches: Scalar) -> Scalar:
    """Return the share, 0 to 1, of the passes of a step that run with an opposite one in combined 1F1B.

    ``1 - p v / (n v + p - 1)``. The last rank of an interleaved pipeline runs ``(v - 1) p + 1`` forward chunks before
    its first pair, and as many backward ones after its last (``get_pp_rank_microbatches`` of Megatron-Core's
    schedules.py, with ``overlap_moe_expert_parallel_comm``); ``p - 1`` chunks each fill and drain the pipeline.
    Other ranks run more passes alone, but only while they would wait. Without a pipeline the first forward and the last
    backward are alone: ``1 - 1 / n`` (``combined_1f1b_schedule_for_no_pipelining``).
    """
    p, v = mapping.pp, mapping.virtual_stages
    return jnp.maximum(1.0 - p * v / (n_micro_batches * v + p - 1.0), 0.0)


def unpaired_micro_batches(mapping: Mapping) -> Scalar:
    """Return the count of unpaired micro-batches of a whole stage: ``p/2 + 2`` of DualPipe, else ``p/2 + 1``."""
    return jnp.where(mapping.schedule == float(Schedule.dualpipe), 0.5 * mapping.pp + 2.0, 0.5 * mapping.pp + 1.0)


def pairs_passes(mapping: Mapping) -> Scalar:
    """Return 1 where the schedule runs a forward and a backward in parallel, else 0."""
    if mapping.schedule is None:
        return 0.0
    return jnp.where(is_any_of(mapping.schedule, PAIRING) & (mapping.pp > 1.0), 1.0, 0.0)


class ActivationsInFlight(NamedTuple):
    """Micro-batches of a whole stage whose activations a device holds at its peak."""

    stage: Scalar
    first_chunk: Scalar  # of the model's first chunk, on the device with it
    last_chunk: Scalar  # of the last chunk


def activations_in_flight(mapping: Mapping, n_micro_batches: Scalar, stage: Scalar = 0.0) -> ActivationsInFlight:
    """Return how many micro-batches have activations on ``stage`` (index from 0) under the schedule of the mapping.

    GPipe: all micro-batches. ZB-H1 and ZB-V: ``p`` on every stage (Qi et al. 2024); a deferred weight gradient is
    assumed to need all stored activations (32 of 34 bytes per element of a GPT layer, table 1 there). DualPipe:
    ``p + 1`` stages (DeepSeek-V3 report 2024, table 2), DualPipeV: ``2 p + 1`` chunks of half a stage.
    """
    p, v, n, code = mapping.pp, mapping.virtual_stages, n_micro_batches, mapping.schedule
    default = ActivationsInFlight(in_flight(p, v, n, stage), in_first_chunk(p, v, n), in_last_chunk(p, v, n))
    if code is None:
        return default
    defers = is_any_of(code, DEFERRING) & (p > 1.0)
    extra = choose(code, {Schedule.dualpipe: 1.0, Schedule.dualpipev: 0.5})
    first = choose(
        code,
        {
            Schedule.zb_h1: p,
            Schedule.zb_v: 2.0 * p - 1.0,
            Schedule.dualpipe: p - 1.0,
            Schedule.dualpipev: 2.0 * p - 1.0,
        },
    )
    is_gpipe_or_single = (code == float(Schedule.gpipe)) | (p <= 1.0)

    def where_named(of_gpipe: Scalar, of_deferring: Scalar, otherwise: Scalar) -> Scalar:
        return jnp.where(defers, jnp.minimum(n, of_deferring), jnp.where(is_gpipe_or_single, of_gpipe, otherwise))

    single = jnp.where(p > 1.0, n, default.stage)  # a single stage alternates forward and backward
    last = jnp.where(code == float(Schedule.zb_h1), p, 1.0)
    return ActivationsInFlight(
        where_named(single, p + extra, default.stage),
        where_named(jnp.where(p > 1.0, n, default.first_chunk), first, default.first_chunk),
        where_named(jnp.where(p > 1.0, n, default.last_chunk), last, default.last_chunk),
    )


def deferred_micro_batches(mapping: Mapping, n_micro_batches: Scalar, stage: Scalar) -> Scalar:
    """Return the maximum count of micro-batches whose weight gradients ``stage`` (index from 0) defers.

    ZB-H1 ``stage``, ZB-V 1/2 more, DualPipe the stages to the nearer end, DualPipeV ``stage / 2``. Recomputed
    activations are kept until then. At a few lengths of passes a shorter ZB-V step defers up to half of ``pp + stage``,
    which is not counted.
    """
    by_code: dict[Schedule, Scalar] = {
        Schedule.zb_h1: stage,
        Schedule.zb_v: stage + 0.5,
        Schedule.dualpipe: jnp.minimum(stage, jnp.maximum(mapping.pp - 1.0 - stage, 0.0)),
        Schedule.dualpipev: 0.5 * stage,
    }
    return jnp.minimum(n_micro_batches, choose(mapping.schedule, by_code))  # type: ignore[arg-type]


def end_values(folded: Scalar, copies: Scalar, first: Scalar, last: Scalar) -> tuple[Scalar, Scalar]:
    """Return the values (s, bytes …) of model ends on the devices of the first and of the last stage.

    A folded pipeline has both on the first.

    With two copies either end has both, for half of the micro-batches.
    """
    both_ends = quotient(first + last, copies)
    second_end = where_on(copies - 1.0, both_ends, 0.0)
    return where_on(folded, both_ends, first), where_on(folded, second_end, last)
