"""``dse calibrate``: parameters of stacks, chips and engines from measured rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dse.cli import profiles, show
from dse.cli.calibration import Measured
from dse.cli.options import Force
from dse.cli.panels import Registration
from dse.cli.status import report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dse.lab.fits import Errors, Update


@report_errors
def calibrate(
    cases: Measured,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="TOML file to write; of a stack of your own, the catalogue's folder.")
    ],
    folds: Annotated[int, typer.Option(min=0, max=20, help="Cross-validate over this many groups of shapes.")] = 0,
    catalog: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also replace the fitted values in this catalogue [default: none]."),
    ] = None,
    add: Annotated[
        bool,
        typer.Option("--add", help="Update the values by these rows, without a fit, into a catalogue of your own."),
    ] = False,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            metavar="NAME",
            help="Fit a stack of your own: at most eight numbers [default: my-stack, where -o is a folder].",
        ),
    ] = None,
    profile: profiles.Profile = False,
    workload: profiles.Workload = None,
    system: profiles.System = None,
    n_devices: profiles.Devices = None,
    software: profiles.Stack = None,
    settings: profiles.Settings = None,
    rows: profiles.RowsFile = None,
    force: Force = False,
) -> int:
    """Fit parameters to measurements.

    Parameters of software stacks are fitted to training steps. In a source checkout, parameters of chips and networks
    are fitted to kernels or power limits, and those of engines to tables of serving. With --profile the files are those
    of tools.

    Where -o is a folder, a stack of your own is fitted to a few runs: at most eight numbers, from those of the stack
    that the rows name. It is written to FOLDER/software/NAME.toml, and is a stack as any other with DSE_CATALOG=FOLDER.

    With --add a few rows of one's own machine, as dse measure asks for them, move and narrow the values of stacks,
    chips and links in seconds; each row once. Changed entries are written to a catalogue of your own, which DSE_CATALOG
    then names.
    """
    from dse.io import checkout
    from dse.lab.fits import jobs

    run_cells = profiles.RunCells(workload, system, n_devices, software, settings)
    fits_stack = not add and (stack is not None or output.is_dir() or not output.suffix)
    if stack is not None and (add or output.suffix == ".toml"):
        raise InputError(
            "--stack",
            "--add" if add else f"-o {output}",
            "the folder of a catalogue, without --add",
            f"write -o my_catalog --stack {stack}",
        )
    with profiles.tables(cases, profile, run_cells, rows, None if fits_stack else output, force) as tables:
        if add:
            _add(tables, output, catalog, force)
        elif fits_stack:
            _fit_stack(tables, output, stack or "my-stack", catalog, force)
        else:
            try:
                _, errors, paths = jobs.run(tables, folds, output, catalog, force=force)
            except jobs.UnknownJobError:
                program = checkout.program("calibrate")
                if program is None:
                    raise
                options = ["-o", output, "--folds", folds, *(["--catalog", catalog] if catalog else [])]
                return checkout.run(program, [*options, *["--force"] * force, "--", *tables])[0]
            print_fit(errors, paths)
    return 0


def print_fit(summary: Errors, paths: Iterable[Path]) -> None:
    """Print the errors of a fit and the files that it has written.

    Args:
        summary: table of errors.
        paths: files of the fit.
    """
    lines = [[show.percent(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in summary.rows]
    show.print_table(show.console(), summary.header, lines, left=summary.header[:1])
    if summary.note:
        print(summary.note)
    print(f"written: {', '.join(map(str, paths))}")


def _fit_stack(cases: list[Path], folder: Path, name: str, catalog: Path | None, force: bool) -> None:
    """Fit a stack of the user's own to runs, write it to ``folder``, and print its numbers."""
    from dse.lab.fits import own

    if catalog is not None:
        raise InputError(
            "calibrate --catalog",
            f"{catalog}, with a stack of your own",
            "one folder",
            "leave --catalog out: -o names the folder",
        )
    fit = own.fit(cases, name, folder, force)
    out = show.console()
    columns = ["parameter", "value before", "value after", "spread before", "spread after"]
    show.print_table(out, columns, [_change_cells(*value[:5]) for value in fit.values], left=columns[:1])
    left_out = "" if fit.unseen is None else f", {show.percent(fit.unseen)} of runs left out of the fit"
    print(
        f"{show.counted(fit.runs, 'run')}, from {fit.base}: mean error {show.percent(fit.before)} before, "
        f"{show.percent(fit.error)} after{left_out}"
    )
    print(fit.note)
    print(f"a configuration without a run is off by {show.percent(fit.residual)} more (one standard deviation)")
    print(f"written: {fit.path}")
    print(f"used with DSE_CATALOG={folder} and --software {name}")
    if fit.runs > 1 and max(fit.error, fit.residual) > _EXPLAINED:  # one run alone cannot tell what it is
        show.note(
            f"the fit does not explain these runs (mean error {show.percent(fit.error)}): check their columns, "
            "units and mapping, or ask dse diagnose for causes, before you decide with this stack"
        )


