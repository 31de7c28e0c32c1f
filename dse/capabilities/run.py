"""``dse.run`` and ``dse.merge``: a sweep, and its best designs with distinguishing axes, metrics, and time by part."""

from __future__ import annotations

import contextlib
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.best import (
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
from dse.io import counted, digits, percent, seconds as seconds_text
from dse.io.quantities import GIB
from dse.reports import Column, Line, Option, Report, Table, capability, caution, heading
from dse.reports.options import Figure, Force, Fresh, OfferAny, Output, ShowProgress, Specification

if TYPE_CHECKING:
    from dse.sweep import BestDesign, Summary
    from dse.sweep.results.labelled import Labelled

#: Maximum number of shards; the names of their files have five digits.
MOST_SHARDS = 99_999

#: Designs of a sweep that HTTP and MCP evaluate, at most.
MOST_REMOTE_DESIGNS = 1e9

#: Maximum length of an objective's text as a heading.
_LONGEST = 28

_ONE_MACHINE = "one process answers there"

#: Names of the details of a sweep.
_DETAILS = ("reasons", "seconds")


@capability("Ask", returns="dataset", details=_DETAILS)
def run(
    sweep: Specification,
    output: Output = None,
    keep: Annotated[
        str | None,
        Option(
            "Which designs are kept [default: as the sweep says, else all].", metavar="all|feasible|best|pareto|top:K"
        ),
    ] = None,
    chunk: Annotated[int | None, Option("Designs per chunk [default: suits the sweep].", local=_ONE_MACHINE)] = None,
    fresh: Fresh = False,
    progress: ShowProgress = None,
    any_option: OfferAny = False,
    workers: Annotated[int | None, Option("Number of local processes [default: 1].", local=_ONE_MACHINE)] = None,
    scheduler: Annotated[
        str | None,
        Option(
            "Evaluate on the workers of a Dask scheduler [default: on none].", metavar="ADDRESS", local=_ONE_MACHINE
        ),
    ] = None,
    shard: Annotated[
        str | None,
        Option(
            "Run only share i of n; dse merge joins them [default: the whole sweep].", metavar="i/n", local=_ONE_MACHINE
        ),
    ] = None,
    force: Force = False,
    figure: Figure = False,
    most_designs: Annotated[
        float | None,
        Option("Refuse a sweep of more designs [default: none].", local="is 1e9 there", remote=MOST_REMOTE_DESIGNS),
    ] = None,
) -> Report:
    """Evaluate every design of a sweep.

    An interrupted sweep resumes where it stopped. Prints the best designs and why the others cannot run.

    Args:
        sweep: path of a specification, ``example:NAME``, its sections as a dictionary or as keywords (``workload=…``,
            ``axes=…``: all three are one document), a specification, or a grid.
        output: results file, by default the specification's: ``results/NAME.nc`` of a file, ``results/TITLE.nc`` of a
            dictionary; False: none. A dictionary is the section ``[output]``.
        keep: ``all feasible best pareto top:K`` in place of the specification's.
        chunk: designs per evaluation.
        fresh: ignore the results and the parts of earlier runs.
        progress: True to show it, or a function that is called after every block; by default shown in notebooks.
        any_option: allow options that the software stack lacks; by default they are left out.
        workers: number of local processes; scripts need ``if __name__ == "__main__":``.
        scheduler: address of a Dask scheduler whose workers evaluate; they must share the folder of the output.
        shard: ``i/n`` to evaluate only share i of n, which has no dataset: the report is returned.
        force: replace a file that dse has not written.
        figure: draw the figures that suit the results next to them.
        most_designs: refuse a sweep of more.

    Returns:
        One variable per metric, with ``units`` and ``long_name``. Dimensions are the orthogonal axes and
        ``mapping``; ``design`` for single designs (``feasible``, ``top:K``, ``pareto``); the orthogonal axes for
        ``best``. Of ``top:K`` also the ends of 80 % intervals and ``probability_best``. Its report, what the command
        prints, is its attribute ``dse.report``.

    Raises:
        InputError: for bad input, before any evaluation.
        Interrupted: when stopped; finished blocks are stored.
        IncompleteError: if a part could not be computed; finished blocks are stored.

    >>> results = run("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3")
    >>> results.sizes["design"], results.step_time.attrs["units"]
    (3, 's')
    >>> small = run(workload="gpt-3-13b", system="selene", axes={"tp": [1, 8]}, output=False)
    >>> small.sizes["mapping"]
    2
    """
    share = _shard(shard) if shard is not None else None
    with contextlib.ExitStack() as stack:
        cluster: Any = workers
        if workers is not None and _is_file(sweep):  # they start while this process imports
            from dse.io import local_cluster

            cluster = stack.enter_context(local_cluster(workers))
        start_s = time.perf_counter()
        from dse import sweep as sweeps
        from dse.measured.decisions.running import judge
        from dse.sweep.progress import progress_bar, shown

        import_seconds = time.perf_counter() - start_s
        grid, keep_rule = sweeps.plan(sweep, keep, any_option=any_option)
        if most_designs is not None and grid.n_designs > most_designs:
            fix = "ask for fewer values, or run it with dse run"
            raise InputError(
                f"{grid.spec.file}: axes", f"{grid.n_designs:.3g} designs", f"up to {most_designs:.4g}", fix
            )
        head = [Line(grid.spec.title), Line(f"{grid.describe()}, keeping {keep_rule}"), *map(caution, grid.remarks)]
        figure, notes = _drawable(figure and not share and output is not False, output, force, grid, keep_rule)
        options: dict[str, Any] = {"keep": keep, "chunk": chunk, "fresh": fresh, "force": force}
        options |= {"workers": cluster, "scheduler": scheduler, "judge": judge}
        with shown(progress, progress_bar) as options["progress"]:
            if share:
                return _report(sweeps.perform_shard(grid, sweeps.Shard(*share), output, **options), None, head, notes)
            labelled, summary = sweeps.perform(grid, output, **options)
    return _report(summary, labelled, head, notes, import_seconds, figure, force)


@capability("Manage", returns="dataset", local="names files of this machine", details=_DETAILS)
def merge(
    output: Annotated[
        Path, Option("The file that dse run --shard was given with -o.", is_argument=True, metavar="OUTPUT.nc")
    ],
    force: Force = False,
    figure: Figure = False,
) -> Report:
    """Join the shards of a sweep into one file.

    The shards are what dse run --shard 1/n … n/n left next to OUTPUT.nc.

    Args:
        output: results file of the shards.
        force: replace a file that dse has not written.
        figure: draw the figures that suit the results next to them.

    Returns:
        What :func:`dse.run` returns of the whole sweep.

    Raises:
        InputError: for missing parts, and for parts of different sweeps, versions or catalogues.
    """
    if output.suffix.lower() == ".toml":
        allowed, fix = "the results file of the shards (dse run … --shard i/n -o FILE.nc)", "name that file"
        raise InputError("OUTPUT.nc", str(output), allowed, fix)
    start_s = time.perf_counter()
    from dse import sweep as sweeps
    from dse.measured.decisions.running import judge
    from dse.views.figures import check

    import_seconds = time.perf_counter() - start_s
    if figure:
        check(output, force, machines=False)
    labelled, summary = sweeps.merge(output, force=force, judge=judge)
    return _report(summary, labelled, [], [], import_seconds, figure, force)


def _is_file(sweep: Any) -> bool:
    """Return True for the path of a specification that exists."""
    from dse.io.examples import resolve_path

    return isinstance(sweep, str | Path) and resolve_path(sweep).is_file()


def _shard(text: str) -> tuple[int, int]:
    """Parse ``i/n`` to (i, n), both from 1; raise an InputError for another text."""
    number, slash, total = text.partition("/")
    is_valid = (
        slash and text.isascii() and number.isdecimal() and total.isdecimal() and len(total) <= len(str(MOST_SHARDS))
    )
    if is_valid and 1 <= int(number) <= int(total) <= MOST_SHARDS:
        return int(number), int(total)
    allowed = f"i/n with 1 <= i <= n <= {MOST_SHARDS:,}"
    raise InputError("--shard", repr(text), allowed, "write --shard 1/4 … 4/4 for four jobs")


def _drawable(figure: bool, output: Path | bool | None, force: bool, grid: Any, keep: Any) -> tuple[bool, list[str]]:
    """Return whether figures can be written next to the results, and a note on a folder that cannot be written.

    Finished results in it are still shown; unfinished ones are refused before their evaluation.
    """
    from dse.io.outputs import UnwritableFolderError
    from dse.views.figures import check

    if not figure:
        return False, []
    target = Path(output) if isinstance(output, str | Path) else grid.spec.output
    try:
        front = keep.mode == "pareto" and len(grid.spec.objectives) > 1
        check(target, force, machines=keep.mode == "best", front=front)
    except UnwritableFolderError as error:
        return False, [f"no figures: {error.got}"]
    return True, []


# --- the report


def _report(
    summary: Summary,
    labelled: Labelled | None,
    head: list[Line],
    notes: list[str],
    import_seconds: float = 0.0,
    figure: bool = False,
    force: bool = False,
) -> Report:
    """Return the report of a sweep that has run: results, and figures drawn next to them."""
    probabilities = _best_probabilities(summary, labelled)
    start_s = time.perf_counter()
    figures, faults, status = (
        draw_figures(summary.written, force) if figure and summary.n_feasible else (list[Path](), list[str](), 0)
    )
    seconds = {"import": import_seconds} | summary.seconds | {"figure": time.perf_counter() - start_s}
    best = [
        vars(design) | ({"probability_best": probabilities[design.index]} if design.index in probabilities else {})
        for design in summary.best
    ]
    document = vars(summary) | {
        "best": best, "study": summary.study.name, "rate": summary.rate, "caution": summary.caution,
        "cautions": summary.cautions, "ranking": summary.ranking, "seconds": seconds, "figures": figures,
    }  # fmt: skip
    sections = [*head, *best_sections(summary, probabilities), *_feasible_sections(summary)]
    sections = sorted([*sections, *_end_sections(summary, seconds)], key=lambda section: bool(section.show))

    return Report(
        document,
        sections,
        [*notes, *faults],
        figures,
        [] if summary.output is None else [summary.written],
        status or (0 if summary.n_feasible or summary.shard else NOTHING_FEASIBLE),
        None if summary.shard else loader(labelled, summary.output),
    )


def _best_probabilities(summary: Summary, labelled: Labelled | None) -> dict[int, float]:
    """Return index of a stored design in the sweep → probability that it is the best; empty where there is none."""
    if not summary.keep.startswith("top") or summary.shard:
        return {}
    if labelled is not None:
        if "probability_best" not in labelled.data:
            return {}
        values = (labelled.data | labelled.coords)["index"].values, labelled.data["probability_best"].values
        return dict(zip(*(column.tolist() for column in values), strict=True))
    import netCDF4  # xarray would take half a second

    with netCDF4.Dataset(summary.written) as dataset:
        if "probability_best" not in dataset.variables:
            return {}
        dataset.set_auto_mask(False)
        return dict(zip(dataset["index"][:].tolist(), dataset["probability_best"][:].tolist(), strict=True))


def best_sections(
    summary: Summary, probabilities: Mapping[int, float] = types.MappingProxyType({})
) -> list[Line | Table]:
    """Return the table of the best designs below the values common to all, with time by part where there is room.

    Args:
        summary: of a run.
        probabilities: index of a design → probability that it is the best.
    """
    if not summary.best:
        return []
    labels = [design.labels | design.work for design in summary.best]
    # Rows of unlike workloads, and of machines with their best mapping each, are answers of their own.
    is_ranking = not summary.each_work and not (summary.keep == "best" and summary.points)
    positions, ties = folded(labels, [design.value for design in summary.best], is_ranking)
    axes, common_values = axis_columns([labels[position] for position in positions])
    shares = _shares(summary)
    rows = [
        {
            **labels[position], **summary.best[position].metrics, "rank": rank,
            "objective": summary.best[position].value,
            "probability_best": probabilities.get(summary.best[position].index),
            **{f"share_{name}": values[position] for name, values in shares.items()},
        }
        for rank, position in enumerate(positions, start=1)
    ]  # fmt: skip
    columns = [Column("", "rank"), *axes, *_objective_columns(summary), *_metric_columns(summary)]
    if all(design.index in probabilities for design in summary.best):
        columns.append(Column("best %", "probability_best", in_per_cent(0)))
    columns += [Column(f"{name} %", f"share_{name}", in_per_cent(1), spare=True) for name in shares]
    lines = [heading(f"best by {summary.objective.replace('_', ' ')}{_ranking_text(summary)}")]
    lines += [Line(text) for text in (summary.work, common_values) if text]
    return [*lines, Table("best", columns, rows), *ties, *map(caution, summary.best_cautions)]


def _ranking_text(summary: Summary) -> str:
    """Return the end of a heading that says what the rows of the table are, "" where they are simply the best."""
    if summary.ranking:
        return f"; {summary.ranking}"
    if summary.keep != "best" or not summary.points:
        return ""
    return f"; each row is the best mapping of one ({', '.join(summary.points)})"


def _objective_columns(summary: Summary) -> list[Column]:
    """Return the column of the objective, none where a usual column has it."""
    text, study = summary.objective, summary.study
    if text in study.main_metrics:
        return []
    name = text.replace("_", " ") if len(text) <= _LONGEST else "objective"
    return [objective_column(text, study, name, "objective")]


#: Style → format of its cells.
_STYLES: dict[str, Callable[[float], str]] = {
    "time": seconds_text,
    "percent": in_per_cent(1),
    "number": digits,
    "bytes": lambda value: f"{value / GIB:.1f}",
}


def _metric_columns(summary: Summary) -> list[Column]:
    """Return the columns of the metrics that the study has in tables; rates and shares only where there is room."""
    from dse.views.studies import presentation_of

    return [
        Column(column.heading, column.metric, _STYLES[column.style], spare=column.style in ("percent", "number"))
        for column in presentation_of(summary.study).columns
    ]


def _shares(summary: Summary) -> dict[str, list[float]]:
    """Return heading → shares of parts in the time of each best design, without parts below 0.05 % in all of them."""
    from dse.views.studies import presentation_of

    def share(design: BestDesign, parts: tuple[str, ...]) -> float:
        """Return the share (0 to 1) of the sum of parts in the total time of a design."""
        return sum(design.metrics[part] for part in parts) / design.metrics[summary.study.totals[0]]

    columns = presentation_of(summary.study).time_columns
    shares = {name: [share(design, parts) for design in summary.best] for name, parts in columns.items()}
    return {name: values for name, values in shares.items() if max(values) >= 0.0005}


def _feasible_sections(summary: Summary) -> list[Line | Table]:
    """Return the share of feasible designs, the main reasons of the others, and how constraints are missed."""
    share = percent(summary.n_feasible / max(summary.n_designs, 1))
    text = f"feasible: {summary.n_feasible:,} of {counted(summary.n_designs, 'design')} ({share})"
    return [heading(text), *reason_sections(summary.reasons, summary.study), *map(Line, summary.unmet)]


#: Timings, in order of a run.
_SPLIT = ("import", "start", "trace", "compile", "run", "write", "figure")


def _end_sections(summary: Summary, seconds: dict[str, float]) -> list[Line]:
    """Return a line on where the designs come from and how long it took; as a detail the seconds by purpose."""
    split = {name: seconds[name] for name in _SPLIT if name in seconds}
    total = f"{counted(summary.n_designs, 'design')}{_origin_text(summary)}, {sum(split.values()):.1f} s in all"
    lines = [Line(f"\n{total}")]
    if summary.shard:
        merged = summary.written.with_suffix("")
        lines.append(Line(f"shard {summary.shard}; when all shards have run: dse merge {merged}"))
    return [*lines, Line(", ".join(f"{name} {value:.2f} s" for name, value in split.items()), show="seconds")]


def _origin_text(summary: Summary) -> str:
    """Return a clause on how many designs this run computed and at which rate, or where they come from."""
    if summary.damaged:
        return f", all computed again: {summary.output} was damaged, {summary.rate:,.0f} designs/s"
    if summary.finished:
        return f", computed by a run on {summary.finished} (--fresh computes them again)"
    if summary.resumed == summary.n_designs:
        return ", all of them from an earlier run"
    text = f", {summary.resumed:,} of them from an interrupted run" if summary.resumed else ""
    text += f", {summary.redone:,} computed again because their parts were damaged" if summary.redone else ""
    return f"{text}, {summary.rate:,.0f} designs/s"
