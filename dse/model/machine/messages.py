"""Time and energy of the messages of a step: folds over one list."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import NamedTuple

from dse.model.choice import divided, nothing, plus, times
from dse.model.layout import Recomputed
from dse.model.machine import collectives
from dse.model.machine.collectives import summing_time
from dse.model.machine.routes import Route
from dse.model.work.ledger import Sends
from dse.types import Message, MessageKind, Scalar, Scope, Software, System, Window


class Sent(NamedTuple):
    """A message and its total wire time in one execution of its scope, s."""

    message: Message
    time: Scalar


def send_all(messages: Iterable[Message], software: Software, system: System) -> tuple[Sent, ...]:
    """Wire time of every message; equal ones, and a reduce-scatter equal to an all-gather, are timed once."""
    known: dict[tuple[object, ...], Scalar] = {}

    def in_a_row(message: Message, route: Route) -> Scalar:
        """Seconds of the pieces of a message, one after the other; a reduce-scatter is a reversed all-gather."""
        kind = MessageKind.all_gather if message.kind is MessageKind.reduce_scatter else message.kind
        key = (kind, *map(id, (message.size, message.pieces, message.inter_domain, *message.group)))
        if key not in known and not nothing(message.inter_domain):
            time = collectives.exchange(message.size, message.inter_domain, route, message.link_share)
            known[key] = software.communication_slowdown * time
        elif key not in known:
            size = divided(message.size, message.pieces)
            time = collectives.time(kind, size, route, software.collective)
            if kind is not MessageKind.send:
                time = software.communication_slowdown * time
            known[key] = times(message.pieces, time)
        return known[key]

    def with_sums(message: Message, time: Scalar) -> Scalar:
        return plus(time, summing_time(message.size, message.group, system)) if message.sums else time

    return tuple(Sent(m, m.times * with_sums(m, in_a_row(m, r))) for m, r in routed(messages, system))


def routed(messages: Iterable[Message], system: System) -> list[tuple[Message, Route]]:
    """Messages with their routes on the networks of a system, one route per group."""
    known: dict[tuple[int, ...], Route] = {}
    return [(m, known.setdefault(tuple(map(id, m.group)), Route(m.group, system))) for m in messages]


def time_of(sent: Iterable[Sent], scope: Scope, window: Window | None = None) -> Scalar:
    """Seconds of the messages of a scope, or of those of one ``window``."""
    times = [s.time for s in sent if s.message.scope is scope and (window is None or s.message.window is window)]
    return functools.reduce(operator.add, times) if times else 0.0


def link_energy(sends: Iterable[Sends], system: System) -> Scalar:
    """Link energy of the messages of the mean device with recomputed sends, J."""
    listed = list(sends)
    found = iter(routed([message for one in listed for message in one.messages], system))

    def joules(message: Message, route: Route, recompute: Recomputed) -> Scalar:
        if nothing(message.inter_domain):
            each = collectives.energy(message.kind, message.size, route)
        else:
            each = collectives.exchange_energy(message.size, message.inter_domain, route)
        repeats = recompute.sends(message.dimension) if message.repeated else 0.0
        return times(message.mean_share, times(times(message.times, plus(1.0, repeats)), each))

    return plus(
        *(times(one.times, plus(*(joules(*next(found), one.recompute) for _ in one.messages))) for one in listed)
    )
