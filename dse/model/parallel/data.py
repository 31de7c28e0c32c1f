"""Exposed messages of data parallelism: gradients and weights between the replicas."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import given, nothing, plus, times
from dse.model.layout import Layout
from dse.model.machine import collectives
from dse.model.machine.messages import Sent, time_of
from dse.types import Design, Scalar, Scope, Window


class Windows(NamedTuple):
    """Seconds per micro-batch of a stage that can hide messages of data parallelism.

    Compute of a pass and exposed messages of other dimensions, which have streams of their own, less their time on the
    links between domains, which one stream uses at a time.
    """

    forward: Scalar
    backward: Scalar
    stall: Scalar  # host waits of the slowest stage's device, in either pass


def data_parallel_time(design: Design, layout: Layout, sent: Iterable[Sent], windows: Windows) -> Scalar:
    """Exposed seconds per step of reducing gradients and gathering weights over the replicas.

    Gathers of the forward overlap with forwards, messages of the backward with backwards; host waits of a stage can
    hide either. The exchange of a tied embedding is exposed.

    With messages per chunk of an interleaved stage (:attr:`dse.types.Software.dp_by_chunk`), all but the first gather
    and the last reduction overlap with the passes of ``p`` micro-batches of other chunks, the stretch for which a stage
    stays on a chunk (Jiang et al. 2024, section 3.2).
    """
    sent = [s for s in sent if s.message.scope in (Scope.weights, Scope.expert_weights, Scope.tied_embedding)]
    overlap = design.mapping.overlap_dp * overlapped_share(design, layout)
    before = time_of(sent, Scope.weights, Window.stage_forward)
    behind = time_of(sent, Scope.weights, Window.stage_backward)
    # Messages of experts and all others, one after the other.
    before = plus(before, time_of(sent, Scope.expert_weights, Window.stage_forward))
    behind = plus(behind, time_of(sent, Scope.expert_weights, Window.stage_backward))
    gathers, scatters = _most(sent, Window.stage_forward), _most(sent, Window.stage_backward)

    def hidden(gathers: Scalar, scatters: Scalar) -> Scalar:
        """Seconds hidden by the passes of ``gathers`` and ``scatters`` micro-batches."""
        each = jnp.minimum(overlap * before, gathers * (windows.forward + windows.stall)) + jnp.minimum(
            overlap * behind, scatters * (windows.backward + windows.stall)
        )
        both = gathers * windows.forward + scatters * windows.backward + jnp.maximum(gathers, scatters) * windows.stall
        return jnp.minimum(each, both)

    found, m = hidden(gathers, scatters), design.mapping
    others = times(given(design.software.dp_by_chunk, 0.0), 1.0 - 1.0 / m.virtual_stages)
    if not nothing(others):
        by_chunk = hidden(jnp.maximum(gathers, m.pp), jnp.maximum(scatters, m.pp))
        found = (1.0 - others) * found + others * by_chunk
    usage = collectives.usage(layout.groups.dp, design.system)
    exposed = before + behind - (1.0 - usage) * found
    return exposed + time_of(sent, Scope.tied_embedding) + _between_slices(design, layout, windows)


def overlapped_share(design: Design, layout: Layout) -> Scalar:
    """Share of the messages that can overlap: under ZeRO 3 with a prefetch layer by layer all but the first layer's."""
    share = design.software.dp_overlap
    by_layer = (layout.zero >= 3.0) & (design.software.prefetches > 0.0)
    return jnp.where(by_layer, jnp.maximum(share, 1.0 - 1.0 / (layout.layers + 1.0)), share)


def _between_slices(design: Design, layout: Layout, windows: Windows) -> Scalar:
    """Seconds per step that slices without a switch wait for each other: a share per doubling of their number.

    Cost of the data-centre network between TPU slices beyond its bytes (MaxText's tables of 1 to 32 slices).
    """
    links = design.system.scale_up.links
    if links is None:
        return 0.0
    doublings = jnp.log2(jnp.maximum(layout.devices / design.system.scale_up.domain, 1.0))
    return links.slice_loss * doublings * layout.n_micro_batches * (windows.forward + windows.backward)


def _most(sent: Iterable[Sent], window: Window) -> Scalar:
    """Micro-batches per step whose passes can hide the messages of a window."""
    return functools.reduce(jnp.maximum, [s.message.times for s in sent if s.message.window is window])
