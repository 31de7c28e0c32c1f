"""What all figures share: colours, fonts, numbers as a person writes them, and files."""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.io import outputs
from dse.io.files import MARK
from dse.io.quantities import counted_units, settings
from dse.views.headings import LETTERS

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.legend import Legend
    from matplotlib.typing import RcKeyType

#: Hatches tell apart what colours alone do not in grey: messages, what moves data for the optimizer, what is done
#: again, and what this module does not know.
_MESSAGES, _UPDATE, _AGAIN, _UNKNOWN = "/////", ".....", "\\\\\\\\\\", "xxxxx"


class PlottedPart(NamedTuple):
    """How a part of the step time is called and drawn."""

    label: str
    colour: str
    hatch: str = ""

    @property
    def fill(self) -> dict[str, Any]:
        """The same for bars of matplotlib."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": "white", "linewidth": 0.0}


#: Part of the step time → its looks. All pairs differ for readers without red or green cones, and in grey, and
#: all have a contrast of 3 or more against white: tests/plot/test_colours.py measures them.
PARTS = {
    "forward": PlottedPart("forward", "#0e306e"),
    "backward": PlottedPart("backward", "#1476de"),
    "recompute": PlottedPart("recompute", "#589abc", _AGAIN),
    "embedding_and_head": PlottedPart("embedding and head", "#594c70"),
    "host": PlottedPart("host launches", "#0f100e"),
    "tensor_parallel": PlottedPart("tensor parallel", "#c94804", _MESSAGES),
    "context_parallel": PlottedPart("context parallel", "#5a2a00", _MESSAGES),
    "pipeline_parallel": PlottedPart("pipeline messages", "#d27f02", _MESSAGES),
    "bubble": PlottedPart("pipeline bubble", "#a6905e"),
    "data_parallel": PlottedPart("data parallel", "#7d35a2", _MESSAGES),
    "optimizer": PlottedPart("optimizer", "#076344", _UPDATE),
    "offload": PlottedPart("offload", "#6f784e", _UPDATE),
}

#: Part of the time of an output token → the same; that of the host is the same in both.
SERVING_PARTS = {
    "matrix": PlottedPart("matrices", "#0e306e"),
    "attention": PlottedPart("attention", "#1476de"),
    "communication": PlottedPart("messages", "#c94804", _MESSAGES),
    "prefill": PlottedPart("prompts of others", "#a6905e"),
}

#: Part of the step time by what bounds it → the same.
BOUNDS = {
    "bound_by_compute": PlottedPart("bound by compute", "#0e306e"),
    "bound_by_memory": PlottedPart("bound by device memory", "#076344"),
    "bound_by_network": PlottedPart("bound by the network", "#c94804"),
    "bound_by_rest": PlottedPart("other", "#a6905e"),
}

#: Colour of a part this module does not know, of text, of what stands in the background, and of Pareto fronts.
OTHER, INK, PALE, FRONT = "#6d7270", "#1a1a1a", "#747474", "#c8440a"

#: Colours of an ordered axis: the hues of viridis, which ends in a yellow that white paper swallows, up to a contrast
#: of 3 against white.
_SHADES = ("#3c014b", "#392263", "#2b3c6c", "#1a526b", "#006566", "#007859", "#26893e", "#639400", "#9c9500")

#: Colours of designs that fit into memory, and of those that do not.
FITS, TOO_LARGE = "#1a5282", "#949494"

#: Part of the mapping → its heading.
HEADINGS = {
    **{name: LETTERS[name] for name in ("tp", "cp", "pp", "dp", "micro_batch", "virtual_stages")},
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

#: Letters of a text of this size in an inch: of most texts, and of narrow letters.
_LETTERS_AN_INCH, _MOST_LETTERS_AN_INCH = 14, 24

#: Inches of a line of a title, and of one of a legend.
_TITLE_LINE, _LEGEND_LINE = 0.14, 0.19

#: Inches left of and right of titles and legends; letters' heights between the mark of a legend and its text.
_MARGIN, _BESIDE_HANDLE = 0.06, 0.8


# Numbers and names


def labels(coordinate: xr.DataArray) -> list[str]:
    """The values of an axis at all of its points, with their units."""
    return settings(coordinate.values.tolist(), str(coordinate.attrs.get("units", "1")))


def part(name: str) -> PlottedPart:
    """The looks of a part of the step time."""
    return (SERVING_PARTS | PARTS | BOUNDS).get(name) or PlottedPart(name.replace("_", " "), OTHER, _UNKNOWN)


def heading(name: str) -> str:
    """The name of an axis as short as it can be."""
    return HEADINGS.get(name) or name.removeprefix("chip_").removeprefix("power_").replace("_", " ")


def pair(name: str, text: str) -> str:
    """An axis and its value at a point, in words that no line break parts."""
    return f"{heading(name)} {text}".replace(" ", "\u00a0")


def axis_label(variable: xr.DataArray, units: str) -> str:
    """A variable's long name and units, for an axis of a figure."""
    units = counted_units(str(variable.name), units)
    words = str(variable.attrs.get("long_name", str(variable.name).replace("_", " "))).removesuffix(" (catalogue name)")
    return f"{words} ({units})" if units else words


