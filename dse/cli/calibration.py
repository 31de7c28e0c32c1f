"""``dse predict``, ``dse validate`` and ``dse calibrate``: predictions against measurements, and fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli import profiles, show
from dse.cli.options import Force, Json
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dse.calibrate.adding import Update
    from dse.calibrate.jobs import Errors


def _show_columns(wanted: bool) -> None:
    """Print the columns, and exit."""
    if wanted:
        _print_columns()
        raise typer.Exit


@report_errors
def _print_columns() -> None:
    from dse.measured.columns import READ, SERVED, WRITTEN

    out = show.console()
    for title, listed in (("read from tables of training steps:", READ), ("\nread from tables of serving:", SERVED)):
        rows = [[", ".join(column.names), column.meaning, column.otherwise] for column in listed]
        heads = ["column (or)", "what it says", "where it is empty"]
        out.print(title, style="bold")
        show.print_table(out, heads, rows, left=heads, prose=heads)
    out.print("\nwritten:", style="bold")
    heads = ["column", "what it says"]
    show.print_table(out, heads, [[name, about] for name, about in WRITTEN.items()], left=heads, prose=heads[1:])
    out.print("\nTables of kernels and of energy have columns of their own: docs/kernels.md, docs/energy.md.")


Columns = Annotated[
    bool,
    typer.Option("--columns", callback=_show_columns, is_eager=True, help="List the columns of the tables and exit."),
]


Measured = Annotated[
    list[Path], typer.Argument(metavar="CASES.csv …", help="Measured configurations, or the files of --profile.")
]


@report_errors
def predict(
    cases: Annotated[Path, typer.Argument(metavar="CASES.csv", help="Configurations, one per row.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write.")],
    uncertainty: Annotated[
        bool,
        typer.Option(
            "--uncertainty/--no-uncertainty",
            help="Add the ends of 80 % intervals of times, rates and peak memory.",
        ),
    ] = True,
    force: Force = False,
    as_json: Json = False,
    columns: Columns = False,
) -> int:
    """Predict every row of a table.

    A row needs at least a model, a gpu (or a system), n_gpus, global_batch and seq_len; --columns lists all columns,
    with what holds for a row that leaves one empty. The columns of the table are kept. Added are pred_<metric> in SI
    units, completed (what the row left open, with the value taken), pred_note, and skipped (why there is none).

    A bad row never stops the file. Exit status 1 when no row is predicted.
    """
    from dse.measured.comparison import predict_lines

    found, lines = predict_lines(cases, output, uncertainty, force)
    if found.misspelt:
        meant_names = (f"{name} (did you mean {meant}?)" for name, meant in found.misspelt.items())
        show.note(f"columns that are not read: {', '.join(meant_names)}")
    if as_json:
        show.document({"rows": [_row(line) for line in lines], "all": found.counts, "output": str(output)})
    else:
        print(f"{found.predicted:,} of {show.counted(found.rows, 'row')} predicted: {output}")
        _print_skipped(found.skipped)
    return 0 if found.predicted else NOTHING_FEASIBLE


@report_errors
def validate(
    cases: Measured,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file with every comparison [default: none].")
    ] = None,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Also print the share of rows within their 80 % intervals.")
    ] = False,
    profile: profiles.Profile = False,
    workload: profiles.Workload = None,
    system: profiles.System = None,
    n_devices: profiles.Devices = None,
    software: profiles.Stack = None,
    settings: profiles.Settings = None,
    rows: profiles.RowsFile = None,
    force: Force = False,
    as_json: Json = False,
    columns: Columns = False,
) -> int:
    """Compare predictions with measurements.

    Prints the errors by source and metric. The tables have the columns of dse predict, and measured figures:
    metric, value and unit, or columns such as iteration_ms_measured; --columns lists them. With --profile the files
    are those of tools, and -w, -s, -n and --set state what they leave out.

    A bad row never stops the file. Exit status 1 when no figure is predicted.
    """
    from dse.measured.comparison import validate

    stated = profiles.StatedCells(workload, system, n_devices, software, settings)
    with profiles.tables(cases, profile, stated, rows, output, force) as tables:
        report = validate(tables, output, uncertainty, force)
    if as_json:
        show.document(report)
    else:
        _print(report)
    return 0 if any(row["predicted"] for row in report["rows"]) else NOTHING_FEASIBLE


def _row(line: dict[str, Any]) -> dict[str, Any]:
    """A line of the table as JSON: predictions as numbers, empty cells as null."""
    return {
        name: float(text) if name.startswith("pred_") and name != "pred_note" and text else text or None
        for name, text in line.items()
    }


def _print_skipped(skipped: dict[str, int]) -> None:
    """Print the numbers of skipped rows by reason."""
    if not skipped:
        return
    out = show.console()
    counted = sorted(skipped.items(), key=lambda item: -item[1])
    rows = [[f"{count:,}", reason] for reason, count in counted[:_REASONS]]
    if len(counted) > _REASONS:
        rows.append([f"{sum(count for _, count in counted[_REASONS:]):,}", "other reasons: see the column skipped"])
    out.print()
    show.print_table(out, ["skipped", "because"], rows, left=["because"], prose=["because"])


#: Maximum number of printed reasons.
_REASONS = 20

#: Column → field of the report; the last is the error of one constant utilisation per source.
_ERRORS = {
    "MAPE": "mape",
    "median": "median_ape",
    "bias": "bias",
    "90th percentile": "p90",
    "constant MFU": "baseline_mape",
}


def _print_refused(rows: list[dict[str, Any]]) -> None:
    """Print figures better than a perfect roofline with their errors, which are in no other statistic."""
    refused_rows = [row for row in rows if row["refused"]["n"]]
    if not refused_rows:
        return
    errors = {header: _ERRORS[header] for header in ("MAPE", "median", "bias")}
    cells = []
    for row in refused_rows:
        refused = row["refused"]
        sizes = (show.percent(refused[name]) for name in errors.values())
        cells.append([row["source"], row["metric"], f"{refused['n']:,}", *sizes])
    out = show.console()
    out.print()
    show.print_table(out, ["source", "metric", "refused", *errors], cells, left=["source", "metric"], keys=2)


def _print(report: dict[str, Any]) -> None:
    rows = [[row["source"], row["metric"], *_figures(row)] for row in report["rows"]]
    rows += [["all", metric, *_figures(row)] for metric, row in report["all"].items()]
    out = show.console()
    show.print_table(out, ["source", "metric", "rows", "predicted", *_ERRORS], rows, left=["source", "metric"], keys=2)
    _print_refused(report["rows"])
    skipped: dict[str, int] = {}
    for row in report["all"].values():
        for reason, count in row["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + count
    _print_skipped(skipped)
    if "coverage" in report:
        held = [[row["source"], str(row["n"]), show.percent(row["coverage"])] for row in report["coverage"]]
        out.print()
        show.print_table(out, ["source", "figures", "within 80 % intervals"], held, left=["source"])


def _figures(row: dict[str, Any]) -> list[str]:
    return [str(row["n"]), str(row["predicted"]), *(show.percent(row[name]) for name in _ERRORS.values())]


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
    from dse.calibrate import jobs
    from dse.io import checkout

    stated = profiles.StatedCells(workload, system, n_devices, software, settings)
    is_own = not add and (stack is not None or output.is_dir() or not output.suffix)
    if stack is not None and (add or output.suffix == ".toml"):
        raise InputError(
            "--stack",
            "--add" if add else f"-o {output}",
            "the folder of a catalogue, without --add",
            f"write -o my_catalog --stack {stack}",
        )
    with profiles.tables(cases, profile, stated, rows, None if is_own else output, force) as tables:
        if add:
            _add(tables, output, catalog, force)
        elif is_own:
            _own(tables, output, stack or "my-stack", catalog, force)
        else:
            try:
                _, errors, written = jobs.run(tables, folds, output, catalog, force=force)
            except jobs.UnknownJobError:
                program = checkout.program("calibrate")
                if program is None:
                    raise
                options = ["-o", output, "--folds", folds, *(["--catalog", catalog] if catalog else [])]
                return checkout.run(program, [*options, *["--force"] * force, "--", *tables])[0]
            print_fit(errors, written)
    return 0


def print_fit(summary: Errors, written: Iterable[Path]) -> None:
    """Print the errors of a fit and the files that it has written."""
    lines = [[show.percent(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in summary.rows]
    show.print_table(show.console(), summary.header, lines, left=summary.header[:1])
    if summary.note:
        print(summary.note)
    print(f"written: {', '.join(map(str, written))}")


def _own(cases: list[Path], folder: Path, name: str, catalog: Path | None, force: bool) -> None:
    """Fit a stack of one's own, and print its numbers."""
    from dse.calibrate import own

    if catalog is not None:
        raise InputError(
            "calibrate --catalog",
            f"{catalog}, with a stack of your own",
            "one folder",
            "leave --catalog out: -o names the folder",
        )
    found = own.fit(cases, name, folder, force)
    out = show.console()
    columns = ["parameter", "value before", "value after", "spread before", "spread after"]
    show.print_table(out, columns, [_moved(*one[:5]) for one in found.values], left=columns[:1])
    left_out = "" if found.unseen is None else f", {show.percent(found.unseen)} of runs left out of the fit"
    print(
        f"{show.counted(found.runs, 'run')}, from {found.base}: mean error {show.percent(found.before)} before, "
        f"{show.percent(found.error)} after{left_out}"
    )
    print(found.note)
    print(f"a configuration without a run is off by {show.percent(found.residual)} more (one standard deviation)")
    print(f"written: {found.path}")
    print(f"used with DSE_CATALOG={folder} and --software {name}")
    if found.runs > 1 and max(found.error, found.residual) > _EXPLAINED:  # one run alone cannot tell what it is
        show.note(
            f"the fit does not explain these runs (mean error {show.percent(found.error)}): check their columns, "
            "units and mapping, or ask dse diagnose for causes, before you decide with this stack"
        )


