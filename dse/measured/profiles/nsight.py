"""Exports of Nsight Systems (``nsys export --type sqlite``): kernels of one process, steps by ranges of NVTX.

What a step is ``device_steps`` says, from ranges and from the launches of kernels. Tables are scanned, not joined:
work and memory grow with the size of the file alone.

A database of a stranger may define what is computed whenever it is read: generated columns, views, virtual tables. None
of them is read: tables alone, texts within a size. Pages of a damaged tree may be children of many others, so that a
few pages have any number of rows: SQLite counts its instructions, which a file of a size has so many of.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.io import inputs
from dse.measured.profiles.device_steps import Marks
from dse.measured.profiles.kernels import COPY_CLASS, MESSAGE_CLASS, KernelTimes, kernel_class, profiled_runs
from dse.measured.profiles.messages import message_of, positive_int
from dse.measured.profiles.run import ALLOWED, MeasuredRun, device_cells
from dse.measured.table import joined_remarks

__all__ = ["SIGNATURE", "read"]

#: Bytes of an export, and names of its kernels.
_LIMIT, _MAX_NAMES = 256 << 30, 20_000

_KERNELS, _RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"
_NAMES, _GPUS = "StringIds", "TARGET_INFO_GPU"
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"

#: Process of a global identifier of a process or thread, in SQL.
_PROCESS = "({} / 16777216 % 16777216)"


#: Columns that are read, and those of them that an export may lack: of one without processes all kernels count.
_COLUMNS = {
    _KERNELS: ("start", "end", "deviceId", "globalPid", "demangledName", "correlationId"), _NAMES: ("id", "value"),
    _RANGES: ("start", "end", "text", "textId", "globalTid"), _GPUS: ("id", "name"),
    **dict.fromkeys(_COPIES, ("start", "end", "deviceId", "globalPid", "correlationId")),
    _LAUNCHES: ("start", "globalTid", "correlationId"),
}  # fmt: skip
_OPTIONAL = frozenset(("globalPid", "globalTid", "correlationId"))


def read(path: Path, pattern: str = "") -> list[MeasuredRun]:
    """Read the runs of an export: step times, and ms a step by class of kernels.

    Args:
        path: of the export.
        pattern: of names of ranges that mark a step, in place of the table's.
    """
    with open_database(path, _LIMIT, ALLOWED) as database:
        tables = database.tables() & _COLUMNS.keys()
        if not {_KERNELS, _NAMES} <= tables:
            raise InputError(str(path), "a database without kernels", ALLOWED, "nsys export --type sqlite, of a GPU")
        lacks = {table: database.check(table, _COLUMNS[table], _OPTIONAL) for table in sorted(tables)}
        return _runs(path, _Export(database, tables, lacks), pattern)


class _Export(NamedTuple):
    """An open export with its tables and the optional columns that each of them lacks."""

    database: Database
    tables: set[str]
    lacks: dict[str, frozenset[str]]

    def of_process(self, table: str, column: str, process: int) -> str:
        """Return the condition in SQL for the rows of a process, true where a table tells no processes."""
        is_told = "globalPid" not in self.lacks[_KERNELS] and column not in self.lacks[table]
        return "1" if not is_told else f"{_PROCESS.format(column)} = {process}"

    def column(self, table: str, column: str) -> str:
        """Return a column in SQL, 0 where the table lacks it."""
        return "0" if column in self.lacks[table] else column


def _runs(path: Path, export: _Export, pattern: str) -> list[MeasuredRun]:
    """Return the runs of an export's first process and device."""
    database, tables = export.database, export.tables
    owner = "0" if "globalPid" in export.lacks[_KERNELS] else _PROCESS.format("globalPid")
    first = f"SELECT {owner}, deviceId FROM {_KERNELS} ORDER BY 1, 2 LIMIT 1"
    process, device = map(int, next(database.rows(first), (0, 0)))
    kernels, marks = KernelTimes(path), Marks(pattern)

    def kernel_filter(table: str) -> str:
        return f"deviceId = {device} AND {export.of_process(table, 'globalPid', process)}"

    names = _names(path, database, kernel_filter(_KERNELS), marks)
    for table in (_KERNELS, *sorted(tables & set(_COPIES))):
        name_column = "demangledName" if table == _KERNELS else "NULL"
        query = (
            f"SELECT start, end, {name_column}, {export.column(table, 'correlationId')} FROM {table} "
            f"WHERE {kernel_filter(table)}"
        )
        for start, end, number, correlation in _spans(database, query):
            name = "Memcpy" if table != _KERNELS else names.get(number, "None")
            label = kernel_class(name) if table == _KERNELS else COPY_CLASS
            message = message_of(name.partition("(")[0], None) if label == MESSAGE_CLASS else None
            kernels.add(name, label, start, end - start, message, correlation)
    if _LAUNCHES in tables and "correlationId" not in export.lacks[_LAUNCHES]:
        condition = export.of_process(_LAUNCHES, "globalTid", process)
        for start, _, _, correlation in _spans(
            database, f"SELECT start, start, 0, correlationId FROM {_LAUNCHES} WHERE {condition}"
        ):
            kernels.add_launch(correlation, start)
    if _RANGES in tables:
        ranges = (
            f"SELECT start, end, COALESCE(text, textId), 0 FROM {_RANGES} "
            f"WHERE end IS NOT NULL AND {export.of_process(_RANGES, 'globalTid', process)}"
        )
        for start, end, name, _ in _spans(database, ranges):
            marks.add(str(names.get(name, name))[:200].strip(), start, end - start)
    hint = 'push a range of each step, torch.cuda.nvtx.range_push(f"step {i}")'
    remark = ""
    if "globalPid" in export.lacks[_KERNELS]:
        remark = f"table {_KERNELS} has no column globalPid, so that all kernels of device {device} count"
        hint = f"{remark}; {hint}"
    runs = profiled_runs("nsight-systems", _cells(database, tables, device), kernels, marks, hint)
    for run in runs:
        run.note = joined_remarks(run.note, remark)
    return runs


