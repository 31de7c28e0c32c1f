"""Reports in a terminal, a pipe or a file: tables of any width, lines, notes on standard error."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dse.errors import InputError
from dse.io.terminal import TerminalConsole
from dse.reports.tables import Column, Line, Readable, Style, Table, verbatim
from dse.reports.values import plain_values

#: Spaces between columns of a table; minimum width of prose.
_GAP, _PROSE = 2, 24

#: Width of tables where the output is not a terminal and COLUMNS does not say one.
_FILE_WIDTH = 160

#: Style of a line → style of rich.
_STYLES = {Style.strong: "bold", Style.caution: "yellow", Style.fault: "bold red"}


class _Console(TerminalConsole):
    """A console that raises BrokenPipeError where the reader has closed the output."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError that rich would turn into an exit."""
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """Return the console of standard output or error: as wide as the terminal, else as COLUMNS says or 160."""
    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() else int(columns) if columns.isdecimal() and int(columns) else _FILE_WIDTH
    return _Console(stderr=stderr, width=width, soft_wrap=False)


def print_report(report: Readable, shown: Sequence[str] = ()) -> None:
    """Print a report on standard output, and its notes before it on standard error.

    Args:
        report: what to print.
        shown: names of details, or ``all``.
    """
    for text in report.notes:
        note(text)
    _print_sections(console(), report, shown)


def plain_text(report: Readable, shown: Sequence[str] = (), width: int = _FILE_WIDTH) -> str:
    """Return a report as text without colours, with its notes at the end."""
    out = io.StringIO()
    text_console = _Console(file=out, width=width, color_system=None, force_jupyter=False)
    _print_sections(text_console, report, shown)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join([*lines, *report.notes]).strip("\n")


def recorded(report: Readable, width: int) -> Console:
    """Return a console of ``width`` columns that has recorded a report, for its export.

    Args:
        report: what it has printed.
        width: columns.
    """
    out = _Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    _print_sections(out, report, ())
    return out


def _print_sections(out: Console, report: Readable, shown: Sequence[str]) -> None:
    """Print sections in their order, the paths of files, and which details there are more."""
    sections = report.selected(shown)
    for section in sections:
        if isinstance(section, Table):
            print_table(out, section)
        else:
            print_line(out, section)
    paths = [*report.files, *report.figures]
    if paths and sections:
        out.print()
    for path in paths:
        out.print(Text(str(path)), soft_wrap=True)
    hidden = [name for name in report.details if name not in shown] if "all" not in shown else []
    if hidden:
        out.print(Text(f"more: --show all, or some of {', '.join(hidden)}", "dim"))
    if report.usage:
        print_line(out, verbatim(report.usage))


def print_line(out: Console, line: Line) -> None:
    """Print lines of text; a heading after an empty line, what is verbatim never wrapped."""
    if line.style == Style.strong:
        out.print()
    is_file = out.width == _FILE_WIDTH  # long lines stay whole for programs that search them
    out.print(Text(line.text, _STYLES.get(line.style, "")), soft_wrap=line.style == Style.verbatim or is_file)


def print_table(out: Console, table: Table) -> None:
    """Print a table without truncation on a terminal of any width, below its title.

    Where it is too wide, spare columns are left out first. Then it is split into several tables one below the other,
    each with the columns that name a row.
    """
    if table.title:
        print_line(out, Line(table.title, Style.strong))
    columns, cells = table.visible, table.cells()
    texts = [[column.heading, *(row[i] for row in cells)] for i, column in enumerate(columns)]
    widths = [max(map(cell_len, column_texts)) for column_texts in texts]
    widths = [min(width, _PROSE) if column.prose else width for width, column in zip(widths, columns, strict=True)]
    for part in _parts(columns, widths, out.width, table.keys):
        rich_table = RichTable(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0)
        )
        for i in part:
            column = columns[i]
            rich_table.add_column(
                Text(column.heading),
                justify="left" if column.left else "right",
                no_wrap=not column.prose,
                overflow="fold",
            )
        for row in cells:
            rich_table.add_row(*(Text(row[i]) for i in part))
        _print_unwrapped(out, rich_table, sum(widths[i] + _GAP for i in part) - _GAP)


def _parts(columns: Sequence[Column], widths: Sequence[int], width: int, keys: int) -> list[list[int]]:
    """Return for each table to print the indices of its columns, ``keys`` first; spare ones go where too wide."""
    indices = list(range(len(columns)))
    for i in reversed(indices.copy()):
        if columns[i].spare and sum(widths[j] + _GAP for j in indices) > width + _GAP:
            indices.remove(i)
    names, parts = indices[:keys], [indices[:keys]]
    for i in indices[keys:]:
        if len(parts[-1]) > keys and sum(widths[j] + _GAP for j in [*parts[-1], i]) > width + _GAP:
            parts.append([*names])
        parts[-1].append(i)
    return parts


def _print_unwrapped(out: Console, rich_table: RichTable, width: int) -> None:
    """Print a table of ``width`` characters without wrapping its cells, on a terminal of any width."""
    console_width = out.width
    out.width = max(console_width, width)
    out.print(rich_table, crop=False)
    out.width = console_width


def print_document(value: Any, indent: int | None = 2) -> None:
    """Print one JSON document on standard output, with null for values that are not finite.

    Args:
        value: records, dictionaries, lists, texts and numbers.
        indent: spaces, None for one line.
    """
    text = json.dumps(plain_values(value), indent=indent, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"))  # the one control code that json leaves as it is


def print_error(problem: InputError) -> None:
    """Print the four parts of an InputError on standard error, one per line."""
    out = console(stderr=True)
    out.print(Text("error", "bold red"))
    for part in ("where", "got", "allowed", "fix"):
        out.print(Text(f"  {part:8}", "bold") + Text(getattr(problem, part)), soft_wrap=True)


def note(text: str) -> None:
    """Print a line on standard error."""
    console(stderr=True).print(Text(text), soft_wrap=True)
