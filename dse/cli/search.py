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
from dse.cli.options import Figure, Force, Fresh, Json, OfferAny
from dse.cli.proof import check_range, print_proof
from dse.cli.run import drawn_files
from dse.cli.status import INTERRUPTED, NOTHING_FEASIBLE, report_errors
from dse.errors import InputError
from dse.views.figures import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from dse.doors.study import Study
    from dse.optimizers import Outcome, Problem
    from dse.optimizers.codesign.chip import Chip

#: Number of designs below which enumeration is better.
ENUMERABLE = 1e9

_SHOWN = 12


@report_errors
def search(
    specification: Annotated[
        Path, typer.Argument(metavar="SEARCH.toml", help="Specification of the search, or example:NAME.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Results file [default: results/SEARCH.nc].")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Time budget of each method [default: as the file says].")
    ] = None,
    evaluations: Annotated[
        int | None,
        typer.Option(
            help="Evaluation budget of each seed of each method, of a descent of all starts together "
            "[default: as the file says]."
        ),
    ] = None,
    fresh: Fresh = False,
    force: Force = False,
    any_option: OfferAny = False,
    whole_stacks: Annotated[
        bool, typer.Option("--whole-stacks", help="Of a descent: report a chip with a whole number of memory stacks.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Then prove how much better than the best any design may be.")
    ] = False,
    gap: Annotated[float, typer.Option(help="Relative gap to prove.")] = 0.005,
    minutes: Annotated[float | None, typer.Option(help="Time limit of the proof [default: none].")] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--check", metavar="CERTIFICATE", show_default="none", help="Check this proof; search nothing."),
    ] = None,
    figure: Figure = True,
    as_json: Json = False,
) -> int:
    """Search a space for its best designs.

    For continuous axes and for spaces too large to enumerate. An interrupted search resumes where it stopped. There are
    no figures of a descent.
    """
    from dse.designs.leaves import MOST
    from dse.spec.document import LARGEST

    for name, value, most in (("--seconds", seconds, LARGEST), ("--evaluations", evaluations, MOST)):
        if value is not None and not 0 < value <= most:
            raise InputError(name, str(value), f"a number above 0, up to {most:g}", "leave it out: the file has one")
    check_range("--gap", gap, 0.0, 1.0, "write --gap 0.005 for 0.5 %")
    check_range("--minutes", minutes, 0.0, LARGEST, "leave it out: the proof ends at its gap")
    from dse import search as searches
    from dse.optimizers.progress import progress_bar

    out = show.console(stderr=as_json)
    problem = searches.plan(specification, any_option=any_option, whole_stacks=whole_stacks)
    if problem.descent:
        figure = False
        if prove or certificate:
            raise InputError("--prove", "a descent", "a search", "leave it out: descents follow gradients")
    if certificate:
        from dse.cli.proof import print_check

        return print_check(problem, certificate, as_json)
    out.print(Text(f"{problem.spec.sweep.title}\n{size(problem)}"), soft_wrap=True)
    for remark in problem.remarks:
        out.print(Text(remark, "yellow"), soft_wrap=True)
    if figure:
        check(output or problem.spec.sweep.output, force, machines=False, front=problem.n_objectives > 1)
    try:
        with progress_bar() as progress:
            proof = searches.ProofOptions(gap, minutes, progress) if prove else None
            options = searches.SearchOptions(output, evaluations, seconds, fresh, progress, force=force, prove=proof)
            _, found = searches.perform(problem, options)
    except searches.SearchInterrupted as interruption:
        show.note(str(interruption))
        return INTERRUPTED
    return _finish(found, problem, figure, as_json, force)


def _finish(found: Outcome, problem: Problem, figure: bool, as_json: bool, force: bool) -> int:
    """Print the results, draw, print the paths of outputs; returns the exit status."""
    figures: list[Path] = []
    if not as_json:
        _print(found, problem)
    try:
        if figure and found.any_feasible and found.output:
            figures += drawn_files(found.output, force)
    finally:
        if as_json:
            show.document(_as_dict(found, problem) | {"figures": list(map(str, figures))})
        else:
            proof = [found.proof.certificate] if found.proof and found.proof.certificate else []
            _print_files([found.output, *figures, *proof] if found.output else [])
    if found.proof and found.proof.interrupted:
        return INTERRUPTED
    return 0 if found.any_feasible else NOTHING_FEASIBLE


