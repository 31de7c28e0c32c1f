"""``dse predict``, ``dse validate`` and ``dse calibrate``: predictions beside measurements, and fits to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dse.cli import show
from dse.cli.status import report_errors


@report_errors
def predict(
    cases: Annotated[Path, typer.Argument(metavar="CASES.csv", help="Configurations, one a row.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write.")],
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Add the bounds of 80 % intervals to times and rates.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that dse has not written.")] = False,
) -> None:
    """Predict every row of a table; a bad row is marked as skipped with the reason."""
    from dse.measured.comparison import predict

    counts = predict(cases, output, uncertainty, force)
    print(f"{counts['predicted']} of {counts['rows']} rows predicted: {output}")


@report_errors
def validate(
    cases: Annotated[list[Path], typer.Argument(metavar="CASES.csv …", help="Measured configurations.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file with every comparison.")] = None,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Also say which share of the rows lies in its 80 % interval.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that dse has not written.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare predictions with measurements: errors by source and metric."""
    from dse.measured.comparison import validate

    report = validate(cases, output, uncertainty, force)
    if as_json:
        show.document(report)
    else:
        _print(report)


#: Column → field of the report; the last says what one constant utilisation a source would give.
_ERRORS = {
    "MAPE": "mape", "median": "median_ape", "bias": "bias", "90th percentile": "p90", "constant MFU": "baseline_mape",
}  # fmt: skip


def _print(report: dict[str, Any]) -> None:
    rows = [[row["source"], row["metric"], *_figures(row)] for row in report["rows"]]
    rows += [["all", metric, *_figures(row)] for metric, row in report["all"].items()]
    out = show.console()
    out.print(show.table(["source", "metric", "rows", "predicted", *_ERRORS], rows, left=["source", "metric"]))
    skipped: dict[str, int] = {}
    for row in report["all"].values():
        for reason, count in row["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + count
    if skipped:
        counted = sorted(skipped.items(), key=lambda item: -item[1])
        out.print()
        out.print(show.table(["skipped", "because"], [[str(n), reason] for reason, n in counted], left=["because"]))
    if "coverage" in report:
        held = [[row["source"], str(row["n"]), show.percent(row["coverage"])] for row in report["coverage"]]
        out.print()
        out.print(show.table(["source", "step times and rates", "in 80 % intervals"], held, left=["source"]))


def _figures(row: dict[str, Any]) -> list[str]:
    return [str(row["n"]), str(row["predicted"]), *(show.percent(row[name]) for name in _ERRORS.values())]


@report_errors
def calibrate(
    cases: Annotated[list[Path], typer.Argument(metavar="CASES.csv …", help="Measured configurations.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="TOML file to write.")],
    folds: Annotated[int, typer.Option(min=0, max=20, help="Cross-validate over so many groups of shapes.")] = 0,
    catalog: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also replace the fitted values of this catalogue.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that dse has not written.")] = False,
) -> None:
    """Fit parameters to measurements: of chips and networks to kernels or power limits, of software stacks to steps."""
    from dse.calibrate import jobs

    _, summary, written = jobs.run(cases, folds, output, catalog, force=force)
    rows = [[show.percent(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in summary.rows]
    show.console().print(show.table(summary.header, rows, left=summary.header[:1]))
    if summary.note:
        print(summary.note)
    print(f"written: {', '.join(map(str, written))}")
