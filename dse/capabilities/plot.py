"""``dse plot``: figures of a results file, in Python ``dse.plot_results``; ``dse.plot`` is the package of figures."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from dse.errors import InputError
from dse.reports import Option, Report, capability
from dse.reports.options import Force


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


@capability("Show", "plot", path="plot_results", local="reads and writes files of this machine")
def plot_results(
    results: Annotated[Path | None, Option(is_argument=True, metavar="RESULTS.nc")] = None,
    output: Annotated[Path | None, Option(short="-o")] = None,
    kind: FigureKind | None = None,
    as_format: Annotated[str | None, Option(flag="--format", metavar="png|svg|pdf")] = None,
    scale: Annotated[str | None, Option(metavar="linear|log")] = None,
    system: Annotated[Sequence[str] | None, Option(flag="--system", short="-s", terminal=list[str])] = None,
    n_devices: Annotated[Sequence[int] | None, Option(flag="--n-devices", short="-n", terminal=list[int])] = None,
    force: Force = False,
) -> Report:
    """Draw the figures of a results file, or those of collectives.

    breakdown: step time of the best mappings, by part. pareto: the Pareto front of the objectives where it was kept,
    else step time against peak memory. interactivity: of serving, output tokens/s per device over tokens/s per user, a
    front per accelerator and a panel per workload. bounds: the share of the step time that is bound by compute, memory
    and network.

    Of a grid of machines also: shares of the step time along each axis, energy against time, and metrics against the
    clock.

    collectives, without a results file: bus bandwidth of all-reduce, all-gather and all-to-all against message size.

    Args:
        results: Results of dse run or dse search.
        output: File ending in .png, .svg or .pdf [default: next to the results].
        kind: Which figure [default: all that suit the results; with -o the breakdown].
        as_format: Format of figures next to the results [default: png].
        scale: Scale of both axes of interactivity [default: linear].
        system: Systems of collectives [default: one of each topology of the catalogue].
        n_devices: Group sizes of collectives [default: 8, 256].
        force: Replace a file that dse has not written.
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
        path = output or Path(f"collectives{ending}")
        return _report([_collectives(results, kind, path, system, n_devices, force)])
    if system or n_devices:
        raise InputError("-s, -n", f"with {results}", "--kind collectives", "leave them out")
    with open_results(results) as dataset:
        kinds = [kind or FigureKind.breakdown] if kind or output else figures.suited(dataset)
        paths = {figure_kind: output or figure_path(results, figure_kind, ending) for figure_kind in kinds}
        for path in paths.values():
            outputs.check_output(path, force, [results])
        for figure_kind, path in paths.items():
            figure = figures.KINDS[figure_kind](dataset) if scale is None else figures.interactivity(dataset, scale)
            figures.save(figure, path, force, [results])
    return _report(list(paths.values()))


def _report(paths: list[Path]) -> Report:
    """Return the report of figures that are written."""
    return Report({"figures": paths}, figures=paths)


def _collectives(
    results: Path | None,
    kind: FigureKind | None,
    path: Path,
    system: Sequence[str] | None,
    devices: Sequence[int] | None,
    force: bool,
) -> Path:
    """Draw collectives to a file and return its path; raise an InputError where the arguments are of another figure."""
    from dse.views import plot as figures

    if results is not None:
        raise InputError("dse plot --kind collectives", str(results), "no results file", "leave the file out")
    if kind != FigureKind.collectives:
        raise InputError("dse plot", "no results file", "RESULTS.nc, or --kind collectives", "name a results file")
    if any(count < 2 for count in devices or ()):
        raise InputError("dse plot --n-devices", str(min(devices or ())), "at least 2", "check the number")
    return figures.save(figures.collectives(system or None, devices or (8, 256)), path, force)
