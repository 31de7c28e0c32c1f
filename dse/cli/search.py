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
from dse.cli.run import draw_figures
from dse.cli.status import INTERRUPTED, NOTHING_FEASIBLE, report_errors
from dse.errors import InputError
from dse.views.figures import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from dse.doors import Study
    from dse.optimizers import Problem, SearchOutcome
    from dse.optimizers.codesign.chip import DescentChip

#: Number of designs below which enumeration is better.
ENUMERABLE = 1e9

_MAX_ROWS = 12


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
    from dse.designs.leaves import MAX_COUNT
    from dse.spec.document import LARGEST

    for name, value, most in (("--seconds", seconds, LARGEST), ("--evaluations", evaluations, MAX_COUNT)):
        if value is not None and not 0 < value <= most:
            raise InputError(name, str(value), f"a number above 0, up to {most:g}", "leave it out: the file has one")
    check_range("--gap", gap, 0.0, 1.0, "write --gap 0.005 for 0.5 %")
    check_range("--minutes", minutes, 0.0, LARGEST, "leave it out: the proof ends at its gap")
    from dse import optimizers as searches
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
            _, outcome = searches.perform(problem, options)
    except searches.SearchInterrupted as interruption:
        show.note(str(interruption))
        return INTERRUPTED
    return _finish(outcome, problem, figure, as_json, force)


def _finish(outcome: SearchOutcome, problem: Problem, figure: bool, as_json: bool, force: bool) -> int:
    """Print the results, draw figures, print the paths of outputs, and return the exit status."""
    figures: list[Path] = []
    if not as_json:
        _print(outcome, problem)
    try:
        if figure and outcome.any_feasible and outcome.output:
            figures += draw_figures(outcome.output, force)
    finally:
        if as_json:
            show.document(_as_dict(outcome, problem) | {"figures": list(map(str, figures))})
        else:
            proof = [outcome.proof.certificate] if outcome.proof and outcome.proof.certificate else []
            _print_files([outcome.output, *figures, *proof] if outcome.output else [])
    if outcome.proof and outcome.proof.interrupted:
        return INTERRUPTED
    return 0 if outcome.any_feasible else NOTHING_FEASIBLE


def size(problem: Problem) -> str:
    """Return a text on the number of designs of the space and, where it is small, the time of its enumeration."""
    from dse.sweep.job import ENUMERATION_RATE

    space, grid = problem.space, problem.grid
    products = " + ".join(subgrid.product(space.paths) for subgrid in grid.structure_grids)
    text = f"{products}: {show.counted(space.n_designs, 'design')}"
    if space.paths:
        names = ", ".join(interval.name for interval in problem.spec.intervals)
        return f"{text}, and continuous {names}: the space is infinite"
    if space.n_designs < ENUMERABLE:
        enumeration_s = grid.n_designs / ENUMERATION_RATE
        time_text = (
            f"about {show.seconds(enumeration_s)} at {ENUMERATION_RATE / 1e6:.0f} million designs/s"
            if enumeration_s > 1.0
            else ""
        )
        text += f"\nbetter: dse run enumerates it exactly, in {time_text or 'less than a second'} after start-up"
    return text


def _as_dict(outcome: SearchOutcome, problem: Problem) -> dict[str, Any]:
    """Return the JSON-ready dictionary of an outcome."""
    document = dataclasses.asdict(outcome) | {"output": str(outcome.output), "any_feasible": outcome.any_feasible}
    document |= {"caution": outcome.caution, "cautions": list(outcome.cautions)}
    document["size"] = outcome.size if math.isfinite(outcome.size) else "infinite"
    document |= {"lacks": problem.grid.unsupported_note}
    if chip := document.pop("chip"):
        document |= chip | {
            "title": problem.spec.sweep.title,
            "objective": outcome.objectives[0],
            "seconds": outcome.seconds["total"],
            "notes": list(problem.spec.notes),
        }
    if outcome.proof:
        document["proof"]["certificate"] = str(outcome.proof.certificate)
    return document


