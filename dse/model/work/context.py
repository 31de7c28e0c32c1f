"""Messages of context parallelism: a ring of keys and values, a gather of them, or heads exchanged for sequence."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.layout import ContextLayout, Layout
from dse.types import Design, Dimension, Group, Message, MessageKind, Scalar, Scope, Window


def context_messages(design: Design, layout: Layout) -> list[Message]:
    """Ring attention (Liu et al. 2023): ``c - 1`` steps of keys and values, backward of their gradients too."""
    act = layout.element.activation
    if layout.context.is_named:
        return exchanged_messages(design, layout, layout.context)
    block = act * layout.tokens * layout.keys_and_values
    return _ring(layout.groups.cp, block, layout.groups.cp.size - 1.0, design.workload.backward)


def _ring(group: Group, block: Scalar, steps: Scalar, trained: Scalar) -> list[Message]:
    forward, backward = (
        Message(
            "keys_and_values",
            MessageKind.send,
            Dimension.context,
            Scope.layer,
            group,
            block,
            steps,
            window=Window.attention_forward,
            repeated=True,
        ),
        Message(
            "keys_values_and_gradients",
            MessageKind.send,
            Dimension.context,
            Scope.layer,
            group,
            block,
            2.0 * trained * steps,
            window=Window.attention_backward,
        ),
    )
    return [forward, backward]


def exchanged_messages(design: Design, layout: Layout, context: ContextLayout) -> list[Message]:
    """Messages of the exchange that the mapping names, per layer and micro-batch.

    All-to-all of heads for sequence: queries, keys and values before attention, its output after it, and their
    gradients in the backward; a rank sends all but its own share. All-gather: keys and values before attention, again
    in the backward, which also reduce-scatters their gradients.
    """
    trained, act, m = design.workload.backward, layout.element.activation, design.mapping
    heads, keys_and_values = context.heads_over, layout.keys_and_values
    # Ranks beyond the key/value heads hold copies of a head, which multiply the bytes of keys and values.
    copies = context.kv_heads * heads.size / layout.kv_heads
    sent = act * layout.tokens * (layout.query_width + copies * keys_and_values + layout.context_width)
    block = act * layout.tokens * copies * keys_and_values
    everything = act * layout.tokens * m.cp * keys_and_values
    exchanges = jnp.where(heads.size > 1.0, 1.0, 0.0)

    def message(name: str, kind: MessageKind, size: Scalar, times: Scalar, forward: bool) -> Message:
        group = heads if kind is MessageKind.all_to_all else layout.groups.cp
        window = Window.before_attention if forward else Window.before_attention_backward
        return Message(
            name,
            kind,
            Dimension.context,
            Scope.layer,
            group,
            size,
            times,
            window=window,
            repeated=forward,
            sums=kind is MessageKind.reduce_scatter,
        )

    exchange, gather = MessageKind.all_to_all, MessageKind.all_gather
    return [
        *_ring(context.ring, block, (1.0 - context.gathers) * (context.ring.size - 1.0), trained),
        message("heads_for_sequence", exchange, sent, exchanges, True),
        message("heads_for_sequence_backward", exchange, sent, trained * exchanges, False),
        message("keys_values_all_gather", gather, everything, context.gathers, True),
        message("keys_values_all_gather_again", gather, everything, trained * context.gathers, False),
        message("keys_values_reduce_scatter", MessageKind.reduce_scatter, everything, trained * context.gathers, False),
    ]
