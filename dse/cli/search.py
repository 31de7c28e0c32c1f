"""``dse search``: optimisers over a space too large to enumerate."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.designs import SHORT, label, reasons_table
from dse.cli.status import INTERRUPTED, NOTHING_FEASIBLE, told
from dse.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from dse.search import Outcome, Problem

#: Designs a second of ``dse run`` where only the best are kept, on two cores (docs/benchmarks.md: 57 to 134 million).
ENUMERATION_RATE = 5e7

#: Spaces that are smaller are better enumerated.
ENUMERABLE = 1e9

_SHOWN = 12


@told
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Search a space for its best designs; an interrupted search goes on where it stopped."""
    for name, value in (("--seconds", seconds), ("--evaluations", evaluations)):
        if value is not None and not value > 0:
            raise InputError(name, str(value), "a number above 0", "leave it out for the specification's")
    from dse import search as searches
    from dse.search.progress import progress_bar

    out = show.console(stderr=as_json)
    problem = searches.plan(specification)
    out.print(Text(f"{problem.spec.sweep.title}\n{size(problem)}"), soft_wrap=True)
    try:
        with progress_bar() as progress:
            options = searches.Options(output, evaluations, seconds, fresh, progress)
            _, found = searches.perform(problem, options)
    except searches.Interrupted as interruption:
        show.note(str(interruption))
        return INTERRUPTED
    if as_json:
        show.document(_as_dict(found))
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
        text += f"\ndse run enumerates it exactly in about {spent} at {million:.0f} million designs/s: prefer that"
    return text


def _as_dict(found: Outcome) -> dict[str, Any]:
    document = dataclasses.asdict(found) | {"output": str(found.output), "feasible_found": found.any_feasible}
    document["size"] = found.size if math.isfinite(found.size) else "infinite"
    return document


def _print(found: Outcome, problem: Problem) -> None:
    out = show.console()
    objective = found.objectives[0].replace("_", " ")
    if found.any_feasible:
        show.heading(out, f"best by {objective}, of each seed")
    else:
        show.heading(out, "nothing feasible; the nearest misses")
    out.print(_best(found))
    if found.front_size:
        out.print(Text(f"{found.front_size:,} designs on the front of {', '.join(found.objectives)}"))
    spent = sum(found.evaluations.values())
    if found.reasons:
        show.heading(out, "evaluated designs that cannot run")
        out.print(reasons_table(found.reasons))
    out.print()
    each = ", ".join(f"{name} {count:,} in {found.seconds[name]:.2f} s" for name, count in found.evaluations.items())
    out.print(Text(f"{spent:,} evaluations: {each}"), soft_wrap=True)
    if found.output:
        out.print(Text(str(found.output)), soft_wrap=True)


def _best(found: Outcome) -> Table:
    """The best design of each seed: what it is worth, and its axes that are not the same in all."""
    designs = found.designs[:_SHOWN]
    given = designs[0].labels
    names = [*(n for n in given if n not in SHORT), *(n for n in SHORT if n in given)]
    violated = not found.any_feasible
    columns = ["method", "seed", *found.objectives, "missed by" if violated else "gap %", "evaluations"]
    rows = []
    for design in designs:
        gap = "infeasible" if design.gap is None else f"{100 * design.gap:.3f}"
        off = f"{design.violation:.3g}" if violated else gap
        values = [_value(text, value) for text, value in zip(found.objectives, design.objectives, strict=True)]
        axes = [label(name, design.labels[name]) for name in names]
        rows.append([design.method, str(design.seed), *values, off, f"{design.evaluations:,}", *axes])
    return show.table([*columns, *(SHORT.get(name, name) for name in names)], rows, left=["method"])


def _value(text: str, value: float) -> str:
    """An objective with the units of its metric."""
    from dse.sweep.expression import metric_units

    return show.quantity(value, metric_units()[text]) if text in metric_units() else show.digits(value)
