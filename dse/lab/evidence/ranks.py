"""What a rank does with its step: kernels, messages that nothing hides, waits for others, nothing at all."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dse.lab.evidence.matching import MatchedTrace, classes_of, key_of, match
from dse.lab.evidence.traces import KernelKind, RankTrace
from dse.measured.profiles.kernels import MESSAGE_CLASS, covered_until
from dse.views.trace import DeviceStep

#: Messages of one stream that follow one another within this time are sent in a row, s.
_IN_A_ROW = 3e-6

#: Families of kernels that compute.
FAMILIES = ("matrix", "attention", "elementwise", "optimizer")


class RankParts(NamedTuple):
    """A rank's step, with the exposed seconds of each message."""

    matched: MatchedTrace
    stage: int
    exposed: np.ndarray  #: s of each kernel of a message that no compute hides [kernels]
    wire: np.ndarray  #: s of each kernel without waits for other ranks [kernels]
    waits: float  #: s a step in messages between stages, for the norm, and for ranks whose step ends later
    replicas: float  #: s a step of exposed messages after the passes
    optimizer_seconds: float  #: s a step of the optimiser
    idle: float  #: s a step without a kernel

    @property
    def trace(self) -> RankTrace:
        """The trace."""
        return self.matched.trace

    @property
    def busy(self) -> float:
        """Seconds a step of the passes of its stage with gaps."""
        return self.trace.step_seconds - self.waits - self.replicas - self.optimizer_seconds


def rank_parts(matched: MatchedTrace, stage: int) -> RankParts:
    """Return a rank's step split into passes, exposed messages of layers, of stages and of replicas, and gaps."""
    trace, start, end = matched.trace, matched.trace.start, matched.trace.end
    is_message, is_optimizer = trace.labels == MESSAGE_CLASS, matched.of_kernels(matched.is_family("optimizer"))
    is_waiting = matched.of_kernels(matched.is_family("wait"))
    is_between_stages = matched.of_kernels(
        [
            kernel_class.key[:2] == ("message", "send") and "stage" in kernel_class.name
            for kernel_class in matched.classes
        ]
    )
    is_wait = is_waiting & is_message
    is_late = is_message & matched.of_kernels(matched.of_classes("is_after_passes")) & ~is_waiting
    exposed = np.zeros(len(start))
    is_covered = ~is_message
    for group in (is_message & ~is_wait & ~is_late & ~is_between_stages, is_wait):
        exposed[group] = _uncovered(start[group], end[group], start[is_covered], end[is_covered])
        is_covered = is_covered | group
    cover_start, cover_end = _pass_spans(trace, matched.class_index, is_optimizer)
    cover_start, cover_end = (
        np.concatenate([start[is_covered], cover_start]),
        np.concatenate([end[is_covered], cover_end]),
    )
    exposed[is_late] = _uncovered(start[is_late], end[is_late], cover_start, cover_end)
    steps = trace.n_steps
    return RankParts(
        matched,
        stage,
        exposed,
        trace.seconds.copy(),
        float(exposed[is_wait].sum()) / steps,
        float(exposed[is_late].sum()) / steps,
        float(trace.seconds[is_optimizer].sum()) / steps,
        trace.idle,
    )


