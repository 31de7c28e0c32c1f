"""Kernels of a profile: sums by class a step, communication that nothing hides, gaps."""

from __future__ import annotations

import functools
import re
from array import array
from collections import Counter
from pathlib import Path

import numpy as np

from dse.errors import InputError
from dse.io import toml
from dse.measured.profiles import messages
from dse.measured.profiles.device_steps import DeviceSteps, KernelArrays, Marks, StepKind, device_steps
from dse.measured.profiles.messages import TracedMessage
from dse.measured.profiles.run import ALLOWED, Figure, MeasuredRun, number_text

#: Kernels of one profile, 31 bytes each; launches of the host; names that are told apart.
MAX_KERNELS, _MAX_LAUNCHES, _MAX_NAMES = 50_000_000, 200_000_000, 100_000

#: Kinds of steps of an engine that have a run each, those with most steps.
_MAX_KINDS = 8

#: Parts that sum to the length of a step.
_OF_LENGTH = ("compute", "exposed_nccl", "gap")

#: Relative difference from which on the steps of the host are not those of the device.
_HOST_DIFFERENCE = 0.02

#: Rows of ``kernel_names.toml``.
KERNEL_NAMES = toml.table(Path(__file__).with_name("kernel_names.toml"))


def name_patterns(table: str) -> dict[str, re.Pattern[str]]:
    """Return kind → pattern of the names of its kernels, in the order in which they count.

    Args:
        table: of ``kernel_names.toml``.
    """
    return {kind: re.compile(words, re.IGNORECASE) for kind, words in KERNEL_NAMES[table].items()}


#: Classes of kernels by their names; the first that is found counts.
CLASSES = name_patterns("classes")
COPIES, _OTHER_KERNELS = "memcpy", "other"
_LABELS = (*CLASSES, COPIES, _OTHER_KERNELS)

#: Index of the class of collectives.
MESSAGE_CLASS = _LABELS.index("nccl")


