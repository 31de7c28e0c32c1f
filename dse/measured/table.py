"""Measured tables: rows of CSV files, and the metrics of their measured columns."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dse.errors import InputError
from dse.io import inputs, toml

T = TypeVar("T")
Key = TypeVar("Key")
Result = TypeVar("Result")

#: Rows of a table.
_MAX_ROWS = 1_000_000

#: Columns that may name a device, in order of preference.
DEVICE_COLUMNS = ("gpu", "accelerator", "device", "gpu_type")


class Skip(Exception):  # noqa: N818 - an outcome of a row, not an error
    """A row that cannot be predicted, with a reason, which is counted, and a detail of the row."""

    def __init__(self, reason: str, detail: str = ""):
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


def joined_remarks(*remarks: str) -> str:
    """Return remarks as one text, without empty ones."""
    return "; ".join(filter(None, remarks))


def in_batches(
    items: Sequence[T], key: Callable[[T], Key], evaluate: Callable[[Key, list[T]], Iterable[Result]]
) -> list[Result]:
    """Return the result of each item, in order, where items with equal keys are evaluated together.

    Args:
        items: in any order of keys.
        key: item → key of its batch.
        evaluate: key and items of a batch → their results, in order.

    >>> in_batches([3, 1, 4], lambda number: number % 2, lambda key, batch: [max(batch)] * len(batch))
    [3, 3, 4]
    """
    indices_by_key: dict[Key, list[int]] = {}
    for index, item in enumerate(items):
        indices_by_key.setdefault(key(item), []).append(index)
    results: dict[int, Result] = {}
    for batch_key, indices in indices_by_key.items():
        results |= zip(indices, evaluate(batch_key, [items[index] for index in indices]), strict=True)
    return [results[index] for index in range(len(items))]


def raise_skip(outcome: T | Skip) -> T:
    """Return ``outcome``, or raise it if it is a :class:`Skip`."""
    if isinstance(outcome, Skip):
        raise outcome
    return outcome


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table."""

    file: str
    line: int
    source: str
    cells: dict[str, str]

    def get(self, *columns: str) -> str:
        """Return the text of the first of ``columns`` that is not empty, else ""."""
        return next((text for c in columns if (text := (self.cells.get(c) or "").strip())), "")


@dataclasses.dataclass(frozen=True)
class Meaning:
    """Metric and convention of a measured name.

    A configuration counts once per ``kind``, by the name of lowest ``rank``. ``flops``: the FLOPs of a step by which a
    rate becomes the step time behind it.
    """

    kind: str
    metric: str
    rank: int = 0
    unit: str = "1"  #: default unit
    per_sequence: bool = False  #: counts sequences, not tokens
    flops: str = ""  #: "model" (no recompute) or "hardware" (recompute counted)
    skip: str = ""  #: reason not to compare it


#: Kinds of tables as rows.
KINDS_FILE = Path(__file__).with_name("kinds.toml")


def kind_rows(name: str) -> dict[str, Any]:
    """Return a table of ``kinds.toml``, which is read at first use.

    Args:
        name: of a kind of tables, or ``units``, ``recipes``, ``calculon``.
    """
    table: dict[str, Any] = toml.table(KINDS_FILE)[name]
    return table


@functools.cache
def _quantity_and_size_by_unit() -> dict[str, tuple[str, float]]:
    """Return unit → quantity and size in SI."""
    quantities = kind_rows("units").items()
    return {unit: (quantity, size) for quantity, units in quantities for unit, size in units.items()}


@functools.cache
def meanings(kind: str) -> dict[str, Meaning]:
    """Return measured name → meaning of a kind of tables.

    Args:
        kind: of tables, a table of ``kinds.toml``.

    >>> meanings("serving")["ttft"].metric
    'time_to_first_token'
    """
    figures = kind_rows(kind).get("figures", {})
    return {name: Meaning(**{"kind": fields["metric"], **fields}) for name, fields in figures.items()}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One measured figure of a configuration, in SI, or the reason not to compare it."""

    row: Row
    name: str
    meaning: Meaning
    value: float
    skip: Skip | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration: its rows and measurements."""

    rows: tuple[Row, ...]
    measurements: tuple[Measurement, ...]
    kind: str = "steps"  #: of its table: a name of :data:`dse.measured.kinds.KINDS`
    payload: Any = None  #: data of its kind (kernels, a study, an equal row), or the reason to skip it

    @property
    def row(self) -> Row:
        """The first row, with the configuration."""
        return self.rows[0]

    @property
    def source(self) -> str:
        """Source of the measurement."""
        return self.row.source


def read_table(path: str | Path) -> tuple[list[str], list[Row]]:
    """Read the rows of a CSV file, gzipped or not.

    Args:
        path: of the file.

    Returns:
        (columns, rows); cells are texts.

    Raises:
        InputError: for a file that cannot be read or has no rows.

    >>> columns, rows = read_table("tests/published/narayanan_2021.csv")
    >>> columns[0], len(rows)
    ('row_id', 16)
    """
    path, allowed = Path(path), "a CSV file, plain or gzipped"
    text = inputs.text(path, allowed, "check the path and the file", limit=inputs.MAX_TABLE_BYTES, unpack=True)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        columns = [name for name in reader.fieldnames or [] if name]
        rows = [_row(path, reader.line_num, line) for line in itertools.islice(reader, _MAX_ROWS + 1)]
    except csv.Error as error:
        raise InputError(str(path), str(error), allowed, "check the path and the file") from None
    if len(rows) > _MAX_ROWS:
        raise InputError(str(path), f"more than {_MAX_ROWS:,} rows", allowed, "give a part of them at a time")
    if not columns or not rows:
        raise InputError(str(path), "no rows", "a header and at least one row", "check that the file is complete")
    return columns, rows


