"""Ranges of the measured rows of stacks, written into their files; outside of them a prediction extrapolates.

Only stated values of a mapping count, not those chosen by the model. Nothing is evaluated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dse.designs import catalog, leaf
from dse.designs.calibrated import QUANTITIES, TRAINING_QUANTITIES
from dse.lab.fits import writing
from dse.lab.fits.step_priors import fitted_as
from dse.measured import Lookup, Skip, accelerator_of, complete, read_cases
from dse.model import main_model, parameter_count
from dse.types import Design, Workload


class Covered(NamedTuple):
    """Designs of a row, with its stack, accelerator and source."""

    stack: str
    designs: list[Design]
    accelerator: str
    source: str


#: First entries of ``[calibrated]``.
ABOUT = {"source": '"what the rows of the fit cover: dse calibrate"', "confidence": '"paper"'}

#: Reads the ranges of a table, one entry per row.
Reader = Callable[[str | Path], Iterator[Covered]]


def write_catalog(
    tables: Sequence[str | Path],
    folder: str | Path,
    is_fitted: Callable[[str], bool] = lambda stack: True,
    reader: Reader | None = None,
) -> list[Path]:
    """Write the ranges of measured rows into the stacks of a catalogue folder and return the paths of changed files.

    Stacks that are not fitted, or have no row in these tables, stay unchanged. ``reader``: of the tables' kind, by
    default of measured steps.
    """
    rows: dict[str, list[Covered]] = {}
    for row in (row for table in tables for row in (reader or step_ranges)(table) if is_fitted(row.stack)):
        rows.setdefault(fitted_as(row.stack), []).append(row)
    changed_files = []
    for path in sorted((Path(folder) / "software").glob("*.toml")):
        if stack_rows := rows.get(fitted_as(path.stem)):
            entries = ABOUT | extents(stack_rows) | mixtures(path.stem, stack_rows, folder)
            writing.revise(path, entries, "calibrated", drop=None)
            changed_files.append(path)
    return changed_files


def mixtures(stack: str, rows: Sequence[Covered], folder: str | Path | None = None) -> dict[str, str]:
    """Return ``mixtures`` → TOML list of accelerators with rows of experts, [] for a stack without expert kernels.

    Stacks with a common fit of dense steps may differ in that.
    """
    prices = catalog.entry("software", stack, folder=folder).states("experts")
    return {"mixtures": names_list(row.accelerator for row in rows if prices and row.designs[0].workload.experts)}


def names_list(accelerators: Iterable[str]) -> str:
    """Return distinct names, sorted, as the text of a TOML list."""
    return f"[{', '.join(writing.quoted(name) for name in sorted({*accelerators} - {''}))}]"


def extents(rows: Sequence[Covered]) -> dict[str, str]:
    """Return field of ``[calibrated]`` → range or list of names of the rows, as TOML; without a value left out."""
    values = {field: [_quantity(field, row.designs) for row in rows] for field in QUANTITIES}
    values_by_field = {field: [value for value in numbers if value] for field, numbers in values.items()}
    digits = {field: 3 if field == "parameters" else 15 for field in values}
    return {
        field: f"[{min(numbers):.{digits[field]}g}, {max(numbers):.{digits[field]}g}]"
        for field, numbers in values_by_field.items()
        if numbers
    } | {
        "accelerators": names_list(row.accelerator for row in rows),
        "sources": names_list(row.source for row in rows),
    }


def step_ranges(table: str | Path) -> Iterator[Covered]:
    """Yield stack, designs, accelerator and source of each row of a table of steps with a design and a time."""
    lookup = Lookup()
    for case in read_cases(table):
        if not any(figure.meaning.kind == "time" for figure in case.measurements):
            continue
        try:
            completed = complete(case, lookup)
        except Skip:
            continue
        yield Covered(
            completed.stack, completed.designs[: len(completed.mappings)], accelerator_of(case.row), case.row.source
        )


def _quantity(field: str, designs: Sequence[Design]) -> float | None:
    """Return the value of a field of ``[calibrated]`` for a row, None where its designs differ in it or lack it."""
    if field == "parameters":
        return _parameters(designs[0].workload)
    path = QUANTITIES[field].path
    if field in TRAINING_QUANTITIES and designs[0].workload.requests is not None:
        return None
    try:
        values = {float(leaf(design, path)) for design in designs}
    except AttributeError:  # absent record
        return None
    return values.pop() if len(values) == 1 else None


@functools.lru_cache(maxsize=4096)
def _parameters(workload: Workload) -> float:
    """Return the count of parameters of a workload, of one that serves those of its main model."""
    return float(parameter_count(workload if workload.requests is None else main_model(workload)))
