"""Time and energy of the messages of a step: folds over one list."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import NamedTuple

from dse.model.choice import nothing, plus, quotient, times
from dse.model.layout import Recomputed
from dse.model.machine import collectives
from dse.model.machine.collectives import summing_time
from dse.model.machine.routes import Route
from dse.model.work.ledger import Sends
from dse.types import Message, MessageKind, Scalar, Scope, Software, System, Window


class TimedMessage(NamedTuple):
    """A message and its total wire time in one execution of its scope, s."""

    message: Message
    time: Scalar


def send_all(messages: Iterable[Message], software: Software, system: System) -> tuple[TimedMessage, ...]:
    """Return every message, in order, with its wire time in s.

    Equal messages, and a reduce-scatter equal to an all-gather, are timed once.

    Args:
        messages: of a step, or a part of one.
        software: stack.
        system: with its networks.

    Returns:
        Each message with its seconds in one execution of its scope.
    """
    time_by_key: dict[tuple[object, ...], Scalar] = {}

    def in_a_row(message: Message, route: Route) -> Scalar:
        """Return the seconds of the pieces of a message, one after the other."""
        kind = MessageKind.all_gather if message.kind is MessageKind.reduce_scatter else message.kind
        key = (kind, *map(id, (message.size, message.pieces, message.inter_domain, *message.group)))
        if key not in time_by_key and not nothing(message.inter_domain):
            time = collectives.exchange(message.size, message.inter_domain, route, message.link_share)
            time_by_key[key] = software.communication_slowdown * time
        elif key not in time_by_key:
            size = quotient(message.size, message.pieces)
            time = collectives.time(kind, size, route, software.collective)
            if kind is not MessageKind.send:
                time = software.communication_slowdown * time
            time_by_key[key] = times(message.pieces, time)
        return time_by_key[key]

    def with_sums(message: Message, time: Scalar) -> Scalar:
        return plus(time, summing_time(message.size, message.group, system)) if message.sums else time

    return tuple(TimedMessage(m, m.times * with_sums(m, in_a_row(m, r))) for m, r in with_routes(messages, system))


def with_routes(messages: Iterable[Message], system: System) -> list[tuple[Message, Route]]:
    """Return (message, route on the networks of a system) for every message, one route per group."""
    route_by_group: dict[tuple[int, ...], Route] = {}
    return [(m, route_by_group.setdefault(tuple(map(id, m.group)), Route(m.group, system))) for m in messages]


def scope_time(messages: Iterable[TimedMessage], scope: Scope, window: Window | None = None) -> Scalar:
    """Return the total seconds of the messages of a scope, or of those of one ``window``, 0 for none.

    Args:
        messages: with their times.
        scope: scope to sum over.
        window: only messages of this window; None: all.
    """
    times = [s.time for s in messages if s.message.scope is scope and (window is None or s.message.window is window)]
    return functools.reduce(operator.add, times) if times else 0.0


def message_memory_bytes(messages: Iterable[Message], system: System) -> Scalar:
    """Return the bytes that messages move through device memory, B: each that is sent is read, each received written.

    Args:
        messages: with their counts.
        system: with its networks.
    """

    def sent(message: Message, route: Route) -> Scalar:
        if nothing(message.inter_domain):
            return collectives.sent_bytes(message.kind, message.size, route)
        return message.size + message.inter_domain

    return plus(*(times(2.0 * m.times, sent(m, route)) for m, route in with_routes(messages, system)))


def link_energy(sends: Iterable[Sends], system: System) -> Scalar:
    """Return the total link energy of the messages of the mean device with recomputed sends, J."""
    groups = list(sends)
    routes = iter(with_routes([message for group in groups for message in group.messages], system))

    def joules(message: Message, route: Route, recompute: Recomputed) -> Scalar:
        if nothing(message.inter_domain):
            energy = collectives.energy(message.kind, message.size, route)
        else:
            energy = collectives.exchange_energy(message.size, message.inter_domain, route)
        repeats = recompute.sends(message.dimension) if message.repeated else 0.0
        return times(message.mean_share, times(times(message.times, plus(1.0, repeats)), energy))

    return plus(
        *(
            times(group.times, plus(*(joules(*next(routes), group.recompute) for _ in group.messages)))
            for group in groups
        )
    )


def converted_bytes(sends: Iterable[Sends]) -> Scalar:
    """Return the bytes of device memory that casts of messages to fewer bits move, 0 without such messages."""
    return plus(*(times(group.times, times(m.times, m.converted)) for group in sends for m in group.messages))
