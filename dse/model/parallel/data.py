"""Exposed messages of data parallelism: gradients and weights between the replicas; waits for the slowest replica."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import max_prefer_first, nothing, plus, times, value_or
from dse.model.layout import Layout
from dse.model.machine import collectives
from dse.model.machine.messages import TimedMessage, scope_time
from dse.model.machine.roofline import memory_time
from dse.types import Design, Scalar, Scope, Window


class Windows(NamedTuple):
    """Seconds per micro-batch of a stage that can hide messages of data parallelism.

    Compute of a pass and exposed messages of other dimensions, which have streams of their own, less their time on the
    links between domains, which one stream uses at a time.
    """

    forward: Scalar
    backward: Scalar
    stall: Scalar  # host waits of the slowest stage's device, in either pass


def data_parallel_time(design: Design, layout: Layout, messages: Iterable[TimedMessage], windows: Windows) -> Scalar:
    """Return the exposed seconds per step of reducing gradients and gathering weights over the replicas.

    ``t_gather + t_reduce - (1 - usage) t_hidden + t_tied + t_cast``.

    Gathers of the forward overlap with forwards, messages of the backward with backwards; host waits of a stage can
    hide either. The exchange of a tied embedding is exposed.

    With messages per chunk of an interleaved stage (:attr:`dse.types.Software.dp_by_chunk`), all but the first gather
    and the last reduction overlap with the passes of ``p`` micro-batches of other chunks, the stretch for which a stage
    stays on a chunk (Jiang et al. 2024, section 3.2).
    """
    messages = [s for s in messages if s.message.scope in (Scope.weights, Scope.expert_weights, Scope.tied_embedding)]
    overlap = design.mapping.overlap_dp * overlapped_share(design, layout)
    gather_time = scope_time(messages, Scope.weights, Window.stage_forward)
    reduce_time = scope_time(messages, Scope.weights, Window.stage_backward)
    # Messages of experts and all others, one after the other.
    gather_time = plus(gather_time, scope_time(messages, Scope.expert_weights, Window.stage_forward))
    reduce_time = plus(reduce_time, scope_time(messages, Scope.expert_weights, Window.stage_backward))
    gathers = _hiding_micro_batches(messages, Window.stage_forward)
    scatters = _hiding_micro_batches(messages, Window.stage_backward)

    def hidden(gathers: Scalar, scatters: Scalar) -> Scalar:
        """Return the seconds hidden by the passes of ``gathers`` and ``scatters`` micro-batches."""
        separate = jnp.minimum(overlap * gather_time, gathers * (windows.forward + windows.stall)) + jnp.minimum(
            overlap * reduce_time, scatters * (windows.backward + windows.stall)
        )
        combined = (
            gathers * windows.forward + scatters * windows.backward + jnp.maximum(gathers, scatters) * windows.stall
        )
        return jnp.minimum(separate, combined)

    hidden_time, m = hidden(gathers, scatters), design.mapping
    other_chunks = times(value_or(design.software.dp_by_chunk, 0.0), 1.0 - 1.0 / m.virtual_stages)
    if not nothing(other_chunks):
        hidden_by_chunk = hidden(jnp.maximum(gathers, m.pp), jnp.maximum(scatters, m.pp))
        hidden_time = (1.0 - other_chunks) * hidden_time + other_chunks * hidden_by_chunk
    usage = collectives.usage(layout.groups.dp, design.system)
    exposed = gather_time + reduce_time - (1.0 - usage) * hidden_time
    exposed = exposed + scope_time(messages, Scope.tied_embedding) + _between_slices(design, layout, windows)
    return plus(exposed, _conversion_time(design, messages))


def synchronization_time(design: Design, layout: Layout, interval: Scalar) -> Scalar:
    """Return the mean seconds per step that a replica waits for the slowest one, 0 without jitter.

    ``sigma e(R) sqrt(n) t_interval``: the ``n`` intervals of a replica deviate independently by ``sigma`` each, so a
    step by ``sqrt(n) sigma`` of them, and the exchange of gradients starts with the last of ``R`` replicas, ``e(R)``
    standard deviations after the mean one (:func:`expected_maximum`).

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        interval: seconds between two micro-batches of the slowest stage.
    """
    jitter = value_or(design.software.jitter, 0.0)
    if nothing(jitter):
        return 0.0
    deviation = jitter * jnp.sqrt(layout.n_micro_batches) * interval
    return deviation * expected_maximum(independent_replicas(design, layout))


def independent_replicas(design: Design, layout: Layout) -> Scalar:
    """Return the count, 1 or more, of replicas that wait for each other only at the end of a step.

    Of the ``dp`` replicas those whose experts exchange tokens wait for each other in every layer: ``tp cp dp / (ep
    etp)`` remain. So do replicas that gather their weights or scatter their gradients every micro-batch (ZeRO 2 and 3):
    only copies of the whole state remain. Rates hold the waits within a layer.
    """
    m, experts = design.mapping, layout.experts
    replicas = m.dp
    if not nothing(experts.rows):
        replicas = jnp.minimum(replicas, m.tp * m.cp * m.dp / (experts.ep.size * experts.etp.size))
    replicas = jnp.where(layout.zero >= 2.0, jnp.minimum(replicas, m.dp_replicate), replicas)
    return max_prefer_first(replicas, 1.0)


def expected_maximum(count: Scalar) -> Scalar:
    """Return the mean of the largest of ``count`` independent standard normal numbers, 0 for one.

    ``sqrt(2.847 ln R + b^2) - b`` with ``b = 1.421875``, whose square is exact in single precision: within 2.3 % of the
    integral ``R int x phi(x) Phi(x)^(R - 1) dx`` from 2 to 131,072, of which ``sqrt(2 ln R)`` is the limit.
    """
    return jnp.sqrt(2.847 * jnp.log(count) + 1.421875**2) - 1.421875


def _conversion_time(design: Design, messages: Iterable[TimedMessage]) -> Scalar:
    """Return the seconds per step of kernels that cast messages to fewer bits and back, 0 without such messages.

    They move bytes of device memory, as other element-wise kernels, and their time on the device hides nothing.
    """
    size = plus(*(times(s.message.times, s.message.converted) for s in messages))
    if nothing(size):
        return 0.0
    return design.software.elementwise_slowdown * memory_time(size, design.system.accelerator)


def overlapped_share(design: Design, layout: Layout) -> Scalar:
    """Return the share, 0 to 1, of data-parallel messages that can overlap with compute.

    Under ZeRO 3 with a prefetch layer by layer all but the first layer's.
    """
    share = design.software.dp_overlap
    by_layer = (layout.zero >= 3.0) & (design.software.prefetches > 0.0)
    return jnp.where(by_layer, jnp.maximum(share, 1.0 - 1.0 / (layout.layers + 1.0)), share)


def _between_slices(design: Design, layout: Layout, windows: Windows) -> Scalar:
    """Return the seconds per step that slices without a switch wait for each other, 0 behind a switch.

    A share per doubling of their number.

    Cost of the data-centre network between TPU slices beyond its bytes (MaxText's tables of 1 to 32 slices).
    """
    links = design.system.scale_up.links
    if links is None:
        return 0.0
    doublings = jnp.log2(jnp.maximum(layout.devices / design.system.scale_up.domain, 1.0))
    return links.slice_loss * doublings * layout.n_micro_batches * (windows.forward + windows.backward)


def _hiding_micro_batches(messages: Iterable[TimedMessage], window: Window) -> Scalar:
    """Return the count of micro-batches per step whose passes can hide the messages of a window."""
    return functools.reduce(jnp.maximum, [s.message.times for s in messages if s.message.window is window])
