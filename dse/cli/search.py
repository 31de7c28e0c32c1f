"""``dse search``: optimisers over a space too large to enumerate."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.designs import SHORT, label, print_reasons
from dse.cli.options import Force, Fresh, Json, OfferAny
from dse.cli.status import INTERRUPTED, NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.search import Outcome, Problem
    from dse.search.outcome import BestDesign
    from dse.study import Study

#: Spaces that are smaller are better enumerated.
ENUMERABLE = 1e9

_SHOWN = 12


@report_errors
def search(
    specification: Annotated[Path, typer.Argument(metavar="SEARCH.toml", help="Specification of the search.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Results file [default: results/SEARCH.nc].")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Time budget of each method [default: as the file says].")
    ] = None,
    evaluations: Annotated[
        int | None, typer.Option(help="Evaluation budget of each seed of each method [default: as the file says].")
    ] = None,
    fresh: Fresh = False,
    force: Force = False,
    any_option: OfferAny = False,
    whole_stacks: Annotated[
        bool, typer.Option("--whole-stacks", help="For co-design: report a chip with a whole number of memory stacks.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Search a space for its best designs.

    For continuous axes and for spaces too large to enumerate. An interrupted search resumes where it stopped.
    """
    from dse.designs import MOST
    from dse.spec.document import LARGEST

    for name, value, most in (("--seconds", seconds, LARGEST), ("--evaluations", evaluations, MOST)):
        if value is not None and not 0 < value <= most:
            raise InputError(name, str(value), f"a number above 0, up to {most:g}", "leave it out: the file has one")
    from dse import search as searches
    from dse.search.progress import progress_bar
    from dse.spec.codesign import is_codesign

    if is_codesign(specification):
        from dse.cli.codesign import codesign

        return codesign(
            specification, as_json, output=output, evaluations=evaluations, seconds=seconds, fresh=fresh, force=force,
            any_option=any_option, whole_stacks=whole_stacks,
        )  # fmt: skip
    if whole_stacks:
        raise InputError("--whole-stacks", "a search", "a co-design", "leave it out, or add a section [codesign]")

    out = show.console(stderr=as_json)
    problem = searches.plan(specification, any_option=any_option)
    out.print(Text(f"{problem.spec.sweep.title}\n{size(problem)}"), soft_wrap=True)
    for told in dict.fromkeys((*problem.spec.notes, *problem.grid.remarks)):
        out.print(Text(told, "yellow"), soft_wrap=True)
    try:
        with progress_bar() as progress:
            options = searches.Options(output, evaluations, seconds, fresh, progress, force=force)
            _, found = searches.perform(problem, options)
    except searches.Interrupted as interruption:
        show.note(str(interruption))
        return INTERRUPTED
    if as_json:
        show.document(_as_dict(found) | {"lacks": problem.grid.lacks})
    else:
        _print(found, problem)
    return 0 if found.any_feasible else NOTHING_FEASIBLE


def size(problem: Problem) -> str:
    """How large the space is, and what enumerating it would take."""
    from dse.sweep.job import ENUMERATION_RATE

    space, grid = problem.space, problem.grid
    parts = [f"{d.size:,} {d.name}" for d in grid.dimensions if d.axes[0].key not in space.paths]
    parts.append(show.counted(grid.table.n_mappings, "mapping"))
    text = f"{' x '.join(parts)}: {show.counted(space.n_designs, 'design')}"
    if space.paths:
        names = ", ".join(interval.name for interval in problem.spec.intervals)
        return f"{text}, and continuous {names}: the space is infinite"
    if space.n_designs < ENUMERABLE:
        spent = grid.n_designs / ENUMERATION_RATE
        told = f"about {show.seconds(spent)} at {ENUMERATION_RATE / 1e6:.0f} million designs/s" if spent > 1.0 else ""
        text += f"\nbetter: dse run enumerates it exactly, in {told or 'less than a second'} and some to start"
    return text


def _as_dict(found: Outcome) -> dict[str, Any]:
    document = dataclasses.asdict(found) | {"output": str(found.output), "any_feasible": found.any_feasible}
    document["size"] = found.size if math.isfinite(found.size) else "infinite"
    return document


def _print(found: Outcome, problem: Problem) -> None:
    out = show.console()
    objective = found.objectives[0].replace("_", " ")
    if found.any_feasible:
        seeds = show.counted(len(problem.spec.seeds), "seed")
        show.heading(out, f"gap of {objective} to the best found, by method, over {seeds}")
        _print_methods(out, found)
        show.heading(out, f"best designs by {objective}, after polishing")
    else:
        show.heading(out, "no feasible design found; the nearest misses")
    _print_best(out, found, problem.study)
    if found.prices:
        out.print(Text(found.prices, "yellow"), soft_wrap=True)
    if found.front_size:
        size_told = show.counted(found.front_size, "design")
        out.print(Text(f"{size_told} on the Pareto front of {', '.join(found.objectives)}"))
    if found.reasons:
        show.heading(out, "evaluated designs that cannot run, by reason")
        print_reasons(out, found.reasons, problem.study)
    if found.output:
        out.print()
        out.print(Text(str(found.output)), soft_wrap=True)


def _print_methods(out: Console, found: Outcome) -> None:
    """What each method's seeds have come to, before and after the polish, and what it took."""
    rows = []
    for method, count in found.evaluations.items():
        own = [design for design in found.designs if design.method == method]
        alone, polished = ([getattr(d, name) for d in own] for name in ("gap_unpolished", "gap"))
        rows.append([method, *_spread(alone), *_spread(polished), f"{count:,}", show.seconds(found.seconds[method])])
    gaps = [f"{stage}: {which} %" for stage in ("search", "polished") for which in ("best", "median", "worst")]
    columns = ["method", *gaps, "evaluations", "time"]
    show.print_table(out, columns, rows, left=["method"])


def _spread(gaps: list[float | None]) -> list[str]:
    """Least, median and greatest gap; what is infeasible counts as infinitely far."""
    known = sorted(math.inf if gap is None else gap for gap in gaps)
    return ["–" if math.isinf(gap) else f"{100 * gap:.3f}" for gap in (known[0], statistics.median(known), known[-1])]


def _print_best(out: Console, found: Outcome, study: Study) -> None:
    """The best designs, each once: what it is worth, its axes, and who has found it."""
    finders: dict[tuple[Any, ...], list[BestDesign]] = {}
    for design in found.designs:
        finders.setdefault((*design.objectives, *design.labels.values()), []).append(design)
    given = found.designs[0].labels
    names = [*(n for n in given if n not in SHORT), *(n for n in SHORT if n in given)]
    violated = not found.any_feasible
    rows: list[list[str]] = []
    for same in list(finders.values())[:_SHOWN]:
        design = same[0]
        gap = "infeasible" if design.gap is None else f"{100 * design.gap:.3f}"
        values = [_value(text, value, study) for text, value in zip(found.objectives, design.objectives, strict=True)]
        axes = [label(name, design.labels[name]) for name in names]
        methods = ", ".join(dict.fromkeys(d.method for d in same))
        rows.append([str(len(rows) + 1), *values, f"{design.violation:.3g}" if violated else gap, *axes, methods])
    columns = ["", *found.objectives, "missed by" if violated else "gap %", *(SHORT.get(name, name) for name in names)]
    show.print_table(out, [*columns, "found by"], rows, left=["found by"])


def _value(text: str, value: float, study: Study) -> str:
    """An objective with its units."""
    from dse.spec.expression import written_units

    return show.quantity(value, written_units(text, study))
