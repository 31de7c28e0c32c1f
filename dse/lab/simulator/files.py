"""Files of a simulation: a line or a value per request, and a timeline of steps for trace viewers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.io import chrome_trace, outputs
from dse.io.chrome_trace import MICROSECONDS
from dse.io.files import MARK
from dse.lab.simulator.load import Floats
from dse.lab.simulator.run import Simulation
from dse.lab.simulator.scheduler import RankResult, StepRecord
from dse.lab.simulator.summary import latencies

#: Column of a file → column of a simulation, units, what it is.
_COLUMNS = {
    "arrival_s": ("arrival", "s", "arrival"), "rank": ("rank", "1", "data-parallel rank"),
    "prompt_tokens": ("prompt", "1", "prompt tokens"), "answer_tokens": ("answer", "1", "output tokens"),
    "cached_tokens": ("hit", "1", "prompt tokens found in the prefix cache"),
    "admitted_s": ("admitted", "s", "first admission"), "first_token_s": ("first", "s", "first token in the engine"),
    "finish_s": ("finish", "s", "last token in the engine"),
    "preemptions": ("preemptions", "1", "times that its cache was taken"),
    "request_time": ("request_time", "s", "outside the engine, in time_to_first_token and request_latency"),
}  # fmt: skip

#: Requests drawn in a timeline, and its steps.
_MAX_EVENTS = 20_000


def format_of(path: Path) -> str:
    """Return the ending of a results file in lower case, ``.nc`` or ``.csv``.

    Raises:
        InputError: for another ending.
    """
    if path.suffix.lower() not in (".nc", ".csv"):
        raise InputError(f"output {path}", repr(path.suffix), ".nc (netCDF) or .csv", f"name {path.with_suffix('.nc')}")
    return path.suffix.lower()


def write(simulation: Simulation, path: Path, attributes: dict[str, Any], force: bool = False) -> None:
    """Write a value per request and column as CSV or netCDF, in the order of arrival.

    Args:
        simulation: of any design.
        path: file, ``.nc`` or ``.csv``.
        attributes: global attributes of a netCDF file.
        force: replace a file that dse has not written.

    Raises:
        InputError: where the file must not be written.
    """
    columns = {name: simulation.column(column) for name, (column, *_) in _COLUMNS.items()} | latencies(simulation)
    with outputs.replacing(path, force) as partial:
        if format_of(path) == ".csv":
            _write_csv(partial, columns)
        else:
            _write_netcdf(partial, columns, attributes)


def _write_csv(path: Path, columns: dict[str, Floats]) -> None:
    """Write columns, name → values [request], as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows([f"{value:.9g}" for value in row] for row in np.array([*columns.values()]).T.tolist())


def _write_netcdf(path: Path, columns: dict[str, Floats], attributes: dict[str, Any]) -> None:
    """Write columns, name → values [request], as netCDF with units."""
    import netCDF4

    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        file.createDimension("request", len(columns["arrival_s"]))
        for name, values in columns.items():
            _, units, long_name = _COLUMNS.get(name, (name, "s", name.replace("_", " ")))
            variable = file.createVariable(name, "f8", ("request",), compression="zlib", complevel=1)
            variable[:], variable.units, variable.long_name = values, units, long_name
        file.setncatts({"note": MARK, **{name: value for name, value in attributes.items() if value is not None}})


def write_timeline(simulation: Simulation, path: Path, metadata: dict[str, Any], force: bool = False) -> None:
    """Write steps and requests as a Chrome trace (ui.perfetto.dev), one process per rank.

    Args:
        simulation: with records of steps.
        path: JSON file.
        metadata: of the trace.
        force: replace a file that dse has not written.
    """
    events = (event for rank_index, rank in enumerate(simulation.ranks) for event in _rank_events(rank_index, rank))
    chrome_trace.write(events, metadata, path, force)


def _rank_events(rank_index: int, rank: RankResult) -> Iterator[dict[str, Any]]:
    """Yield the steps and requests of a rank as trace events."""
    yield {"ph": "M", "name": "process_name", "pid": rank_index, "args": {"name": f"rank {rank_index}"}}
    yield {"ph": "M", "name": "thread_name", "pid": rank_index, "tid": 0, "args": {"name": "steps"}}
    for record in rank.records[:_MAX_EVENTS]:
        yield from _step_events(rank_index, record)
    columns = (rank.requests.arrival, rank.admitted, rank.first, rank.finish)
    for request_index, (arrival, admitted, first, finish) in enumerate(zip(*columns, strict=True)):
        if request_index >= _MAX_EVENTS or (rank.records and arrival > rank.records[:_MAX_EVENTS][-1].start):
            break
        parts = (("queue", arrival, admitted), ("prefill", admitted, first), ("decode", first, finish))
        for name, start, end in parts:
            ends = {"cat": "request", "id": f"{rank_index}.{request_index}", "pid": rank_index, "tid": 1, "name": name}
            yield {**ends, "ph": "b", "ts": start * MICROSECONDS}
            yield {**ends, "ph": "e", "ts": end * MICROSECONDS}


def _step_events(rank_index: int, record: StepRecord) -> Iterator[dict[str, Any]]:
    """Yield a step and its counters as trace events."""
    name = f"decode x {record.steps}" if not record.prompt else "mixed" if record.sequences else "prefill"
    start = round(record.start * MICROSECONDS, 3)
    work = {"sequences": record.sequences, "prompt_tokens": record.prompt, "steps": record.steps}
    times = {"ts": start, "dur": round(record.seconds * MICROSECONDS, 3)}
    yield {"ph": "X", "name": name, "cat": "step", "pid": rank_index, "tid": 0, **times, "args": work}
    counts = {"decoding": record.sequences, "waiting": record.waiting, "running": record.running}
    for counter, value in (counts | {"cache blocks": record.blocks}).items():
        yield {"ph": "C", "name": counter, "pid": rank_index, "ts": start, "args": {"value": value}}
