"""Columns of tables of training steps and of serving, read and written by ``dse predict`` and ``dse validate``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dse.errors import ELSEWHERE, nearest, plain
from dse.io import toml
from dse.measured.table import kind_rows


class Header(NamedTuple):
    """Names and meaning of a column, and the value of a row where it is empty."""

    names: tuple[str, ...]  # the first one that is not empty counts
    meaning: str
    default_text: str


#: Column of a wide table of steps → measured name and unit.
WIDE_COLUMNS: dict[str, tuple[str, str]] = {
    column: (fields["name"], fields["unit"]) for column, fields in kind_rows("steps")["wide"].items()
}

#: Similarity of names that differ by a misspelling.
_SIMILARITY = 0.85

_ROWS = toml.table(Path(__file__).with_name("columns.toml"))


def _headers(kind: str) -> tuple[Header, ...]:
    """Return the columns of a kind of tables, those of its wide figures last."""
    headers = [Header(tuple(row["names"]), row["meaning"], row.get("empty", "")) for row in _ROWS[kind]]
    wide_columns = WIDE_COLUMNS if kind == "steps" else {}
    return *headers, *(
        Header((name,), f"measured {figure.replace('_', ' ')} in {unit}", "dse predict needs none")
        for name, (figure, unit) in wide_columns.items()
        if name.endswith("_measured")
    )


STEP_COLUMNS, SERVING_COLUMNS = _headers("steps"), _headers("serving")

#: Written column → meaning.
OUTPUT_COLUMNS: dict[str, str] = _ROWS["written"]

#: Part of a step as traces have it, in columns of ms → parts of the predicted step time.
TRACE_PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (part["column"], tuple(part["metrics"])) for name, part in _ROWS["parts"].items()
}


def misspelt(columns: Iterable[str]) -> dict[str, str]:
    """Return column of a table of steps that is not read → the missing column probably meant; others are left out.

    That is its name in another tool (``mbs``) or a similar name.

    Args:
        columns: of the table's header.

    Returns:
        Written name → name of a column.
    """
    column_set = set(columns)
    open_names = {name for column in STEP_COLUMNS if not column_set & set(column.names) for name in column.names}
    read_names = {name for column in STEP_COLUMNS for name in column.names}
    suggestions = {name: _suggested_column(name, open_names) for name in sorted(column_set - read_names)}
    return {name: suggestion for name, suggestion in suggestions.items() if suggestion}


def _suggested_column(name: str, open_names: set[str]) -> str:
    """Return which of ``open_names`` a name probably means, "" for none."""
    names_elsewhere = [candidate for candidate in ELSEWHERE.get(plain(name), ()) if candidate in open_names]
    similar_names = (
        nearest(name, [candidate for candidate in open_names if len(candidate) > 3], 1, _SIMILARITY)
        if len(name) > 3
        else []
    )
    return next(iter([*names_elsewhere, *similar_names]), "")
