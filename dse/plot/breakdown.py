"""Step time by part of the best mappings, with their peak memory beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from dse.plot import designs
from dse.plot.designs import Columns
from dse.plot.style import (
    GIB,
    INK,
    PALE,
    PARTS,
    laid_out,
    new_figure,
    pair,
    part,
    plain,
    scaled,
    set_title,
    style,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEMORY = "#5a6b7b"

#: Bars of what does not fit.
_HATCHED: dict[str, Any] = {"color": "white", "edgecolor": PALE, "hatch": "////", "linewidth": 0.6}

#: Inches: the bars with their numbers, the narrowest figure, the gap between columns of the table beside them.
_BARS, _NARROWEST, _GAP = 5.5, 7.6, 0.13

#: Inches of the panel of times, at least.
_TIMES = 3.7

#: Points of the table's text, and of the numbers behind bars.
_SIZE, _SMALL = 8.0, 7.5


def breakdown(results: xr.Dataset, within: float = 2.0, bars: int = 16, missing: int = 4) -> Figure:
    """Step time by part of the best mapping of each (tp, pp), with its peak memory beside it.

    Args:
        results: a dataset of ``dse.run``; of orthogonal axes with all mappings, the point of the fastest design is
            shown; of the best mapping a point, every point.
        within: mappings slower than this multiple of the fastest are left out.
        bars: most mappings shown.
        missing: most (tp, pp) shown that do not fit into memory.
    """
    columns, title = designs.columns(results)
    return draw_mappings(columns, title, *best_of_each(columns, within, bars, missing))


def draw_mappings(columns: Columns, title: str, rows: list[int], unfit: list[int]) -> Figure:
    """These rows by part, those that do not fit hatched below them."""
    shown = [*rows, *unfit]
    table, same = _table(columns, shown)
    with style():
        figure = new_figure(width=_NARROWEST, height=1.6 + 0.24 * len(shown))
        widths = [max(text_width(figure, text, _SIZE) for text in (title, *cells)) for title, cells in table.items()]
        figure.set_figwidth(max(_NARROWEST, _BARS + sum(widths) + _GAP * len(widths)))
        time_axes, memory_axes = figure.subplots(1, 2, sharey=True, width_ratios=[4.0, 1.3])
        _write_mappings(time_axes, table, widths)
        _draw_times(time_axes, columns, rows, unfit)
        _draw_memory(memory_axes, columns, rows, unfit)
        time_axes.set_ylim(len(shown) - 0.4, -0.6)
        for axes in (time_axes, memory_axes):
            axes.tick_params(axis="y", length=0, labelleft=False)
            axes.spines["left"].set_visible(False)
        handles, labels = time_axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, handlelength=1.1, columnspacing=1.6)
        set_title(figure, title, f"all with {', '.join(same)}" if same else "")
        return laid_out(figure)


# Rows


def best_of_each(columns: Columns, within: float, bars: int, missing: int) -> tuple[list[int], list[int]]:
    """Rows to show: the fastest of each group, and of groups where nothing fits the one that needs least memory."""
    if not columns.feasible.any():
        raise designs.nothing_feasible()
    limit = within * columns.time[columns.feasible].min()
    best = _first_of_each(columns, columns.feasible & (columns.time <= limit), columns.time)
    least = _first_of_each(columns, columns.memory_alone, columns.memory)
    unfit = [row for group, row in least.items() if group not in best and columns.time[row] <= limit]
    return list(best.values())[:bars], unfit[:missing]


def _first_of_each(columns: Columns, candidates: np.ndarray, by: np.ndarray) -> dict[tuple, int]:
    """Group → its row with the smallest ``by`` among the candidates, smallest first."""
    rows = np.flatnonzero(candidates)
    rows = rows[np.argsort(by[rows], kind="stable")]
    keys = [columns.labels[name][rows].tolist() for name in columns.group]
    first: dict[tuple, int] = {}
    for row, *key in zip(rows.tolist(), *keys, strict=True):
        first.setdefault(tuple(key), row)
    return first


def _table(columns: Columns, rows: list[int]) -> tuple[dict[str, list[str]], list[str]]:
    """Heading → what each row is; what all rows are stands apart, in words."""
    table = {title: [str(value) for value in values[rows]] for title, values in columns.labels.items()}
    same = [title for title, cells in table.items() if len(rows) > 1 and len(set(cells)) == 1]
    return {t: c for t, c in table.items() if t not in same}, [pair(title, table[title][0]) for title in same]


# Drawing


def _write_mappings(axes: Axes, table: dict[str, list[str]], widths: list[float]) -> None:
    """A small table beside the bars: what each mapping is. The layout leaves room for it."""
    places = _GAP + np.cumsum([0.0, *(width + _GAP for width in widths[:0:-1])])[::-1]  # inches left of the bars
    for place, (title, cells) in zip(places, table.items(), strict=True):
        for row, text in enumerate([title, *cells], start=-1):
            axes.annotate(
                text, (0.0, row), xycoords=("axes fraction", "data"), xytext=(-72.0 * place, 0.0),
                textcoords="offset points", ha="right", va="center", fontsize=_SIZE, annotation_clip=False,
                color=INK if row >= 0 else PALE,
            )  # fmt: skip


def _draw_times(axes: Axes, columns: Columns, rows: list[int], unfit: list[int]) -> None:
    scale, units = scaled(columns.time[rows].min(), "s")
    at = np.arange(len(rows))
    left = np.zeros(len(rows))
    for name, values in in_legend_order(columns.parts).items():
        width = values[rows] * scale
        if width.max() >= 1e-3 * columns.time[rows].max() * scale:
            label, colour = part(name)
            axes.barh(at, width, left=left, height=0.74, color=colour, label=label, linewidth=0)
        left += width
    longest = [columns.time[[*rows, *unfit]].max() * scale * 1.05]
    for i, row in enumerate(rows):
        total = columns.time[row] * scale
        text = f"{plain(total)} {units} · {100 * columns.mfu[row]:.0f} %" + (" MFU" if i == 0 else "")
        axes.annotate(text, (total, i), xytext=(3, 0), textcoords="offset points", va="center", fontsize=_SMALL)
        # Bar and number end inside the panel.
        longest.append(total / (1.0 - (text_width(axes.figure, text, _SMALL) + _GAP) / _TIMES))
    if unfit:
        below = len(rows) + np.arange(len(unfit))
        axes.barh(below, columns.time[unfit] * scale, height=0.74, label="does not fit in memory", **_HATCHED)
    axes.set_xlabel(f"step time ({units})")
    axes.set_xlim(0, max(longest))


def _draw_memory(axes: Axes, columns: Columns, rows: list[int], unfit: list[int]) -> None:
    shown = [*rows, *unfit]
    needed = columns.memory[shown] / GIB
    room = (columns.capacity or columns.memory[rows].max()) / GIB
    edge = 1.5 * room if columns.capacity or unfit else 1.1 * room
    at = np.arange(len(shown))
    axes.barh(at[: len(rows)], needed[: len(rows)], height=0.74, color=_MEMORY, linewidth=0)
    axes.barh(at[len(rows) :], np.minimum(needed[len(rows) :], edge), height=0.74, **_HATCHED)
    for i, value in enumerate(needed):
        if value > edge:  # cut off: the number stands in the bar
            axes.text(
                edge * 0.98, i, f"{value:,.0f} →", va="center", ha="right", fontsize=_SMALL,
                bbox={"color": "white", "pad": 0.6},
            )  # fmt: skip
    if columns.capacity:
        axes.axvline(room, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.annotate(
            f"{room:.0f} GiB", (room, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 2),
            textcoords="offset points", ha="center", fontsize=8,
        )  # fmt: skip
    axes.set_xlim(0, edge)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("peak memory (GiB)")


def in_legend_order(parts: dict[str, Any]) -> dict[str, Any]:
    """Parts in the order of the legend, unknown ones last."""
    return {n: parts[n] for n in (*PARTS, *(n for n in parts if n not in PARTS)) if n in parts}