def _change_cells(path: str, *numbers: float) -> list[str]:
    """Return the cells of a parameter: name, values before and after, spreads before and after in per cent."""
    from dse.designs import all_leaves

    old_value, new_value, *spreads = numbers
    units = all_leaves()[path]["units"] if path in all_leaves() else "1"
    return [_name(path), show.setting(old_value, units), show.setting(new_value, units), *map(show.percent, spreads)]


def _name(path: str) -> str:
    """Return the short name of a leaf, or the last part of another path."""
    from dse.designs import all_leaves, short_name

    return short_name(path) if path in all_leaves() else path.rpartition(".")[2]


def _add(cases: list[Path], output: Path, catalog: Path | None, force: bool) -> None:
    """Update the folder ``catalog`` by rows, write what changed to the TOML file ``output``, and print it."""
    from dse.lab.fits import adding

    if catalog is None:
        raise InputError("calibrate --add", "no --catalog", "a folder of your own", "add --catalog my_catalog")
    update = adding.add(cases, catalog, output, force)
    out = show.console()
    rows = [
        [
            f"{change.kind} {change.slug}",
            *_change_cells(change.path, change.before, change.after, change.spread_before, change.spread_after),
        ]
        for change in update.updates
    ]
    columns = ["of", "parameter", "value before", "value after", "spread before", "spread after"]
    if rows:
        show.print_table(out, columns, rows, left=columns[:2])
    print(
        f"{show.counted(update.rows, 'figure')}: error {show.percent(update.before)} before, "
        f"{show.percent(update.residual)} after (root mean square)"
    )
    print(f"written: {', '.join(map(str, update.files))}")
    if rows:
        print(f"used with DSE_CATALOG={catalog}")
    else:
        print(f"no value of the catalogue moves or narrows by these rows: nothing is written to {catalog}")
    if far := ", ".join(_name(change.path) for change in update.updates if _is_far(change)):
        show.note(f"{far}: moved by more than {_FAR:g} times the spread before: check the rows")
    if update.are_runs and update.residual > max(0.5 * update.before, _AS_RUNS):
        show.note(
            f"most of the error stays with these runs: dse calibrate ROWS -o {catalog} fits a stack of your own, "
            "whose level takes what they have in common"
        )


#: Mean error of a fit, and deviation of a configuration without a run, beyond which something else than its numbers is
#: off: of published sets the error stays below half of it. A few rows in other units hardly move the mean.
_EXPLAINED = 0.3

#: Root mean square error of rows below which nothing is left to explain: runs that are repeated differ by it.
_AS_RUNS = 0.05

#: Spreads by which a value may move before the rows are doubted.
_FAR = 4.0


def _is_far(change: Update) -> bool:
    """Return True if the log of a value moved by more than ``_FAR`` spreads; False for values of 0 or less."""
    if change.before <= 0.0 or change.after <= 0.0:
        return False
    return abs(math.log(change.after / change.before)) > _FAR * max(change.spread_before, 0.02)


REGISTRATION = Registration("Compare with reality", calibrate)
