"""Cells of one row as numbers and choices, with a record of completed values."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from dse.measured import rules
from dse.measured.table import Row, Skip

T = TypeVar("T", float, str)

#: Truth values in tables.
_YES, _NO = {"1", "1.0", "true", "yes", "on"}, {"0", "0.0", "false", "no", "off", "none"}


@dataclasses.dataclass
class Cells:
    """Cells of a row, with values that its source states for all rows, and a record of completed ones."""

    row: Row
    completed: dict[str, str] = dataclasses.field(default_factory=dict)

    def text(self, *columns: str) -> str:
        """Return the first of ``columns`` that is not empty, else what its source states, else "".

        A mean of the source is recorded as completed.
        """
        text = self.row.get(*columns) or rules.source_value(self.row, "stated", *columns)
        if not text and (text := rules.source_value(self.row, "mean", *columns)):
            self.completed[columns[0]] = text
        return text

    def convention(self, name: str) -> str:
        """Return what the row's source, engine or model means by it (``rules.toml``), "" for nothing."""
        return rules.source_value(self.row, "convention", name)

    def number(self, *columns: str, least: float = 1e-300) -> float | None:
        """Return the first of ``columns`` that is not empty as a number of at least ``least``, else raise Skip.

        None where all are empty.
        """
        text = self.text(*columns)
        try:
            value = float(text) if text else None
        except ValueError:
            raise Skip("not a number", f"{columns[0]} = {text!r}") from None
        if value is not None and not least <= value < float("inf"):
            raise Skip("not a usable number", f"{columns[0]} = {text!r}")
        return value

    def count(self, *columns: str, least: float = 1.0) -> float | None:
        """Return the first of ``columns`` that is not empty as an integer up to 1e9, else raise Skip.

        None where all are empty. Single precision holds such an integer exactly.
        """
        value = self.number(*columns, least=least)
        if value is not None and (value != int(value) or value > 1e9):
            raise Skip("not a usable number", f"{columns[0]} = {value:g}")
        return value

    def flag(self, *columns: str) -> float | None:
        """Return the first of ``columns`` that is not empty as 0.0 or 1.0, else raise Skip.

        None where all are empty.
        """
        text = self.text(*columns).lower()
        if text in ("", "nan"):
            return None
        if text not in _YES | _NO:
            raise Skip("neither yes nor no", f"{columns[0]} = {text!r}")
        return float(text in _YES)

    def complete(self, name: str, value: T) -> T:
        """Return ``value`` unchanged and record it as completed under ``name``."""
        self.completed[name] = f"{value:g}" if isinstance(value, float) else str(value)
        return value

    def search(self, name: str) -> None:
        """Record under ``name`` that it is chosen among candidates, as ""."""
        self.completed[name] = ""
