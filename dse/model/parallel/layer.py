"""Exposed messages of one layer: tensor and context parallelism."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import given, max_prefer_first, plus, times
from dse.model.layout import Layout
from dse.model.machine import collectives
from dse.model.machine.messages import Sent, time_of
from dse.model.machine.passes import Passes
from dse.types import Design, Dimension, Group, Scalar, Scope, Window


class Exposed(NamedTuple):
    """Seconds that the messages of one layer add to its passes, and for which they take the links between domains."""

    forward: Scalar = 0.0
    backward: Scalar = 0.0
    across_forward: Scalar = 0.0
    across_backward: Scalar = 0.0

    def plus(self, other: Exposed) -> Exposed:
        """The sum of both."""
        return Exposed(*map(plus, self, other))

    def sent_again(self, often: Scalar, across: Scalar | None = None) -> Exposed:
        """With messages of the forward sent ``often`` more in the backward; ``across`` domains, if not as often."""
        backward = plus(self.backward, times(often, self.forward))
        also_across = times(given(across, often), self.across_forward)
        return self._replace(backward=backward, across_backward=plus(self.across_backward, also_across))

    @property
    def total(self) -> Scalar:
        """Seconds that they add to both passes."""
        return plus(self.forward, self.backward)


def tensor_parallel(design: Design, layout: Layout, sent: Iterable[Sent], passes: Passes) -> Exposed:
    """Messages of tensor parallelism behind the matrices of their pass.

    Kernels that multiply and send at once write into peers' memory: most need the scale-up domain. What the
    backward sends beside the weight gradients some stacks hide by default.
    """
    software, group = design.software, layout.groups.tp
    reached = jnp.where(group.domains > 1.0, software.tp_overlap_across, software.tp_overlap)
    overlap = design.mapping.overlap_tp * reached
    asynchronous = max_prefer_first(software.backward_tp_overlap, overlap)
    overlaps: dict[Window, Scalar] = {
        Window.matrix_forward: overlap, Window.matrix_input_gradient: overlap,
        Window.matrix_weight_gradient: asynchronous,
    }  # fmt: skip
    usage, own = collectives.usage(group, design.system), _of(sent, Dimension.tensor)
    forward, inputs, weights = _behind(own, overlaps, passes, usage)
    return Exposed(forward, inputs + weights, *_across(own, group, Window.matrix_forward))


def context_parallel(design: Design, layout: Layout, sent: Iterable[Sent], passes: Passes) -> Exposed:
    """The ring of keys and values, and in the backward of their gradients, behind the attention that it feeds.

    Each of its ``c - 1`` exchanges hides behind one of the ``c`` equal steps of the attention, which works on what came
    before (Liu et al. 2023, section 3): ``(c - 1) max(t - t_attention / c, 0)`` is exposed. What other exchanges send
    before the attention is exposed.
    """
    overlap = design.software.cp_overlap
    overlaps = {Window.attention_forward: overlap, Window.attention_backward: overlap}
    group, own = layout.groups.cp, _of(sent, Dimension.context)
    beside = 1.0 - 1.0 / layout.ring  # all steps but one
    steps = passes._replace(core_forward=beside * passes.core_forward, core_backward=beside * passes.core_backward)
    forward, backward = _behind(own, overlaps, steps, collectives.usage(group, design.system))
    across = _across(own, group, Window.attention_forward, Window.before_attention)
    # The attention waits for what is exchanged or gathered before it.
    before, behind = (
        time_of(own, Scope.layer, w) for w in (Window.before_attention, Window.before_attention_backward)
    )
    return Exposed(plus(forward, before), plus(backward, behind), *across)


def expert_parallel(design: Design, layout: Layout, sent: Iterable[Sent], passes: Passes) -> Exposed:
    """Messages between experts behind the compute of their pass, as far as the schedule hides them.

    Two micro-batches in opposite passes hide each other's (DeepSeek-AI 2024, section 3.2.1). Kernels that send beside
    compute take cores from it.
    """
    mapping, kernels, own = design.mapping.experts, design.software.experts, _of(sent, Dimension.expert)
    if mapping is None or kernels is None:
        return Exposed()
    group = layout.experts.ep
    forward, backward = (time_of(own, Scope.expert_layer, w) for w in (Window.experts_forward, Window.experts_backward))
    usage = jnp.maximum(collectives.usage(group, design.system), kernels.exchange_cores)
    leaves = jnp.where(group.domains > 1.0, 1.0, 0.0)
    return Exposed(
        collectives.exposed(forward, passes.forward, mapping.overlap_ep, usage),
        collectives.exposed(backward, passes.backward, mapping.overlap_ep, usage),
        leaves * forward,
        leaves * backward,
    )


def _across(sent: list[Sent], group: Group, *forward: Window) -> tuple[Scalar, Scalar]:
    """Seconds of forward and backward messages between domains, 0 where the group does not leave its own."""
    leaves = jnp.where(group.domains > 1.0, 1.0, 0.0)
    before, behind = (
        time_of([s for s in sent if (s.message.window in forward) is ahead], Scope.layer) for ahead in (True, False)
    )
    return leaves * before, leaves * behind


def _of(sent: Iterable[Sent], dimension: Dimension) -> list[Sent]:
    return [s for s in sent if s.message.dimension is dimension]


def _behind(
    sent: Iterable[Sent], overlaps: dict[Window, Scalar], passes: Passes, processor_usage: Scalar
) -> list[Scalar]:
    """Exposed seconds window by window, each with the share of its messages that can be hidden."""
    return [
        collectives.exposed(time_of(sent, Scope.layer, window), passes.window(window), overlap, processor_usage)
        for window, overlap in overlaps.items()
    ]
