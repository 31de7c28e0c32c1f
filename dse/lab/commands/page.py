"""``dse page``: results to explore, a model that computes, or both, as one HTML file; also ``dse report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dse.cli.options import AnyOption, Devices, Force, Serving, Settings, Stack
from dse.cli.panels import Registration
from dse.cli.status import report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from dse.lab.page import Start

#: Designs of a page at most, unless told otherwise.
MOST_POINTS = 200_000

#: Ending of pages.
_ENDING = ".html"

#: Options that ``dse report`` has too.
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File ending in .html [default: RESULTS.html or WORKLOAD_SYSTEM.html]."),
]
Points = Annotated[int, typer.Option(min=1_000, max=2_000_000, help="Designs that the page holds at most.")]
Live = Annotated[
    bool, typer.Option("--live", help="Put the model into the page, which computes what is chosen or changed.")
]


@report_errors
def page(
    results: Annotated[
        Path | None, typer.Argument(metavar="RESULTS.nc", help="Results of dse run or dse search, to explore.")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload", "-w", help="Workload of the model, by its name in the catalogue [default: no model]."
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option("--system", "-s", help="System or accelerator of the model, by its name [default: no model]."),
    ] = None,
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    serving: Serving = False,
    live: Live = False,
    points: Points = MOST_POINTS,
    output: Output = None,
    force: Force = False,
) -> None:
    """Write a page of results, of a design, or both.

    One HTML file that explores results and computes designs. Of results: any two metrics against each other,
    constraints, the Pareto front, every design with its parts, two side by side, and of each the lines that evaluate
    and launch it. Of a design the model itself: sliders and fields for every value, time, memory, energy and cost by
    part, a curve over any value and a map over any two. Without Python and without a network.
    """
    start = None
    if workload is not None and system is not None:
        start = _start(workload, system, settings, n_devices, software, any_option, serving)
    elif results is None or workload is not None or system is not None:
        got = "only one of -w and -s" if workload or system else "nothing to show"
        allowed = "RESULTS.nc, -w WORKLOAD -s SYSTEM, or both"
        raise InputError("dse page", got, allowed, "name results, or a model and a machine: dse list")
    elif settings or n_devices is not None or software is not None or any_option or serving:
        got = "options of a design without -w and -s"
        raise InputError("dse page", got, "-w WORKLOAD -s SYSTEM with them", "add both, or leave the options out")
    if results is None and (live or points != MOST_POINTS):
        got = "--live or --points without results"
        raise InputError("dse page", got, "RESULTS.nc with them", "name results, or leave the options out")
    path = results.with_suffix(_ENDING) if results else Path(f"{workload}_{system}{_ENDING}")
    write(results, start, live, points, output or path, force)


def _start(
    workload: str,
    system: str,
    settings: list[str] | None,
    n_devices: int | None,
    software: str | None,
    any_option: bool,
    serving: bool,
) -> Start:
    """Build the design of the options, with the names and words by which the page evaluates it."""
    from dse.cli.evaluate import design_of
    from dse.designs import accelerator_of, short_name
    from dse.doors import STUDIES
    from dse.lab.page import CatalogNames, Start, value_text

    study = STUDIES["serving" if serving else "training"]
    request = design_of(workload, system, settings, n_devices, software, any_option, study)
    option_words = ["-w", workload, "-s", system, *(["--software", software] if software else [])]
    option_words += ["--any-option"] if any_option else []
    set_values = {short_name(path): value_text(path, value) for path, value in request.values.items()}
    names = CatalogNames(
        workload, system, request.stack, accelerator_of(system), option_words, set_values, known=request.set_leaves
    )
    return Start(study, request.design, names)


def write(results: Path | None, start: Start | None, live: bool, points: int, path: Path, force: bool) -> None:
    """Write an HTML page of results or of one design, and print its path and size."""
    from dse.io import counted, outputs
    from dse.lab import page as pages

    if path.suffix.lower() != _ENDING:
        raise InputError("--output", path.name, f"a name ending in {_ENDING}", f"write {path.with_suffix(_ENDING)}")
    if results is None:
        outputs.check_output(path, force, [])
        pages.write(path, start=start, force=force)
        print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
        return
    from dse.sweep import open_results

    outputs.check_output(path, force, [results])
    with open_results(results) as dataset:
        size = pages.write(path, dataset, start, live=live, points=points, force=force, inputs=[results])
    print(f"{path} ({counted(size, 'design')}, {path.stat().st_size / 2**20:.1f} MiB)")


@report_errors
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.nc", help="Results of dse run or dse search.")],
    output: Output = None,
    points: Points = MOST_POINTS,
    live: Live = False,
    force: Force = False,
) -> None:
    """Write a page of results, as dse page does.

    One HTML file to explore in a browser: any two metrics against each other, constraints, the Pareto front, every
    design with its parts, two side by side; and of each the lines that evaluate and launch it.
    """
    write(results, None, live, points, output or results.with_suffix(".html"), force)


REGISTRATION = Registration("Show", page)
REPORT = Registration("Show", report)
