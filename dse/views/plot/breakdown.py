"""Time by part of the best mappings, and their peak memory."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.io import digits
from dse.io.quantities import GIB, scale as scale_of, settings
from dse.sweep.results.singles import is_search, nothing_feasible
from dse.views.plot import designs
from dse.views.plot.capacity import BINDS, MARK, draw_capacity, memory_binds
from dse.views.plot.designs import Columns
from dse.views.plot.pareto import front_of, representatives
from dse.views.plot.ranking import hidden_note, worst_shown
from dse.views.plot.style import (
    INK,
    PAGE,
    PALE,
    PARTS,
    SERVING_PARTS,
    SIZE,
    freeze_layout,
    legend_below,
    new_figure,
    pair,
    part,
    set_title,
    small_print,
    stack_bars,
    style,
    text_width,
)
from dse.views.studies import presentation_of

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.text import Annotation

_MEMORY = "#5a6b7b"

#: Bars of designs that do not fit.
_HATCHED: dict[str, Any] = {"color": "white", "edgecolor": PALE, "hatch": "////", "linewidth": 0.6}

#: Inches: minimum of the bars with their numbers; gap between columns of the adjacent table; line of text.
_BARS, _GAP, _LINE = 3.2, 0.12, 0.135

#: Inches of the memory panel, and of the frame around panels.
_MEMORY_PANEL, _FRAME = 1.28, 0.3

#: Minimum visible size of a part in inches: half a point, a pixel of a screen.
_MIN_VISIBLE = 0.5 / 72.0

#: Points of the line of an interval.
_WHISKER = 0.9

#: Share of the panel for the first row's second number with its name.
_NAME_SHARE = 0.55

#: Letters of the longest unbroken word.
_WORD = 24


def breakdown(results: xr.Dataset, within: float = 2.0, bars: int = 16, missing: int = 4) -> Figure:
    """Draw the time by part of the best mapping of each (tp, pp), with its peak memory.

    Time of a training step, or of an output token.

    Args:
        results: a dataset of ``dse.run``. With all mappings of orthogonal axes: at the point of the best design;
            with the best mapping per point: every point. Of a search of several objectives: the ends of its front and
            designs between them.
        within: mappings worse than the best by this factor of the objective are left out, except on a front.
        bars: maximum number of mappings.
        missing: maximum number of (tp, pp) that do not fit into memory.

    Returns:
        The figure.
    """
    columns, title = designs.columns(results)
    front = front_of(results) if is_search(results) else None
    if front and columns.feasible.any():
        rows = representatives(front[1], bars).tolist()
        note = f"{len(rows)} of {len(columns.time):,} designs of the front" if len(rows) < len(columns.time) else ""
        return draw_mappings(columns, "\n".join(filter(None, (title, note))), rows, [])
    rows, unfit = best_by_group(columns, within, bars, missing)
    return draw_mappings(columns, "\n".join(filter(None, (title, ranking_note(columns, len(rows))))), rows, unfit)


def draw_mappings(columns: Columns, title: str, rows: list[int], unfit: list[int]) -> Figure:
    """Draw a bar of parts for each of ``rows``, and hatched bars below for the rows ``unfit`` without enough memory."""
    all_rows = [*rows, *unfit]
    table, common_values = _table(columns, all_rows)
    with style():
        figure = new_figure(width=PAGE, height=2.0)
        table, widths = _fit_table(figure, table)
        lines = max(text.count("\n") + 1 for cells in table.values() for text in cells) if table else 1
        headings = max((text.count("\n") + 1 for text in table), default=1)
        margins = sum(widths) + _GAP * len(widths)
        bars = max(_BARS, PAGE - margins)
        figure.set_figwidth(max(PAGE, _BARS + margins))
        time_axes, memory_axes = figure.subplots(1, 2, sharey=True, width_ratios=[bars - _MEMORY_PANEL, _MEMORY_PANEL])
        _write_mappings(time_axes, table, widths)
        _draw_times(time_axes, columns, rows, unfit, bars - _MEMORY_PANEL - _FRAME)
        _draw_memory(memory_axes, columns, rows, unfit)
        time_axes.set_ylim(len(all_rows) - 0.4, -0.6)
        for axes in (time_axes, memory_axes):
            axes.tick_params(axis="y", length=0, labelleft=False)
            axes.spines["left"].set_visible(False)
        of_time, of_memory = time_axes.get_legend_handles_labels(), memory_axes.get_legend_handles_labels()
        legend_below(figure, [*of_time[0], *of_memory[0]], [*of_time[1], *of_memory[1]])
        set_title(figure, title, f"same for all: {', '.join(common_values)}" if common_values else "")
        small_print(figure, columns.cautions)
        return freeze_layout(figure, 0.65 + _LINE * headings + (0.1 + _LINE * lines) * len(all_rows))


# Rows


def best_by_group(columns: Columns, factor: float, bars: int, missing: int) -> tuple[list[int], list[int]]:
    """Return the best rows of the groups, best first, and the rows of least memory of groups where nothing fits."""
    if not columns.feasible.any():
        raise nothing_feasible()
    limit = worst_shown(columns.scores[columns.feasible], factor)
    best = _best_rows(columns, columns.feasible & (columns.scores <= limit), columns.scores)
    least_memory = _best_rows(columns, columns.memory_alone, columns.memory)
    unfit = [row for group, row in least_memory.items() if group not in best and columns.scores[row] <= limit]
    return list(best.values())[:bars], unfit[:missing]


def ranking_note(columns: Columns, bar_count: int) -> str:
    """Return a note on hidden groups and what ranks the bars, "" where all are drawn by the ranked time."""
    groups = _best_rows(columns, columns.feasible, columns.scores)
    names = [name for place, name in enumerate(columns.group_headings) if len({group[place] for group in groups}) > 1]
    is_time_ranked = columns.objective == columns.study.totals[0].replace("_", " ")
    best = "" if is_time_ranked or len(groups) < 2 else f"best by {columns.objective}"
    return hidden_note(len(groups), bar_count, names, columns.objective) or best


def _best_rows(columns: Columns, candidates: np.ndarray, scores: np.ndarray) -> dict[tuple, int]:
    """Return group (texts) → its candidate row of lowest score, ascending by score."""
    rows = np.flatnonzero(candidates)
    rows = rows[np.argsort(scores[rows], kind="stable")]
    keys = [_display_texts(columns.labels[name][rows], columns.units[name]) for name in columns.group_headings]
    first: dict[tuple, int] = {}
    for row, *key in zip(rows.tolist(), *keys, strict=True):
        first.setdefault(tuple(key), row)
    return first


def _display_texts(values: np.ndarray, units: str) -> list[str]:
    """Format values [row] as in the adjacent table."""
    distinct, places = np.unique(values, return_inverse=True)
    texts = settings(distinct.tolist(), units)
    return [texts[place] for place in places.reshape(-1).tolist()]


def _table(columns: Columns, rows: list[int]) -> tuple[dict[str, list[str]], list[str]]:
    """Return heading → cell of each row, without columns of equal cells, and ``heading value`` texts of these."""
    table = {title: settings(values[rows].tolist(), columns.units[title]) for title, values in columns.labels.items()}
    same = [title for title, cells in table.items() if len(rows) > 1 and len(set(cells)) == 1]
    return {t: c for t, c in table.items() if t not in same}, [pair(title, table[title][0]) for title in same]


def _fit_table(figure: Figure, table: dict[str, list[str]]) -> tuple[dict[str, list[str]], list[float]]:
    """Return the table with its widest cells wrapped to make room for the bars, and its column widths in inches."""
    letters = {title: max(map(len, [title, *cells])) for title, cells in table.items()}
    min_letters = {
        title: min(_WORD, max(len(word) + 1 for text in (title, *cells) for word in re.split(r"[\s-]", text)))
        for title, cells in table.items()
    }
    while True:
        wrapped_table = {wrap_letters(t, letters[t]): [wrap_letters(c, letters[t]) for c in table[t]] for t in table}
        widths = [
            max(text_width(figure, text, SIZE) for text in (title, *cells)) for title, cells in wrapped_table.items()
        ]
        breakable = [title for title in letters if letters[title] > min_letters[title]]
        if sum(widths) + _GAP * len(widths) <= PAGE - _BARS or not breakable:
            return wrapped_table, widths
        letters[max(breakable, key=lambda title: letters[title])] -= 1


class _Wrapper(textwrap.TextWrapper):
    """Breaks names after any hyphen: ``scd-blade-4k`` has three words."""

    wordsep_re = re.compile(r"([ \t\n]+|[^ \t\n-]*-+)")


def wrap_letters(text: str, letters: int) -> str:
    """Wrap a text to lines of at most ``letters`` characters."""
    return _Wrapper(letters).fill(text)


# Drawing


def _write_mappings(axes: Axes, table: dict[str, list[str]], widths: list[float]) -> None:
    """Write the table of mappings left of the bars, nothing for an empty one.

    Without columns where no mappings differ at the printed digits.
    """
    if not table:
        return
    places = _GAP + np.cumsum([0.0, *(width + _GAP for width in widths[:0:-1])])[::-1]  # inches left of the bars
    for place, (title, cells) in zip(places, table.items(), strict=True):
        for row, text in enumerate([title, *cells], start=-1):
            is_heading = row < 0
            look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right", "annotation_clip": False}
            look |= {"va": "bottom", "color": PALE} if is_heading else {"va": "center", "color": INK}
            note = _note(axes, text, (0.0, max(row, -0.6)), (-72.0 * place, 3.0 if is_heading else 0.0), **look)
            note.set_in_layout(place == places[0] or is_heading)  # the others are between these and the bars


def _note(axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], **look: Any) -> Annotation:
    """Write a text at an offset in points from a place."""
    return axes.annotate(text, place, offset, textcoords="offset points", **look)


def _draw_times(axes: Axes, columns: Columns, rows: list[int], unfit: list[int], inches: float) -> None:
    """Draw the bars of time in parts, on a panel of ``inches`` width, with totals and intervals."""
    scale, units = scale_of(columns.time[rows].min(), "s")
    positions = np.arange(len(rows))
    bars = {}
    for name, values in sort_by_legend(columns.parts).items():
        width, look = values[rows] * scale, part(name)
        share = width.max() / (columns.time[rows].max() * scale)
        # Invisibly thin parts are not in the legend, the thinnest not drawn.
        is_visible, is_drawn = share * inches >= _MIN_VISIBLE, share >= 1e-3
        bars[look.label if is_visible and is_drawn else f"_{name}"] = width, look if is_drawn else None
    stack_bars(axes, positions, bars, 0.74)
    suffixes, heading = _second_metric_texts(columns, rows, axes.figure, _NAME_SHARE * inches)
    if heading:
        _note(
            axes, heading, (1.0, -0.6), (0, 3), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=PALE
        )
    longest = [columns.time[[*rows, *unfit]].max() * scale * 1.05]
    for i, row in enumerate(rows):
        total = columns.time[row] * scale
        text_start = _whisker(axes, columns, "time", row, i, scale) or total
        text = f"{digits(total)} {units}{suffixes[i]}"
        _note(axes, text, (text_start, i), (3, 0), va="center")
        # Bar and number end inside the panel.
        text_share = min((text_width(axes.figure, text, SIZE) + _GAP) / inches, 0.8)
        longest.append(text_start / (1.0 - text_share))
    if columns.intervals:
        axes.plot([], [], color=INK, linewidth=_WHISKER, label="80 % interval")
    if unfit:
        unfit_positions = len(rows) + np.arange(len(unfit))
        axes.barh(unfit_positions, columns.time[unfit] * scale, height=0.74, label="does not fit in memory", **_HATCHED)
    axes.set_xlabel(f"{columns.study.totals[0].replace('_', ' ')} ({units})")
    axes.set_xlim(0, max(longest))


def _whisker(axes: Axes, columns: Columns, quantity: str, row: int, position: int, scale: float) -> float:
    """Draw the 80 % interval of a row, scaled, and return its upper end, 0 where the results have none."""
    low, high = columns.intervals[quantity][:, row] * scale if quantity in columns.intervals else (np.nan, np.nan)
    if not np.isfinite([low, high]).all():
        return 0.0
    look: dict[str, Any] = {"color": INK, "linewidth": _WHISKER, "capsize": 2.0, "capthick": _WHISKER, "zorder": 5}
    axes.errorbar([(low + high) / 2.0], [position], xerr=(high - low) / 2.0, **look)
    return float(high)


def _second_metric_texts(
    columns: Columns, rows: list[int], figure: Figure | SubFigure, inches: float
) -> tuple[list[str], str]:
    """Return a text of the second metric per bar, and a heading ("" if the first bar has room for the name)."""
    metric = presentation_of(columns.study).secondary_metric
    if metric is None:
        return [""] * len(rows), ""
    values = columns.second_metric[rows].tolist()
    texts = [f" · {100 * value:.0f} %" if metric.style == "percent" else f" · {digits(value)}" for value in values]
    first_text = f"{texts[0]} {metric.heading}"
    if text_width(figure, first_text, SIZE) > inches:
        return texts, f"time · {metric.heading}"
    return [first_text, *texts[1:]], ""


def _draw_memory(axes: Axes, columns: Columns, rows: list[int], unfit: list[int]) -> None:
    """Draw the bars of peak memory in GiB, the line of the capacity, and marks of designs that memory binds."""
    all_rows = [*rows, *unfit]
    memory_gib = columns.memory[all_rows] / GIB
    capacity_gib = (columns.capacity or columns.memory[rows].max()) / GIB
    edge = 1.5 * capacity_gib if columns.capacity or unfit else 1.1 * capacity_gib
    positions = np.arange(len(all_rows))
    axes.barh(positions[: len(rows)], memory_gib[: len(rows)], height=0.74, color=_MEMORY, linewidth=0)
    axes.barh(positions[len(rows) :], np.minimum(memory_gib[len(rows) :], edge), height=0.74, **_HATCHED)
    for i, value in enumerate(memory_gib):
        if value > edge:  # a bar that is cut off has its number inside
            frame = {"color": "white", "pad": 0.6}
            axes.text(edge * 0.98, i, f"{value:,.0f} →", va="center", ha="right", bbox=frame)
    for i, row in enumerate(rows):
        _whisker(axes, columns, "memory", row, i, 1.0 / GIB)
    bound_positions = positions[: len(rows)][memory_binds(columns, rows)]
    if len(bound_positions):
        place = [capacity_gib] * len(bound_positions) if columns.capacity else memory_gib[bound_positions]
        axes.plot(place, bound_positions, label=BINDS, **(MARK | {"zorder": 4.0, "clip_on": False}))
    if columns.capacity:
        draw_capacity(axes, columns.capacity, 1.0 / GIB, "x")
    axes.set_xlim(0, edge)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("peak memory (GiB)")


def sort_by_legend(parts: dict[str, Any]) -> dict[str, Any]:
    """Return name of a part → value in the order of the legend, unknown parts last."""
    order = {**SERVING_PARTS, **PARTS}
    return {n: parts[n] for n in (*order, *(n for n in parts if n not in order)) if n in parts}
