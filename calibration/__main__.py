"""``python -m calibration CASES.csv … -o FILE.toml``: ``dse calibrate`` with the jobs of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dse.cli.status import report_errors
from dse.io.interruption import arm
from dse.io.terminal import filter_output
from dse.reports.terminal import note, print_report


@report_errors
def main(
    cases: Annotated[list[Path], typer.Argument(metavar="CASES.csv …", help="Measured rows, of one kind.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="TOML file to write.")],
    folds: Annotated[int, typer.Option(min=0, max=20, help="Cross-validate over this many groups of shapes.")] = 0,
    catalog: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also replace the fitted values in this catalogue.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that dse has not written.")] = False,
) -> None:
    """Fit parameters to measurements of kernels, power, engines or steps."""
    from calibration.jobs import JOBS
    from dse.lab.commands.calibrate import fit_report
    from dse.lab.fits import jobs

    _, errors, files = jobs.run(cases, folds, output, catalog, progress=note, force=force, jobs=JOBS | jobs.JOBS)
    print_report(fit_report(errors, files))


if __name__ == "__main__":
    arm()
    filter_output()
    typer.run(main)
