"""``dse predict``, ``dse validate`` and ``dse calibrate``: predictions beside measurements, and fits to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dse.cli import show
from dse.cli.status import told


@told
def predict(
    cases: Annotated[Path, typer.Argument(metavar="CASES.csv", help="Configurations, one a row.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write.")],
) -> None:
    """Predict every row of a table; a bad row is marked as skipped with the reason."""
    from dse.validate import predict

    counts = predict(cases, output)
    print(f"{counts['predicted']} of {counts['rows']} rows predicted: {output}")


@told
def validate(
    cases: Annotated[list[Path], typer.Argument(metavar="CASES.csv …", help="Measured configurations.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file with every comparison.")] = None,
    docs: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Also write the page of the docs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare predictions with measurements: errors by source and metric."""
    from dse.accuracy import write_accuracy
    from dse.validate import validate

    report = validate(cases, output)
    if docs:
        write_accuracy(docs, cases)
    if as_json:
        show.document(report)
    else:
        _print(report)


@told
def calibrate(
    cases: Annotated[list[Path], typer.Argument(metavar="KERNELS.csv.gz …", help="Tables of measured kernels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="TOML file to write.")],
    folds: Annotated[int, typer.Option(min=0, max=20, help="Cross-validate over so many groups of shapes.")] = 0,
    catalog: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also replace the fitted tables of this catalogue.")
    ] = None,
    docs: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Also write the page of the docs.")] = None,
) -> None:
    """Fit the parameters of chips and networks to measured kernels by gradient, with spread and residual."""
    from dse.calibrate.kernels import calibrate, read_kernels
    from dse.calibrate.page import write_page
    from dse.calibrate.writing import tables, write, write_catalog

    kernels = read_kernels(cases)
    found = calibrate(kernels, folds)
    write(found, output)
    changed = write_catalog(found, catalog) if catalog else []
    if docs:
        write_page(docs, found, kernels)
        changed.append(docs)
    rows = [
        [f"{one.slug}.{one.name}", str(len(one.values)), str(sum(value.told for value in one.values.values())),
         show.percent(job.median_error)]
        for job in found for one in tables(job)
    ]  # fmt: skip
    header = ["table", "parameters", "told by the rows", "median error of the fit"]
    show.console().print(show.table(header, rows, left=["table"]))
    print(f"written: {', '.join(map(str, [output, *changed]))}")


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


def _figures(row: dict[str, Any]) -> list[str]:
    return [str(row["n"]), str(row["predicted"]), *(show.percent(row[name]) for name in _ERRORS.values())]
