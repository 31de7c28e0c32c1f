"""``dse run``: a sweep, and the table of its best designs: distinguishing axes, metrics, and time by part."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.designs import SHORT, label, print_reasons
from dse.cli.options import Figure, Force, Fresh, Json, OfferAny
from dse.cli.status import INTERRUPTED, NOTHING_FEASIBLE, report_errors
from dse.errors import InputError
from dse.io import local_cluster
from dse.io.examples import resolve_path
from dse.io.outputs import UnwritableFolderError
from dse.views.figures import check, draw, missing_requirement

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dse.sweep import BestDesign, Summary


#: Maximum number of shards; the names of their files have five digits.
MOST_SHARDS = 99_999


@report_errors
def run(
    sweep: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Specification of the sweep, or example:NAME.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Results file [default: results/SWEEP.nc].")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="all|feasible|best|pareto|top:K",
            help="Which designs are kept [default: as the sweep says, else all].",
        ),
    ] = None,
    chunk: Annotated[int | None, typer.Option(help="Designs per chunk [default: suits the sweep].")] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="i/n", help="Run only share i of n; dse merge joins them [default: the whole sweep]."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Number of local processes [default: 1].")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Evaluate on the workers of a Dask scheduler [default: on none]."),
    ] = None,
    fresh: Fresh = False,
    force: Force = False,
    any_option: OfferAny = False,
    figure: Figure = True,
    as_json: Json = False,
) -> int:
    """Evaluate every design of a sweep.

    An interrupted sweep resumes where it stopped. Prints the best designs and why the others cannot run.
    """
    share = _shard(shard) if shard is not None else None
    with contextlib.ExitStack() as stack:
        spec_exists = workers is not None and resolve_path(sweep).is_file()
        cluster = stack.enter_context(local_cluster(workers)) if workers is not None and spec_exists else workers
        figure = figure and not share
        start_s = time.perf_counter()
        from dse import sweep as sweeps
        from dse.measured.decisions.running import judge

        import_seconds = time.perf_counter() - start_s
        out = show.console(stderr=as_json)
        grid, keep_rule = sweeps.plan(sweep, keep, any_option=any_option)
        out.print(Text(f"{grid.spec.title}\n{grid.describe()}, keeping {keep_rule}"))
        for remark in grid.remarks:
            out.print(Text(remark, "yellow"), soft_wrap=True)
        figure_note = ""
        try:
            if figure:
                front = keep_rule.mode == "pareto" and len(grid.spec.objectives) > 1
                check(output or grid.spec.output, force, machines=keep_rule.mode == "best", front=front)
        except UnwritableFolderError as error:  # finished results are still printed; unfinished ones are refused below
            figure, figure_note = False, f"no figures: {error.got}"
        try:
            with sweeps.progress_bar() as progress:
                options: dict[str, Any] = {"keep": keep, "chunk": chunk, "fresh": fresh, "progress": progress}
                options |= {"force": force, "workers": cluster, "scheduler": scheduler, "judge": judge}
                if share:
                    summary = sweeps.perform_shard(grid, sweeps.Shard(*share), output, **options)
                else:
                    summary = sweeps.perform(grid, output, **options)[1]
        except sweeps.Interrupted as interruption:
            show.note(str(interruption))
            return INTERRUPTED
        if figure_note:
            show.note(figure_note)
        return finish(summary, import_seconds, figure, as_json, force)


def finish(summary: Summary, import_seconds: float, figure: bool, as_json: bool, force: bool = False) -> int:
    """Print the results of a sweep, draw figures, print the paths of outputs, and return the exit status.

    The results are printed even if a figure fails.
    """
    start_s = time.perf_counter()
    figures: list[Path] = []
    if not as_json:
        _print(summary, best_probabilities(summary))
    try:
        if figure and summary.n_feasible:
            figures += draw_figures(summary.written, force)
    finally:
        seconds = {"import": import_seconds} | summary.seconds | {"figure": time.perf_counter() - start_s}
        if as_json:
            show.document(summary_document(summary, seconds, figures))
        else:
            _print_end(summary, seconds, figures)
    return 0 if summary.n_feasible or summary.shard else NOTHING_FEASIBLE


def best_probabilities(summary: Summary) -> dict[int, float]:
    """Return index of a stored design in the sweep → probability that it is the best; empty where not stored."""
    if summary.output is None or not summary.keep.startswith("top") or summary.shard:
        return {}
    import netCDF4  # xarray would take half a second

    with netCDF4.Dataset(summary.written) as dataset:
        if "probability_best" not in dataset.variables:
            return {}
        dataset.set_auto_mask(False)
        return dict(zip(dataset["index"][:].tolist(), dataset["probability_best"][:].tolist(), strict=True))


def draw_figures(results: Path, force: bool) -> list[Path]:
    """Draw the figures of results and return their paths; without matplotlib note it and return none."""
    if missing := missing_requirement():
        show.note(f"no {missing.where}: {missing.got}; {missing.fix}")
        return []
    return draw(results, force)


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


def summary_document(summary: Summary, seconds: dict[str, float], figures: list[Path]) -> dict[str, Any]:
    """Return the JSON-ready dictionary of the summary of a run, with timings in seconds and paths of figures."""
    probability_by_index = best_probabilities(summary)
    best = [
        dataclasses.asdict(design)
        | ({"probability_best": probability_by_index[design.index]} if design.index in probability_by_index else {})
        for design in summary.best
    ]
    return dataclasses.asdict(summary) | {
        "best": best,
        "study": summary.study.name,
        "rate": summary.rate,
        "caution": summary.caution,
        "cautions": list(summary.cautions),
        "ranking": summary.ranking,
        "seconds": seconds,
        "output": str(summary.output),
        "figures": list(map(str, figures)),
    }


#: Printed timings, in order of a run.
_SPLIT = ("import", "start", "trace", "compile", "run", "write", "figure")


def _print(summary: Summary, probability_by_index: dict[int, float]) -> None:
    """Print the best designs, the share of feasible ones, and the others by reason."""
    out = show.console()
    if summary.best:
        show_best(out, summary, probability_by_index)
        for text in summary.best_cautions:
            out.print(Text(text, "yellow"), soft_wrap=True)
    share = show.percent(summary.n_feasible / max(summary.n_designs, 1))
    show.heading(out, f"feasible: {summary.n_feasible:,} of {show.counted(summary.n_designs, 'design')} ({share})")
    if summary.reasons:
        print_reasons(out, summary.reasons, summary.study)
    for text in summary.unmet:
        out.print(Text(text), soft_wrap=True)


def _print_end(summary: Summary, seconds: dict[str, float], figures: list[Path]) -> None:
    """Print timings, where the designs come from, and the paths of outputs."""
    out = show.console()
    out.print()
    split = ", ".join(f"{name} {seconds[name]:.2f} s" for name in _SPLIT if name in seconds)
    out.print(Text(f"{show.counted(summary.n_designs, 'design')}{_origin_text(summary)}; {split}"), soft_wrap=True)
    if summary.shard:
        merged = summary.written.with_suffix("")
        out.print(Text(f"shard {summary.shard}; when all shards have run: dse merge {merged}"), soft_wrap=True)
    for path in [summary.written, *figures]:
        out.print(Text(str(path)), soft_wrap=True)


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


#: Maximum length of an objective's text as a heading.
_LONGEST = 28

#: Heading and cells of a column.
Column = tuple[str, list[str]]


def show_best(out: Console, summary: Summary, chances: Mapping[int, float] = MappingProxyType({})) -> None:
    """Print the best designs with as many columns of time as fit, below the values common to all.

    Args:
        out: output console.
        summary: of a run.
        chances: index of a design → probability that it is the best.
    """
    show.heading(out, f"best by {summary.objective.replace('_', ' ')}{_ranking_text(summary)}")
    if summary.work:
        out.print(Text(summary.work), soft_wrap=True)
    axes, common_values = _axes(summary.best)
    if common_values:
        out.print(Text("same for all: " + ", ".join(common_values)), soft_wrap=True)
    columns = [*axes, *_objective_columns(summary), *_metric_columns(summary)]
    if all(design.index in chances for design in summary.best):
        columns.append(("best %", [f"{100 * chances[design.index]:.0f}" for design in summary.best]))
    shares = _share_columns(summary)
    while shares and _width(out, _table([*columns, *shares])) > out.width:
        shares.pop()
    table = _table([*columns, *shares])
    show.print_unwrapped(out, table, _width(out, table))


def _ranking_text(summary: Summary) -> str:
    """Return the end of a heading that says what the rows of the table are, "" where they are simply the best."""
    if summary.ranking:
        return f"; {summary.ranking}"
    if summary.keep != "best" or not summary.points:
        return ""
    return f"; each row is the best mapping of one ({', '.join(summary.points)})"


def _table(columns: Sequence[Column]) -> Table:
    """Build a table of columns, each a heading and its cells."""
    return show.table([heading for heading, _ in columns], zip(*(cells for _, cells in columns), strict=True))


def _width(out: Console, table: Table) -> int:
    """Return the width in characters that a table needs without wrapping."""
    return out.measure(table, options=out.options.update(max_width=10_000)).maximum


def _axes(best: Sequence[BestDesign]) -> tuple[list[Column], list[str]]:
    """Return the axes that differ between the designs as columns, and ``heading value`` texts of those that do not."""
    values = best[0].labels | best[0].work
    ending_counts = Counter(name.rpartition(".")[2] for name in values)
    columns, common_values = [], []
    for name in [*(n for n in values if n not in SHORT), *(n for n in SHORT if n in values)]:
        last_word = name.rpartition(".")[2]
        heading = SHORT.get(name, last_word if ending_counts[last_word] == 1 else name)
        cells = [label(name, (design.labels | design.work)[name]) for design in best]
        if len(best) > 1 and len(set(cells)) == 1:
            common_values.append(f"{heading} {cells[0]}")
        else:
            columns.append((heading, cells))
    return columns, common_values


def _objective_columns(summary: Summary) -> list[Column]:
    """Return the column of the objective, none where a usual column has it."""
    from dse.spec.expression import written_units

    text, study = summary.objective, summary.study
    if text in (table_metric.metric for table_metric in study.table_columns):
        return []
    units = written_units(text, study)
    cells = [show.quantity(design.value, units) for design in summary.best]
    return [(text.replace("_", " ") if len(text) <= _LONGEST else "objective", cells)]


#: Style → format of its cells.
_STYLES: dict[str, Callable[[float], str]] = {
    "time": show.seconds,
    "percent": lambda value: f"{100 * value:.1f}",
    "number": show.digits,
    "bytes": lambda value: f"{value / show.GIB:.1f}",
}


def _metric_columns(summary: Summary) -> list[Column]:
    """Return the columns of the metrics that the study has in tables."""
    return [
        (heading, [_STYLES[style](design.metrics[metric]) for design in summary.best])
        for heading, metric, style in summary.study.table_columns
    ]


def _share_columns(summary: Summary) -> list[Column]:
    """Return the columns of shares of the time in per cent, without parts below 0.05 % in all designs."""
    breakdown = summary.study.time_columns
    shares_by_heading = {
        heading: [_share(design, parts, summary) for design in summary.best] for heading, parts in breakdown.items()
    }
    return [
        (f"{heading} %", [f"{100 * value:.1f}" for value in values])
        for heading, values in shares_by_heading.items()
        if max(values) >= 0.0005
    ]


def _share(design: BestDesign, parts: tuple[str, ...], summary: Summary) -> float:
    """Return the share (0 to 1) of the sum of some parts in the total time of a design."""
    return sum(design.metrics[part] for part in parts) / design.metrics[summary.study.totals[0]]