def _pass_spans(trace: RankTrace, class_index: np.ndarray, is_optimizer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends, s, of the passes of each step before its optimiser [steps]; empty without kernels."""
    compute_indices = np.flatnonzero((trace.labels != MESSAGE_CLASS) & (class_index >= 0) & ~is_optimizer)
    if not len(compute_indices):
        return np.zeros(0), np.zeros(0)
    step_index = np.searchsorted(np.sort(trace.start[is_optimizer]), trace.start[compute_indices])
    indices_by_step = [compute_indices[step_index == step_number] for step_number in np.unique(step_index)]
    return np.array([trace.start[indices].min() for indices in indices_by_step]), np.array(
        [trace.end[indices].max() for indices in indices_by_step]
    )


def _uncovered(start: np.ndarray, end: np.ndarray, cover_start: np.ndarray, cover_end: np.ndarray) -> np.ndarray:
    """Return the seconds of each interval outside the union of the cover's intervals [intervals]."""
    covered = covered_until(cover_start, cover_end, np.stack([start, end]))
    return np.asarray(np.maximum(end - start - (covered[1] - covered[0]), 0.0))


def as_trace(device_step: DeviceStep) -> RankTrace:
    """Return the predicted step of a device in the form of a measured trace."""
    classes = classes_of(device_step)
    index_by_key = {kernel_class.key: i for i, kernel_class in enumerate(classes)}
    kinds = [
        KernelKind(kernel_class.name, MESSAGE_CLASS if kernel_class.family in ("message", "wait") else 0x7F)
        for kernel_class in classes
    ]
    start = np.array([kernel.start for kernel in device_step.kernels])
    return RankTrace(
        "",
        0,
        0,
        1,
        device_step.total,
        kinds,
        np.array([index_by_key[key_of(kernel)] for kernel in device_step.kernels]),
        np.array([kernel.stream for kernel in device_step.kernels]),
        start,
        start + [kernel.seconds for kernel in device_step.kernels],
    )


def predicted_parts(device_step: DeviceStep) -> RankParts:
    """Return the parts of the predicted step of a device."""
    trace = as_trace(device_step)
    return rank_parts(MatchedTrace(trace, classes_of(device_step), trace.kind_index, {}, {}), device_step.stage)


def measured_parts(trace: RankTrace, device_step: DeviceStep) -> RankParts:
    """Return the parts of a measured step of a device of the same stage."""
    return rank_parts(match(trace, device_step), device_step.stage)


def remove_waits(ranks: list[RankParts]) -> list[RankParts]:
    """Return the ranks with the wire time of a message of several ranks set to their shortest kernel.

    The rank with the shortest kernel came last and waited for none.
    """
    wires = [rank.wire.copy() for rank in ranks]
    groups: dict[tuple[str, int], list[tuple[int, np.ndarray]]] = {}
    for rank_index, rank in enumerate(ranks):
        names = [kind.group for kind in rank.trace.kinds]
        for index, kernel_class in enumerate(rank.matched.classes):
            if kernel_class.family != "message" or kernel_class.name.startswith("stage_output"):
                continue
            positions = np.flatnonzero(rank.matched.class_index == index)
            for group in {names[kind] for kind in rank.trace.kind_index[positions]} - {""}:
                kernel_indices = positions[[names[kind] == group for kind in rank.trace.kind_index[positions]]]
                groups.setdefault((group, hash(kernel_class.key)), []).append((rank_index, kernel_indices))
    for members in groups.values():
        if len(members) > 1 and len({len(kernel_indices) for _, kernel_indices in members}) == 1:
            shortest = np.min(
                [ranks[rank_index].wire[kernel_indices] for rank_index, kernel_indices in members], axis=0
            )
            for rank_index, kernel_indices in members:
                wires[rank_index][kernel_indices] = shortest
    return [rank._replace(wire=wire) for rank, wire in zip(ranks, wires, strict=True)]


def count_tails_as_waits(ranks: list[RankParts]) -> list[RankParts]:
    """Return the ranks with time after the last kernel, beyond that of the last rank, as waits and not as gaps."""
    tails = [max(rank.trace.n_steps * rank.trace.step_seconds - float(rank.trace.end.max()), 0.0) for rank in ranks]
    adjusted = []
    for rank, tail in zip(ranks, tails, strict=True):
        extra_wait = (tail - min(tails)) / rank.trace.n_steps
        adjusted.append(rank._replace(waits=rank.waits + extra_wait, idle=rank.idle - extra_wait))
    return adjusted


def exposed_sums(rank: RankParts) -> np.ndarray:
    """Return the s a step of exposed messages: in the passes, and after them [2]."""
    matched = rank.matched
    is_after_passes = matched.of_kernels(matched.of_classes("is_after_passes"))
    is_message = matched.of_kernels(matched.is_family("message"))
    sums = [float(rank.exposed[is_message & (is_after_passes == is_late)].sum()) for is_late in (False, True)]
    return np.array(sums) / rank.trace.n_steps


def short_gap_seconds(rank: RankParts, max_seconds: float) -> float:
    """Return the s a step without a kernel in gaps of at most ``max_seconds``."""
    gaps = kernel_gaps(rank)
    return float(gaps[gaps <= max_seconds].sum()) / rank.trace.n_steps


def kernel_gaps(rank: RankParts) -> np.ndarray:
    """Return the lengths of gaps between kernels above 0.1 µs, in all steps, s [gaps]."""
    gaps = np.maximum(rank.trace.start[1:] - np.maximum.accumulate(rank.trace.end)[:-1], 0.0)
    return np.asarray(gaps[gaps > 1e-7])


def paid_delays(rank: RankParts, extra_seconds: np.ndarray) -> np.ndarray:
    """Return the exposed seconds that longer messages cost, negative where they are shorter [kernels].

    A delay is handed on to the next message in a row until nothing hides it.

    Args:
        rank: a rank.
        extra_seconds: s by which each kernel of a message takes longer; 0 for others [kernels].

    Returns:
        Seconds of each kernel [kernels].
    """
    trace, paid_seconds = rank.trace, np.zeros(len(extra_seconds))
    for stream in np.unique(trace.stream[extra_seconds != 0.0]):
        delay, previous_end = 0.0, -np.inf
        for i in np.flatnonzero(trace.stream == stream):
            delay = extra_seconds[i] + (delay if trace.start[i] - previous_end < _IN_A_ROW else 0.0)
            paid_seconds[i] = min(delay, rank.exposed[i]) if delay > 0.0 else max(delay, -rank.exposed[i])
            delay, previous_end = delay - paid_seconds[i], trace.end[i]
    return paid_seconds


def family_seconds(rank: RankParts, family: str) -> tuple[float, float]:
    """Return (measured, predicted) s a step of the kernels of a family, predicted for as many as ran."""
    is_family = rank.matched.is_family(family)
    return float(rank.matched.seconds[is_family].sum()), float(rank.matched.expected[is_family].sum())


def steady_ratio(ranks: list[RankParts], family: str) -> float:
    """Return the geometric mean over launches of measured over predicted time of a family's kernels; 1 if none ran."""
    logs = weights = 0.0
    for matched in (rank.matched for rank in ranks):
        has_run = matched.is_family(family) & (matched.launches > 0.0)
        launches = matched.launches[has_run]
        logs += float((launches * np.log(matched.seconds[has_run] / matched.expected[has_run])).sum())
        weights += float(launches.sum())
    return math.exp(logs / weights) if weights else 1.0
