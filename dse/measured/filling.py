"""Values that a command states for all rows of a table: they fill the cells that rows leave empty.

A stated cell of a row counts more, since rows differ and a command does not; a notice says where. Values that fill no
cell of a table, because all its rows state others, are an error.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dse.designs import catalog
from dse.errors import InputError, Notice, unknown_name
from dse.io import counted
from dse.measured.columns import SERVING_COLUMNS, STEP_COLUMNS, WIDE_COLUMNS
from dse.measured.names import accelerator_by_name
from dse.measured.table import DEVICE_COLUMNS, Row
from dse.types import System

#: Columns of measured figures, and those that tell rows apart: a command states none of them.
_OF_ROWS = {"metric", "value", "unit", "source", "config_id", *WIDE_COLUMNS}

#: Columns that may be stated of tables of steps and of serving.
COLUMNS = frozenset(name for header in (*STEP_COLUMNS, *SERVING_COLUMNS) for name in header.names) - _OF_ROWS

#: Kinds of tables whose rows are designs by these columns; others have columns of their own.
_KINDS = ("steps", "serving")

#: Column → all names of it.
_NAMES = {name: header.names for header in STEP_COLUMNS for name in header.names} | dict.fromkeys(
    ("batch", "concurrency"), ("batch", "concurrency")
)

#: Texts of truth values → one text of each.
_TRUTHS = dict.fromkeys(("yes", "true", "on"), "1") | dict.fromkeys(("no", "false", "off"), "0")

#: Values that a notice shows.
_SHOWN = 4


def cells_of(
    workload: str | None = None,
    system: str | None = None,
    n_devices: int | None = None,
    software: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return column → text of a row of a table, from what a command states of all its runs.

    Args:
        workload: name of a model in the catalogue.
        system: name of a system or accelerator.
        n_devices: number of devices.
        software: name of a stack.
        settings: column → text; the options above count more.

    Returns:
        Cells for ``cells`` of :func:`dse.measured.read_cases` and :func:`dse.measured.compare`.

    Raises:
        InputError: for an unknown name of the catalogue.

    >>> cells_of("Llama-3-8B", n_devices=8, settings={"tp": "8"})
    {'tp': '8', 'model': 'llama-3-8b', 'n_gpus': '8'}
    """
    cells = dict(settings or {})
    if workload:
        cells["model"] = catalog.resolve("workload", workload)
    if system:
        catalog.record(System, system)
        cells["system"] = system
    if software:
        cells["software"] = catalog.resolve("software", software)
    return cells | ({"n_gpus": str(n_devices)} if n_devices else {})


def fill_rows(rows: Sequence[Row], cells: Mapping[str, str], kind: str) -> list[Row]:
    """Return the rows of a table with its empty cells filled by ``cells``, new columns last.

    A cell is empty where none of the names of its column (``n_gpus``, ``n_devices``) has a text; a system is stated by
    the device of a row too, where it has another accelerator.

    Args:
        rows: of the table.
        cells: column → text, as :func:`cells_of` has them.
        kind: of the table: a name of :data:`dse.measured.KINDS`.

    Raises:
        InputError: for a column that no row may take from a command, for a value that all rows contradict, and for
            tables other than those of steps and serving.

    Warns:
        Notice: where some rows state another value than ``cells``.
    """
    cells = {column: text.strip() for column, text in cells.items() if text.strip()}
    if not cells:
        return [*rows]
    file = rows[0].file
    if kind not in _KINDS:
        raise InputError(
            file, f"a table of {kind}", "tables of training steps or serving", "leave the options for rows out"
        )
    for name in cells:
        if name not in COLUMNS:
            raise unknown_name("--set", name, COLUMNS, "columns that a command may state")
    values = [dict(row.cells) for row in rows]
    for name, text in cells.items():
        row_texts = [_text(row, name, text) for row in rows]
        for row_values, row_text in zip(values, row_texts, strict=True):
            if not row_text:
                row_values[name] = text
        _tell_others(file, name, text, row_texts)
    return [dataclasses.replace(row, cells=row_values) for row, row_values in zip(rows, values, strict=True)]


def is_same_value(column: str, first: str, second: str) -> bool:
    """Return True where two texts of a cell mean the same: names of one entry, equal numbers, or truth values.

    Args:
        column: of the cells.
        first: text of a cell.
        second: text of a cell.

    >>> (
    ...     is_same_value("tp", "8", "8.0"),
    ...     is_same_value("model", "GPT-3 175B", "gpt-3-175b"),
    ...     is_same_value("tp", "8", "4"),
    ... )
    (True, True, False)
    """
    texts = [_TRUTHS.get(text.strip().lower(), text.strip()) for text in (first, second)]
    if texts[0].lower() == texts[1].lower():
        return True
    if column in ("model", "workload", "software"):
        kind = "software" if column == "software" else "workload"
        slugs = [catalog.find(kind, text) for text in texts]
        return slugs[0] is not None and slugs[0] == slugs[1]
    if column == "system":
        return accelerator_by_name(texts[0]) == accelerator_by_name(texts[1]) != ""
    try:
        return float(texts[0]) == float(texts[1])
    except ValueError:
        return False


def _text(row: Row, name: str, text: str) -> str:
    """Return what a row states in a column by any of its names, "" for nothing.

    Of a system that is its device where it names another accelerator than ``text``.
    """
    row_text = row.get(*_NAMES.get(name, (name,)))
    if name == "system" and not row_text:
        device = row.get(*DEVICE_COLUMNS)
        return device if device and accelerator_by_name(device) != accelerator_by_name(text) else ""
    return row_text


def _tell_others(file: str, name: str, text: str, row_texts: Sequence[str]) -> None:
    """Warn of rows with another value than ``text`` in a column; InputError where all rows have one."""
    other_texts = [row_text for row_text in row_texts if row_text and not is_same_value(name, row_text, text)]
    if not other_texts:
        return
    distinct: list[Any] = list(dict.fromkeys(other_texts))
    values = ", ".join(distinct[:_SHOWN]) + (f", … ({len(distinct)} values)" if len(distinct) > _SHOWN else "")
    if len(other_texts) == len(row_texts):
        raise InputError(
            f"{file}: {name}",
            f"{text}, where every row says {values}",
            "values for cells that rows leave empty",
            f"leave {name} out of the options, or empty the column",
        )
    rows_text = f"{counted(len(other_texts), 'row')} of {len(row_texts):,}"
    warnings.warn(f"{file}: {name}: {rows_text} say {values}, which counts; others {text}", Notice, stacklevel=4)
