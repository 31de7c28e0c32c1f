"""Rules on measured rows: unused and corrected rows, and values that sources state for all rows.

They are in ``rules.toml``, those by recipes of NVIDIA's releases in ``recipes.toml``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dse.io import toml
from dse.measured.table import Row, Skip

FILES = tuple(Path(__file__).with_name(name) for name in ("rules.toml", "recipes.toml"))


class RowRule(NamedTuple):
    """One rule: rows where every column of ``where`` fully matches its pattern."""

    where: Mapping[str, re.Pattern[str]]
    table: str = ""  #: kind of table, or fit, that excludes the row
    reason: str = ""
    why: str = ""
    cells: Mapping[str, str] = {}  #: column → value stated by the source

    def matches(self, row: Row) -> bool:
        """Return True where the rule applies to a row."""
        texts = ((row.source if column == "source" else row.get(column), p) for column, p in self.where.items())
        return all(pattern.fullmatch(text) for text, pattern in texts)


@functools.cache
def rules(kind: str) -> tuple[RowRule, ...]:
    """Return the rules of a kind, in the order of the files.

    Args:
        kind: ``unused``, ``corrected``, ``stated``, ``mean`` or ``convention``.
    """
    return tuple(_rule(**fields) for file in FILES for fields in toml.table(file).get(kind, ()))


def _rule(where: Mapping[str, str], **fields: Any) -> RowRule:
    """Return a rule, whose ``where`` is column → text of a regular expression."""
    return RowRule({column: re.compile(text, re.DOTALL) for column, text in where.items()}, **fields)


def unused(row: Row, table: str) -> RowRule | None:
    """Return the first rule by which a kind of table, or a fit, excludes a row, or None.

    Args:
        row: of a measured table.
        table: kind of table, or fit.

    Returns:
        The first rule that applies.
    """
    return next((rule for rule in rules("unused") if rule.table == table and rule.matches(row)), None)


def skip_if_excluded(row: Row, table: str) -> None:
    """Raise Skip for a row that a kind of table, or a fit, excludes; return nothing for others."""
    if rule := unused(row, table):
        raise Skip(rule.reason, rule.why)


def corrected_row(row: Row) -> Row:
    """Return the row with the cells corrected that its table lists otherwise than its source; others unchanged."""
    cells = {column: text for rule in rules("corrected") if rule.matches(row) for column, text in rule.cells.items()}
    return dataclasses.replace(row, cells=row.cells | cells) if cells else row


def source_value(row: Row, kind: str, *columns: str) -> str:
    """Return the text that the first rule of a kind that applies to the row states for one of ``columns``, else "".

    ``kind``: ``stated``, ``mean`` or ``convention``.
    """
    rules_and_columns = ((rule, column) for rule in rules(kind) for column in columns if column in rule.cells)
    return next((rule.cells[column] for rule, column in rules_and_columns if rule.matches(row)), "")
