"""Time and energy of the messages of a step: folds over one list."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import NamedTuple

from dse.model.layout import Layout
from dse.model.machine import collectives
from dse.model.machine.collectives import summing_time
from dse.model.machine.routes import Route
from dse.types import Dimension, Message, MessageKind, Recompute, Scalar, Scope, Software, System, Window


class Sent(NamedTuple):
    """A message and the seconds that its executions in one scope take on the wire, one after the other."""

    message: Message
    time: Scalar


def send_all(messages: Iterable[Message], software: Software, system: System) -> tuple[Sent, ...]:
    """Time every message. Equal ones, and reduce-scatters beside all-gathers that cost the same, are timed once."""
    known: dict[tuple[object, ...], Scalar] = {}

    def in_a_row(message: Message, route: Route) -> Scalar:
        """Seconds of the pieces of a message, one after the other."""
        # A reduce-scatter is an all-gather that runs backwards.
        kind = MessageKind.all_gather if message.kind is MessageKind.reduce_scatter else message.kind
        key = (kind, *map(id, (message.size, message.pieces, message.far, *message.group)))
        if key not in known and message.far is not None:
            known[key] = software.communication_slowdown * collectives.exchange(message.size, message.far, route)
        elif key not in known:
            size = message.size if message.pieces is None else message.size / message.pieces
            time = collectives.time(kind, size, route, software.collective)
            if kind is not MessageKind.send:
                time = software.communication_slowdown * time
            known[key] = time if message.pieces is None else message.pieces * time
        return known[key]

    def with_sums(message: Message, time: Scalar) -> Scalar:
        stated = message.sums and system.scale_up.volumes is not None
        return time + summing_time(message.size, message.group, system) if stated else time

    return tuple(Sent(m, m.times * with_sums(m, in_a_row(m, r))) for m, r in routed(messages, system))


def routed(messages: Iterable[Message], system: System) -> list[tuple[Message, Route]]:
    """Every message with its group on the networks of a system; messages of one group share it."""
    known: dict[tuple[int, ...], Route] = {}
    return [(m, known.setdefault(tuple(map(id, m.group)), Route(m.group, system))) for m in messages]


def time_of(sent: Iterable[Sent], scope: Scope, window: Window | None = None) -> Scalar:
    """Seconds of the messages of a scope, of those behind one window where it is given."""
    times = [s.time for s in sent if s.message.scope is scope and (window is None or s.message.window is window)]
    return functools.reduce(operator.add, times) if times else 0.0


def sent_again(message: Message, layout: Layout) -> Scalar:
    """How often a message of the forward is sent again in the backward: once where its operators run again."""
    if message.dimension is Dimension.context:
        return layout.core_again
    if message.scope is not Scope.expert_layer or layout.experts is None:
        return layout.full
    return layout.full + layout.experts.again[Recompute.expert_block]


def layer_links(links: dict[Scope, Scalar], layout: Layout) -> Scalar:
    """Joules of the links for one layer, with those of its experts where there are any."""
    return links[Scope.layer] if layout.experts is None else links[Scope.layer] + links[Scope.expert_layer]


def link_energy(messages: Iterable[Message], system: System, layout: Layout) -> dict[Scope, Scalar]:
    """Joules of the links for the messages of the mean device, by scope, with those that recompute sends again."""
    found: dict[Scope, Scalar] = dict.fromkeys(Scope, 0.0)
    for m, route in routed(messages, system):
        often = m.mean_share * (m.times * (1.0 + sent_again(m, layout)) if m.repeated else m.times)
        if m.far is None:
            found[m.scope] += often * collectives.energy(m.kind, m.size, route)
        else:
            found[m.scope] += often * collectives.exchange_energy(m.size, m.far, route)
    return found
