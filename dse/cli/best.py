"""The table of a sweep's best designs: distinguishing axes, metrics, and time by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.text import Text

from dse.cli import show
from dse.cli.designs import SHORT, label

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dse.sweep import BestDesign, Summary

#: Maximum length of an objective's text as a heading.
_LONGEST = 28

#: Heading and cells of a column.
Column = tuple[str, list[str]]


def show_best(out: Console, summary: Summary, chances: Mapping[int, float] = MappingProxyType({})) -> None:
    """Print the best designs with as many columns of time as fit; common values are above the table.

    ``chances``: index of a design → probability that it is the best.
    """
    show.heading(out, f"best by {summary.objective.replace('_', ' ')}{_of_what(summary)}")
    if summary.work:
        out.print(Text(summary.work), soft_wrap=True)
    axes, same = _axes(summary.best)
    if same:
        out.print(Text("same for all: " + ", ".join(same)), soft_wrap=True)
    columns = [*axes, *_objective(summary), *_metrics(summary)]
    if all(design.index in chances for design in summary.best):
        columns.append(("best %", [f"{100 * chances[design.index]:.0f}" for design in summary.best]))
    shares = _shares(summary)
    while shares and _width(out, _table([*columns, *shares])) > out.width:
        shares.pop()
    table = _table([*columns, *shares])
    show.print_whole(out, table, _width(out, table))


def _of_what(summary: Summary) -> str:
    if summary.ranking:
        return f"; {summary.ranking}"
    if summary.keep != "best" or not summary.points:
        return ""
    return f"; each row is the best mapping of one ({', '.join(summary.points)})"


def _table(columns: Sequence[Column]) -> Table:
    return show.table([heading for heading, _ in columns], zip(*(cells for _, cells in columns), strict=True))


def _width(out: Console, table: Table) -> int:
    """Width of a table in terminal columns."""
    return out.measure(table, options=out.options.update(max_width=10_000)).maximum


def _axes(best: Sequence[BestDesign]) -> tuple[list[Column], list[str]]:
    """The axes that distinguish the designs, as columns, and the values of the others."""
    given = best[0].labels | best[0].work
    ends = Counter(name.rpartition(".")[2] for name in given)
    columns, same = [], []
    for name in [*(n for n in given if n not in SHORT), *(n for n in SHORT if n in given)]:
        end = name.rpartition(".")[2]
        heading = SHORT.get(name, end if ends[end] == 1 else name)
        cells = [label(name, (design.labels | design.work)[name]) for design in best]
        if len(best) > 1 and len(set(cells)) == 1:
            same.append(f"{heading} {cells[0]}")
        else:
            columns.append((heading, cells))
    return columns, same


def _objective(summary: Summary) -> list[Column]:
    """The objective's value, unless a usual column has it."""
    from dse.spec.expression import written_units

    text, study = summary.objective, summary.study
    if text in (shown.metric for shown in study.shown):
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


def _metrics(summary: Summary) -> list[Column]:
    return [
        (heading, [_STYLES[style](design.metrics[metric]) for design in summary.best])
        for heading, metric, style in summary.study.shown
    ]


def _shares(summary: Summary) -> list[Column]:
    """Shares of the time in per cent; parts negligible in all designs are left out."""
    breakdown = summary.study.breakdown
    spent = {
        heading: [_share(design, parts, summary) for design in summary.best] for heading, parts in breakdown.items()
    }
    return [
        (f"{heading} %", [f"{100 * value:.1f}" for value in values])
        for heading, values in spent.items()
        if max(values) >= 0.0005
    ]


def _share(design: BestDesign, parts: tuple[str, ...], summary: Summary) -> float:
    return sum(design.metrics[part] for part in parts) / design.metrics[summary.study.totals[0]]
