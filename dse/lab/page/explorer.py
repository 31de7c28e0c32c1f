"""What a page holds of results: columns, totals by part, lines to paste, JSON-ready.

Columns are packed as bytes, so that a page with 50,000 designs takes a few megabytes. Numbers are in single precision
and split into byte planes, which deflate better; positions take one, two or four bytes. A column of equal values is one
number.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

import dse
from dse.designs import all_leaves, leaf_value
from dse.errors import InputError
from dse.lab.page.lines import Lines
from dse.lab.page.parts import styled_parts
from dse.lab.page.table import DesignTable, PageColumn


def document(table: DesignTable, lines: Lines) -> tuple[dict[str, Any], str]:
    """Return the data of a page of results, JSON-ready, and the text of its packed columns (base 64)."""
    packer = Packer()
    column_indices = {column.name: packer.add(column.values, **_column_header(column)) for column in table.columns}
    data = {
        "title": table.title,
        "study": table.study.name,
        "version": dse.__version__,
        "size": table.size,
        "able": _feasible_count(table),
        "start": {axis: column_indices[name] for axis, name in table.start.items()},
        "facts": table.facts,
        "notes": table.notes,
        "totals": _totals(table, column_indices),
        "lines": _lines(lines, column_indices, packer),
        "columns": packer.columns,
    }
    return data, packer.text


def _feasible_count(table: DesignTable) -> int:
    """Return the count of designs that can run."""
    status = table.column("status")
    return sum(int((status.values == i).sum()) for i, text in enumerate(status.texts) if not text)


def _column_header(column: PageColumn) -> dict[str, Any]:
    """Return the description of a column without its values, JSON-ready."""
    about: dict[str, Any] = {"name": column.name, "label": column.label, "about": column.about, "kind": column.kind}
    units = {"units": column.display_units, "factor": column.factor, "si": column.units}
    if column.kind == "metric":
        return about | units | {"better": column.better}
    if column.path in all_leaves() and column.distinct_values is not None:
        about |= {"leaf": column.path, "settings": [_setting(column.path, value) for value in column.distinct_values]}
    if column.distinct_values is not None and column.distinct_values.dtype.kind in "iuf":
        return about | units | {"texts": column.texts, "numbers": column.distinct_values.tolist()}
    return about | {"texts": column.texts}


def _setting(path: str, value: Any) -> float | None:
    """Return a value of an axis as the number of its leaf, in SI units, None where it is no value of the leaf."""
    try:
        return leaf_value(path, value)
    except InputError:
        return None


def _totals(table: DesignTable, column_indices: dict[str, int]) -> list[dict[str, Any]]:
    """Return the column index of each total with those of its parts that the results have, JSON-ready."""
    totals = []
    for total in table.study.totals:
        names = {name: part for name, part in table.study.parts(total).items() if name in column_indices}
        if total in column_indices and names:
            parts = [part | {"column": column_indices[part["name"]]} for part in styled_parts(names)]
            totals.append({"column": column_indices[total], "parts": parts})
    return totals


def _lines(lines: Lines, column_indices: dict[str, int], packer: Packer) -> dict[str, Any]:
    """Return lines as texts and columns of positions in them, JSON-ready; only the reason where there are none."""
    if lines.group is None:
        return {"why": lines.why}
    return {
        "why": "",
        "serving": lines.serving,
        "tools": lines.tools,
        "toml": lines.toml,
        "axes": [
            {"name": name, "column": column_indices.get(column, -1), "values": values}
            for name, column, values in lines.axes
        ],
        "group": packer.add(lines.group, name="group", kind="hidden"),
        "groups": lines.groups,
        "choices": [
            {"column": packer.add(choice.codes, name="choice", kind="hidden"), "texts": choice.texts}
            for choice in lines.choices
        ],
    }


class Packer:
    """Collects columns; ``columns`` describes them in order, ``text`` has their bytes."""

    def __init__(self) -> None:
        self.columns: list[dict[str, Any]] = []
        self._pieces: list[bytes] = []

    def add(self, values: np.ndarray, **about: Any) -> int:
        """Add a column with its description and return its index."""
        piece = {} if _is_same(values) else _planes(values)
        if piece:
            self._pieces.append(piece.pop("bytes"))
        else:
            piece = {"type": "same", "value": float(values[0])}
        self.columns.append({**about, **piece})
        return len(self.columns) - 1

    @property
    def text(self) -> str:
        """All columns, deflated, as text in base 64."""
        return base64.b64encode(zlib.compress(b"".join(self._pieces), 6)).decode("ascii")


def _planes(values: np.ndarray) -> dict[str, Any]:
    """Return the ``type`` of a column and its ``bytes``: planes of single precision, or integers of the least width."""
    if values.dtype.kind == "f":
        return {"type": "f4", "bytes": values.astype("<f4").view(np.uint8).reshape(-1, 4).T.tobytes()}
    kind = next(kind for kind in ("u1", "u2", "u4") if values.max() <= np.iinfo(kind).max)
    return {"type": kind, "bytes": values.astype(f"<{kind}").tobytes()}


def _is_same(values: np.ndarray) -> bool:
    """Return whether all values of a column are equal, or all are NaN."""
    first = values[0]
    return bool((values == first).all()) or (values.dtype.kind == "f" and bool(np.isnan(values).all()))
