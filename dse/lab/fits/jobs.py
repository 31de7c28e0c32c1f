"""Calibration jobs as records: fit, output files, and summary.

The jobs here fit measured steps, which users have of their own machines. Those on kernels, power and engines belong to
the catalogue and are outside of the wheel: a caller that has them hands them over.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.io import outputs
from dse.lab.fits import levels, ranges, stacks, step_priors, steps, writing
from dse.lab.fits.writing import Revision
from dse.measured import kind_of, pods, read_table


class Errors(NamedTuple):
    """Errors of a fit as a table; floats are fractions."""

    header: list[str]
    rows: list[list[str | int | float]]
    note: str = ""


class FitJob(NamedTuple):
    """One kind of calibration."""

    fit: Callable[[Sequence[str | Path], int, Callable[[str], None]], Any]  #: tables, folds, progress → result
    document: Callable[[Any], str]  #: the result as TOML
    revisions: Callable[[Any, Path], list[Revision]]  #: the result for the files of a catalogue folder
    summary: Callable[[Any], Errors]
    fits: Callable[[str], bool] | None = None  #: whether it fits a stack, whose file states the range of its rows
    covered: ranges.Reader = ranges.step_ranges  #: ranges of the rows of a table


class UnknownJobError(InputError):
    """No job fits a kind of table."""


def job_for(tables: Sequence[str | Path], jobs: Mapping[str, FitJob] | None = None) -> FitJob:
    """Return the job that fits measured rows.

    Args:
        tables: measured rows, of one kind.
        jobs: kind of table → its job; by default :data:`JOBS`.

    Raises:
        UnknownJobError: for a kind of table without a job.
        InputError: for tables of several kinds.
    """
    jobs = JOBS if jobs is None else jobs
    kinds = {_kind(path) for path in tables}
    if kinds == {"serving", "energy"}:  # energy of serving
        kinds = {"serving"}
    if len(kinds) > 1:
        mixed = " and ".join(sorted(kinds))
        raise InputError("calibrate", f"tables of {mixed}", "one kind at a time", "run it once for each")
    (kind,) = kinds
    if kind in jobs:
        return jobs[kind]
    raise UnknownJobError(
        "dse calibrate",
        f"a table of {kind}, whose fits this installation leaves out",
        "measured steps; tables of kernels, energy and serving from a checkout of the repository",
        "clone the repository and run `dse calibrate` there",
    )


def run(
    tables: Sequence[str | Path],
    folds: int,
    output: str | Path,
    catalog: str | Path | None = None,
    progress: Callable[[str], None] = print,
    force: bool = False,
    jobs: Mapping[str, FitJob] | None = None,
) -> tuple[Any, Errors, list[Path]]:
    """Fit the job of some tables, write the result as TOML, and return it with its errors and the written files.

    Args:
        tables: measured rows, of one kind.
        folds: number of cross-validation folds; 0: the default of the job.
        output: TOML file to write.
        catalog: folder of a catalogue whose fitted values are replaced.
        progress: called with lines on the progress.
        force: replace an output that dse has not written.
        jobs: kind of table → its job; by default :data:`JOBS`.

    Returns:
        The result, its errors, and the written files.
    """
    outputs.check_output(output, force, tables)
    if catalog is not None and not Path(catalog).is_dir():
        raise InputError("calibrate --catalog", str(catalog), "the folder of a catalogue", "check the path")
    job = job_for(tables, jobs)
    result = job.fit(tables, folds, progress)
    _write_result(job.document(result), output, force)
    changed_files = writing.write_catalog(job.revisions(result, Path(catalog)), catalog) if catalog else []
    if catalog and job.fits:
        changed_files += ranges.write_catalog(tables, catalog, job.fits, job.covered)
    return result, job.summary(result), [Path(output), *dict.fromkeys(changed_files)]


def _write_result(text: str, output: str | Path, force: bool) -> None:
    """Write the result (TOML); where that fails write it to a temporary folder, since fits take minutes, and say so."""
    try:
        writing.write(output, text, force)
    except InputError as error:
        rescue = Path(tempfile.mkdtemp(prefix="dse-")) / "fitted.toml"
        writing.write(rescue, text)
        fix = f"{error.fix}; what was fitted is in {rescue}"
        raise InputError(error.where, error.got, error.allowed, fix) from None


def _kind(path: str | Path) -> str:
    """Return the kind of a table as a key of :data:`JOBS`: ``levels`` for steps of TPUs, else the name of its kind."""
    columns, rows = read_table(path)
    kind = kind_of(columns).name
    if kind in ("steps", "chiplets"):
        return "levels" if pods.are_tpu_rows(rows) else "steps"
    return kind


def _level_summary(calibration: levels.LevelCalibration) -> Errors:
    """Return the errors of each stack of TPUs as a table, with the loss between slices as its note."""
    header = ["stack", "rows", "level", "median error", "configuration unseen", "model unseen"]
    note = f"slices lose {calibration.loss:.2%} of compute a doubling of their number"
    return Errors(header, levels.errors(calibration), note)


def _step_summary(calibration: steps.Calibration) -> Errors:
    """Return the errors of each source as a table, with the coverage of intervals as its note."""
    header = ["source", "rows", "error", "unseen", "unseen median", "unseen 90 %", "unseen bias", "source left out"]
    n_columns = len(header) - (len(set(calibration.rows.sources)) < 2)  # a single source leaves none to fit without it
    note = f"80 % intervals hold {stacks.coverage(calibration):.1%} of the unseen rows"
    rows: list[list[str | int | float]] = [list(errors) for errors in stacks.errors_by_source(calibration)]
    return Errors(header[:n_columns], [row[:n_columns] for row in rows], note)


#: Kind of table → its job.
JOBS = {
    "levels": FitJob(
        lambda tables, _, progress: levels.calibrate(tables, progress),
        levels.document,
        levels.revisions,
        _level_summary,
        step_priors.is_levelled,
    ),
    "steps": FitJob(
        lambda tables, folds, progress: steps.calibrate(tables, folds or 5, progress=progress),
        stacks.document,
        stacks.revisions,
        _step_summary,
        lambda stack: not step_priors.is_levelled(stack) and stack not in step_priors.NOT_FITTED,
    ),
}