class KernelTimes:
    """Kernels and copies of a profile with the launches of the host, in µs.

    Args:
        path: of the profile, for errors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start, self.end, self.label = array("d"), array("d"), array("B")
        self._name, self._device, self._correlation = array("i"), array("h"), array("q")
        self._launch_correlation, self._launch_time = array("q"), array("d")
        self._names: dict[str, int] = {}
        self._messages: dict[TracedMessage, array[int]] = {}

    def add(
        self,
        name: str,
        label: int,
        start_us: float,
        duration_us: float,
        message: TracedMessage | None = None,
        correlation: int = 0,
        device: int = 0,
    ) -> None:
        """Add one kernel by its name and the index of its class, with the message that it is and its launch.

        Raises InputError for more than ``MAX_KERNELS`` kernels.
        """
        if (index := len(self.start)) >= MAX_KERNELS:
            raise InputError(str(self.path), f"more than {MAX_KERNELS:,} kernels", ALLOWED, "profile fewer steps")
        self.start.append(start_us)
        self.end.append(start_us + duration_us)
        self.label.append(label)
        names = self._names
        self._name.append(names.setdefault(name, len(names)) if len(names) < _MAX_NAMES else names.get(name, 0))
        self._device.append(device & 0x7FFF)
        self._correlation.append(correlation)
        if message is not None and (message in self._messages or len(self._messages) < 10_000):
            self._messages.setdefault(message, array("q")).append(index)

    def add_launch(self, correlation: int, time_us: float) -> None:
        """Add one call of the host by its correlation, that of the kernels that it launches."""
        if len(self._launch_time) < _MAX_LAUNCHES:
            self._launch_correlation.append(correlation)
            self._launch_time.append(time_us)

    def has_name(self, pattern: re.Pattern[str]) -> bool:
        """Return whether the name of some kernel has a pattern."""
        return any(pattern.search(name) for name in self._names)

    def of_main_device(self) -> tuple[KernelArrays, np.ndarray, dict[TracedMessage, np.ndarray], int]:
        """Return the kernels of the device with most of them, their class indices, indices of messages, and devices."""
        device = np.array(self._device, np.int16)
        counts = np.bincount(device) if len(device) else np.zeros(1, np.int64)
        keep = device == int(counts.argmax())
        position = np.cumsum(keep) - 1
        arrays = KernelArrays(
            np.array(self.start, float)[keep],
            np.array(self.end, float)[keep],
            np.array(self._name, np.int64)[keep],
            np.array(self._correlation, np.int64)[keep],
            np.array(self._launch_correlation, np.int64),
            np.array(self._launch_time, float),
        )
        indices = {message: np.array(members, np.int64) for message, members in self._messages.items()}
        kept = {message: position[members[keep[members]]] for message, members in indices.items()}
        return arrays, np.array(self.label, np.uint8)[keep], kept, int((counts > 0).sum())


@functools.lru_cache(maxsize=10_000)
def kernel_class(name: str) -> int:
    """Return the index of the class of a kernel by its name, that of other kernels where no word is in it."""
    return next(
        (i for i, pattern in enumerate(CLASSES.values()) if pattern.search(name)), _LABELS.index(_OTHER_KERNELS)
    )


#: Index of the class of copies.
COPY_CLASS = _LABELS.index(COPIES)


def profiled_runs(
    tool: str, cells: dict[str, str], kernels: KernelTimes, marks: Marks, mark_hint: str
) -> list[MeasuredRun]:
    """Return the runs of a profile with their step times, ms by class of kernels, and notes.

    Training is one run, a serving engine one for each of its phases and numbers of requests. The first step is left out
    where there are more: it pays for the profiler.

    Args:
        tool: that wrote the profile.
        cells: of the runs.
        kernels: of all devices, of which that with most kernels counts.
        marks: of steps.
        mark_hint: how to mark steps.

    Raises:
        InputError: for a profile without steps.
    """
    arrays, labels, message_indices, n_devices = kernels.of_main_device()
    steps = device_steps(arrays, marks)
    if steps is None:
        raise InputError(
            str(kernels.path),
            f"no marked steps{_kernels_text(arrays, labels)}",
            "a profile with steps, or with kernels that repeat from step to step",
            f"{mark_hint}, and profile again; or name the mark, --set step_mark=PATTERN",
        )
    parts = _parts(arrays, labels, steps)
    groups: dict[StepKind, list[int]] = {}
    for index, name in enumerate(steps.names):
        kind = marks.kind_of(name)
        groups.setdefault(StepKind(kind.phase, kind.requests), []).append(index)
    runs = []
    for kind, indices in sorted(groups.items(), key=lambda item: -len(item[1]))[:_MAX_KINDS]:
        counted = steps.counted(indices)
        is_engine, is_whole = bool(kind.phase), bool(steps.is_whole[counted].any())
        busy = parts["compute"] + parts["exposed_nccl"]
        run = _run(tool, cells, steps, indices, marks, busy if is_engine and not is_whole else steps.length)
        if run is None:
            continue
        runs.append(run)
        if not len(labels):  # a host alone
            continue
        timed = steps.timed(counted)
        values = {
            name: 1e-3 * float(np.median(part[timed if name in _OF_LENGTH or steps.how == "annotations" else counted]))
            for name, part in parts.items()
        }
        run.shares = {
            f"{name}_ms": number_text(value) for name, value in values.items() if value > 0.0 or name == "gap"
        }
        run.note = _kind_text(kind) + _parts_text(values) + _host_text(steps, counted)
        if not is_whole:
            what = "its time with kernels counts" if is_engine else "it may be longer"
            run.note += f"; no next step says when this one ends: {what}"
        run.note += f"; kernels of one of {n_devices} devices" if n_devices > 1 else ""
        run.note += messages.text(message_indices, arrays, steps, indices, cells.get("gpu", ""))
    if not runs:
        phases = ", ".join(sorted({kind.phase for kind in groups} - {""})) or "no length"
        raise InputError(
            str(kernels.path), f"steps of {phases} alone", "training, prefill or decode", "profile more steps"
        )
    return runs


def _run(
    tool: str, cells: dict[str, str], steps: DeviceSteps, indices: list[int], marks: Marks, length: np.ndarray
) -> MeasuredRun | None:
    """Return the run of steps that are alike, with its times; None for a phase that no table has, or no time.

    ``length``: µs of each step [steps].
    """
    kinds = [marks.kind_of(steps.names[index]) for index in indices]
    phase, requests = kinds[0].phase, kinds[0].requests
    chosen = {index for index in steps.timed(steps.counted(indices)).tolist() if length[index] > 0.0}
    if not chosen:
        return None
    if not phase:
        run = MeasuredRun(tool, "steps", dict(cells))
        metric = "iteration_time"
    elif phase in ("prefill", "decode") and requests:
        totals = [kind.context if phase == "decode" else kind.tokens for kind in kinds]
        tokens = round(float(np.median(totals)) / requests)
        prompt = tokens - 1 if phase == "decode" else tokens  # the first token of an answer is that of the prefill
        known = {"isl": str(prompt)} if prompt > 0 else {}
        engine_cells = {"framework": marks.engine} if marks.engine else {}
        known |= {"osl": "2" if phase == "decode" else "1", "batch": str(requests), "batch_kind": "static batch"}
        run = MeasuredRun(tool, "serving", cells | engine_cells | known)
        metric = "tpot_mean" if phase == "decode" else "ttft_mean"
    else:
        return None
    first = [index for index in indices if index not in chosen and index < min(chosen)][:1]
    run.warm_up = len(first)
    for index in [*first, *sorted(chosen)]:
        number = re.search(r"#(\d+)$", steps.names[index])
        run.steps[int(number[1]) if number else index] = [Figure(metric, 1e-3 * float(length[index]), "ms")]
    return run


def _parts(kernels: KernelArrays, labels: np.ndarray, steps: DeviceSteps) -> dict[str, np.ndarray]:
    """Return part → µs in each step [steps].

    Classes are sums over the kernels of a step, those within another class (``[within]``) counted in it too;
    ``kernels`` is the sum of all. ``compute``, ``exposed_nccl`` and ``gap`` sum to the length of a step: the time with
    a kernel other than a message, with messages alone, and with none. ``host`` is the step of the host.
    """
    n_steps, n_labels, is_owned = len(steps.names), len(_LABELS), steps.kernel_step >= 0
    cell = steps.kernel_step[is_owned] * n_labels + labels[is_owned]
    sums = np.bincount(cell, (kernels.end - kernels.start)[is_owned], n_steps * n_labels).reshape(n_steps, n_labels)
    parts: dict[str, np.ndarray] = {name: sums[:, index].copy() for index, name in enumerate(_LABELS)}
    for name, parent in KERNEL_NAMES["within"].items():
        parts[parent] += parts[name]
    is_compute = labels != MESSAGE_CLASS
    bounds = np.stack([steps.start, steps.end])
    busy, compute = (
        np.diff(covered_until(kernels.start[chosen], kernels.end[chosen], bounds), axis=0)[0]
        for chosen in (np.ones(len(labels), bool), is_compute)
    )
    return parts | {
        "kernels": sums.sum(1),
        "compute": compute,
        "exposed_nccl": busy - compute,
        "gap": np.maximum(steps.length - busy, 0.0),
        "host": steps.host,
    }


def covered_until(start: np.ndarray, end: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the length that intervals cover before each time, in their unit [like ``times``]."""
    if not len(start):
        return np.zeros(np.shape(times))
    order = np.argsort(start, kind="stable")
    start, latest_end = start[order], np.maximum.accumulate(end[order])
    is_opening = np.concatenate([[True], start[1:] > latest_end[:-1]])
    starts, ends = start[is_opening], latest_end[np.concatenate([is_opening[1:], [True]])]
    cumulative = np.concatenate([[0.0], np.cumsum(ends - starts)])
    index = np.searchsorted(starts, times, "right")
    partial = np.where(index > 0, np.minimum(times, ends[index - 1]) - starts[index - 1], 0.0)
    return np.asarray(cumulative[np.maximum(index - 1, 0)] + partial)


