"""``dse.calibrate``: parameters of stacks, chips and engines from measured rows."""

from __future__ import annotations

import dataclasses
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities import tables
from dse.errors import InputError
from dse.io import counted, percent, setting
from dse.reports import Column, Line, Option, Report, Table, capability, verbatim
from dse.reports.options import Force
from dse.reports.tables import Section

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dse.lab.fits import Errors, Update

#: Mean error of a fit, and deviation of a configuration without a run, beyond which something else than its numbers is
#: off: of published sets the error stays below half of it. A few rows in other units hardly move the mean.
_EXPLAINED = 0.3

#: Root mean square error of rows below which nothing is left to explain: runs that are repeated differ by it.
_AS_RUNS = 0.05

#: Spreads by which a value may move before the rows are doubted.
_FAR = 4.0


@capability("Compare with reality", local="writes files of a catalogue")
def calibrate(
    *,
    cases: tables.Measured,
    output: Annotated[Path, Option(short="-o")],
    folds: Annotated[int, Option(low=0, high=20)] = 0,
    catalog: Annotated[Path | None, Option(metavar="FOLDER")] = None,
    add: bool = False,
    stack: Annotated[str | None, Option(metavar="NAME")] = None,
    profile: tables.Profile = False,
    run_cells: tables.RunCells,
    rows: tables.RowsFile = None,
    force: Force = False,
) -> Report:
    """Fit parameters to measurements.

    Parameters of software stacks are fitted to training steps. In a source checkout, parameters of chips and networks
    are fitted to kernels or power limits, and those of engines to tables of serving. With --profile the files are those
    of tools, and options of a design state what they leave out.

    Where -o is a folder, a stack of your own is fitted to a few runs: at most eight numbers, from those of the stack
    that the rows name. It is written to FOLDER/software/NAME.toml, and is a stack as any other with DSE_CATALOG=FOLDER.

    With --add a few rows of one's own machine, as dse measure asks for them, move and narrow the values of stacks,
    chips and links in seconds; each row once. Changed entries are written to a catalogue of your own, which DSE_CATALOG
    then names.

    Args:
        cases: Measured configurations: tables, rows as column and value, or files of --profile.
        output: TOML file to write; of a stack of your own, the catalogue's folder.
        folds: Cross-validate over this many groups of shapes.
        catalog: Also replace the fitted values in this catalogue [default: none].
        add: Update the values by these rows, without a fit, into a catalogue of your own.
        stack: Fit a stack of your own: at most eight numbers [default: my-stack, where -o is a folder].
        profile: Read files of tools instead of tables: logs of Megatron-LM, NeMo, torchtitan, MaxText; results of vllm
            bench serve, sglang bench_serving, GenAI-Perf; starts of vLLM, SGLang, TensorRT-LLM; nccl-tests, rccl-tests;
            profiles of PyTorch, JAX and Nsight Systems; power logs of nvidia-smi and DCGM next to their run.
        run_cells: Options of the runs.
        rows: CSV file for the rows of the files [default: none].
        force: Replace a file that dse has not written.
    """
    fits_stack = not add and (stack is not None or output.is_dir() or not output.suffix)
    if stack is not None and (add or output.suffix == ".toml"):
        raise InputError(
            "--stack",
            "--add" if add else f"-o {output}",
            "the folder of a catalogue, without --add",
            f"write -o my_catalog --stack {stack}",
        )
    if any(vars(run_cells).values()) and not profile:
        fix = "add --profile, or write the values into the table"
        raise InputError("options", "-w, -s, -n, --software or --set", "these with --profile alone", fix)
    with tables.measured_tables(cases, run_cells, profile, rows, None if fits_stack else output, force) as read:
        if add:
            report = _add(read.paths, output, catalog, force)
        elif fits_stack:
            report = _fit_stack(read.paths, output, stack or "my-stack", catalog, force)
        else:
            report = _fit(read.paths, folds, output, catalog, force)
    return dataclasses.replace(report, notes=[*read.notes, *report.notes])


def _fit(paths: Sequence[Path], folds: int, output: Path, catalog: Path | None, force: bool) -> Report:
    """Fit what tables of this kind calibrate, here or by the program of a checkout."""
    from dse.io import checkout
    from dse.lab.fits import jobs, usage_line

    notes: list[str] = []
    try:
        _, errors, files = jobs.run(paths, folds, output, catalog, progress=notes.append, force=force)
    except jobs.UnknownJobError:
        program = checkout.program("calibrate")
        if program is None:
            raise
        options = ["-o", output, "--folds", folds, *(["--catalog", catalog] if catalog else [])]
        words = [*options, *["--force"] * force, "--", *paths]
        status, text = checkout.run(program, words, subprocess.PIPE)
        return Report({"output": output}, [verbatim(text.rstrip("\n"))], status=status)
    usage = usage_line(catalog) if catalog else ""
    return dataclasses.replace(fit_report(errors, files), notes=notes, usage=usage)


