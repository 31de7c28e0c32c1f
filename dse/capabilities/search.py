"""``dse.search``: optimisers over a space too large to enumerate."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.best import (
    INTERRUPTED,
    NOTHING_FEASIBLE,
    axis_columns,
    draw_figures,
    folded,
    in_per_cent,
    loader,
    objective_column,
    reason_sections,
)
from dse.errors import InputError
from dse.io import counted, seconds as seconds_text, setting
from dse.reports import Column, Line, Option, Report, Table, capability, caution, heading
from dse.reports.options import Figure, Force, Fresh, OfferAny, Output, ShowProgress, Specification
from dse.views.words import SHORT

if TYPE_CHECKING:
    from dse.optimizers import Problem, SearchOutcome
    from dse.optimizers.codesign.chip import DescentChip
    from dse.reports.tables import Section
    from dse.sweep.results.labelled import Labelled

#: Number of designs below which enumeration is better.
ENUMERABLE = 1e9

_MAX_ROWS = 12


@capability("Ask", details=("reasons", "methods", "elasticities"))
def search(
    specification: Specification,
    output: Output = None,
    seconds: Annotated[float | None, Option("Time budget of each method [default: as the file says].")] = None,
    evaluations: Annotated[
        int | None,
        Option(
            "Evaluation budget of each seed of each method, of a descent of all starts together "
            "[default: as the file says]."
        ),
    ] = None,
    fresh: Fresh = False,
    progress: ShowProgress = None,
    any_option: OfferAny = False,
    whole_stacks: Annotated[bool, Option("Of a descent: report a chip with a whole number of memory stacks.")] = False,
    prove: Annotated[bool, Option("Then prove how much better than the best any design may be.")] = False,
    gap: Annotated[float, Option("Relative gap to prove.")] = 0.005,
    minutes: Annotated[float | None, Option("Time limit of the proof [default: none].")] = None,
    certificate: Annotated[
        Path | None,
        Option("Check this proof; search nothing [default: none].", flag="--check", metavar="CERTIFICATE"),
    ] = None,
    force: Force = False,
    figure: Figure = False,
) -> Report:
    """Search a space for its best designs.

    For continuous axes and for spaces too large to enumerate. An interrupted search resumes where it stopped. There are
    no figures of a descent.

    Args:
        specification: path, ``example:NAME``, its sections as a dictionary or as keywords, or a specification.
        output: results file, as of :func:`dse.run`.
        seconds: budget of each method.
        evaluations: budget of each seed of each method.
        fresh: begin again, without results of an earlier search.
        progress: True to show it, or a function that is called between steps; by default shown in notebooks.
        any_option: offer options that the software stack lacks.
        whole_stacks: of a descent, a chip with a whole number of memory stacks.
        prove: then prove how much better than the best any design may be.
        gap: relative gap to prove.
        minutes: time limit of the proof.
        certificate: file of a proof to check; nothing is searched.
        force: replace a file that dse has not written.
        figure: draw the figures that suit the results next to them.

    Returns:
        The report; its ``dataset`` has the best designs or the front, and the histories of the methods.

    Raises:
        InputError: for bad input, before any evaluation.
        SearchInterrupted: when stopped; a rerun goes on from the last checkpoint.
    """
    from dse.designs.leaves import MAX_COUNT
    from dse.spec.document import LARGEST

    for name, value, most in (("--seconds", seconds, LARGEST), ("--evaluations", evaluations, MAX_COUNT)):
        if value is not None and not 0 < value <= most:
            raise InputError(name, str(value), f"a number above 0, up to {most:g}", "leave it out: the file has one")
    _check_range("--gap", gap, 1.0, "write --gap 0.005 for 0.5 %")
    _check_range("--minutes", minutes, LARGEST, "leave it out: the proof ends at its gap")
    from dse import optimizers as searches
    from dse.optimizers.progress import progress_bar
    from dse.sweep.progress import shown
    from dse.views.figures import check

    problem = searches.plan(specification, any_option=any_option, whole_stacks=whole_stacks)
    if problem.descent and (prove or certificate):
        raise InputError("--prove", "a descent", "a search", "leave it out: descents follow gradients")
    if certificate:
        from dse.capabilities.proofs import check_report

        return check_report(problem, certificate)
    figure = figure and not problem.descent and output is not False
    if figure:
        target = Path(output) if isinstance(output, str | Path) else problem.spec.sweep.output
        check(target, force, machines=False, front=problem.n_objectives > 1)
    with shown(progress, progress_bar) as report:
        proof = searches.ProofOptions(gap, minutes, report) if prove else None
        options = searches.SearchOptions(output, evaluations, seconds, fresh, report, force=force, prove=proof)
        labelled, outcome = searches.perform(problem, options)
    return _report(outcome, labelled, problem, figure, force)


def _check_range(name: str, value: float | None, most: float, fix: str) -> None:
    """Raise an InputError for a value of option ``name`` outside 0 to ``most`` (included); None passes."""
    if value is not None and not 0.0 <= value <= most:
        raise InputError(name, f"{value:g}", f"0 to {most:g}", fix)


def size(problem: Problem) -> str:
    """Return a text on the number of designs of the space and, where it is small, the time of its enumeration."""
    from dse.sweep.job import ENUMERATION_RATE

    space, grid = problem.space, problem.grid
    products = " + ".join(subgrid.product(space.paths) for subgrid in grid.structure_grids)
    text = f"{products}: {counted(space.n_designs, 'design')}"
    if space.paths:
        names = ", ".join(interval.name for interval in problem.spec.intervals)
        return f"{text}, and continuous {names}: the space is infinite"
    if space.n_designs < ENUMERABLE:
        enumeration_s = grid.n_designs / ENUMERATION_RATE
        time_text = (
            f"about {seconds_text(enumeration_s)} at {ENUMERATION_RATE / 1e6:.0f} million designs/s"
            if enumeration_s > 1.0
            else ""
        )
        text += f"\nbetter: dse run enumerates it exactly, in {time_text or 'less than a second'} after start-up"
    return text


# --- the report


def _report(outcome: SearchOutcome, labelled: Labelled | None, problem: Problem, figure: bool, force: bool) -> Report:
    """Return the report of a search that has ended: what was found, and figures drawn next to the results."""
    draws = figure and outcome.any_feasible and outcome.output
    figures, notes, status = draw_figures(outcome.output, force) if draws and outcome.output else ([], [], 0)
    certificate = [outcome.proof.certificate] if outcome.proof and outcome.proof.certificate else []
    if outcome.proof and outcome.proof.interrupted:
        status = INTERRUPTED
    elif not outcome.any_feasible:
        status = NOTHING_FEASIBLE

    document = _document(outcome, problem) | {"figures": figures}
    files = [*([outcome.output] if outcome.output else []), *certificate]
    return Report(
        document, _sections(outcome, problem), notes, figures, files, status, loader(labelled, outcome.output)
    )


def _document(outcome: SearchOutcome, problem: Problem) -> dict[str, Any]:
    """Return an outcome by name; what a descent says of its chip stands among it."""
    document = vars(outcome) | {"any_feasible": outcome.any_feasible}
    document |= {"caution": outcome.caution, "cautions": outcome.cautions, "lacks": problem.grid.unsupported_note}
    document["size"] = outcome.size if math.isfinite(outcome.size) else "infinite"
    if chip := document.pop("chip"):
        document |= dataclasses.asdict(chip) | {
            "title": problem.spec.sweep.title,
            "objective": outcome.objectives[0],
            "seconds": outcome.seconds["total"],
            "notes": problem.spec.notes,
        }
    return document


def _sections(outcome: SearchOutcome, problem: Problem) -> list[Section]:
    """Return what was found and by which method, then proof and cautions; methods and reasons as details."""
    sections: list[Section] = [Line(problem.spec.sweep.title), Line(size(problem)), *map(caution, problem.remarks)]
    if outcome.work:
        sections.append(Line(outcome.work))
    if outcome.chip:
        sections += _chip_sections(outcome.chip, outcome)
    elif outcome.front:
        sections += _front_sections(outcome, problem)
    else:
        sections += _best_sections(outcome, problem)
    if outcome.proof:
        from dse.capabilities.proofs import proof_lines

        sections += proof_lines(outcome.proof, problem)
    sections += map(caution, outcome.best_cautions)
    if outcome.reasons and not outcome.any_feasible:
        sections.append(heading("evaluated designs that cannot run, by reason"))
    sections += reason_sections(outcome.reasons, problem.study, not outcome.any_feasible)
    if outcome.finished:
        sections.append(Line(f"\nfinished by a run on {outcome.finished} (--fresh solves it again)"))
    else:
        evaluations = outcome.chip.evaluations if outcome.chip else sum(outcome.evaluations.values())
        sections.append(
            Line(f"\n{counted(evaluations, 'evaluation')} in {seconds_text(outcome.seconds['total'])}{_seeds(problem)}")
        )
    return sorted(sections, key=lambda section: bool(section.show))  # details last


def _seeds(problem: Problem) -> str:
    """Return a clause on the seeds of the methods, "" of a descent."""
    return "" if problem.descent else f", {counted(len(problem.spec.seeds), 'seed')} of each method"


def _polish_note(problem: Problem) -> str:
    """Return a clause on the polish of the best designs, "" without one."""
    return ", after polishing" if problem.spec.polish else ""


def _best_sections(outcome: SearchOutcome, problem: Problem) -> list[Section]:
    """Return the table of the best designs, or of the nearest misses, with the methods that found them."""
    is_feasible, name = outcome.any_feasible, outcome.objectives[0].replace("_", " ")
    axes, common_values = axis_columns([design.labels for design in outcome.designs])
    distance = (
        Column("gap %", "gap", row_text=lambda row: "infeasible" if row["gap"] is None else f"{100 * row['gap']:.3f}")
        if is_feasible
        else Column("missed by", "violation", "{:.3g}".format)
    )
    columns = [*(objective_column(text, problem.study) for text in outcome.objectives), distance, *axes]
    methods_by_cells: dict[tuple[str, ...], dict[str, Any]] = {}  # designs that are printed equally are one row
    for design in outcome.designs:
        row = {"gap": design.gap, "violation": design.violation, **design.labels}
        row |= dict(zip(outcome.objectives, design.objectives, strict=False))
        cells = tuple(column.text(row) for column in columns)
        methods = methods_by_cells.setdefault(cells, row | {"found by": []})["found by"]
        methods += [design.method] if design.method not in methods else []
    distinct = list(methods_by_cells.values())[:_MAX_ROWS]
    axis_names = [column.key for column in axes]
    row_labels = [{name: row[name] for name in axis_names} for row in distinct]
    positions, ties = folded(row_labels, [row[outcome.objectives[0]] for row in distinct], is_feasible)
    rows = [
        distinct[position] | {"rank": rank, "found by": ", ".join(distinct[position]["found by"])}
        for rank, position in enumerate(positions, start=1)
    ]
    columns = [Column("", "rank"), *columns, Column("found by", "found by", left=True, prose=True)]
    title = f"best designs by {name}{_polish_note(problem)}"
    sections: list[Section] = [heading(title if is_feasible else "no feasible design found; the nearest misses")]
    sections += [Line(common_values)] if common_values else []
    sections += [Table("best", columns, rows), *ties]
    return [*sections, _methods_table(outcome, problem)] if is_feasible else sections


def _methods_table(outcome: SearchOutcome, problem: Problem) -> Table:
    """Return by method the gaps of its seeds before and after the polish, with evaluations and time, as a detail."""
    rows = []
    for method, count in outcome.evaluations.items():
        designs = [design for design in outcome.designs if design.method == method]
        row: dict[str, Any] = {"method": method, "evaluations": count, "time": outcome.seconds[method]}
        for stage, field in (("search", "gap_unpolished"), ("polished", "gap")):
            gaps = [math.inf if gap is None else gap for gap in (getattr(design, field) for design in designs)]
            row |= {f"{stage}_best": min(gaps), f"{stage}_median": statistics.median(gaps), f"{stage}_worst": max(gaps)}
        rows.append(row)
    gap_columns = [
        Column(f"{stage}: {which} %", f"{stage}_{which}", lambda gap: "–" if math.isinf(gap) else f"{100 * gap:.3f}")
        for stage in ("search", "polished")
        for which in ("best", "median", "worst")
    ]
    columns = [Column("method", "method", left=True), *gap_columns, *_effort_columns()]
    name = outcome.objectives[0].replace("_", " ")
    seeds = counted(len(problem.spec.seeds), "seed")
    return Table("methods", columns, rows, f"gap of {name} to the best found, by method, over {seeds}", show="methods")


def _effort_columns() -> list[Column]:
    """Return the columns of evaluations and time of a method."""
    return [Column("evaluations", "evaluations", "{:,}".format), Column("time", "time", seconds_text)]


def _front_sections(outcome: SearchOutcome, problem: Problem) -> list[Section]:
    """Return the table of the ends of the front and designs between them; by method its front as a detail."""
    objectives = " and ".join(text.replace("_", " ") for text in outcome.objectives)
    axes, common_values = axis_columns([design.labels for design in outcome.front])
    values = [objective_column(text, problem.study) for text in outcome.objectives]
    rows = [
        {
            "rank": rank, "best by": ", ".join(design.best_in), "found by": ", ".join(design.methods), **design.labels,
            **dict(zip(outcome.objectives, design.objectives, strict=False)),
        }
        for rank, design in enumerate(outcome.front, start=1)
    ]  # fmt: skip
    columns = [Column("", "rank"), Column("best by", "best by", left=True, prose=True), *values, *axes]
    columns.append(Column("found by", "found by", left=True, prose=True))
    sections: list[Section] = [heading(f"the ends of the front, and designs between them{_polish_note(problem)}")]
    sections += [Line(common_values)] if common_values else []
    sections += [Table("front", columns, rows), Line(_front_size_text(outcome))]
    method_rows = [
        {
            "method": method, "designs": front.size, "hypervolume": front.hypervolume,
            "evaluations": outcome.evaluations[method], "time": outcome.seconds[method],
            **dict(zip(outcome.objectives, front.best or [None] * len(outcome.objectives), strict=False)),
        }
        for method, front in outcome.fronts.items()
    ]  # fmt: skip
    method_columns = [
        Column("method", "method", left=True),
        Column("designs on its front", "designs", "{:,}".format),
        Column(
            "hypervolume %",
            "hypervolume",
            row_text=lambda row: "–" if row["hypervolume"] is None else in_per_cent(2)(row["hypervolume"]),
        ),
        *(dataclasses.replace(column, heading=f"best {column.heading}") for column in values),
        *_effort_columns(),
    ]
    title = f"front of {objectives} by method, over {counted(len(problem.spec.seeds), 'seed')}"
    return [*sections, Table("methods", method_columns, method_rows, title, show="methods")]


def _front_size_text(outcome: SearchOutcome) -> str:
    """Return a line on the number of designs of the front, and how many of them the table has."""
    text = f"{counted(outcome.front_size, 'design')} on the Pareto front of {', '.join(outcome.objectives)}"
    if outcome.front_distinct < outcome.front_size:
        text += f", {outcome.front_distinct:,} of them printed differently"
    return f"{text}; {len(outcome.front):,} are shown" if len(outcome.front) < outcome.front_distinct else text


# --- descents


def _chip_sections(chip: DescentChip, outcome: SearchOutcome) -> list[Section]:
    """Return a chip: its value, leaves, best mapping by workload, active limits; elasticities as a detail."""
    starts = f"{sum(math.isfinite(value) for value in chip.starts)} of {len(chip.starts)} starts"
    hardware = [{"leaf": row.name, "value": row.value, "text": setting(row.value, row.units)} for row in chip.hardware]
    if chip.cost is not None:
        hardware.append({"leaf": "cost of making one", "value": chip.cost, "text": f"{chip.cost:,.0f} USD"})
    names = list(chip.workloads[0].mapping)
    workload_columns = [
        Column("workload", "workload", left=True),
        *(Column(SHORT.get(name, name), name, setting) for name in names),
        Column("step", "step_time", seconds_text),
        Column("MFU %", "mfu", in_per_cent(1)),
    ]
    workloads = [{"workload": row.workload, **row.mapping, **row.metrics} for row in chip.workloads]
    elasticity_columns = [
        Column("1 % more", "leaf", left=True),
        Column("objective %, same mappings", "elasticity", row_text=lambda row: row.texts[0]),
        Column("with the best mappings anew", "remapped", row_text=lambda row: row.texts[1]),
    ]
    leaf_columns = [Column("leaf", "leaf", left=True), Column("value", "value", row_text=lambda row: row["text"])]
    return [
        heading(f"{outcome.objectives[0]}, geometric mean: {chip.value:.5g}"),
        Line(f"{starts} have a mapping of every workload"),
        Table("chip", leaf_columns, hardware, "the chip"),
        Table("workloads", workload_columns, workloads, "its best mappings"),
        Line(f"active limits: {'; '.join(chip.active) or 'nothing'}"),
        *([Line(_stack_rounding_text(chip))] if chip.whole_stacks else []),
        Table("elasticities", elasticity_columns, chip.elasticities, "elasticities", show="elasticities"),
    ]


def _stack_rounding_text(chip: DescentChip) -> str:
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
