"""What a rank does with its step: kernels, messages that nothing hides, waits for others, nothing at all."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dse.lab.evidence.matching import Matched, classes_of, key_of, match
from dse.lab.evidence.traces import OF_MESSAGES, RankTrace, SeenKernel
from dse.views.trace import DeviceStep

#: Messages of one stream that follow one another within this time are sent in a row, s.
_IN_A_ROW = 3e-6

#: Families of kernels that compute.
FAMILIES = ("matrix", "attention", "elementwise", "optimizer")


class RankParts(NamedTuple):
    """A rank's step, with what is exposed of each message."""

    matched: Matched
    stage: int
    exposed: np.ndarray  #: s of each kernel of a message that no compute hides [kernels]
    wire: np.ndarray  #: s of each kernel without waits for other ranks [kernels]
    waits: float  #: s a step in messages between stages, for the norm, and for ranks whose step ends later
    replicas: float  #: s a step of exposed messages after the passes
    after: float  #: s a step of the optimiser
    idle: float  #: s a step without a kernel

    @property
    def trace(self) -> RankTrace:
        """The trace."""
        return self.matched.trace

    @property
    def busy(self) -> float:
        """Seconds a step of the passes of its stage, gaps included."""
        return self.trace.length - self.waits - self.replicas - self.after


def parts_of(matched: Matched, stage: int) -> RankParts:
    """Exposed messages of a rank: of layers, then waits for other stages, then of replicas after the passes."""
    trace, classes = matched.trace, matched.classes
    of, start, end = matched.of, trace.start, trace.end
    families = np.array([one.family for one in classes] + [""], object)[of]
    sends = trace.labels == OF_MESSAGES
    after = np.array([one.after for one in classes] + [False], bool)[of]
    between = np.array([one.key[:2] == ("message", "send") and "stage" in one.name for one in classes] + [False])[of]
    waits, late = (families == "wait") & sends, sends & after & (families != "wait")
    exposed = np.zeros(len(start))
    covered = ~sends
    for group in (sends & ~waits & ~late & ~between, waits):
        exposed[group] = _uncovered(start[group], end[group], start[covered], end[covered])
        covered = covered | group
    first, last = _passes(trace, of, families == "optimizer")
    first, last = np.concatenate([start[covered], first]), np.concatenate([end[covered], last])
    exposed[late] = _uncovered(start[late], end[late], first, last)
    steps = trace.steps
    return RankParts(
        matched,
        stage,
        exposed,
        trace.seconds.copy(),
        float(exposed[waits].sum()) / steps,
        float(exposed[late].sum()) / steps,
        float(trace.seconds[families == "optimizer"].sum()) / steps,
        trace.idle,
    )


