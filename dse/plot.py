"""Figures from a results dataset: the step-time breakdown of the best mappings, and time against memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from dse.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GIB = 2.0**30

#: Part of the step time → (label, colour): one hue a cause, told apart by colour-blind readers and in grey.
PARTS = {
    "forward": ("forward", "#0b4f8a"),
    "backward": ("backward", "#3f8fc9"),
    "recompute": ("recompute", "#a9d3ee"),
    "edge": ("embedding and head", "#5b5f97"),
    "host": ("host launches", "#222222"),
    "tensor_parallel": ("tensor parallel", "#c8440a"),
    "context_parallel": ("context parallel", "#8c510a"),
    "pipeline_parallel": ("pipeline messages", "#f28e2b"),
    "bubble": ("pipeline bubble", "#f7d37a"),
    "data_parallel": ("data parallel", "#8b4a9c"),
    "optimizer": ("optimizer", "#4d9d6f"),
}

#: Part of the mapping → heading of its column beside the bars.
_HEADINGS = {
    "tp": "tp", "cp": "cp", "pp": "pp", "dp": "dp", "micro_batch": "b", "virtual_stages": "v",
    "zero_stage": "ZeRO", "recompute": "recompute",
}  # fmt: skip

#: Coordinates that are parts of a mapping, or numbers of designs: they make no group of their own.
_NO_LABELS = {"mapping", "design", "index", "sequence_parallel", "overlap_dp", "overlap_tp", "precision", "placement"}

_NEEDED = ("step_time", "peak_memory", "mfu", "feasible")

#: Bit of ``infeasible_reason`` for want of memory.
_MEMORY = 1

#: Colour of a part this module does not know.
_OTHER = "#999999"
_FITS, _TOO_LARGE, _INK, _PALE = "#5a6b7b", "#d9d9d9", "#1a1a1a", "#8a8a8a"

#: Bars of what does not fit.
_HATCHED = {"color": "white", "edgecolor": _PALE, "hatch": "////", "linewidth": 0.6}

_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#444444",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "dse",
}


class Columns(NamedTuple):
    """The designs to choose from, one flat array each."""

    time: np.ndarray
    memory: np.ndarray
    mfu: np.ndarray
    feasible: np.ndarray
    memory_alone: np.ndarray  # infeasible for want of memory only
    parts: dict[str, np.ndarray]  # of the step time, by name
    labels: dict[str, np.ndarray]  # heading → what tells the designs apart
    group: tuple[str, ...]  # headings of the labels that make a group: of each its best is shown
    capacity: float  # bytes of device memory; 0 where it is unknown or not the same for all


def breakdown(results: xr.Dataset, within: float = 2.0, bars: int = 16, missing: int = 4) -> Figure:
    """Step time by part of the best mapping of each (tp, pp), with its peak memory beside it.

    Args:
        results: a dataset of ``dse.run``; of orthogonal axes with all mappings, the point of the fastest design is
            shown; of the best mapping a point, every point.
        within: mappings slower than this multiple of the fastest are left out.
        bars: most mappings shown.
        missing: most (tp, pp) shown that do not fit into memory.
    """
    columns, title = _columns(results)
    rows, unfit = _best_of_each(columns, within, bars, missing)
    with _style():
        shown = [*rows, *unfit]
        figure = _figure(width=7.6, height=1.6 + 0.24 * len(shown))
        names_axes, time_axes, memory_axes = figure.subplots(1, 3, sharey=True, width_ratios=[2.15, 4.0, 1.3])
        _write_mappings(names_axes, columns, shown)
        _draw_times(time_axes, columns, rows, unfit)
        _draw_memory(memory_axes, columns, rows, unfit)
        time_axes.set_ylim(len(shown) - 0.4, -0.6)
        for axes in (time_axes, memory_axes):
            axes.tick_params(axis="y", length=0, labelleft=False)
            axes.spines["left"].set_visible(False)
        handles, labels = time_axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, handlelength=1.1, columnspacing=1.6)
        if title:
            figure.suptitle(title, fontsize=10)
        return _laid_out(figure)


def pareto(results: xr.Dataset, points: int = 20_000) -> Figure:
    """Step time against peak memory of all designs, with the front of those that no other beats in both.

    At most ``points`` designs behind the front are drawn, evenly thinned.
    """
    columns, title = _columns(results)
    fits = np.flatnonzero(columns.feasible)
    if not len(fits):
        raise _nothing_feasible()
    front = fits[_front(columns.time[fits], columns.memory[fits])]
    scale, units = _time_units(columns.time[front].min())
    limit = 8.0 * columns.time[front].min()
    with _style():
        figure = _figure(width=5.0, height=3.6)
        axes = figure.subplots()
        too_large = _thin(np.flatnonzero(columns.memory_alone & (columns.time < limit)), points)
        behind = _thin(fits[columns.time[fits] < limit], points)
        dots = dict(s=5, linewidths=0, rasterized=True)
        axes.scatter(
            columns.time[too_large] * scale, columns.memory[too_large] / GIB, color=_TOO_LARGE,
            label="does not fit", **dots,
        )  # fmt: skip
        axes.scatter(columns.time[behind] * scale, columns.memory[behind] / GIB, color="#9dbfdb", label="fits", **dots)
        axes.step(
            columns.time[front] * scale, columns.memory[front] / GIB, where="post", color="#c8440a", linewidth=1.4,
            marker="o", markersize=3.2, label="Pareto front",
        )  # fmt: skip
        if columns.capacity:
            capacity = columns.capacity / GIB
            axes.axhline(capacity, color=_INK, linewidth=0.9, linestyle=(0, (4, 2)))
            axes.annotate(
                f"usable {capacity:.0f} GiB", (1.0, capacity), xycoords=("axes fraction", "data"),
                xytext=(0, 3), textcoords="offset points", ha="right", fontsize=8,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel=f"step time ({units})", ylabel="peak memory (GiB)")
        _plain_ticks(axes)
        axes.legend(loc="upper right", markerscale=2, fontsize=8)
        if title:
            figure.suptitle(title, fontsize=10)
        return _laid_out(figure)


#: Name on the command line → figure.
KINDS = {"breakdown": breakdown, "pareto": pareto}


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending (.png, .svg, .pdf) says how. The same results give the same file."""
    path = Path(path)
    endings = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix.lstrip(".").lower() not in endings:
        allowed = " ".join(f".{e}" for e in endings)
        raise InputError(str(path), repr(path.suffix), allowed, "give the file such an ending")
    dated = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _style():
            figure.savefig(path, dpi=200, metadata=dated)
    except OSError as error:
        raise InputError(
            str(path), error.strerror or str(error), "a file that can be written", "choose another with -o"
        ) from None
    return path