def _print(outcome: SearchOutcome, problem: Problem) -> None:
    """Print an outcome: tables by method and of best designs, a front or a chip, then proof, cautions and reasons."""
    out = show.console()
    objectives = [text.replace("_", " ") for text in outcome.objectives]
    seeds = f"over {show.counted(len(problem.spec.seeds), 'seed')}"
    polish_note = ", after polishing" if problem.spec.polish else ""
    if outcome.work:
        out.print(Text(outcome.work), soft_wrap=True)
    if outcome.chip:
        _print_chip(out, outcome.chip)
    elif outcome.front:
        show.heading(out, f"front of {' and '.join(objectives)} by method, {seeds}")
        _print_fronts(out, outcome, problem.study)
        show.heading(out, f"the ends of the front, and designs between them{polish_note}")
        _print_front(out, outcome, problem.study)
    elif outcome.any_feasible:
        show.heading(out, f"gap of {objectives[0]} to the best found, by method, {seeds}")
        _print_methods(out, outcome)
        show.heading(out, f"best designs by {objectives[0]}{polish_note}")
        _print_best(out, outcome, problem.study)
    else:
        show.heading(out, "no feasible design found; the nearest misses")
        _print_best(out, outcome, problem.study)
    if outcome.proof:
        print_proof(out, outcome.proof, problem)
    for text in outcome.best_cautions:
        out.print(Text(text, "yellow"), soft_wrap=True)
    if outcome.front:
        out.print(Text(_front_size_text(outcome)), soft_wrap=True)
    if outcome.chip:
        starts = outcome.chip.starts
        feasible_starts = sum(math.isfinite(value) for value in starts)
        out.print(
            f"{outcome.objectives[0]}, geometric mean: {outcome.chip.value:.5g}; "
            f"{show.counted(outcome.chip.evaluations, 'evaluation')} in {show.seconds(outcome.seconds['total'])}; "
            f"{feasible_starts} of {len(starts)} starts have a mapping of every workload"
        )
    if outcome.finished:
        out.print(Text(f"finished by a run on {outcome.finished} (--fresh solves it again)"), soft_wrap=True)
    if outcome.reasons:
        show.heading(out, "evaluated designs that cannot run, by reason")
        print_reasons(out, outcome.reasons, problem.study)


def _print_chip(out: Console, chip: DescentChip) -> None:
    """Print the tables of a chip: leaves, best mapping by workload, elasticities; then its active limits."""
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
    elasticities = [[row.leaf, *row.texts] for row in chip.elasticities]
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
        out.print(Text(_stack_rounding_note(chip)), soft_wrap=True)


def _stack_rounding_note(chip: DescentChip) -> str:
    """Return a line on what whole numbers of memory stacks lose against the continuous size, in per cent."""
    losses = {entry["stacks"]: entry["loss"] for entry in chip.whole_stacks}
    loss_texts = [
        f"{n:.0f} {'is infeasible' if loss is None else f'loses {100 * loss:.2f} %'}" for n, loss in losses.items()
    ]
    feasible_losses = {n: loss for n, loss in losses.items() if loss is not None}
    choice_note = (
        f"shown with {min(feasible_losses, key=lambda n: feasible_losses[n]):.0f} stacks"
        if feasible_losses
        else "shown with the continuous size"
    )
    return f"whole memory stacks, compared with the chip of continuous size: {', '.join(loss_texts)}; {choice_note}"


def _print_files(files: list[Path]) -> None:
    """Print the paths of outputs."""
    out = show.console()
    out.print()
    for file in files:
        out.print(Text(str(file)), soft_wrap=True)


def _print_methods(out: Console, outcome: SearchOutcome) -> None:
    """Print by method the gaps of its seeds before and after the polish, with evaluations and time."""
    rows = []
    for method, count in outcome.evaluations.items():
        designs = [design for design in outcome.designs if design.method == method]
        unpolished, polished = ([getattr(d, name) for d in designs] for name in ("gap_unpolished", "gap"))
        rows.append(
            [
                method,
                *_gap_cells(unpolished),
                *_gap_cells(polished),
                f"{count:,}",
                show.seconds(outcome.seconds[method]),
            ]
        )
    gaps = [f"{stage}: {which} %" for stage in ("search", "polished") for which in ("best", "median", "worst")]
    columns = ["method", *gaps, "evaluations", "time"]
    show.print_table(out, columns, rows, left=["method"])