def _passes(trace: RankTrace, of: np.ndarray, optimizer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of the passes of each step: from its first kernel of compute to the last before the optimiser."""
    own = np.flatnonzero((trace.labels != OF_MESSAGES) & (of >= 0) & ~optimizer)
    if not len(own):
        return np.zeros(0), np.zeros(0)
    step = np.searchsorted(np.sort(trace.start[optimizer]), trace.start[own])
    found = [own[step == one] for one in np.unique(step)]
    return np.array([trace.start[one].min() for one in found]), np.array([trace.end[one].max() for one in found])


def _uncovered(start: np.ndarray, end: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Seconds of each interval outside the union of others."""
    if not len(first):
        return np.asarray(end - start)
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    opens = np.concatenate([[True], first[1:] > last[:-1]])
    starts, ends = first[opens], last[np.concatenate([opens[1:], [True]])]
    before = np.concatenate([[0.0], np.cumsum(ends - starts)])

    def until(time: np.ndarray) -> np.ndarray:
        at = np.searchsorted(starts, time, "right")
        inside = np.where(at > 0, np.minimum(time, ends[at - 1]) - starts[at - 1], 0.0)
        return np.asarray(before[np.maximum(at - 1, 0)] + inside)

    return np.maximum(end - start - (until(end) - until(start)), 0.0)


def as_trace(found: DeviceStep) -> RankTrace:
    """The predicted step of a device as a trace, of which the same is asked as of measured ones."""
    classes = classes_of(found)
    at = {one.key: i for i, one in enumerate(classes)}
    kinds = [SeenKernel(one.name, OF_MESSAGES if one.family in ("message", "wait") else 0x7F) for one in classes]
    start = np.array([one.start for one in found.kernels])
    return RankTrace(
        "",
        0,
        0,
        1,
        found.total,
        kinds,
        np.array([at[key_of(one)] for one in found.kernels]),
        np.array([one.stream for one in found.kernels]),
        start,
        start + [one.seconds for one in found.kernels],
    )


def predicted_parts(found: DeviceStep) -> RankParts:
    """The parts of the predicted step of a device."""
    trace = as_trace(found)
    return parts_of(Matched(trace, classes_of(found), trace.kind, {}, {}), found.stage)


def measured_parts(trace: RankTrace, found: DeviceStep) -> RankParts:
    """The parts of a measured step of a device of the same stage."""
    return parts_of(match(trace, found), found.stage)


def without_waits(ranks: list[RankParts]) -> list[RankParts]:
    """Wire times of messages that several ranks send together: the shortest kernel of them, whose rank came last."""
    found = [one.wire.copy() for one in ranks]
    groups: dict[tuple[str, int], list[tuple[int, np.ndarray]]] = {}
    for number, one in enumerate(ranks):
        names = [kind.group for kind in one.trace.kinds]
        for at, item in enumerate(one.matched.classes):
            if item.family != "message" or item.name.startswith("stage_output"):
                continue
            place = np.flatnonzero(one.matched.of == at)
            for group in {names[kind] for kind in one.trace.kind[place]} - {""}:
                own = place[[names[kind] == group for kind in one.trace.kind[place]]]
                groups.setdefault((group, hash(item.key)), []).append((number, own))
    for together in groups.values():
        if len(together) > 1 and len({len(own) for _, own in together}) == 1:
            least = np.min([ranks[number].wire[own] for number, own in together], axis=0)
            for number, own in together:
                found[number][own] = least
    return [one._replace(wire=wire) for one, wire in zip(ranks, found, strict=True)]


def with_ends(ranks: list[RankParts]) -> list[RankParts]:
    """Time after the last kernel of a rank, beyond that of the rank that ends last, is no gap: it waits for others."""
    tails = [max(one.trace.steps * one.trace.length - float(one.trace.end.max()), 0.0) for one in ranks]
    found = []
    for one, tail in zip(ranks, tails, strict=True):
        more = (tail - min(tails)) / one.trace.steps
        found.append(one._replace(waits=one.waits + more, idle=one.idle - more))
    return found


def exposed_sums(one: RankParts) -> np.ndarray:
    """Seconds a step of exposed messages in the passes, and after them."""
    after = np.array([item.after for item in one.matched.classes] + [False])[one.matched.of]
    own = np.array([item.family == "message" for item in one.matched.classes] + [False])[one.matched.of]
    sums = [float(one.exposed[own & (after == late)].sum()) for late in (False, True)]
    return np.array(sums) / one.trace.steps


def gaps_up_to(one: RankParts, longest: float) -> float:
    """Seconds a step without a kernel in gaps that are not longer than this."""
    gaps = gaps_of(one)
    return float(gaps[gaps <= longest].sum()) / one.trace.steps


def gaps_of(one: RankParts) -> np.ndarray:
    """Gaps between kernels, s."""
    gaps = np.maximum(one.trace.start[1:] - np.maximum.accumulate(one.trace.end)[:-1], 0.0)
    return np.asarray(gaps[gaps > 1e-7])


def paid_delays(one: RankParts, longer: np.ndarray) -> np.ndarray:
    """Exposed seconds that longer messages cost: a delay is handed on to the next in a row until nothing hides it.

    Args:
        one: a rank.
        longer: s by which each kernel of a message takes longer; 0 for others [kernels].

    Returns:
        Seconds of each kernel [kernels].
    """
    trace, paid = one.trace, np.zeros(len(longer))
    for stream in np.unique(trace.stream[longer != 0.0]):
        delay, last = 0.0, -np.inf
        for i in np.flatnonzero(trace.stream == stream):
            delay = longer[i] + (delay if trace.start[i] - last < _IN_A_ROW else 0.0)
            paid[i] = min(delay, one.exposed[i]) if delay > 0.0 else max(delay, -one.exposed[i])
            delay, last = delay - paid[i], trace.end[i]
    return paid


def family_seconds(one: RankParts, family: str) -> tuple[float, float]:
    """(measured, predicted) seconds of the kernels of a family that ran, the latter at the predicted time of each."""
    measured = expected = 0.0
    for at, item in enumerate(one.matched.classes):
        if item.family == family:
            measured += one.matched.seconds(at)
            expected += one.matched.times(at) * item.each
    return measured, expected


def steady_ratio(ranks: list[RankParts], family: str) -> float:
    """Measured over predicted time of a family's kernels, each counting alike: many small ones average their noise."""
    logs = weights = 0.0
    for one in ranks:
        for at, item in enumerate(one.matched.classes):
            if item.family == family and (times := one.matched.times(at)):
                logs += times * math.log(one.matched.seconds(at) / times / item.each)
                weights += times
    return math.exp(logs / weights) if weights else 1.0
