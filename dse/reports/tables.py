"""Contents of a report: tables whose columns say what a cell is and how it is written, and lines of text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    >>> column = Column("step", "step_time", lambda seconds: f"{seconds:.1f} s")
    >>> column.text({"step_time": 1.25}), column.value({"step_time": 1.25}), column.text({"step_time": None})
    ('1.2 s', 1.25, '')
    >>> Column("80 % interval", "low", "{:.1f} s".format, high="high").text({"low": 1.0, "high": 2.0})
    '1.0 to 2.0 s'
    """

    heading: str
    key: str  #: name of the value in a row, in SI units, by which CSV and data frames have it
    format: Callable[[Any], str] = str  #: value → text of a cell; of None the text is empty
    left: bool = False  #: left-aligned
    prose: bool = False  #: may be wrapped
    spare: bool = False  #: left out where there is no room
    bar: bool = False  #: a share (0 to 1), drawn as a bar
    hidden: bool = False  #: in CSV and data frames alone
    high: str = ""  #: name of the upper end of an interval whose lower end the key names: both are one cell
    row_text: Callable[[Any], str] | None = None  #: row → text of the cell, where the value alone does not say it
    row_format: Callable[[Any], Callable[[Any], str]] | None = None  #: row → format, where it is of the row

    @property
    def keys(self) -> list[str]:
        """Names of its values in a row: two of an interval, none of a bar."""
        return [] if self.bar else [self.key, self.high] if self.high else [self.key]

    def values(self, row: Any) -> dict[str, Any]:
        """Return key → value of a row, a mapping or a record, in SI units; None where it has none."""
        keys = self.keys or [self.key]
        return {key: row.get(key) if isinstance(row, Mapping) else getattr(row, key) for key in keys}

    def value(self, row: Any) -> Any:
        """Return the value of a row, of an interval that of its lower end."""
        return self.values(row)[self.key]

    def text(self, row: Any) -> str:
        """Return the text of a row's cell."""
        if self.row_text is not None:
            return self.row_text(row)
        text = self.format if self.row_format is None else self.row_format(row)
        values = self.values(row).values()
        return "" if None in values else span_text(*map(text, values))


def span_text(low: str, high: str = "") -> str:
    """Return the texts of both ends of an interval as one, with the unit once where both have the same.

    Args:
        low: lower end, or the only value.
        high: upper end; "" for none.

    >>> span_text("60.2 s", "74.7 s"), span_text("0.9 ms", "1.1 s"), span_text("3 %")
    ('60.2 to 74.7 s', '0.9 ms to 1.1 s', '3 %')
    """
    number, _, units = low.partition(" ")
    same = units and high.partition(" ")[2] == units
    return f"{number if same else low} to {high}" if high else low


def bar(key: str) -> Column:
    """Return the column that draws a share (0 to 1) as a bar of up to 40 characters, where there is room."""
    return Column("", key, lambda share: "█" * round(40 * share), left=True, spare=True, bar=True)


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of values with columns that write them."""

    name: str  #: by which CSV and data frames find it
    columns: Sequence[Column]
    rows: Sequence[Any]  #: mappings, or records with the columns' keys as fields
    title: str = ""
    show: str = ""  #: detail that it belongs to; "" for what is always shown
    keys: int = 1  #: number of columns that name a row

    @property
    def visible(self) -> list[Column]:
        """Columns that people see."""
        return [column for column in self.columns if not column.hidden]

    def cells(self) -> list[list[str]]:
        """Return the texts of all visible cells, row by row."""
        return [[column.text(row) for column in self.visible] for row in self.rows]

    def values(self) -> list[dict[str, Any]]:
        """Return key → value in SI units of each row, without bars."""
        columns = [column for column in self.columns if not column.bar]
        return [{key: value for column in columns for key, value in column.values(row).items()} for row in self.rows]


class Style(StrEnum):
    """Styles of lines."""

    plain = "plain"
    strong = "strong"  #: a heading
    caution = "caution"
    fault = "fault"  #: why a design cannot run
    verbatim = "verbatim"  #: to be copied: never wrapped


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of text, or several."""

    text: str
    style: Style = Style.plain
    show: str = ""  #: detail that it belongs to; "" for what is always shown


def caution(text: str, show: str = "") -> Line:
    """Make a line that warns.

    Args:
        text: the line.
        show: name of its detail; "" for what is always shown.

    Returns:
        The line.
    """
    return Line(text, Style.caution, show)


def heading(text: str, show: str = "") -> Line:
    """Make a line that is a heading.

    Args:
        text: the line.
        show: name of its detail; "" for what is always shown.

    Returns:
        The line.
    """
    return Line(text, Style.strong, show)


def verbatim(text: str, show: str = "") -> Line:
    """Make lines to be copied as they are.

    Args:
        text: the line.
        show: name of its detail; "" for what is always shown.

    Returns:
        The line.
    """
    return Line(text, Style.verbatim, show)


#: A part of a report, in the order of reading.
Section = Table | Line


class Readable(Protocol):
    """What renderers read of a report."""

    @property
    def sections(self) -> Sequence[Section]:
        """Tables and lines, in the order of reading."""

    @property
    def notes(self) -> Sequence[str]:
        """Remarks, which a terminal prints on standard error."""

    @property
    def figures(self) -> Sequence[Path]:
        """Files of figures."""

    @property
    def files(self) -> Sequence[Path]:
        """Other files."""

    @property
    def usage(self) -> str:
        """Command that uses what was written; "" for none."""

    @property
    def details(self) -> list[str]:
        """Names of the details that are shown on request."""

    def selected(self, shown: Sequence[str] = ()) -> list[Section]:
        """Return the sections that are shown, with those of the named details."""
