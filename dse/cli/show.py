"""What commands print with: units a person reads, tables, errors, JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dse.errors import InputError

GIB = 2.0**30

_LARGE = [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]
_SMALL = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]

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


def heading(out: Console, text: str) -> None:
    """An empty line and a bold one."""
    out.print()
    out.print(Text(text, "bold"))


def seconds(value: float) -> str:
    """A time in s, ms, µs or ns."""
    if not value:
        return "0 s"
    scale, units = next((s for s in _SMALL if abs(value) >= s[0]), _SMALL[-1])
    return f"{digits(value / scale)} {units}"


def gib(value: float) -> str:
    """Bytes in GiB."""
    return f"{digits(value / GIB)} GiB"


def percent(share: float | None) -> str:
    """A share in per cent."""
    return "–" if share is None else f"{100 * share:.1f} %"


def quantity(value: float, units: str) -> str:
    """A value in SI units as a person writes it."""
    if units == "s":
        return seconds(value)
    if units == "B" and value >= 2**20:
        return gib(value)
    if units == "1":
        return f"{value:,.4g}" if value < 1e6 else prefixed(value).strip()
    return prefixed(value) + {"s-1": "/s"}.get(units, units)


def prefixed(value: float) -> str:
    """A number with an SI prefix: ``312 T``."""
    scale, prefix = next((s for s in _LARGE if abs(value) >= s[0]), (1.0, ""))
    return f"{digits(value / scale)} {prefix}"


def digits(value: float) -> str:
    """A number with three significant digits, without an exponent where it is readable."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    places = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.3g}" if places > 6 else f"{value:,.{max(0, places)}f}"