# Data


def _columns(results: xr.Dataset) -> tuple[Columns, str]:
    """The designs to choose from, and a title that says which they are.

    Where each point of the orthogonal axes has many mappings, those of the point with the fastest design.
    """
    for name in _NEEDED:
        if name not in results:
            given = f"no variable {name!r}"
            raise InputError("results", given, ", ".join(_NEEDED), "give a dataset that dse run wrote")
    point = _best_point(results) if "mapping" in results.dims else {}
    results = results.isel(point)
    shape = results.step_time

    def flat(name: str) -> np.ndarray:
        values = results.variables[name].set_dims(dict(shape.sizes)).transpose(*shape.dims)  # quicker than with indices
        return np.ravel(values.values)

    moving = [
        str(name) for name, values in results.coords.items()
        if values.dims and set(values.dims) <= set(shape.dims) and name not in _NO_LABELS and name not in _HEADINGS
    ]  # fmt: skip
    labels = {name: flat(name) for name in moving} | {_HEADINGS[n]: flat(n) for n in _HEADINGS if _is_along(results, n)}
    memory, reason = flat("peak_memory"), flat("infeasible_reason") if "infeasible_reason" in results else None
    at = ", ".join(f"{name} {_plain(results[name].item())}" for name in point if name in results.coords)
    title = str(results.attrs.get("title", ""))
    return Columns(
        time=flat("step_time"),
        memory=memory,
        mfu=flat("mfu"),
        feasible=flat("feasible").astype(bool),
        memory_alone=np.zeros(shape.size, bool) if reason is None else reason == _MEMORY,
        parts={str(n).removeprefix("step_time_"): flat(str(n)) for n in results if str(n).startswith("step_time_")},
        labels=labels,
        group=(*moving, *(n for n in ("tp", "pp") if n in labels)),
        capacity=float(results.attrs.get("memory_capacity_bytes", 0.0)) or _capacity(memory, reason),
    ), f"{title} ({at})" if at else title


def _is_along(results: xr.Dataset, name: str) -> bool:
    return name in results and bool(results[name].dims)


def _best_point(results: xr.Dataset) -> dict[str, int]:
    """Where along the orthogonal axes the fastest feasible design lies."""
    kept = results.step_time.where(results.feasible)
    orthogonal = [d for d in kept.dims if d != "mapping"]
    if not orthogonal:
        return {}
    if not bool(results.feasible.any()):
        return dict.fromkeys(orthogonal, 0)
    return {d: int(i) for d, i in kept.argmin(...).items() if d in orthogonal}


def _capacity(memory: np.ndarray, reason: np.ndarray | None) -> float:
    """Capacity between the largest design that fits and the smallest that does not; 0 where that says little."""
    if reason is None:
        return 0.0
    too_large = (reason & _MEMORY) != 0
    fits, not_fits = memory[~too_large].max(initial=0.0), memory[too_large].min(initial=np.inf)
    return float(fits + not_fits) / 2.0 if fits <= not_fits < 1.02 * fits else 0.0


