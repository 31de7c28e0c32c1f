"""``dse report``: ``dse page`` of results, by its other name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dse.cli.options import Force
from dse.cli.page import Live, Output, Points, write
from dse.cli.status import report_errors


@report_errors
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.nc", help="Results of dse run or dse search.")],
    output: Output = None,
    points: Points = 200_000,
    live: Live = False,
    force: Force = False,
) -> None:
    """Write a page to explore results in a browser, one HTML file: dse page RESULTS.nc.

    Any two metrics against each other, constraints, the Pareto front, every design with its parts, two side by side;
    and of each the lines that evaluate and launch it.
    """
    write(results, None, live, points, output or results.with_suffix(".html"), force)
