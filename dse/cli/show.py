"""What commands print with: units a person reads, tables, errors, JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dse.errors import InputError
from dse.io.quantities import GIB, counted, digits, gib, percent, prefixed, quantity, seconds, setting

__all__ = [
    "GIB", "console", "counted", "digits", "document", "error", "gib", "heading", "note", "percent", "prefixed",
    "print_table", "print_whole", "quantity", "seconds", "setting", "table",
]  # fmt: skip

#: Columns between those of a table; columns of the terminal that prose wants at least.
_GAP, _PROSE = 2, 24

#: Width of tables where the output is no terminal.
_FILE_WIDTH = 160


class _Console(Console):
    """A console that leaves it to the command to end when the reader has gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """Where to print; files and pipes get lines long enough for the tables."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    return _Console(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def document(value: Any) -> None:
    """One JSON document on standard output; what is not finite is null."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def error(problem: InputError) -> None:
    """The four parts of an InputError, one a line."""
    out = console(stderr=True)
    out.print(Text("error", "bold red"))
    for part in ("where", "got", "allowed", "fix"):
        out.print(Text(f"  {part:8}", "bold") + Text(getattr(problem, part)), soft_wrap=True)


def note(text: str) -> None:
    """A line on standard error."""
    console(stderr=True).print(Text(text), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> Table:
    """A plain table, right-aligned but for the columns in ``left``."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in columns:
        made.add_column(Text(name), justify="left" if name in left else "right", no_wrap=name not in left)
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def print_table(
    out: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = (), *,
    keys: int = 1, prose: Sequence[str] = (), spare: Sequence[str] = (),
) -> None:
    """Print a table that loses nothing, however narrow the terminal is.

    Where it is too wide, the columns in ``spare`` go first, for they say again what others say. Then it is parted into
    several tables below one another, each with the first ``keys`` columns.

    Args:
        out: where to print.
        columns: headings.
        rows: cells, as many as there are headings.
        left: columns that are aligned to the left.
        keys: how many of the first columns name a row.
        prose: columns whose cells may be broken into lines.
        spare: columns to leave out where there is no room for them.
    """
    cells = [list(row) for row in rows]
    widths = [max(cell_len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    widths = [min(width, _PROSE) if name in prose else width for name, width in zip(columns, widths, strict=True)]
    for part in _parted(columns, widths, out.width, keys, spare):
        made = table([columns[i] for i in part], [[row[i] for i in part] for row in cells], left)
        for column, i in zip(made.columns, part, strict=True):
            column.no_wrap, column.overflow = columns[i] not in prose, "fold"
        print_whole(out, made, sum(widths[i] + _GAP for i in part))


def _parted(
    columns: Sequence[str], widths: Sequence[int], room: int, keys: int, spare: Sequence[str]
) -> list[list[int]]:
    """The columns of every table that a table is parted into."""
    wanted = list(range(len(columns)))
    for name in reversed(spare):
        if sum(widths[i] + _GAP for i in wanted) > room + _GAP:
            wanted.remove(list(columns).index(name))
    names, parts = wanted[:keys], [wanted[:keys]]
    for i in wanted[keys:]:
        if len(parts[-1]) > keys and sum(widths[j] + _GAP for j in [*parts[-1], i]) > room + _GAP:
            parts.append([*names])
        parts[-1].append(i)
    return parts


def print_whole(out: Console, made: Table, width: int) -> None:
    """Print a table that takes this many columns: a terminal breaks lines that are too long, nothing is cut off."""
    room = out.width
    out.width = max(room, width)
    out.print(made, crop=False)
    out.width = room


def heading(out: Console, text: str) -> None:
    """An empty line and a bold one."""
    out.print()
    out.print(Text(text, "bold"))