def _best_of_each(columns: Columns, within: float, bars: int, missing: int) -> tuple[list[int], list[int]]:
    """Rows to show: the fastest of each group, and the least hungry of those groups where nothing fits."""
    if not columns.feasible.any():
        raise _nothing_feasible()
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


def _nothing_feasible() -> InputError:
    return InputError("results", "no feasible design", "one or more", "widen the sweep, or see why with dse run")


def _front(time: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Indices of the points that no other beats in both, fastest first."""
    order = np.lexsort((memory, time))
    lowest = np.minimum.accumulate(memory[order])
    better = np.concatenate([[True], memory[order][1:] < lowest[:-1]])
    return order[better]


def _thin(indices: np.ndarray, most: int) -> np.ndarray:
    return indices[:: math.ceil(len(indices) / most) or 1]


# Drawing


def _draw_times(axes: Axes, columns: Columns, rows: list[int], unfit: list[int]) -> None:
    scale, units = _time_units(columns.time[rows].min())
    at = np.arange(len(rows))
    left = np.zeros(len(rows))
    for name, values in _known_first(columns.parts).items():
        width = values[rows] * scale
        if width.max() >= 1e-3 * columns.time[rows].max() * scale:
            label, colour = PARTS.get(name, (name.replace("_", " "), _OTHER))
            axes.barh(at, width, left=left, height=0.74, color=colour, label=label, linewidth=0)
        left += width
    for i, row in enumerate(rows):
        total = columns.time[row] * scale
        text = f"{_plain(total)} {units} · {100 * columns.mfu[row]:.0f} %" + (" MFU" if i == 0 else "")
        axes.annotate(text, (total, i), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7.5)
    if unfit:
        below = len(rows) + np.arange(len(unfit))
        axes.barh(below, columns.time[unfit] * scale, height=0.74, label="does not fit in memory", **_HATCHED)
    axes.set_xlabel(f"step time ({units})")
    axes.set_xlim(0, columns.time[[*rows, *unfit]].max() * scale * 1.22)


def _draw_memory(axes: Axes, columns: Columns, rows: list[int], unfit: list[int]) -> None:
    shown = [*rows, *unfit]
    needed = columns.memory[shown] / GIB
    room = (columns.capacity or columns.memory[rows].max()) / GIB
    edge = 1.5 * room
    at = np.arange(len(shown))
    axes.barh(at[: len(rows)], needed[: len(rows)], height=0.74, color=_FITS, linewidth=0)
    axes.barh(at[len(rows) :], np.minimum(needed[len(rows) :], edge), height=0.74, **_HATCHED)
    for i, value in enumerate(needed):
        if value > edge:  # cut off: the number stands in the bar
            axes.text(
                edge * 0.98, i, f"{value:,.0f} →", va="center", ha="right", fontsize=7.5,
                bbox={"color": "white", "pad": 0.6},
            )  # fmt: skip
    if columns.capacity:
        axes.axvline(room, color=_INK, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.annotate(
            f"{room:.0f} GiB", (room, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 2),
            textcoords="offset points", ha="center", fontsize=8,
        )  # fmt: skip
    axes.set_xlim(0, edge)
    axes.set_xlabel("peak memory (GiB)")


def _known_first(parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parts in the order of the legend, unknown ones last."""
    return {n: parts[n] for n in (*PARTS, *(n for n in parts if n not in PARTS)) if n in parts}


def _write_mappings(axes: Axes, columns: Columns, rows: list[int]) -> None:
    """A small table beside the bars: what each mapping is."""
    axes.set_axis_off()
    table = {title: values[rows] for title, values in columns.labels.items()}
    table = {t: v for t, v in table.items() if t in ("tp", "pp", "dp") or len(set(v.tolist())) > 1}
    widths = np.array([max(1.2 * len(title), *(len(str(v)) for v in values)) + 2 for title, values in table.items()])
    ends = np.cumsum(widths) / widths.sum()
    for end, (title, values) in zip(ends, table.items(), strict=True):
        for at, text in enumerate([title, *values], start=-1):
            axes.text(
                end, at, str(text), transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=8,
                color=_INK if at >= 0 else _PALE,
            )  # fmt: skip


def _time_units(seconds: float) -> tuple[float, str]:
    return (1.0, "s") if seconds >= 1.0 else (1e3, "ms")


def _plain(value: float | str) -> str:
    """A number with three significant digits and no exponent."""
    if isinstance(value, str):
        return value
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def _plain_ticks(axes: Axes) -> None:
    """Numbers, not powers of ten, on logarithmic axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _style():
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def _figure(width: float, height: float) -> Figure:
    """A figure that belongs to no window and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _laid_out(figure: Figure) -> Figure:
    """The figure with its layout computed once, not each time it is written."""
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine(None)  # "none" would leave a place holder, for which each writing draws twice
    return figure
