"""Output of commands: readable units, tables, errors, JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dse.errors import InputError
from dse.io import counted, digits, duration, percent, quantity, seconds, setting
from dse.io.quantities import GIB, gib, prefixed, span
from dse.io.terminal import TerminalConsole

__all__ = [
    "GIB", "console", "counted", "digits", "document", "duration", "error", "gib", "heading", "note", "percent",
    "prefixed", "print_table", "print_unwrapped", "quantity", "seconds", "setting", "span", "table",
]  # fmt: skip

#: Spaces between columns of a table; minimum width of prose.
_GAP, _PROSE = 2, 24

#: Width of tables where the output is not a terminal.
_FILE_WIDTH = 160


class _Console(TerminalConsole):
    """A console that raises BrokenPipeError where the reader has closed the output."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError that rich would turn into an exit."""
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """Return the console of standard output or error: as wide as the terminal, of a fixed width for files and pipes."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    return _Console(stderr=stderr, width=width, soft_wrap=False)


def document(value: Any, indent: int | None = 2, default: Callable[[Any], Any] | None = None) -> None:
    """Print one JSON document on standard output, with null for values that are not finite.

    Args:
        value: dictionaries, lists, texts and numbers.
        indent: spaces, None for one line.
        default: converts other values, as of ``json.dumps``.
    """
    text = json.dumps(_finite(value), indent=indent, allow_nan=False, default=default)
    print(text.replace("\x7f", "\\u007f"))  # the one control code that json leaves as it is


def _finite(value: Any) -> Any:
    """Return a copy of JSON values with keys as texts, tuples as lists, and None for floats that are not finite."""
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def error(problem: InputError) -> None:
    """Print the four parts of an InputError on standard error, one per line."""
    out = console(stderr=True)
    out.print(Text("error", "bold red"))
    for part in ("where", "got", "allowed", "fix"):
        out.print(Text(f"  {part:8}", "bold") + Text(getattr(problem, part)), soft_wrap=True)


def note(text: str) -> None:
    """Print a line on standard error."""
    console(stderr=True).print(Text(text), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> Table:
    """Build a rich table without borders, right-aligned except for the columns in ``left``."""
    rich_table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in columns:
        rich_table.add_column(Text(name), justify="left" if name in left else "right", no_wrap=name not in left)
    for row in rows:
        rich_table.add_row(*map(Text, row))
    return rich_table


def print_table(
    out: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Sequence[str] = (),
    *,
    keys: int = 1,
    prose: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table without truncation on a terminal of any width.

    Where it is too wide, the columns in ``spare`` are left out first. Then it is split into several tables one below
    the other, each with the first ``keys`` columns.

    Args:
        out: output console.
        columns: headings.
        rows: cells, one per heading.
        left: left-aligned columns.
        keys: number of columns that name a row.
        prose: columns whose cells may be wrapped.
        spare: columns to leave out where there is no room.
    """
    cells = [list(row) for row in rows]
    widths = [max(cell_len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    widths = [min(width, _PROSE) if name in prose else width for name, width in zip(columns, widths, strict=True)]
    for part in _split_columns(columns, widths, out.width, keys, spare):
        rich_table = table([columns[i] for i in part], [[row[i] for i in part] for row in cells], left)
        for column, i in zip(rich_table.columns, part, strict=True):
            column.no_wrap, column.overflow = columns[i] not in prose, "fold"
        print_unwrapped(out, rich_table, sum(widths[i] + _GAP for i in part))


def _split_columns(
    columns: Sequence[str], widths: Sequence[int], width: int, keys: int, spare: Sequence[str]
) -> list[list[int]]:
    """Return for each table to print the indices of its columns, ``keys`` first; ``spare`` ones go where too wide."""
    indices = list(range(len(columns)))
    for name in reversed(spare):
        if sum(widths[i] + _GAP for i in indices) > width + _GAP:
            indices.remove(list(columns).index(name))
    names, parts = indices[:keys], [indices[:keys]]
    for i in indices[keys:]:
        if len(parts[-1]) > keys and sum(widths[j] + _GAP for j in [*parts[-1], i]) > width + _GAP:
            parts.append([*names])
        parts[-1].append(i)
    return parts


def print_unwrapped(out: Console, rich_table: Table, width: int) -> None:
    """Print a table of ``width`` characters without wrapping its cells, on a terminal of any width."""
    console_width = out.width
    out.width = max(console_width, width)
    out.print(rich_table, crop=False)
    out.width = console_width


def heading(out: Console, text: str) -> None:
    """Print an empty line and a bold one."""
    out.print()
    out.print(Text(text, "bold"))
