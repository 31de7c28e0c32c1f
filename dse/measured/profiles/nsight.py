"""Exports of Nsight Systems (``nsys export --type sqlite``): kernels of one process, steps by ranges of NVTX.

A step is a range named ``step 3``, ``iteration3`` or ``ProfilerStep#3``. The file is opened read-only; only tables are
read, no views.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.io import inputs
from dse.measured.profiles.kernels import OF_COPIES, KernelTimes, class_of, full, run_of
from dse.measured.profiles.run import ALLOWED, MeasuredRun, accelerator

SIGN = b"SQLite format 3\x00"

_LIMIT = 256 << 30
_STEP = re.compile(r"(?:ProfilerStep#|(?:iteration|iter|step)[ _:#]*)([0-9]{1,12})", re.IGNORECASE)

_KERNELS, _RANGES, _NAMES = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "StringIds"
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")

#: Process of a global identifier of a process or thread, in SQL.
_PROCESS = "({} / 16777216 % 16777216)"


def read(path: Path) -> MeasuredRun:
    """The run of an export: its step time, and time by class of kernels in ms a step."""
    inputs.checked(path, _LIMIT, ALLOWED)
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {_KERNELS, _NAMES} <= tables:
            raise InputError(str(path), "a database without kernels", ALLOWED, "nsys export --type sqlite, of a GPU")
        return _run(path, database, tables)
    except (sqlite3.Error, OverflowError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(path), str(error), ALLOWED, "export it again: it is damaged or of a new version") from None
    finally:
        database.close()


def _run(path: Path, database: sqlite3.Connection, tables: set[str]) -> MeasuredRun:
    first = f"SELECT {_PROCESS.format('globalPid')}, deviceId FROM {_KERNELS} ORDER BY 1, 2 LIMIT 1"
    process, device = next(iter(database.execute(first)), (0, 0))
    own, kernels = f"deviceId = {int(device)} AND {_PROCESS.format('globalPid')} = {int(process)}", KernelTimes()
    named = f"SELECT start, end, s.value FROM {_KERNELS} LEFT JOIN {_NAMES} s ON s.id = demangledName WHERE {own}"
    for start, end, name in _spans(database, named):
        full(path, kernels)
        label = class_of(str(name)[:1000])
        kernels.add(label, start, end - start, (str(name).partition("(")[0][:40], 0, 0) if label == 0 else None)
    for table in tables & set(_COPIES):
        for start, end, _ in _spans(database, f"SELECT start, end, 0 FROM {table} WHERE {own}"):
            full(path, kernels)
            kernels.add(OF_COPIES, start, end - start)
    steps: dict[int, tuple[float, float]] = {}
    if _RANGES in tables:
        ranges = (
            f"SELECT start, end, COALESCE(text, s.value) FROM {_RANGES} LEFT JOIN {_NAMES} s ON s.id = textId "
            f"WHERE end IS NOT NULL AND {_PROCESS.format('globalTid')} = {int(process)}"
        )
        for start, end, name in _spans(database, ranges):
            if (step := _STEP.fullmatch(str(name).strip())) and end > start:
                steps[int(step[1])] = start, end - start
    mark = 'push a range of each step, torch.cuda.nvtx.range_push(f"step {i}")'
    return run_of(path, "nsight-systems", _cells(database, tables, int(device)), steps, kernels, mark)


def _spans(database: sqlite3.Connection, query: str) -> Iterator[tuple[float, float, Any]]:
    """(start, end, name) of the rows of a query, µs."""
    for start, end, name in database.execute(query):
        begun, ended = 1e-3 * float(start), 1e-3 * float(end)
        if 0.0 <= begun <= ended < 1e18:
            yield begun, ended, name


def _cells(database: sqlite3.Connection, tables: set[str], device: int) -> dict[str, str]:
    if "TARGET_INFO_GPU" not in tables:
        return {}
    row = next(iter(database.execute(f"SELECT name FROM TARGET_INFO_GPU WHERE id = {device}")), ("",))
    slug = accelerator(str(row[0]))
    return {"gpu": slug} if slug else {}
