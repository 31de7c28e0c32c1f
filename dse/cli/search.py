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
from dse.cli.designs import SHORT, label, reasons_table
from dse.cli.status import INTERRUPTED, NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from dse.search import Outcome, Problem
    from dse.search.outcome import BestDesign
    from dse.study import Study

#: Designs a second of ``dse run`` where only the best are kept, on two cores (docs/benchmarks.md: 57 to 134 million).
ENUMERATION_RATE = 5e7

#: Spaces that are smaller are better enumerated.
ENUMERABLE = 1e9

_SHOWN = 12


@report_errors
def search(
    specification: Annotated[Path, typer.Argument(metavar="SEARCH.toml", help="Specification of the search.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Results file [default: results/SEARCH.nc].")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Budget of each method, in place of the file's.")] = None,
    evaluations: Annotated[
        int | None, typer.Option(help="Budget of each seed of each method, in place of the file's.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin again, whatever an earlier run has done.")] = False,
    any_option: Annotated[
        bool, typer.Option("--any-option", help="Offer options of the mapping that the stack lacks too.")
    ] = False,
    whole_stacks: Annotated[
        bool, typer.Option("--whole-stacks", help="Of a co-design: report a chip with whole stacks of memory.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Search a space for its best designs; an interrupted search goes on where it stopped."""
    for name, value in (("--seconds", seconds), ("--evaluations", evaluations)):
        if value is not None and not value > 0:
            raise InputError(name, str(value), "a number above 0", "leave it out for the specification's")
    from dse import search as searches
    from dse.search.progress import progress_bar
    from dse.spec.codesign import is_codesign

    if is_codesign(specification):
        from dse.cli.codesign import codesign

        return codesign(specification, as_json, any_option, whole_stacks)

    out = show.console(stderr=as_json)
    problem = searches.plan(specification, any_option=any_option)
    out.print(Text(f"{problem.spec.sweep.title}\n{size(problem)}"), soft_wrap=True)
    for told in filter(None, (*problem.spec.notes, problem.grid.nodes, problem.grid.lacks)):
        out.print(Text(told, "yellow"), soft_wrap=True)
    try:
        with progress_bar() as progress:
            options = searches.Options(output, evaluations, seconds, fresh, progress)
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
    space, grid = problem.space, problem.grid
    parts = [f"{d.size:,} {d.name}" for d in grid.dimensions if d.axes[0].key not in space.paths]
    parts.append(f"{grid.table.n_mappings:,} mapping")
    text = f"{' x '.join(parts)}: {space.n_designs:,} designs"
    if space.paths:
        names = ", ".join(interval.name for interval in problem.spec.intervals)
        return f"{text}, and continuous {names}: the space is infinite"
    if space.n_designs < ENUMERABLE:
        spent, million = show.seconds(grid.n_designs / ENUMERATION_RATE), ENUMERATION_RATE / 1e6
        text += f"\ndse run enumerates it exactly, in about {spent} at {million:.0f} million designs/s: prefer that"
    return text


def _as_dict(found: Outcome) -> dict[str, Any]:
    document = dataclasses.asdict(found) | {"output": str(found.output), "any_feasible": found.any_feasible}
    document["size"] = found.size if math.isfinite(found.size) else "infinite"
    return document


def _print(found: Outcome, problem: Problem) -> None:
    out = show.console()
    objective = found.objectives[0].replace("_", " ")
    if found.any_feasible:
        show.heading(out, f"by method: gap of {objective} to the best found, over {len(problem.spec.seeds)} seeds")
        out.print(_by_method(found))
        show.heading(out, f"best by {objective}, the polish included")
    else:
        show.heading(out, "nothing feasible; the nearest misses")
    out.print(_best(found, problem.study))
    if found.front_size:
        out.print(Text(f"{found.front_size:,} designs on the front of {', '.join(found.objectives)}"))
    if found.reasons:
        show.heading(out, "evaluated designs that cannot run")
        out.print(reasons_table(found.reasons, problem.study))
    if found.output:
        out.print()
        out.print(Text(str(found.output)), soft_wrap=True)


def _by_method(found: Outcome) -> Table:
    """What each method's seeds have come to, before and after the polish, and what it took."""
    rows = []
    for method, count in found.evaluations.items():
        own = [design for design in found.designs if design.method == method]
        alone, polished = ([getattr(d, name) for d in own] for name in ("gap_unpolished", "gap"))
        rows.append([method, *_spread(alone), *_spread(polished), f"{count:,}", show.seconds(found.seconds[method])])
    spread = ["median %", "worst %"]
    columns = ["method", "alone: best %", *spread, "polished: best %", *spread, "evaluations", "time"]
    return show.table(columns, rows, left=["method"])


def _spread(gaps: list[float | None]) -> list[str]:
    """Least, median and greatest gap; what is infeasible counts as infinitely far."""
    known = sorted(math.inf if gap is None else gap for gap in gaps)
    return ["–" if math.isinf(gap) else f"{100 * gap:.3f}" for gap in (known[0], statistics.median(known), known[-1])]


def _best(found: Outcome, study: Study) -> Table:
    """The best designs, each once: what it is worth, its axes, and who has found it."""
    finders: dict[tuple[Any, ...], list[BestDesign]] = {}
    for design in found.designs:
        finders.setdefault((*design.objectives, *design.labels.values()), []).append(design)
    given = found.designs[0].labels
    names = [*(n for n in given if n not in SHORT), *(n for n in SHORT if n in given)]
    violated = not found.any_feasible
    rows = []
    for same in list(finders.values())[:_SHOWN]:
        design = same[0]
        gap = "infeasible" if design.gap is None else f"{100 * design.gap:.3f}"
        values = [_value(text, value, study) for text, value in zip(found.objectives, design.objectives, strict=True)]
        axes = [label(name, design.labels[name]) for name in names]
        methods = ", ".join(dict.fromkeys(d.method for d in same))
        rows.append([*values, f"{design.violation:.3g}" if violated else gap, *axes, methods])
    columns = [*found.objectives, "missed by" if violated else "gap %", *(SHORT.get(name, name) for name in names)]
    return show.table([*columns, "found by"], rows, left=["found by"])


def _value(text: str, value: float, study: Study) -> str:
    """An objective with the units of its metric."""
    return show.quantity(value, study.units[text]) if text in study.units else show.digits(value)
