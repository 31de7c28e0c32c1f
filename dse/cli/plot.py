"""``dse plot``: figures of a results file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dse.cli.options import Force
from dse.cli.status import report_errors
from dse.errors import InputError


class FigureKind(StrEnum):
    """Figures, by their name in :data:`dse.views.plot.KINDS`."""

    breakdown = "breakdown"
    pareto = "pareto"
    shares = "shares"
    energy = "energy"
    clock = "clock"
    bounds = "bounds"
    nodes = "nodes"
    collectives = "collectives"
    interactivity = "interactivity"


@report_errors
def plot(
    results: Annotated[
        Path | None, typer.Argument(metavar="RESULTS.nc", help="Results of dse run or dse search.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File ending in .png, .svg or .pdf [default: next to the results]."),
    ] = None,
    kind: Annotated[
        FigureKind | None,
        typer.Option(help="Which figure [default: all that suit the results; with -o the breakdown]."),
    ] = None,
    as_format: Annotated[
        str | None,
        typer.Option("--format", metavar="png|svg|pdf", help="Format of figures next to the results [default: png]."),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="linear|log", help="Scale of both axes of interactivity [default: linear]."),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option("--system", "-s", help="Systems of collectives [default: one of each topology of the catalogue]."),
    ] = None,
    n_devices: Annotated[
        list[int] | None, typer.Option("--n-devices", "-n", min=2, help="Group sizes of collectives [default: 8, 256].")
    ] = None,
    force: Force = False,
) -> None:
    """Draw the figures of a results file, or those of collectives.

    breakdown: step time of the best mappings, by part. pareto: the Pareto front of the objectives where it was kept,
    else step time against peak memory. interactivity: of serving, output tokens/s per device over tokens/s per user, a
    front per accelerator and a panel per workload. bounds: the share of the step time that is bound by compute, memory
    and network.

    Of a grid of machines also: shares of the step time along each axis, energy against time, and metrics against the
    clock.

    collectives, without a results file: bus bandwidth of all-reduce, all-gather and all-to-all against message size.
    """
    from dse.views.figures import missing_requirement

    if missing := missing_requirement():
        raise missing
    from dse.io import outputs
    from dse.sweep import open_results
    from dse.views import plot as figures
    from dse.views.figures import figure_path
    from dse.views.plot.style import check_ending

    ending = f".{'png' if as_format is None else as_format}"
    if ending not in figures.ENDINGS:
        raise InputError("--format", repr(as_format), " ".join(e[1:] for e in figures.ENDINGS), "choose one of these")
    if output and check_ending(output).suffix.lower() != ending and as_format:
        raise InputError("--format", repr(as_format), f"{output.suffix.lower()[1:]}, as -o ends", "leave --format out")
    if scale is not None and kind is not FigureKind.interactivity:
        raise InputError("--scale", scale, "an option of one figure", "add --kind interactivity")
    if kind == FigureKind.collectives or results is None:
        print(_collectives(results, kind, output or Path(f"collectives{ending}"), system, n_devices, force))
        return
    if system or n_devices:
        raise InputError("-s, -n", f"with {results}", "--kind collectives", "leave them out")
    with open_results(results) as dataset:
        kinds = [kind or FigureKind.breakdown] if kind or output else figures.suited(dataset)
        paths = {figure_kind: output or figure_path(results, figure_kind, ending) for figure_kind in kinds}
        for path in paths.values():
            outputs.check_output(path, force, [results])
        for figure_kind, path in paths.items():
            figure = figures.KINDS[figure_kind](dataset) if scale is None else figures.interactivity(dataset, scale)
            print(figures.save(figure, path, force, [results]))


def _collectives(
    results: Path | None,
    kind: FigureKind | None,
    path: Path,
    system: list[str] | None,
    devices: list[int] | None,
    force: bool,
) -> Path:
    """Draw collectives to a file and return its path; raise an InputError where the arguments are of another figure."""
    from dse.views import plot as figures

    if results is not None:
        raise InputError("dse plot --kind collectives", str(results), "no results file", "leave the file out")
    if kind != FigureKind.collectives:
        raise InputError("dse plot", "no results file", "RESULTS.nc, or --kind collectives", "name a results file")
    return figures.save(figures.collectives(system or None, devices or (8, 256)), path, force)
