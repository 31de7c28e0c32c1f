"""What one layer waits for: exposed messages of tensor, context and expert parallelism."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model import schedules
from dse.model.choice import max_prefer_first, plus, times, value_or
from dse.model.layout import Layout
from dse.model.machine import collectives
from dse.model.machine.messages import TimedMessage, scope_time
from dse.model.machine.passes import Passes
from dse.model.parallel import pipeline
from dse.types import Design, Dimension, Group, Recompute, Scalar, Scope, Window


class ExposedTime(NamedTuple):
    """Exposed seconds of the messages of one layer by pass, and their seconds on inter-domain links."""

    forward: Scalar = 0.0
    backward: Scalar = 0.0
    across_forward: Scalar = 0.0
    across_backward: Scalar = 0.0

    def plus(self, other: ExposedTime) -> ExposedTime:
        """Return the sum of two records field by field."""
        return ExposedTime(*map(plus, self, other))

    def with_repeats(self, repeats: Scalar, across: Scalar | None = None) -> ExposedTime:
        """Return the record with the forward's seconds added ``repeats`` times to the backward.

        Args:
            repeats: repeats.
            across: repeats of the seconds on inter-domain links, by default as many.
        """
        backward = plus(self.backward, times(repeats, self.forward))
        across_repeats = times(value_or(across, repeats), self.across_forward)
        return self._replace(backward=backward, across_backward=plus(self.across_backward, across_repeats))

    @property
    def total(self) -> Scalar:
        """Exposed seconds of both passes."""
        return plus(self.forward, self.backward)


def tensor_parallel(design: Design, layout: Layout, messages: Iterable[TimedMessage], passes: Passes) -> ExposedTime:
    """Return the exposed seconds per layer of tensor parallelism, whose messages overlap with matrices of their pass.

    Kernels that multiply and send in one write into the memory of peers: most need the scale-up domain. Some stacks
    overlap messages of the backward with weight gradients by default.
    """
    software, group = design.software, layout.groups.tp
    reachable_overlap = jnp.where(group.domains > 1.0, software.tp_overlap_across, software.tp_overlap)
    overlap = design.mapping.overlap_tp * reachable_overlap
    asynchronous = max_prefer_first(software.backward_tp_overlap, overlap)
    overlaps: dict[Window, Scalar] = {
        Window.matrix_forward: overlap,
        Window.matrix_input_gradient: overlap,
        Window.matrix_weight_gradient: asynchronous,
    }
    usage, tp_messages = collectives.usage(group, design.system), _of_dimension(messages, Dimension.tensor)
    forward, inputs, weights = _exposed_by_window(tp_messages, overlaps, passes, usage)
    return ExposedTime(forward, inputs + weights, *_across(tp_messages, group, Window.matrix_forward))


def context_parallel(design: Design, layout: Layout, messages: Iterable[TimedMessage], passes: Passes) -> ExposedTime:
    """Return the exposed seconds per layer of context parallelism: of a ring, and of other exchanges.

    Each of the ``c - 1`` exchanges of a ring overlaps with one of the ``c`` equal steps of attention (Liu et al. 2023,
    section 3): ``(c - 1) max(t - t_attention / c, 0)`` is exposed. Messages of other exchanges, before attention, are
    exposed.
    """
    overlap = design.software.cp_overlap
    overlaps = {Window.attention_forward: overlap, Window.attention_backward: overlap}
    group, cp_messages = layout.groups.cp, _of_dimension(messages, Dimension.context)
    hiding = 1.0 - 1.0 / layout.ring  # all steps but one
    steps = passes._replace(core_forward=hiding * passes.core_forward, core_backward=hiding * passes.core_backward)
    forward, backward = _exposed_by_window(cp_messages, overlaps, steps, collectives.usage(group, design.system))
    across = _across(cp_messages, group, Window.attention_forward, Window.before_attention)
    # Attention waits for exchanges and gathers before it.
    forward_exchange, backward_exchange = (
        scope_time(cp_messages, Scope.layer, w) for w in (Window.before_attention, Window.before_attention_backward)
    )
    return ExposedTime(plus(forward, forward_exchange), plus(backward, backward_exchange), *across)


def expert_parallel(design: Design, layout: Layout, messages: Iterable[TimedMessage], passes: Passes) -> ExposedTime:
    """Return the exposed seconds per layer of messages of experts, 0 without experts.

    They overlap with the compute of their pass where the schedule pairs passes.

    Two micro-batches in opposite passes hide each other's messages (DeepSeek-AI 2024, section 3.2.1), whose kernels
    take cores from compute. Left open, a stack's recipes overlap exchanges that leave the domain in pipelines alone:
    Megatron-Bridge's moe_a2a_overlap is off for Qwen3-30B-A3B on 16 H100 and GPT-OSS-120B with ep 64 on B200, which
    have none (scripts/performance/configs, qwen and gpt_oss).
    """
    mapping = design.mapping.experts
    kernels = design.software.experts
    ep_messages = _of_dimension(messages, Dimension.expert)
    if mapping is None or kernels is None:
        return ExposedTime()
    group = layout.experts.ep
    forward, backward = (
        scope_time(ep_messages, Scope.expert_layer, w) for w in (Window.experts_forward, Window.experts_backward)
    )
    usage = jnp.maximum(collectives.usage(group, design.system), kernels.exchange_cores)
    leaves_domain = jnp.where(group.domains > 1.0, 1.0, 0.0)
    by_recipe = leaves_domain * kernels.overlap_across * jnp.where(design.mapping.pp > 1.0, 1.0, 0.0)
    requested_overlap = jnp.where(mapping.overlap_ep < 0.0, by_recipe, mapping.overlap_ep)
    overlap = requested_overlap * paired_passes(design, layout)
    # Forward and backward run at once, so that the compute of either hides the messages of both.
    total, compute = plus(forward, backward), passes.forward + passes.backward + passes.recompute
    exposed_share = collectives.exposed(total, compute, overlap, usage) / jnp.maximum(total, 1e-30)
    return ExposedTime(
        exposed_share * forward, exposed_share * backward, leaves_domain * forward, leaves_domain * backward
    )


def paired_passes(design: Design, layout: Layout) -> Scalar:
    """Return the share, 0 to 1, of the passes that run with an opposite pass of another micro-batch.

    Megatron-Core pairs them (combined_1f1b) without a pipeline or with interleaved chunks, and without full recompute:
    :func:`dse.model.parallel.pipeline.paired_share`. So do DualPipe's schedules, but for
    :func:`dse.model.parallel.pipeline.unpaired_micro_batches`.
    """
    m, n = design.mapping, layout.n_micro_batches
    pairs, share = (m.pp <= 1.0) | (m.virtual_stages > 1.0), pipeline.paired_share(m, n)
    if m.schedule is not None:
        is_dual = schedules.is_any_of(m.schedule, schedules.PAIRING) & (m.pp > 1.0)
        of_dual = jnp.maximum(1.0 - pipeline.unpaired_micro_batches(m) / n, 0.0)
        pairs, share = pairs | is_dual, jnp.where(is_dual, of_dual, share)
    return jnp.where(pairs & (m.recompute != float(Recompute.full)), share, 0.0)


def _across(messages: list[TimedMessage], group: Group, *forward: Window) -> tuple[Scalar, Scalar]:
    """Return the seconds of messages in ``forward`` windows, and of all others, 0 for a group within one domain."""
    leaves_domain = jnp.where(group.domains > 1.0, 1.0, 0.0)
    forward_time, backward_time = (
        scope_time([s for s in messages if (s.message.window in forward) is ahead], Scope.layer)
        for ahead in (True, False)
    )
    return leaves_domain * forward_time, leaves_domain * backward_time


def _of_dimension(messages: Iterable[TimedMessage], dimension: Dimension) -> list[TimedMessage]:
    """Return those messages of a dimension as a list."""
    return [s for s in messages if s.message.dimension is dimension]


def _exposed_by_window(
    messages: Iterable[TimedMessage], overlaps: dict[Window, Scalar], passes: Passes, processor_usage: Scalar
) -> list[Scalar]:
    """Return the exposed seconds of each window of ``overlaps`` (window → share that overlaps), in this order."""
    return [
        collectives.exposed(scope_time(messages, Scope.layer, window), passes.window(window), overlap, processor_usage)
        for window, overlap in overlaps.items()
    ]
