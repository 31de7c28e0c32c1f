"""Time and energy of the messages of a step: folds over one list."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import NamedTuple

from dse.model.choice import divided, plus, times
from dse.model.layout import Recomputed
from dse.model.machine import collectives
from dse.model.machine.collectives import summing_time
from dse.model.machine.routes import Route
from dse.model.work.ledger import Sends
from dse.types import Message, MessageKind, Scalar, Scope, Software, System, Window


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
            size = divided(message.size, message.pieces)
            time = collectives.time(kind, size, route, software.collective)
            if kind is not MessageKind.send:
                time = software.communication_slowdown * time
            known[key] = times(message.pieces, time)
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


def link_energy(sends: Iterable[Sends], system: System) -> Scalar:
    """Joules of the links for the messages of the mean device, with those that recompute sends again."""
    listed = list(sends)
    found = iter(routed([message for one in listed for message in one.messages], system))

    def joules(message: Message, route: Route, recompute: Recomputed) -> Scalar:
        if message.far is None:
            each = collectives.energy(message.kind, message.size, route)
        else:
            each = collectives.exchange_energy(message.size, message.far, route)
        again = recompute.sends(message.dimension) if message.repeated else 0.0
        return times(message.mean_share, times(times(message.times, plus(1.0, again)), each))

    return plus(*(
        times(one.times, plus(*(joules(*next(found), one.recompute) for _ in one.messages))) for one in listed
    ))  # fmt: skip
