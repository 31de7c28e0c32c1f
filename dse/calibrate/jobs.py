"""The jobs of calibration, each a record: how it fits, what it writes, and how it sums up.

Here are the jobs on measured steps, which users have of their own machines. Those on kernels, power and engines are
the catalogue's (``calibration/``): the wheel does not hold them.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dse
from dse.calibrate import levels, ranges, stacks, step_priors, steps, writing
from dse.calibrate.writing import Revision
from dse.errors import InputError
from dse.io import outputs
from dse.measured import pods, read_table
from dse.measured.kinds import kind_of


class Errors(NamedTuple):
    """Errors of a fit as a table, whose floats are fractions."""

    header: list[str]
    rows: list[list[str | int | float]]
    note: str = ""


class FitJob(NamedTuple):
    """One kind of calibration."""

    fit: Callable[[Sequence[str | Path], int, Callable[[str], None]], Any]  #: tables, folds, progress → what is found
    document: Callable[[Any], str]  #: what was found as TOML
    revisions: Callable[[Any, Path], list[Revision]]  #: the same for the files of a catalogue folder
    summary: Callable[[Any], Errors]
    fits: Callable[[str], bool] | None = None  #: whether it fits a stack, whose file says what rows cover; if any
    covered: ranges.Reader = ranges.of_steps  #: what the rows of a table cover


def job_for(tables: Sequence[str | Path]) -> FitJob:
    """The job that measured rows of some tables are for; InputError where they are of several kinds."""
    kinds = {_kind(path) for path in tables}
    if kinds == {"serving", "energy"}:  # the energy of what served
        kinds = {"serving"}
    if len(kinds) > 1:
        mixed = " and ".join(sorted(kinds))
        raise InputError("calibrate", f"tables of {mixed}", "one kind at a time", "run it once for each")
    (kind,) = kinds
    return JOBS[kind] if kind in JOBS else _of_catalogue(kind)


def _of_catalogue(kind: str) -> FitJob:
    """The job on a kind of table that only the checkout of this package fits."""
    checkout = Path(dse.__file__).parents[1]
    if not (checkout / "calibration" / "jobs.py").is_file():
        raise InputError(
            "dse calibrate", f"a table of {kind}, and no folder calibration beside {Path(dse.__file__).parent}",
            "measured steps; tables of kernels, energy and serving from a checkout of the repository",
            "clone the repository and run `dse calibrate` there",
        )  # fmt: skip
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    found: FitJob = importlib.import_module("calibration.jobs").JOBS[kind]
    return found


def run(
    tables: Sequence[str | Path], folds: int, output: str | Path, catalog: str | Path | None = None,
    progress: Callable[[str], None] = print, force: bool = False,
) -> tuple[Any, Errors, list[Path]]:  # fmt: skip
    """Fit the job of some tables and write what it found.

    Args:
        tables: measured rows, of one kind.
        folds: groups of rows to cross-validate over; 0 is the job's own habit.
        output: TOML file to write.
        catalog: folder of a catalogue whose fitted values are replaced too.
        progress: called with a line on what is going on.
        force: replace an output that dse has not written.

    Returns:
        What the job found, its errors, and the files that were written.
    """
    outputs.checked(output, force, tables)
    if catalog is not None and not Path(catalog).is_dir():
        raise InputError("calibrate --catalog", str(catalog), "the folder of a catalogue", "check the path")
    job = job_for(tables)
    found = job.fit(tables, folds, progress)
    _written(job.document(found), output, force, progress)
    changed = writing.write_catalog(job.revisions(found, Path(catalog)), catalog) if catalog else []
    if catalog and job.fits:
        changed = list(dict.fromkeys([*changed, *ranges.write_catalog(tables, catalog, job.fits, job.covered)]))
    return found, job.summary(found), [Path(output), *changed]


def _written(text: str, output: str | Path, force: bool, progress: Callable[[str], None]) -> None:
    """Write what was found; where the disk refuses, to a folder of temporary files: fits take minutes."""
    try:
        writing.write(output, text, force)
    except InputError:
        rescue = Path(tempfile.mkdtemp(prefix="dse-")) / "fitted.toml"
        writing.write(rescue, text)
        progress(f"what was fitted is in {rescue}")
        raise


def _kind(path: str | Path) -> str:
    columns, rows = read_table(path)
    kind = kind_of(columns).name
    if kind in ("steps", "chiplets"):
        return "levels" if pods.are_of_tpus(rows) else "steps"
    return kind


def _levels(found: levels.Levels) -> Errors:
    header = ["stack", "rows", "level", "median error", "configuration unseen", "model unseen"]
    return Errors(header, levels.errors(found), f"slices lose {found.loss:.2%} of compute a doubling of their number")


def _steps(found: steps.Calibration) -> Errors:
    header = ["source", "rows", "error", "unseen", "unseen median", "unseen 90 %", "unseen bias", "source left out"]
    shown = len(header) - (len(set(found.rows.sources)) < 2)  # without the only source there is nothing to fit
    note = f"80 % intervals hold {stacks.coverage(found):.1%} of the unseen rows"
    rows: list[list[str | int | float]] = [list(errors) for errors in stacks.errors_by_source(found)]
    return Errors(header[:shown], [row[:shown] for row in rows], note)


#: Kind of table → its job.
JOBS = {
    "levels": FitJob(
        lambda tables, _, progress: levels.calibrate(tables, progress), levels.document, levels.revisions, _levels,
        step_priors.is_levelled,
    ),
    "steps": FitJob(
        lambda tables, folds, progress: steps.calibrate(tables, folds or 5, progress=progress),
        stacks.document, stacks.revisions, _steps, lambda stack: not step_priors.is_levelled(stack),
    ),
}  # fmt: skip
