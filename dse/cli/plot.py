"""``dse plot``: a figure of a results file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dse.cli.status import report_errors


class Kind(StrEnum):
    """Figures, by their name in :data:`dse.plot.KINDS`."""

    breakdown = "breakdown"
    pareto = "pareto"
    shares = "shares"
    energy = "energy"
    clock = "clock"
    bounds = "bounds"


@report_errors
def plot(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.nc", help="What dse run wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File; .png, .svg or .pdf [default: beside the results].")
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option(help="Which figure [default: those that the results are suited to, or with -o one].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that dse has not written.")] = False,
) -> None:
    """Draw the figures of a results file.

    breakdown: the best mappings; pareto: time against memory. Of a grid of machines: shares of the step time along each
    axis; energy against time; metrics against the clock. bounds: what of the step is bound by compute, memory, network.
    """
    from dse import outputs
    from dse import plot as figures
    from dse.drawing import beside
    from dse.sweep import open_results

    with open_results(results) as dataset:
        kinds = [kind or Kind.breakdown] if kind or output else figures.suited(dataset)
        places = {one: output or beside(results, one, ".png") for one in kinds}
        for place in places.values():
            outputs.checked(place, force, [results])
        for one, place in places.items():
            print(figures.save(figures.KINDS[one](dataset), place, force, [results]))
