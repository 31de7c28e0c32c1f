"""Time and energy of the messages of a step: folds over one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dse.model.machine import collectives
from dse.model.machine.collectives import byte_energy, ring_fraction, summing_time
from dse.types import Dimension, Message, MessageKind, Scalar, Scope, Software, System, Window


class Sent(NamedTuple):
    """A message and the seconds that its executions in one scope take on the wire, one after the other."""

    message: Message
    time: Scalar


def send_all(messages: Iterable[Message], software: Software, system: System) -> tuple[Sent, ...]:
    """Time every message. Equal ones, and reduce-scatters beside all-gathers that cost the same, are timed once."""
    known: dict[tuple[object, ...], Scalar] = {}

    def once(message: Message) -> Scalar:
        size, same = message.size / message.pieces, (message.size, message.pieces, *message.group)
        key = (collectives.BY_KIND[message.kind], *map(id, same))
        if key not in known:
            time = collectives.message_time(message.kind, size, message.group, system, software.collective)
            slower = 1.0 if message.kind is MessageKind.send else software.communication_slowdown
            known[key] = slower * time
        return known[key]

    def sums(message: Message) -> Scalar:
        return summing_time(message.size, message.group, system) if message.sums else 0.0

    return tuple(Sent(m, m.count * (m.pieces * once(m) + sums(m))) for m in messages)


def time_of(
    sent: Iterable[Sent], scope: Scope, dimension: Dimension | None = None, window: Window | None = None
) -> Scalar:
    """Seconds of the messages of a scope, of one dimension and behind one window where these are given."""
    chosen = (
        s.time for s in sent if s.message.scope is scope and (dimension is None or s.message.dimension is dimension)
        and (window is None or s.message.window is window)
    )  # fmt: skip
    return sum(chosen, 0.0)


def link_bytes(message: Message) -> Scalar:
    """Bytes that a member of the group puts on its links for all executions of a message in its scope."""
    share = ring_fraction(message.group.size)
    of_size = {
        MessageKind.all_reduce: 2.0 * share, MessageKind.all_gather: share, MessageKind.reduce_scatter: share,
        MessageKind.all_to_all: share, MessageKind.send: 1.0,
    }  # fmt: skip
    return message.count * of_size[message.kind] * message.size


def link_energy(messages: Iterable[Message], scope: Scope, system: System, again: Scalar = 0.0) -> Scalar:
    """Joules of the links for the messages of a scope that one device sends; ``again`` is 1 under full recompute."""
    return sum(
        (1.0 + again if m.repeated else 1.0) * link_bytes(m) * byte_energy(m.group, system)
        for m in messages if m.scope is scope
    )  # fmt: skip
