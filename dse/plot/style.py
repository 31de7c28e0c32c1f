"""What all figures share: colours, fonts, numbers as a person writes them, and files."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse import outputs
from dse.errors import InputError
from dse.files import MARK
from dse.quantities import settings

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.typing import RcKeyType

#: Hatches tell apart what colours alone do not in grey: messages, and what moves data for the optimizer.
_MESSAGES, _UPDATE = "/////", "....."


class Part(NamedTuple):
    """How a part of the step time is called and drawn."""

    label: str
    colour: str
    hatch: str = ""

    @property
    def fill(self) -> dict[str, Any]:
        """The same for bars of matplotlib."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": "white", "linewidth": 0.0}


#: Part of the step time → its looks. All pairs are told apart by readers without red or green cones, and in grey:
#: tests/plot/test_colours.py measures them.
PARTS = {
    "forward": Part("forward", "#0e306e"),
    "backward": Part("backward", "#3d93d1"),
    "recompute": Part("recompute", "#b8def3"),
    "embedding_and_head": Part("embedding and head", "#594e74"),
    "host": Part("host launches", "#0f100e"),
    "tensor_parallel": Part("tensor parallel", "#e45807", _MESSAGES),
    "context_parallel": Part("context parallel", "#733900", _MESSAGES),
    "pipeline_parallel": Part("pipeline messages", "#f99e2b", _MESSAGES),
    "bubble": Part("pipeline bubble", "#c6ac77"),
    "data_parallel": Part("data parallel", "#9248b1", _MESSAGES),
    "optimizer": Part("optimizer", "#06784b", _UPDATE),
    "offload": Part("offload", "#898d53", _UPDATE),
}

#: Part of the time of an output token → the same; that of the host is the same in both.
SERVING_PARTS = {
    "matrix": Part("matrices", "#0e306e"),
    "attention": Part("attention", "#3d93d1"),
    "communication": Part("messages", "#e45807", _MESSAGES),
    "prefill": Part("prompts of others", "#c6ac77"),
}

#: Part of the step time by what bounds it → the same.
BOUNDS = {
    "bound_by_compute": Part("bound by compute", "#0e306e"),
    "bound_by_memory": Part("bound by device memory", "#06784b"),
    "bound_by_network": Part("bound by the network", "#e45807"),
    "bound_by_rest": Part("other", "#c6ac77"),
}

#: Colour of a part this module does not know, of text, of what stands in the background, and of Pareto fronts.
OTHER, INK, PALE, FRONT = "#6d7270", "#1a1a1a", "#747474", "#c8440a"

#: Colours of designs that fit into memory, and of those that do not.
FITS, TOO_LARGE = "#6fa8d6", "#dcdcdc"

#: Part of the mapping → its heading.
HEADINGS = {
    "tp": "tp", "cp": "cp", "pp": "pp", "dp": "dp", "micro_batch": "b", "virtual_stages": "v",
    "zero_stage": "ZeRO", "recompute": "recompute",
}  # fmt: skip

#: Inches: a column of a paper, and a page of two; points of all text in them.
COLUMN, PAGE, SIZE = 3.4, 7.0, 8.0

#: Endings of files that figures are written to: for screens, for pages, for papers.
ENDINGS = (".png", ".svg", ".pdf")

_STYLE: dict[RcKeyType, Any] = {
    "font.family": "sans-serif",
    "font.size": SIZE,
    **dict.fromkeys(
        ("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize",
         "legend.title_fontsize", "figure.titlesize"), SIZE,
    ),
    # Titles and names are the user's: $ and _ stand for themselves.
    "text.parse_math": False,
    "text.usetex": False,
    "axes.formatter.use_mathtext": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#444444",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "dse",
}

#: Letters of a text of this size in an inch.
_LETTERS_AN_INCH = 14


# Numbers and names


def labels(coordinate: xr.DataArray) -> list[str]:
    """The values of an axis at all of its points, with their units."""
    return settings(coordinate.values.tolist(), str(coordinate.attrs.get("units", "1")))


def part(name: str) -> Part:
    """The looks of a part of the step time."""
    return (SERVING_PARTS | PARTS | BOUNDS).get(name) or Part(name.replace("_", " "), OTHER)