def size(problem: Problem) -> str:
    """Size of the space, and the time of its enumeration."""
    from dse.sweep.job import ENUMERATION_RATE

    space, grid = problem.space, problem.grid
    text = f"{' + '.join(one.product(space.paths) for one in grid.each)}: {show.counted(space.n_designs, 'design')}"
    if space.paths:
        names = ", ".join(interval.name for interval in problem.spec.intervals)
        return f"{text}, and continuous {names}: the space is infinite"
    if space.n_designs < ENUMERABLE:
        spent = grid.n_designs / ENUMERATION_RATE
        about = f"about {show.seconds(spent)} at {ENUMERATION_RATE / 1e6:.0f} million designs/s" if spent > 1.0 else ""
        text += f"\nbetter: dse run enumerates it exactly, in {about or 'less than a second'} after start-up"
    return text


def _as_dict(found: Outcome, problem: Problem) -> dict[str, Any]:
    document = dataclasses.asdict(found) | {"output": str(found.output), "any_feasible": found.any_feasible}
    document |= {"caution": found.caution, "cautions": list(found.cautions)}
    document["size"] = found.size if math.isfinite(found.size) else "infinite"
    document |= {"lacks": problem.grid.lacks}
    if chip := document.pop("chip"):
        document |= chip | {
            "title": problem.spec.sweep.title,
            "objective": found.objectives[0],
            "seconds": found.seconds["total"],
            "notes": list(problem.spec.notes),
        }
    if found.proof:
        document["proof"]["certificate"] = str(found.proof.certificate)
    return document


def _print(found: Outcome, problem: Problem) -> None:
    out = show.console()
    objectives = [text.replace("_", " ") for text in found.objectives]
    seeds = f"over {show.counted(len(problem.spec.seeds), 'seed')}"
    polished = ", after polishing" if problem.spec.polish else ""
    if found.work:
        out.print(Text(found.work), soft_wrap=True)
    if found.chip:
        _print_chip(out, found.chip)
    elif found.front:
        show.heading(out, f"front of {' and '.join(objectives)} by method, {seeds}")
        _print_fronts(out, found, problem.study)
        show.heading(out, f"the ends of the front, and designs between them{polished}")
        _print_front(out, found, problem.study)
    elif found.any_feasible:
        show.heading(out, f"gap of {objectives[0]} to the best found, by method, {seeds}")
        _print_methods(out, found)
        show.heading(out, f"best designs by {objectives[0]}{polished}")
        _print_best(out, found, problem.study)
    else:
        show.heading(out, "no feasible design found; the nearest misses")
        _print_best(out, found, problem.study)
    if found.proof:
        print_proof(out, found.proof, problem)
    for text in found.best_cautions:
        out.print(Text(text, "yellow"), soft_wrap=True)
    if found.front:
        out.print(Text(_size_of_front(found)), soft_wrap=True)
    if found.chip:
        starts = found.chip.starts
        able = sum(math.isfinite(value) for value in starts)
        out.print(
            f"{found.objectives[0]}, geometric mean: {found.chip.value:.5g}; "
            f"{show.counted(found.chip.evaluations, 'evaluation')} in {show.seconds(found.seconds['total'])}; "
            f"{able} of {len(starts)} starts have a mapping of every workload"
        )
    if found.finished:
        out.print(Text(f"finished by a run on {found.finished} (--fresh solves it again)"), soft_wrap=True)
    if found.reasons:
        show.heading(out, "evaluated designs that cannot run, by reason")
        print_reasons(out, found.reasons, problem.study)


def _print_chip(out: Console, chip: Chip) -> None:
    """Print a chip, its best mappings, what it is short of, and its active limits."""
    hardware = [[row.name, show.setting(row.value, row.units)] for row in chip.hardware]
    if chip.cost is not None:
        hardware.append(["cost of making one", f"{chip.cost:,.0f} USD"])
    names = list(chip.workloads[0].mapping)
    workloads = [
        [
            row.workload,
            *(str(row.mapping[name]) for name in names),
            show.seconds(row.metrics["step_time"]),
            f"{100 * row.metrics['mfu']:.1f}",
        ]
        for row in chip.workloads
    ]
    elasticities = [[row.leaf, *row.shown] for row in chip.elasticities]
    for columns, rows in (
        (["leaf", "value"], hardware),
        (["workload", *names, "step", "MFU %"], workloads),
        (["1 % more", "objective %, same mappings", "with the best mappings anew"], elasticities),
    ):
        out.print()
        show.print_table(out, columns, rows, left=columns[:1])
    out.print()
    out.print(Text(f"active limits: {'; '.join(chip.active) or 'nothing'}"), soft_wrap=True)
    if chip.whole_stacks:
        out.print(Text(_whole_stacks(chip)), soft_wrap=True)


def _whole_stacks(chip: Chip) -> str:
    """Losses of whole numbers of memory stacks against the continuous size, and the one shown."""
    losses = {one["stacks"]: one["loss"] for one in chip.whole_stacks}
    each = [f"{n:.0f} {'is infeasible' if loss is None else f'loses {100 * loss:.2f} %'}" for n, loss in losses.items()]
    known = {n: loss for n, loss in losses.items() if loss is not None}
    shown = f"shown with {min(known, key=lambda n: known[n]):.0f} stacks" if known else "shown with the continuous size"
    return f"whole memory stacks, compared with the chip of continuous size: {', '.join(each)}; {shown}"