def union_length(start: np.ndarray, end: np.ndarray) -> float:
    """Return the length of the union of intervals, in their unit."""
    return float(covered_until(start, end, np.array(np.inf)))


# Notes


def _kernels_text(kernels: KernelArrays, labels: np.ndarray) -> str:
    """Return how many kernels a profile without steps has, and their ms by class; "" for none."""
    if not len(labels):
        return ""
    sums = Counter[str]()
    for index, total in enumerate(np.bincount(labels, kernels.end - kernels.start)):
        sums[_LABELS[index]] += float(total)  # type: ignore[assignment]
    listing = ", ".join(f"{name} {1e-3 * total:.4g}" for name, total in sums.most_common() if total)
    span = 1e-3 * float(kernels.end.max() - kernels.start.min())
    return f" and no period in {len(labels):,} kernels of {span:.4g} ms ({listing})"


def _kind_text(kind: StepKind) -> str:
    """Return what a step of an engine does, before a colon; "" for training."""
    return f"{kind.phase} of {kind.requests} request{'s' * (kind.requests != 1)}: " if kind.phase else ""


def _parts_text(values: dict[str, float]) -> str:
    """Return the ms a step of each part as text, classes within another one after it in brackets."""
    children: dict[str, list[str]] = {}
    for name, parent in KERNEL_NAMES["within"].items():
        if values[name] > 0.0:
            children.setdefault(parent, []).append(f"{name} {values[name]:.4g}")
    listing = []
    for name, value in values.items():
        if name in KERNEL_NAMES["within"] or name == "host" or (value <= 0.0 and name != "gap"):
            continue
        inner = f" ({', '.join(children[name])})" if name in children else ""
        listing.append(f"{name} {value:.4g}{inner}")
    return "ms a step: " + ", ".join(listing)


def _host_text(steps: DeviceSteps, counted: np.ndarray) -> str:
    """Return how the steps were told, where not by marks of the host alone, and what the host did meanwhile."""
    if steps.how == "period":
        return "; steps by the period of the kernels, as nothing marks them"
    if steps.how != "launches":
        return ""
    device, host = (1e-3 * float(np.median(values[counted])) for values in (steps.length, steps.host))
    lag = 1e-3 * float(np.median(steps.lag[counted]))
    text = ""
    if abs(host - device) > _HOST_DIFFERENCE * device or lag > device:
        text = f"; on the host a step takes {host:.4g} ms, {lag:.4g} ms ahead of the device"
    return text