def _row(path: Path, line: int, cells: dict[str, str | None]) -> Row:
    """Return a line as a row, without cells beyond the header and with missing ones empty."""
    text_by_column = {column: text or "" for column, text in cells.items() if column}
    return Row(path.name, line, _source(path, text_by_column), text_by_column)


def _source(path: Path, cells: dict[str, str]) -> str:
    """Return the source of a line: as stated, else by its columns, else the name of the file."""
    if cells.get("source", "").strip():
        return cells["source"].strip()
    if cells.get("tensor_par_comm_type"):
        return "Calculon"
    # The vTrain table names two sets, no source.
    return f"vTrain_{cells['set']}" if cells.get("set") else path.name.split(".")[0]


def group_rows(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows in groups of one configuration, in order of their first rows.

    A group has one ``config_id``, or ids with equal descriptions and different measurements.
    """
    by_id: dict[object, list[Row]] = {}
    for row in rows:
        by_id.setdefault((row.source, row.cells.get("config_id") or row.line), []).append(row)
    groups: list[list[Row]] = []
    by_description: dict[object, list[list[Row]]] = {}
    for group in by_id.values():
        described_groups = (
            by_description.setdefault(_description(group[0]), []) if group[0].cells.get("config_id") else []
        )
        names = {row.get("metric") for row in group}
        partner = next((g for g in described_groups if names.isdisjoint(row.get("metric") for row in g)), None)
        if partner is not None:
            partner += group
        else:
            groups.append(group)
            described_groups.append(group)
    return groups


def _description(row: Row) -> tuple[tuple[str, str], ...]:
    """Return the configuration cells of a row: all but the figure and its remarks."""
    figure = {"row_id", "config_id", "url_or_repo_path", "metric", "value", "unit", "derived", "note", "confidence"}
    return tuple((column, text) for column, text in row.cells.items() if column not in figure)


def nonnegative_number(row: Row, column: str, default: float | None = None) -> float:
    """Return a cell as a nonnegative number, or ``default`` if empty.

    Args:
        row: of a table.
        column: name of the cell.
        default: value of an empty cell; None to skip the row.

    Raises:
        Skip: for any other text.
    """
    text = row.get(column)
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0.0:
        raise Skip("no usable number", f"{column} = {text!r}")
    return value


def positive_number(row: Row, column: str) -> float:
    """Return a cell as a number above 0, or raise Skip."""
    value = nonnegative_number(row, column)
    if value == 0.0:
        raise Skip("no usable number", f"{column} = {row.get(column)!r}")
    return value


def cases_of(rows: Iterable[Row], kind: str) -> list[Case]:
    """Return the configurations of the rows of a table, in order, with the figures of each row."""
    return [
        Case(tuple(group), tuple(m for row in group for m in figures(row, kind)), kind) for group in group_rows(rows)
    ]


def figures(row: Row, kind: str) -> list[Measurement]:
    """Return the measurements of a row, one or more: its ``metric``, or the columns of a wide table.

    With a skip where nothing is measured, or what is has no name that is known or compared.
    """
    if name := row.get("metric"):
        return [_measurement(row, name, row.get("value"), row.get("unit"), meanings(kind))]
    wide_figures = [
        _measurement(row, fields["name"], row.get(column), fields["unit"], meanings(kind))
        for column, fields in kind_rows(kind).get("wide", {}).items()
        if row.get(column)
    ]
    return wide_figures or [unnamed_figure(row, "none", skip=Skip("nothing measured"))]


def unnamed_figure(row: Row, name: str, value: float = math.nan, skip: Skip | None = None) -> Measurement:
    """Return a figure in SI units that is its own metric and kind of figure, NaN with a skip where there is none."""
    return Measurement(row, name, Meaning(name, name), value, skip)


def _measurement(
    row: Row, name: str, figure_text: str, unit: str, meaning_by_name: Mapping[str, Meaning]
) -> Measurement:
    """Return a figure in SI units of a text and its unit, NaN with a skip where it cannot be used."""
    meaning = meaning_by_name.get(name)
    if meaning is None:
        return unnamed_figure(row, name, skip=Skip("unknown metric", name))
    if meaning.skip:
        return Measurement(row, name, meaning, math.nan, Skip(meaning.skip))
    quantity, factor = _quantity_and_size(unit or meaning.unit)
    try:
        value = float(figure_text) * factor
    except ValueError:
        value = math.nan
    if reason := _figure_fault(value, unit, quantity, _quantity_and_size(meaning.unit)[0]):
        return Measurement(row, name, meaning, math.nan, Skip(reason, f"{figure_text!r} {unit}".rstrip()))
    return Measurement(row, name, meaning, value)


def _figure_fault(value: float, unit: str, quantity: str, expected_quantity: str) -> str:
    """Return the reason why a figure's quantity or value is not usable, "" where it is."""
    if not quantity:
        units = ", ".join(kind_rows("units")[expected_quantity])
        return f"a unit that is not known: {unit}; of {expected_quantity} are {units}"
    if quantity != expected_quantity:
        return f"a unit that is not of {expected_quantity}: {unit}"
    if not math.isfinite(value) or value <= 0.0:
        return "no usable measured value"
    return "a share above 1: write % for per cents" if expected_quantity == "a share" and value > 1.0 else ""


def _quantity_and_size(unit: str) -> tuple[str, float]:
    """Return (quantity, size in SI) of a unit, per device or of all; ("", NaN) for an unknown one."""
    return _quantity_and_size_by_unit().get(re.sub(r"/(gpu|chip|device)$", "", unit.lower()), ("", math.nan))
