"""Ranges of the measured rows of stacks, written into their files; outside of them a prediction extrapolates.

Only stated values of a mapping count, not those chosen by the model. Nothing is evaluated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dse.designs import catalog
from dse.designs.calibrated import OF_TRAINING, QUANTITIES
from dse.designs.leaves import leaf
from dse.lab.fits import writing
from dse.lab.fits.step_priors import fitted_as
from dse.measured import Lookup, Skip, accelerator_of, complete, read_cases
from dse.model.work.parameters import main_model, parameter_count
from dse.types import Design, Workload


class Covered(NamedTuple):
    """Designs of a row, with its stack, accelerator and source."""

    stack: str
    designs: list[Design]
    accelerator: str
    source: str


#: Reads the ranges of a table, one entry per row.
Reader = Callable[[str | Path], Iterator[Covered]]


def write_catalog(
    tables: Sequence[str | Path],
    folder: str | Path,
    fitted: Callable[[str], bool] = lambda stack: True,
    reader: Reader | None = None,
) -> list[Path]:
    """Write the ranges of the rows of some tables into the stacks of a catalogue folder; returns the files.

    Unchanged: stacks that are not ``fitted``, or have no row in these tables. ``reader``: that of the tables' kind, by
    default of measured steps.
    """
    rows: dict[str, list[Covered]] = {}
    for row in (row for table in tables for row in (reader or of_steps)(table) if fitted(row.stack)):
        rows.setdefault(fitted_as(row.stack), []).append(row)
    changed = []
    for path in sorted((Path(folder) / "software").glob("*.toml")):
        if own := rows.get(fitted_as(path.stem)):
            about = {"source": '"what the rows of the fit cover: dse calibrate"', "confidence": '"paper"'}
            writing.revise(path, about | extents(own) | mixtures(path.stem, own, folder), "calibrated", drop=None)
            changed.append(path)
    return changed


def mixtures(stack: str, rows: Sequence[Covered], folder: str | Path | None = None) -> dict[str, str]:
    """Accelerators with rows of mixtures of experts, as TOML; none for a stack without expert kernels.

    Stacks with a common fit of dense steps may differ in that.
    """
    prices = catalog.entry("software", stack, folder=folder).states("experts")
    return {"mixtures": _names(row.accelerator for row in rows if prices and row.designs[0].workload.experts)}


def _names(accelerators: Iterable[str]) -> str:
    """Distinct accelerators as TOML."""
    return f"[{', '.join(writing.quoted(name) for name in sorted({*accelerators} - {''}))}]"


def extents(rows: Sequence[Covered]) -> dict[str, str]:
    """Field of ``[calibrated]`` → range of rows, as TOML."""
    values = {field: [_stated(field, row.designs) for row in rows] for field in QUANTITIES}
    known = {field: [one for one in found if one] for field, found in values.items()}
    return {
        field: f"[{min(found):.3g}, {max(found):.3g}]"
        if field == "parameters"
        else f"[{min(found):.15g}, {max(found):.15g}]"
        for field, found in known.items()
        if found
    } | {
        "accelerators": _names(row.accelerator for row in rows),
        "sources": _names(row.source for row in rows),
    }


def of_steps(table: str | Path) -> Iterator[Covered]:
    """Rows of a table of steps with a design and a measured time."""
    lookup = Lookup()
    for case in read_cases(table):
        if not any(figure.meaning.kind == "time" for figure in case.measurements):
            continue
        try:
            found = complete(case, lookup)
        except Skip:
            continue
        yield Covered(found.stack, found.designs[: len(found.mappings)], accelerator_of(case.row), case.row.source)


def _stated(field: str, designs: Sequence[Design]) -> float | None:
    """A quantity of a row, None where it is open or absent."""
    if field == "parameters":
        return _parameters(designs[0].workload)
    path = QUANTITIES[field].path
    if field in OF_TRAINING and designs[0].workload.requests is not None:
        return None
    try:
        found = {float(leaf(design, path)) for design in designs}
    except AttributeError:  # absent record
        return None
    return found.pop() if len(found) == 1 else None


@functools.lru_cache(maxsize=4096)
def _parameters(workload: Workload) -> float:
    return float(parameter_count(workload if workload.requests is None else main_model(workload)))