def _print_files(files: list[Path]) -> None:
    """Print the paths of outputs."""
    out = show.console()
    out.print()
    for file in files:
        out.print(Text(str(file)), soft_wrap=True)


def _print_methods(out: Console, found: Outcome) -> None:
    """Print the results of each method's seeds, before and after the polish, with evaluations and time."""
    rows = []
    for method, count in found.evaluations.items():
        own = [design for design in found.designs if design.method == method]
        alone, polished = ([getattr(d, name) for d in own] for name in ("gap_unpolished", "gap"))
        rows.append([method, *_spread(alone), *_spread(polished), f"{count:,}", show.seconds(found.seconds[method])])
    gaps = [f"{stage}: {which} %" for stage in ("search", "polished") for which in ("best", "median", "worst")]
    columns = ["method", *gaps, "evaluations", "time"]
    show.print_table(out, columns, rows, left=["method"])


def _spread(gaps: list[float | None]) -> list[str]:
    """Least, median and greatest gap; infinite for infeasible designs."""
    known = sorted(math.inf if gap is None else gap for gap in gaps)
    return ["–" if math.isinf(gap) else f"{100 * gap:.3f}" for gap in (known[0], statistics.median(known), known[-1])]


def _print_best(out: Console, found: Outcome, study: Study) -> None:
    """Print the best designs: objectives, axes, and methods; equally printed ones once."""
    names, violated = _axes(found.designs[0].labels), not found.any_feasible
    finders: dict[tuple[str, ...], list[str]] = {}
    for design in found.designs:
        gap = "infeasible" if design.gap is None else f"{100 * design.gap:.3f}"
        cells = (
            *_values(found, design.objectives, study),
            f"{design.violation:.3g}" if violated else gap,
            *(label(name, design.labels[name]) for name in names),
        )
        finders.setdefault(cells, []).append(design.method)
    rows = [
        [str(number), *cells, ", ".join(dict.fromkeys(methods))]
        for number, (cells, methods) in enumerate(list(finders.items())[:_SHOWN], start=1)
    ]
    columns = ["", *found.objectives, "missed by" if violated else "gap %", *(SHORT.get(name, name) for name in names)]
    show.print_table(out, [*columns, "found by"], rows, left=["found by"])


def _print_fronts(out: Console, found: Outcome, study: Study) -> None:
    """Print the progress of each method with several objectives, with evaluations and time."""
    rows = []
    for method, one in found.fronts.items():
        best = _values(found, one.best, study)
        volume = "–" if one.hypervolume is None else f"{100 * one.hypervolume:.2f}"
        rows.append(
            [
                method,
                f"{one.size:,}",
                volume,
                *(best or ["–"] * len(found.objectives)),
                f"{found.evaluations[method]:,}",
                show.seconds(found.seconds[method]),
            ]
        )
    best_of = (f"best {text}" for text in found.objectives)
    columns = ["method", "designs on its front", "hypervolume %", *best_of, "evaluations", "time"]
    show.print_table(out, columns, rows, left=["method"])


def _print_front(out: Console, found: Outcome, study: Study) -> None:
    """Print designs of the front along its first objective."""
    rows = []
    names = _axes(found.front[0].labels)
    for number, design in enumerate(found.front, start=1):
        values = _values(found, design.objectives, study)
        axes = [label(name, design.labels[name]) for name in names]
        rows.append([str(number), ", ".join(design.best_in), *values, *axes, ", ".join(design.methods)])
    columns = ["", "best by", *found.objectives, *(SHORT.get(name, name) for name in names), "found by"]
    show.print_table(out, columns, rows, left=["best by", "found by"])


def _size_of_front(found: Outcome) -> str:
    """Number of designs of the front, and of those in the table."""
    text = f"{show.counted(found.front_size, 'design')} on the Pareto front of {', '.join(found.objectives)}"
    if found.front_distinct < found.front_size:
        text += f", {found.front_distinct:,} of them printed differently"
    return f"{text}; {len(found.front):,} are shown" if len(found.front) < found.front_distinct else text


def _axes(labels: dict[str, Any]) -> list[str]:
    """Names of the axes in order of the columns."""
    return [*(name for name in labels if name not in SHORT), *(name for name in SHORT if name in labels)]


def _values(found: Outcome, values: Sequence[float], study: Study) -> list[str]:
    """Values of the objectives with their units."""
    from dse.spec.expression import written_units

    return [show.quantity(v, written_units(text, study)) for text, v in zip(found.objectives, values, strict=False)]
