"""``dse predict``, ``dse validate`` and ``dse calibrate``: predictions beside measurements, and fits to them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from dse.cli import show
from dse.cli.status import report_errors
from dse.errors import InputError


@report_errors
def predict(
    cases: Annotated[Path, typer.Argument(metavar="CASES.csv", help="Configurations, one a row.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write.")],
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Add the bounds of 80 % intervals to times and rates.")
    ] = False,
) -> None:
    """Predict every row of a table; a bad row is marked as skipped with the reason."""
    from dse.measured.comparison import predict

    counts = predict(cases, output, uncertainty)
    print(f"{counts['predicted']} of {counts['rows']} rows predicted: {output}")


@report_errors
def validate(
    cases: Annotated[list[Path], typer.Argument(metavar="CASES.csv …", help="Measured configurations.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="CSV file with every comparison.")] = None,
    docs: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Also write the page of the docs.")] = None,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Also say which share of the rows lies in its 80 % interval.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare predictions with measurements: errors by source and metric."""
    from dse.accuracy import write_accuracy
    from dse.measured.comparison import validate

    report = validate(cases, output, uncertainty)
    if docs:
        write_accuracy(docs, cases)
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


def calibrate_kernels(cases: list[Path], output: Path, folds: int, catalog: Path | None, docs: Path | None) -> None:
    """Fits chips and networks to measured kernels: errors on the screen, values in ``output`` or a catalogue too."""
    from dse.calibrate.kernel_page import write_page
    from dse.calibrate.kernels import calibrate, read_kernels
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


def calibrate_power(cases: list[Path], output: Path, catalog: Path | None, docs: Path | None) -> None:
    """Fits clocks and energies of chips to power limits and clocks; a group of rows is always left out once."""
    import numpy as np

    from dse.accuracy import runs
    from dse.calibrate.energy_page import write_page
    from dse.calibrate.power import calibrate, write, write_catalog

    found = calibrate(cases)
    write(found, output)
    changed = write_catalog(found, catalog) if catalog else []
    if docs:
        write_page(docs, found, _command(cases, docs), [runs.section()])
        changed.append(docs)
    rows = [
        [one.slug, str(len(one.unseen)), *(show.percent(float(np.mean(np.abs(np.expm1(e))))) for e in errors)]
        for one in found for errors in [(one.fit.errors, one.unseen)]
    ]  # fmt: skip
    show.console().print(show.table(["chip", "figures", "error", "unseen"], rows, left=["chip"]))
    print(f"written: {', '.join(map(str, [output, *changed]))}")


def calibrate_steps(cases: list[Path], output: Path, folds: int, catalog: Path | None, docs: Path | None) -> None:
    """Fits software stacks to measured steps: errors on the screen, values in ``output`` or a catalogue too."""
    from dse.calibrate import stacks
    from dse.calibrate.stack_page import page
    from dse.calibrate.steps import calibrate

    found = calibrate(cases, folds or 5, progress=print)
    output.write_text(stacks.toml(found), encoding="utf-8")
    if docs:
        docs.write_text(page(found, _command(cases, docs)), encoding="utf-8")
    changed = stacks.write_catalog(found, catalog) if catalog else []
    rows = [[e.source, str(e.rows), *map(show.percent, e[2:])] for e in stacks.errors_by_source(found)]
    header = ["source", "rows", "error", "unseen", "unseen median", "unseen 90 %", "unseen bias", "source left out"]
    show.console().print(show.table(header, rows, left=["source"]))
    print(f"80 % intervals hold {stacks.coverage(found):.1%} of the unseen rows")
    print(f"written: {', '.join(map(str, [output, *changed]))}")


def _command(cases: list[Path], docs: Path) -> str:
    return shlex.join(["dse", "calibrate", *map(str, cases), "-o", "FILE.toml", "--docs", str(docs)])


@report_errors
def calibrate(
    cases: Annotated[list[Path], typer.Argument(metavar="CASES.csv …", help="Measured configurations.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="TOML file to write.")],
    folds: Annotated[int, typer.Option(min=0, max=20, help="Cross-validate over so many groups of shapes.")] = 0,
    catalog: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also replace the fitted values of this catalogue.")
    ] = None,
    docs: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Also write the page of the docs.")] = None,
) -> None:
    """Fit parameters to measurements: of chips and networks to kernels or power limits, of software stacks to steps."""
    from dse.measured import energy, kernels

    kinds = {"kernels" if kernels.is_table(p) else "energy" if energy.is_table(p) else "steps" for p in cases}
    if len(kinds) > 1:
        mixed = " and ".join(sorted(kinds))
        raise InputError("calibrate", f"tables of {mixed}", "one kind at a time", "run it once for each")
    if kinds == {"kernels"}:
        calibrate_kernels(cases, output, folds, catalog, docs)
    elif kinds == {"energy"}:
        calibrate_power(cases, output, catalog, docs)
    else:
        calibrate_steps(cases, output, folds, catalog, docs)
