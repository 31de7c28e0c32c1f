"""The jobs of calibration: what the tables hold says which; each fits, writes what it found, and sums it up."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.calibrate import (
    engine_residuals,
    engines,
    kernel_tables,
    kernels,
    levels,
    power,
    ranges,
    stacks,
    step_priors,
    steps,
)
from dse.errors import InputError
from dse.io import outputs
from dse.measured import energy, pods, serving
from dse.measured import kernels as measured_kernels


class Summary(NamedTuple):
    """Errors of a fit as a table, whose floats are fractions."""

    header: list[str]
    rows: list[list[str | int | float]]
    note: str = ""


class Job(NamedTuple):
    """One kind of calibration."""

    fit: Callable[[Sequence[str | Path], int, Callable[[str], None]], Any]  #: tables, folds, progress → what is found
    write: Callable[[Any, str | Path, bool], None]  #: to a TOML file of its own, whatever is there or not
    write_catalog: Callable[[Any, str | Path], list[Path]]  #: into a catalogue folder; the files that it changed
    summary: Callable[[Any], Summary]
    fits: Callable[[str], bool] | None = None  #: whether it fits a stack, whose file tells what rows cover; if any


def job_for(tables: Sequence[str | Path]) -> Job:
    """The job that measured rows of some tables are for; InputError where they are of several kinds."""
    kinds = {_kind(path) for path in tables}
    if kinds == {"serving", "energy"}:  # the energy of what served
        kinds = {"serving"}
    if len(kinds) > 1:
        mixed = " and ".join(sorted(kinds))
        raise InputError("calibrate", f"tables of {mixed}", "one kind at a time", "run it once for each")
    return JOBS[kinds.pop()]


def run(
    tables: Sequence[str | Path], folds: int, output: str | Path, catalog: str | Path | None = None,
    progress: Callable[[str], None] = print, force: bool = False,
) -> tuple[Any, Summary, list[Path]]:  # fmt: skip
    """Fit the job of some tables and write what it found.

    Args:
        tables: measured rows, of one kind.
        folds: cross-validate over so many groups of rows; 0 is the job's own habit.
        output: TOML file to write.
        catalog: folder of a catalogue whose fitted values are replaced too.
        progress: told what is going on.
        force: replace an output that dse has not written.

    Returns:
        What the job found, its errors, and the files that were written.
    """
    outputs.checked(output, force, tables)
    if catalog is not None and not Path(catalog).is_dir():
        raise InputError("calibrate --catalog", str(catalog), "the folder of a catalogue", "check the path")
    job = job_for(tables)
    found = job.fit(tables, folds, progress)
    _written(job, found, output, force, progress)
    changed = job.write_catalog(found, catalog) if catalog else []
    if catalog and job.fits:
        changed = list(dict.fromkeys([*changed, *ranges.write_catalog(tables, catalog, job.fits)]))
    return found, job.summary(found), [Path(output), *changed]


def _written(job: Job, found: Any, output: str | Path, force: bool, progress: Callable[[str], None]) -> None:
    """Write what was found; where the disk refuses, to a folder of temporary files: fits take minutes."""
    try:
        job.write(found, output, force)
    except InputError:
        rescue = Path(tempfile.mkdtemp(prefix="dse-")) / "fitted.toml"
        job.write(found, rescue, False)
        progress(f"what was fitted is in {rescue}")
        raise


def _kind(path: str | Path) -> str:
    kinds = {"kernels": measured_kernels, "energy": energy, "levels": pods, "serving": serving}
    return next((kind for kind, tables in kinds.items() if tables.is_table(path)), "steps")


def _kernels(found: Sequence[kernels.FittedJob]) -> Summary:
    rows: list[list[str | int | float]] = [
        [f"{one.slug}.{one.name}", len(one.values), sum(v.fitted for v in one.values.values()), job.median_error]
        for job in found for one in kernel_tables.tables(job)
    ]  # fmt: skip
    return Summary(["table", "parameters", "told by the rows", "median error of the fit"], rows)


def _power(found: Sequence[power.FittedChip]) -> Summary:
    rows: list[list[str | int | float]] = [
        [one.slug, len(one.unseen), *(float(np.mean(np.abs(np.expm1(e)))) for e in (one.fit.errors, one.unseen))]
        for one in found
    ]
    return Summary(["chip", "figures", "error", "unseen"], rows)


def _levels(found: levels.Levels) -> Summary:
    header = ["stack", "rows", "level", "median error", "configuration unseen", "model unseen"]
    return Summary(header, levels.errors(found), f"slices lose {found.loss:.2%} of compute a doubling of their number")


def _steps(found: steps.Calibration) -> Summary:
    header = ["source", "rows", "error", "unseen", "unseen median", "unseen 90 %", "unseen bias", "source left out"]
    shown = len(header) - (len(set(found.rows.sources)) < 2)  # without the only source there is nothing to fit
    note = f"80 % intervals hold {stacks.coverage(found):.1%} of the unseen rows"
    rows: list[list[str | int | float]] = [list(errors) for errors in stacks.errors_by_source(found)]
    return Summary(header[:shown], [row[:shown] for row in rows], note)


def _engines(found: Sequence[engines.FittedEngine]) -> Summary:
    header = ["source", "metric", "figures", "median error", "mean", "unseen median", "unseen mean"]
    header += ["deployment left out", "mean", "source left out", "mean"]
    held = engine_residuals.held(engines.open_errors(found))["all"]
    note = f"80 % intervals hold {held.unseen:.1%} of the unseen figures, {held.foreign:.1%} of sources left out"
    return Summary(header, engines.errors_by_metric(found), note)


#: Kind of table → its job.
JOBS = {
    "kernels": Job(
        lambda tables, folds, _: kernels.calibrate(kernels.read_kernels(tables), folds),
        kernel_tables.write, kernel_tables.write_catalog, _kernels,
    ),
    "energy": Job(lambda tables, *_: power.calibrate(tables), power.write, power.write_catalog, _power),
    "levels": Job(
        lambda tables, _, progress: levels.calibrate(tables, progress), levels.write, levels.write_catalog, _levels,
        step_priors.is_levelled,
    ),
    "serving": Job(engines.calibrate, engines.write, engines.write_catalog, _engines, lambda _: True),
    "steps": Job(
        lambda tables, folds, progress: steps.calibrate(tables, folds or 5, progress=progress),
        stacks.write, stacks.write_catalog, _steps, lambda stack: not step_priors.is_levelled(stack),
    ),
}  # fmt: skip
