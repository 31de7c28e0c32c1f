"""``dse plot``: a figure of a results file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dse.cli.status import told


class Kind(StrEnum):
    """Figures, by their name in :data:`dse.plot.KINDS`."""

    breakdown = "breakdown"
    pareto = "pareto"


@told
def plot(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.nc", help="What dse run wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File; .png, .svg or .pdf [default: beside the results].")
    ] = None,
    kind: Annotated[Kind, typer.Option(help="Which figure.")] = Kind.breakdown,
) -> None:
    """Draw a figure of a results file."""
    from dse import plot as figures
    from dse.sweep import open_results

    name = results.stem if kind is Kind.breakdown else f"{results.stem}_{kind}"
    with open_results(results) as dataset:
        print(figures.save(figures.KINDS[kind](dataset), output or results.with_name(f"{name}.png")))