def _names(path: Path, database: Database, kernel_filter: str, marks: Marks) -> dict[Any, str]:
    """Return id → name of kernels and marks of steps, or raise InputError for an id twice or too many names."""
    query = f"SELECT DISTINCT demangledName FROM {_KERNELS} WHERE {kernel_filter} AND typeof(demangledName) = 'integer'"
    kernel_name_ids = {number for (number,) in database.rows(f"{query} LIMIT {_MAX_NAMES + 1}")}
    if len(kernel_name_ids) > _MAX_NAMES:
        raise InputError(str(path), f"more than {_MAX_NAMES:,} names of kernels", ALLOWED, "profile fewer steps")
    names: dict[Any, str] = {}
    for number, value in database.rows(f"SELECT id, value FROM {_NAMES}"):
        name = str(value)[:1000]
        if number in kernel_name_ids or marks.row_of(name[:200].strip()) >= 0:
            if number in names:
                raise InputError(f"{path}: table {_NAMES}", f"id {number} twice", "each id once", "export it again")
            names[number] = name
    return names


def _spans(database: Database, query: str) -> Iterator[tuple[float, float, Any, int]]:
    """Yield (start, end, name, correlation) of the rows of a query, in µs; rows with other times are left out."""
    for start, end, name, correlation in database.rows(query):
        start_us, end_us = 1e-3 * float(start), 1e-3 * float(end)
        if -1e18 < start_us <= end_us < 1e18:  # the host may start before the zero of the clock
            yield start_us, end_us, name, positive_int(correlation)


def _cells(database: Database, tables: set[str], device: int) -> dict[str, str]:
    """Return the accelerator as the cell ``gpu``, {} where it is not known."""
    if _GPUS not in tables:
        return {}
    (name,) = next(database.rows(f"SELECT name FROM {_GPUS} WHERE id = {device}"), ("",))
    return device_cells(name)


SIGNATURE = b"SQLite format 3\x00"

#: Bytes of one text or blob, of one statement that defines a table; instructions of reading all definitions.
_TEXT, _DEFINITION, _DEFINITIONS = 16 << 20, 16_000, 20_000

#: Instructions of reading, of any file and for each of its bytes: a row of 30 B takes some 40 in three passes.
_BASE_INSTRUCTIONS, _INSTRUCTIONS_PER_BYTE = 1_000_000, 4

#: Instructions between two countings.
_COUNT_INTERVAL = 500

_TABLE = re.compile(r"CREATE TABLE\b", re.IGNORECASE)


class Database:
    """An open database of a stranger, read-only."""

    def __init__(self, path: Path, allowed: str) -> None:
        self._path, self._allowed, self._left = path, allowed, _DEFINITIONS
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _DEFINITION)
        self._connection.set_progress_handler(self._count, _COUNT_INTERVAL)
        self._connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")

    def tables(self) -> set[str]:
        """Return the names of its tables, without views and virtual ones, and allow instructions by the file's size."""
        self.rows("PRAGMA trusted_schema = OFF")
        definitions = self.rows("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        names = {str(name) for name, sql in definitions if _TABLE.match(str(sql))}
        self._left = _BASE_INSTRUCTIONS + _INSTRUCTIONS_PER_BYTE * self._path.stat().st_size
        return names

    def _count(self) -> bool:
        """Count instructions; return True to interrupt SQLite where none are left."""
        self._left -= _COUNT_INTERVAL
        return self._left < 0

    @property
    def is_spent(self) -> bool:
        """True where reading takes more instructions than files of this size need."""
        return self._left < 0

    def check(self, table: str, columns: Iterable[str], optional: Container[str] = ()) -> frozenset[str]:
        """Return the optional columns that a table lacks; InputError unless it has the others and none is computed."""
        hidden_by_column = {
            str(name): int(hidden) for _, name, *_, hidden in self.rows(f'PRAGMA table_xinfo("{table}")')
        }
        where = f"{self._path}: table {table}"
        if computed := [name for name, hidden in hidden_by_column.items() if hidden]:
            raise InputError(where, f"a computed column, {computed[0]}", "columns of stored values", "export it again")
        missing = [name for name in columns if name not in hidden_by_column]
        if needed := [name for name in missing if name not in optional]:
            raise InputError(where, f"no column {', '.join(needed)}", self._allowed, "export it with a newer version")
        return frozenset(missing)

    def rows(self, query: str) -> Iterator[Any]:
        """Return the rows of an SQL query as tuples."""
        return self._connection.execute(query)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@contextlib.contextmanager
def open_database(path: Path, limit: int, allowed: str) -> Iterator[Database]:
    """Open a database of at most ``limit`` bytes, or raise InputError for a damaged or costly one."""
    inputs.check_input(path, limit, allowed)
    database: Database | None = None
    try:
        database = Database(path, allowed)
        yield database
    except (sqlite3.Error, OverflowError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        got = "more definitions or rows than a file of its size has" if database and database.is_spent else str(error)
        raise InputError(str(path), got, allowed, "export it again: it is damaged or of a new version") from None
    finally:
        if database is not None:
            database.close()