def wrapped(text: str, inches: float = 2.6) -> str:
    """A label in lines that fit next to or above a panel of this size."""
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
    room = figure.get_figwidth() - 2.0 * _MARGIN
    lines = [line for text in texts for line in text.split("\n") if line]
    if lines:
        figure.suptitle("\n".join(_broken(figure, line, room) for line in lines))


def _broken(figure: Figure, text: str, inches: float) -> str:
    """A text in the fewest lines of this width, all about as long: no word stands alone."""
    letters = max(int(_MOST_LETTERS_AN_INCH * inches), 1)

    def fill(letters: int) -> str:
        return textwrap.fill(text, letters, break_on_hyphens=False)

    while letters > 1 and text_width(figure, fill(letters), SIZE) > inches:
        letters -= 1
    count = fill(letters).count("\n")
    while letters > 1 and count and fill(letters - 1).count("\n") == count:
        letters -= 1
    return fill(letters)


def legend_below(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], most: int = 4, **looks: Any
) -> Legend:
    """A legend under the panels, in as many columns as fit, of rows of similar length."""
    length, spacing = looks.setdefault("handlelength", 1.1), looks.setdefault("columnspacing", 1.6)
    widths = [text_width(figure, label, SIZE) + SIZE / 72.0 * (length + _BESIDE_HANDLE) for label in labels]

    def fits(columns: int) -> bool:
        needed = sum(max(part) for part in np.array_split(widths, columns)) + SIZE / 72.0 * spacing * (columns - 1)
        return bool(needed <= figure.get_figwidth() - 2.0 * _MARGIN)

    most = next((n for n in range(max(min(most, len(labels)), 1), 1, -1) if fits(n)), 1)
    rows = math.ceil(len(labels) / most)
    return figure.legend(
        handles, labels, loc="outside lower center", ncols=max(math.ceil(len(labels) / max(rows, 1)), 1),
        handletextpad=_BESIDE_HANDLE, **looks,
    )  # fmt: skip


def _around(figure: Figure) -> float:
    """Inches that a figure's title and the legends below its panels take."""
    title = figure.get_suptitle()
    rows = sum(
        math.ceil(len(legend.get_texts()) / legend._ncols) + bool(legend.get_title().get_text())  # type: ignore[attr-defined]
        for legend in figure.legends
    )
    return (title.count("\n") + 1) * _TITLE_LINE * bool(title) + rows * _LEGEND_LINE


def laid_out(figure: Figure, panels: float | None = None) -> Figure:
    """The figure with its layout computed now, not each time it is written.

    Args:
        figure: with its title and legends.
        panels: inches of height that panels and their labels have, whatever stands above and below them.
    """
    if panels is not None:
        figure.set_figheight(panels + _around(figure))
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine(None)  # "none" would leave a place holder, for which each writing draws twice
    return figure


def shades(count: int) -> list[Any]:
    """Colours of an ordered axis, dark to light; of many, :func:`dash` and :func:`marker` tell neighbours apart."""
    from matplotlib.colors import to_rgb

    known = np.array([to_rgb(colour) for colour in _SHADES])
    places = np.linspace(0.0, len(known) - 1.0, count)
    return [tuple(np.interp(place, range(len(known)), channel) for channel in known.T) for place in places.tolist()]


def dash(place: int) -> Any:
    """How the line of a position of an ordered axis is dashed."""
    return ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))[place % 3]


def marker(place: int) -> str:
    """The marker of a position of an ordered axis; circles are left to what a figure points out."""
    return "s^Dv"[place % 4]


def series(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How each name of a figure is drawn, in all of its panels alike: colour, dashes and marker.

    >>> series(["h100", "b200"])["b200"]["marker"]
    '^'
    """
    looks = zip(names, shades(len(names)), strict=True)
    return {
        name: {"color": colour, "linestyle": dash(place), "marker": marker(place)}
        for place, (name, colour) in enumerate(looks)
    }


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