def fit_report(errors: Errors, files: Iterable[Path]) -> Report:
    """Return the report of a fit: its table of errors, and the files that it has written.

    Args:
        errors: table of errors.
        files: of the fit.
    """
    keys = [name.replace(" ", "_") for name in errors.header]
    rows = [dict(zip(keys, row, strict=True)) for row in errors.rows]

    def text(value: Any) -> str:
        return percent(value) if isinstance(value, float) else str(value)

    columns = [
        Column(name, key, text, left=not i) for i, (name, key) in enumerate(zip(errors.header, keys, strict=True))
    ]
    note = [Line(errors.note)] if errors.note else []
    files = list(files)
    return Report(
        {"errors": rows, "note": errors.note, "files": files},
        [Table("errors", columns, rows), *note],
        files=files,
    )


def _fit_stack(paths: Sequence[Path], folder: Path, name: str, catalog: Path | None, force: bool) -> Report:
    """Fit a stack of the user's own to runs and write it to ``folder``."""
    from dse.lab.fits import own

    if catalog is not None:
        raise InputError(
            "calibrate --catalog",
            f"{catalog}, with a stack of your own",
            "one folder",
            "leave --catalog out: -o names the folder",
        )
    fit = own.fit(paths, name, folder, force)
    left_out = "" if fit.unseen is None else f", {percent(fit.unseen)} of runs left out of the fit"
    text = (
        f"{counted(fit.runs, 'run')}, from {fit.base}: mean error {percent(fit.before)} before, "
        f"{percent(fit.error)} after{left_out}\n{fit.note}\n"
        f"a configuration without a run is off by {percent(fit.residual)} more (one standard deviation)"
    )
    notes = []
    if fit.runs > 1 and max(fit.error, fit.residual) > _EXPLAINED:  # one run alone cannot tell what it is
        notes.append(
            f"the fit does not explain these runs (mean error {percent(fit.error)}): check their columns, "
            "units and mapping, or ask dse diagnose for causes, before you decide with this stack"
        )
    document = {field.name: getattr(fit, field.name) for field in dataclasses.fields(fit)}
    sections: list[Section] = [Table("values", _value_columns(), fit.values), Line(text)]
    return Report(document, sections, notes, files=[fit.path], usage=fit.usage)


def _value_columns() -> list[Column]:
    """Return the columns of values that a fit has changed, with their spreads."""

    def text(name: str) -> Column:
        return Column(f"value {name}", name, row_text=lambda row: _value_text(row.path, getattr(row, name)))

    return [
        Column("parameter", "path", _name, left=True),
        text("before"),
        text("after"),
        Column("spread before", "spread_before", percent),
        Column("spread after", "spread_after", percent),
    ]


def _value_text(path: str, value: float) -> str:
    """Return the value of a leaf, or of a level, as text."""
    from dse.designs import all_leaves

    return setting(value, all_leaves()[path]["units"] if path in all_leaves() else "1")


def _name(path: str) -> str:
    """Return the short name of a leaf, or the last part of another path."""
    from dse.designs import all_leaves, short_name

    return short_name(path) if path in all_leaves() else path.rpartition(".")[2]


def _add(paths: Sequence[Path], output: Path, catalog: Path | None, force: bool) -> Report:
    """Update the folder ``catalog`` by rows, and write what changed to the TOML file ``output``."""
    from dse.lab.fits import adding

    if catalog is None:
        raise InputError("calibrate --add", "no --catalog", "a folder of your own", "add --catalog my_catalog")
    update = adding.add(paths, catalog, output, force)
    entry = Column("of", "slug", left=True, row_text=lambda row: f"{row.kind} {row.slug}")
    error = (
        f"{counted(update.rows, 'figure')}: error {percent(update.before)} before, "
        f"{percent(update.residual)} after (root mean square)"
    )
    sections: list[Section] = [Line(error)]
    if update.updates:
        kind = Column("kind", "kind", hidden=True)
        table = Table("values", [kind, entry, *_value_columns()], update.updates, keys=2)
        sections = [table, *sections]
    else:
        text = f"no value of the catalogue moves or narrows by these rows: nothing is written to {catalog}"
        sections.append(Line(text))
    notes = []
    if far := ", ".join(_name(change.path) for change in update.updates if _is_far(change)):
        notes.append(f"{far}: moved by more than {_FAR:g} times the spread before: check the rows")
    if update.are_runs and update.residual > max(0.5 * update.before, _AS_RUNS):
        notes.append(
            f"most of the error stays with these runs: dse calibrate ROWS -o {catalog} fits a stack of your own, "
            "whose level takes what they have in common"
        )
    return Report(update._asdict(), sections, notes, files=update.files, usage=update.usage)


def _is_far(change: Update) -> bool:
    """Return True if the log of a value moved by more than ``_FAR`` spreads; False for values of 0 or less."""
    if change.before <= 0.0 or change.after <= 0.0:
        return False
    return abs(math.log(change.after / change.before)) > _FAR * max(change.spread_before, 0.02)