def _gap_cells(gaps: list[float | None]) -> list[str]:
    """Format least, median and greatest gap of seeds in per cent; None (infeasible) is infinite, a dash in print."""
    ascending_gaps = sorted(math.inf if gap is None else gap for gap in gaps)
    return [
        "–" if math.isinf(gap) else f"{100 * gap:.3f}"
        for gap in (ascending_gaps[0], statistics.median(ascending_gaps), ascending_gaps[-1])
    ]


def _print_best(out: Console, outcome: SearchOutcome, study: Study) -> None:
    """Print gap (or violation), objectives, axes and methods of the best designs; equally printed ones are one row."""
    names, is_infeasible = _axis_names(outcome.designs[0].labels), not outcome.any_feasible
    methods_by_cells: dict[tuple[str, ...], list[str]] = {}
    for design in outcome.designs:
        gap = "infeasible" if design.gap is None else f"{100 * design.gap:.3f}"
        cells = (
            *_value_texts(outcome, design.objectives, study),
            f"{design.violation:.3g}" if is_infeasible else gap,
            *(label(name, design.labels[name]) for name in names),
        )
        methods_by_cells.setdefault(cells, []).append(design.method)
    rows = [
        [str(number), *cells, ", ".join(dict.fromkeys(methods))]
        for number, (cells, methods) in enumerate(list(methods_by_cells.items())[:_MAX_ROWS], start=1)
    ]
    columns = [
        "",
        *outcome.objectives,
        "missed by" if is_infeasible else "gap %",
        *(SHORT.get(name, name) for name in names),
    ]
    show.print_table(out, [*columns, "found by"], rows, left=["found by"])


def _print_fronts(out: Console, outcome: SearchOutcome, study: Study) -> None:
    """Print by method the size, hypervolume and best values of its front, with evaluations and time."""
    rows = []
    for method, method_front in outcome.fronts.items():
        best = _value_texts(outcome, method_front.best, study)
        volume = "–" if method_front.hypervolume is None else f"{100 * method_front.hypervolume:.2f}"
        rows.append(
            [
                method,
                f"{method_front.size:,}",
                volume,
                *(best or ["–"] * len(outcome.objectives)),
                f"{outcome.evaluations[method]:,}",
                show.seconds(outcome.seconds[method]),
            ]
        )
    best_of = (f"best {text}" for text in outcome.objectives)
    columns = ["method", "designs on its front", "hypervolume %", *best_of, "evaluations", "time"]
    show.print_table(out, columns, rows, left=["method"])


def _print_front(out: Console, outcome: SearchOutcome, study: Study) -> None:
    """Print the designs of the front in the order of the outcome, with what each is best by."""
    rows = []
    names = _axis_names(outcome.front[0].labels)
    for number, design in enumerate(outcome.front, start=1):
        values = _value_texts(outcome, design.objectives, study)
        axes = [label(name, design.labels[name]) for name in names]
        rows.append([str(number), ", ".join(design.best_in), *values, *axes, ", ".join(design.methods)])
    columns = ["", "best by", *outcome.objectives, *(SHORT.get(name, name) for name in names), "found by"]
    show.print_table(out, columns, rows, left=["best by", "found by"])


def _front_size_text(outcome: SearchOutcome) -> str:
    """Return a line on the number of designs of the front, and how many of them the table has."""
    text = f"{show.counted(outcome.front_size, 'design')} on the Pareto front of {', '.join(outcome.objectives)}"
    if outcome.front_distinct < outcome.front_size:
        text += f", {outcome.front_distinct:,} of them printed differently"
    return f"{text}; {len(outcome.front):,} are shown" if len(outcome.front) < outcome.front_distinct else text


def _axis_names(labels: dict[str, Any]) -> list[str]:
    """Return the names of the axes in the order of the columns: others first, then those of ``SHORT``."""
    return [*(name for name in labels if name not in SHORT), *(name for name in SHORT if name in labels)]


def _value_texts(outcome: SearchOutcome, values: Sequence[float], study: Study) -> list[str]:
    """Format the values of the objectives with their units, one text each."""
    from dse.spec.expression import written_units

    return [show.quantity(v, written_units(text, study)) for text, v in zip(outcome.objectives, values, strict=False)]
