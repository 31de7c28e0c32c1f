"""Measured and predicted timelines side by side, as a trace for ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dse.io import chrome_trace
from dse.io.chrome_trace import MICROSECONDS
from dse.lab.evidence.causes import Explained, as_dict
from dse.lab.evidence.ranks import RankParts
from dse.views.trace.kernels import DeviceStep


def write(found: Explained, path: str | Path, force: bool = False) -> None:
    """Write both timelines of each rank, one below the other; InputError where ``path`` must not be written."""
    chrome_trace.write(_events(found), {"diagnosis": as_dict(found)}, path, force)


def _events(found: Explained) -> Iterator[dict[str, Any]]:
    for number, (rank, expected) in enumerate(zip(found.ranks, found.expected, strict=True)):
        name = f"rank {rank.trace.rank}"
        for process, text in ((2 * number, f"{name}, measured"), (2 * number + 1, f"{name}, predicted")):
            yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": text}}
            yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
        yield from _measured(rank, 2 * number)
        yield from _predicted(expected, 2 * number + 1)


def _measured(rank: RankParts, process: int) -> Iterator[dict[str, Any]]:
    """Kernels of a trace under the names of the operators that they were matched to."""
    trace, classes = rank.trace, rank.matched.classes
    for kind, of, stream, start, end in zip(
        trace.kind, rank.matched.of, trace.stream, trace.start, trace.end, strict=True
    ):
        seen = trace.kinds[kind]
        name, args = (classes[of].name, {"kernel": seen.name}) if of >= 0 else (seen.name, {"matched": False})
        yield _event(name, classes[of].family if of >= 0 else "not matched", process, int(stream), start, end, args)


def _predicted(expected: DeviceStep, process: int) -> Iterator[dict[str, Any]]:
    for one in expected.kernels:
        args = {"pass": one.of_pass, "micro_batch": one.micro_batch}
        yield _event(one.label, one.family, process, one.stream, one.start, one.end, args)


def _event(
    name: str, family: str, process: int, stream: int, start: float, end: float, args: dict[str, Any]
) -> dict[str, Any]:
    begin, length = (round(float(seconds) * MICROSECONDS, 3) for seconds in (start, end - start))
    return {
        "ph": "X",
        "name": name,
        "cat": family,
        "pid": process,
        "tid": stream,
        "ts": begin,
        "dur": length,
        "args": args,
    }
