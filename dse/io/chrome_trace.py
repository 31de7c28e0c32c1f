"""Traces in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dse.io import outputs
from dse.io.files import MARK

#: Units of a trace per second.
MICROSECONDS = 1e6


def span(
    name: str, category: str, place: tuple[int, int], times_us: tuple[float, float], args: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a complete event.

    Args:
        name: of the event.
        category: of the event.
        place: process and thread.
        times_us: start and duration in µs.
        args: further facts, shown with the event.
    """
    (pid, tid), (ts, dur) = place, times_us
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def write(
    events: Iterable[Mapping[str, Any]],
    about: Mapping[str, Any],
    path: str | Path,
    force: bool = False,
    head: Mapping[str, Any] | None = None,
) -> None:
    """Write a trace of Chrome as JSON: metadata, then events, one a line.

    Raises:
        InputError: where ``path`` must not be written (:func:`dse.io.outputs.check_output`), or writing fails.

    Args:
        events: in Chrome's format, with times in µs.
        about: metadata of the trace.
        path: of the file.
        force: replace a regular file that dse has not written.
        head: further keys in front.
    """
    with outputs.replacing(path, force) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps({**(head or {}), "note": MARK, "displayTimeUnit": "ms", "otherData": dict(about)})[:-1])
        file.write(', "traceEvents": [\n')
        for number, event in enumerate(events):
            file.write((",\n" if number else "") + json.dumps(event))
        file.write("\n]}\n")