def heading(name: str) -> str:
    """The name of an axis as short as it can be."""
    return HEADINGS.get(name) or name.removeprefix("chip_").removeprefix("power_").replace("_", " ")


def pair(name: str, text: str) -> str:
    """An axis and its value at a point, in words that no line break parts."""
    return f"{heading(name)} {text}".replace(" ", "\u00a0")


def axis_label(variable: xr.DataArray, units: str) -> str:
    """A variable's long name and units, for an axis of a figure."""
    words = str(variable.attrs.get("long_name", str(variable.name).replace("_", " "))).removesuffix(" (catalogue name)")
    return f"{words} ({units})" if units else words


def wrapped(text: str, inches: float = 2.6) -> str:
    """A label in lines that fit beside or above a panel of this size."""
    return textwrap.fill(text, int(_LETTERS_AN_INCH * inches))


# Figures


def style() -> contextlib.AbstractContextManager[None]:
    """The context to draw and write in."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    """A figure that belongs to no window and no global state; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def set_title(figure: Figure, *texts: str) -> None:
    """Lines of texts, broken where the figure ends."""
    room = int(_LETTERS_AN_INCH * figure.get_figwidth())
    lines = [line for text in texts for line in text.split("\n") if line]
    text = "\n".join(textwrap.fill(line, room, break_on_hyphens=False) for line in lines)
    if text:
        figure.suptitle(text)


def laid_out(figure: Figure) -> Figure:
    """The figure with its layout computed now, not each time it is written."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine(None)  # "none" would leave a place holder, for which each writing draws twice
    return figure


def plain_ticks(*axes: Any) -> None:
    """Numbers, not powers of ten, on logarithmic axes; the closer the less they span."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    for axis in axes:
        least, most = axis.get_view_interval()
        if most < 5.0 * least:
            axis.set_major_locator(MaxNLocator(5))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_formatter(NullFormatter())


def shades(count: int) -> list[Any]:
    """Colours of an ordered axis, dark to light; of many, :func:`dash` and :func:`marker` tell neighbours apart."""
    from matplotlib import colormaps

    return [colormaps["viridis"](place) for place in np.linspace(0.0, 0.92, count)]


def dash(place: int) -> Any:
    """How the line of a position of an ordered axis is dashed."""
    return ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))[place % 3]


def marker(place: int) -> str:
    """The marker of a position of an ordered axis; circles are left to what a figure points out."""
    return "s^Dv"[place % 4]


def text_width(figure: Figure | SubFigure, text: str, size: float) -> float:
    """Width of a text in inches, of several lines that of the longest."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    measure = RendererAgg(1, 1, figure.dpi)  # one pixel will do: nothing is drawn
    font = FontProperties(size=size)
    pixels = [measure.get_text_width_height_descent(line, font, False)[0] for line in text.split("\n")]
    return max(pixels) / figure.dpi


def check_ending(path: str | Path) -> Path:
    """The path of a figure; InputError for an ending that figures are not written to."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        got = repr(path.suffix) if path.suffix else "no ending"
        raise InputError(str(path), got, " ".join(ENDINGS), "give the file one of these endings")
    return path


#: Ending → metadata of a figure: who has written it, and no date.
_METADATA: dict[str, dict[str, str | None]] = {
    ".png": {"Software": MARK}, ".svg": {"Creator": MARK, "Date": None}, ".pdf": {"Creator": MARK, "CreationDate": None}
}


def save(figure: Figure, path: str | Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> Path:
    """Write a figure. The same results give the same file.

    Args:
        figure: of this room.
        path: of the file; its ending (.png, .svg, .pdf) says how.
        force: replace a file that dse has not written.
        inputs: files that must not be replaced.

    Returns:
        The path.

    Raises InputError for an ending that is none of these, and for a file that may not be replaced.
    """
    path = check_ending(path)
    ending = path.suffix.lower()
    with outputs.replacing(path, force, inputs) as partial, style():
        figure.savefig(partial, format=ending[1:], dpi=200, metadata=_METADATA[ending])
    return path