def _moved(path: str, *numbers: float) -> list[str]:
    """A line of a table: parameter, values and spreads before and after."""
    from dse.designs.leaves import known_leaves

    before, after, *spreads = numbers
    units = known_leaves()[path]["units"] if path in known_leaves() else "1"
    return [_name(path), show.setting(before, units), show.setting(after, units), *map(show.percent, spreads)]


def _name(path: str) -> str:
    """The short name of a leaf, or of a number that is none."""
    from dse.designs.leaves import known_leaves, short_name

    return short_name(path) if path in known_leaves() else path.rpartition(".")[2]


def _add(cases: list[Path], output: Path, catalog: Path | None, force: bool) -> None:
    """Update the catalogue by rows, and print what changed."""
    from dse.calibrate import adding

    if catalog is None:
        raise InputError("calibrate --add", "no --catalog", "a folder of your own", "add --catalog my_catalog")
    found = adding.add(cases, catalog, output, force)
    out = show.console()
    rows = [
        [f"{one.kind} {one.slug}", *_moved(one.path, one.before, one.after, one.spread_before, one.spread_after)]
        for one in found.updates
    ]
    columns = ["of", "parameter", "value before", "value after", "spread before", "spread after"]
    if rows:
        show.print_table(out, columns, rows, left=columns[:2])
    print(
        f"{show.counted(found.rows, 'figure')}: error {show.percent(found.before)} before, "
        f"{show.percent(found.residual)} after (root mean square)"
    )
    print(f"written: {', '.join(map(str, found.files))}")
    if rows:
        print(f"used with DSE_CATALOG={catalog}")
    else:
        print(f"no value of the catalogue moves or narrows by these rows: nothing is written to {catalog}")
    if far := ", ".join(_name(one.path) for one in found.updates if _is_far(one)):
        show.note(f"{far}: moved by more than {_FAR:g} times the spread before: check the rows")
    if found.are_runs and found.residual > max(0.5 * found.before, _AS_RUNS):
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


def _is_far(one: Update) -> bool:
    """Whether a value moved further than its spread makes likely."""
    if one.before <= 0.0 or one.after <= 0.0:
        return False
    return abs(math.log(one.after / one.before)) > _FAR * max(one.spread_before, 0.02)
