"""``dse predict`` and ``dse validate``: predictions, and predictions against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dse.cli import profiles, show
from dse.cli.options import Force, Json
from dse.cli.status import NOTHING_FEASIBLE, report_errors


def _show_columns(requested: bool) -> None:
    """Print the columns of the tables and exit, where they are requested."""
    if requested:
        _print_columns()
        raise typer.Exit


@report_errors
def _print_columns() -> None:
    """Print name, meaning and default of the columns that tables have, and of those that are written."""
    from dse.measured import OUTPUT_COLUMNS, SERVING_COLUMNS, STEP_COLUMNS

    out = show.console()
    for title, columns in (
        ("read from tables of training steps:", STEP_COLUMNS),
        ("\nread from tables of serving:", SERVING_COLUMNS),
    ):
        rows = [[", ".join(column.names), column.meaning, column.default_text] for column in columns]
        heads = ["column (or)", "what it says", "where it is empty"]
        out.print(title, style="bold")
        show.print_table(out, heads, rows, left=heads, prose=heads)
    out.print("\nwritten:", style="bold")
    heads = ["column", "what it says"]
    show.print_table(
        out, heads, [[name, meaning] for name, meaning in OUTPUT_COLUMNS.items()], left=heads, prose=heads[1:]
    )
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

    summary, lines = predict_lines(cases, output, uncertainty, force)
    if summary.misspelt:
        suggestions = (f"{name} (did you mean {suggestion}?)" for name, suggestion in summary.misspelt.items())
        show.note(f"columns that are not read: {', '.join(suggestions)}")
    if as_json:
        show.document({"rows": [_line_document(line) for line in lines], "all": summary.counts, "output": str(output)})
    else:
        print(f"{summary.predicted:,} of {show.counted(summary.rows, 'row')} predicted: {output}")
        _print_skipped(summary.skipped)
    return 0 if summary.predicted else NOTHING_FEASIBLE


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
    from dse.measured import validate

    run_cells = profiles.RunCells(workload, system, n_devices, software, settings)
    with profiles.tables(cases, profile, run_cells, rows, output, force) as tables:
        report = validate(tables, output, uncertainty, force)
    if as_json:
        show.document(report)
    else:
        _print(report)
    return 0 if any(row["predicted"] for row in report["rows"]) else NOTHING_FEASIBLE


def _line_document(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of the table for JSON: predictions as numbers, empty cells as None, other cells as texts."""
    return {
        name: float(text) if name.startswith("pred_") and name != "pred_note" and text else text or None
        for name, text in line.items()
    }


def _print_skipped(skipped: dict[str, int]) -> None:
    """Print the numbers of skipped rows by reason, most frequent first; nothing for none."""
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
    """Print number and errors by source and metric of predictions better than a roofline, which other rows lack."""
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
    """Print the report of a comparison: errors, refused figures, skipped rows, coverage of the intervals."""
    rows = [[row["source"], row["metric"], *_error_cells(row)] for row in report["rows"]]
    rows += [["all", metric, *_error_cells(row)] for metric, row in report["all"].items()]
    out = show.console()
    show.print_table(out, ["source", "metric", "rows", "predicted", *_ERRORS], rows, left=["source", "metric"], keys=2)
    _print_refused(report["rows"])
    skipped: dict[str, int] = {}
    for row in report["all"].values():
        for reason, count in row["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + count
    _print_skipped(skipped)
    if "coverage" in report:
        coverage_rows = [[row["source"], str(row["n"]), show.percent(row["coverage"])] for row in report["coverage"]]
        out.print()
        show.print_table(out, ["source", "figures", "within 80 % intervals"], coverage_rows, left=["source"])


def _error_cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row of errors: numbers of rows and of predictions, then each of ``_ERRORS`` in per cent."""
    return [str(row["n"]), str(row["predicted"]), *(show.percent(row[name]) for name in _ERRORS.values())]
