"""``dse page``: results to explore, a model that computes, or both, as one HTML file; also ``dse report``."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.designs import DesignOptions, MappingOptions
from dse.capabilities.results import file_or_dataset
from dse.errors import InputError
from dse.io import counted
from dse.reports import Line, Option, Report, capability
from dse.reports.options import Force, Serving

if TYPE_CHECKING:
    from dse.lab.page import Start

#: Designs of a page at most, by default.
MOST_POINTS = 200_000

#: Ending of pages.
_ENDING = ".html"

_LOCAL = "writes a file"

#: Options that ``dse report`` has too.
_RESULTS = Option(is_argument=True, metavar="RESULTS.nc", terminal=Path)
_Output = Annotated[Path | None, Option(short="-o")]
_Points = Annotated[int, Option(low=1_000, high=2_000_000)]


@capability("Show", local=_LOCAL)
def page(
    *,
    results: Annotated[Any, _RESULTS] = None,
    workload: Annotated[str | None, Option(short="-w")] = None,
    system: Annotated[str | None, Option(short="-s")] = None,
    mapping: MappingOptions,
    serving: Serving = False,
    live: bool = False,
    points: _Points = MOST_POINTS,
    output: _Output = None,
    force: Force = False,
) -> Report:
    """Write a page of results, of a design, or both.

    One HTML file that explores results and computes designs. Of results: any two metrics against each other,
    constraints, the Pareto front, every design with its parts, two side by side, and of each the lines that evaluate
    and launch it. Of a design the model itself: sliders and fields for every value, time, memory, energy and cost by
    part, a curve over any value and a map over any two. Without Python and without a network.

    Args:
        results: Results of dse run or dse search, to explore.
        workload: Workload of the model, by its name in the catalogue [default: no model].
        system: System or accelerator of the model, by its name [default: no model].
        mapping: Options of the design, but for its model and machine.
        serving: Serve requests instead of training.
        live: Put the model into the page, which computes what is chosen or changed.
        points: Designs that the page holds at most.
        output: File ending in .html [default: RESULTS.html or WORKLOAD_SYSTEM.html].
        force: Replace a file that dse has not written.
    """
    start = None
    if workload is not None and system is not None:
        start = _start(DesignOptions(workload=workload, system=system, **vars(mapping)), serving)
    elif results is None or workload is not None or system is not None:
        got = "only one of -w and -s" if workload or system else "nothing to show"
        allowed = "RESULTS.nc, -w WORKLOAD -s SYSTEM, or both"
        raise InputError("dse page", got, allowed, "name results, or a model and a machine: dse list")
    elif mapping.settings or dataclasses.replace(mapping, settings=None) != MappingOptions() or serving:
        got = "options of a design without -w and -s"
        raise InputError("dse page", got, "-w WORKLOAD -s SYSTEM with them", "add both, or leave the options out")
    if results is None and (live or points != MOST_POINTS):
        got = "--live or --points without results"
        raise InputError("dse page", got, "RESULTS.nc with them", "name results, or leave the options out")
    name = f"{workload}_{system}" if start else "results"
    return _written(results, start, live, points, output, name, force)


@capability("Show", local=_LOCAL)
def report(
    results: Annotated[Any, _RESULTS],
    output: _Output = None,
    points: _Points = MOST_POINTS,
    live: bool = False,
    force: Force = False,
) -> Report:
    """Write a page of results, as dse page does.

    One HTML file to explore in a browser: any two metrics against each other, constraints, the Pareto front, every
    design with its parts, two side by side; and of each the lines that evaluate and launch it.

    Args:
        results: Results of dse run or dse search, to explore.
        output: File ending in .html [default: RESULTS.html or WORKLOAD_SYSTEM.html].
        points: Designs that the page holds at most.
        live: Put the model into the page, which computes what is chosen or changed.
        force: Replace a file that dse has not written.
    """
    return _written(results, None, live, points, output, "results", force)


def _start(design: DesignOptions, serving: bool) -> Start:
    """Build the design of the options, with the names and words by which the page evaluates it."""
    from dse.designs import accelerator_of, short_name
    from dse.doors import STUDIES
    from dse.lab.page import CatalogNames, Start, value_text

    request, system = design.request(STUDIES["serving" if serving else "training"]), design.system
    option_words = ["-w", design.workload, "-s", system, *(["--software", design.software] if design.software else [])]
    option_words += ["--any-option"] if design.any_option else []
    set_values = {short_name(path): value_text(path, value) for path, value in request.values.items()}
    names = CatalogNames(
        design.workload,
        system,
        request.stack,
        accelerator_of(system),
        option_words,
        set_values,
        known=request.set_leaves,
    )
    return Start(request.study, request.design, names)


def _written(
    results: Any, start: Start | None, live: bool, points: int, output: Path | None, name: str, force: bool
) -> Report:
    """Write an HTML page of results or of one design; return its path, size in bytes and number of designs.

    Args:
        results: file, dataset or report of a run; None for none.
        start: design that the page starts with, None for none.
        live: whether the page of results has the model.
        points: designs at most.
        output: path, None for that of the results or for ``name``.
        name: of the page, without ending.
        force: replace a file of others.
    """
    from dse.io import outputs
    from dse.lab import page as pages

    source = None if results is None else file_or_dataset(results, "results")
    file = source if isinstance(source, Path) else None
    path = output or (file.with_suffix(_ENDING) if file else Path(f"{name}{_ENDING}"))
    if path.suffix.lower() != _ENDING:
        raise InputError("--output", path.name, f"a name ending in {_ENDING}", f"write {path.with_suffix(_ENDING)}")
    inputs = [file] if file else []
    outputs.check_output(path, force, inputs)
    count = None
    if source is None:
        pages.write(path, start=start, force=force)
    else:
        with _opened(source) as dataset:
            count = pages.write(path, dataset, start, live=live, points=points, force=force, inputs=inputs)
    size = path.stat().st_size
    texts = [*([] if count is None else [counted(count, "design")]), f"{size / 2**20:.1f} MiB"]
    return Report({"output": path, "designs": count, "bytes": size}, [Line(", ".join(texts))], files=[path])


def _opened(source: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the dataset of a file, which is closed at the end, or the dataset itself."""
    from dse.sweep import open_results

    return open_results(source) if isinstance(source, Path) else contextlib.nullcontext(source)
