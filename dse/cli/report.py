"""``dse report``: interactive page of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dse.cli.options import Force
from dse.cli.status import report_errors
from dse.errors import InputError
from dse.io.quantities import counted

#: Ending of pages.
_ENDING = ".html"


@report_errors
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.nc", help="Results of dse run or dse search.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File ending in .html [default: next to the results].")
    ] = None,
    points: Annotated[
        int, typer.Option(min=1_000, max=2_000_000, help="Designs that the page holds at most.")
    ] = 200_000,
    live: Annotated[
        bool, typer.Option("--live", help="Put the model into the page, which computes what is chosen or changed.")
    ] = False,
    force: Force = False,
) -> None:
    """Write a page to explore results in a browser, one HTML file.

    Any two metrics against each other, constraints, the Pareto front, every design with its parts, two side by side;
    and of each the lines that evaluate and launch it. Needs the extra report.
    """
    from dse.io import outputs
    from dse.sweep import open_results
    from dse.views import report as explorer

    place = output or results.with_suffix(_ENDING)
    if place.suffix.lower() != _ENDING:
        raise InputError("--output", place.name, f"a name ending in {_ENDING}", f"write {place.with_suffix(_ENDING)}")
    outputs.checked(place, force, [results])
    with open_results(results) as dataset:
        held = explorer.write(dataset, place, points, force, [results], live)
    print(f"{place} ({counted(held, 'design')}, {place.stat().st_size / 2**20:.1f} MiB)")
