"""What all figures share: colours, fonts, numbers as a person writes them, and files."""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse import outputs
from dse.errors import InputError
from dse.files import MARK

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.typing import RcKeyType

GIB = 2.0**30

#: Part of the step time → (label, colour): one hue a cause, told apart by colour-blind readers and in grey.
PARTS = {
    "forward": ("forward", "#0b4f8a"),
    "backward": ("backward", "#3f8fc9"),
    "recompute": ("recompute", "#a9d3ee"),
    "embedding_and_head": ("embedding and head", "#5b5f97"),
    "host": ("host launches", "#222222"),
    "tensor_parallel": ("tensor parallel", "#c8440a"),
    "context_parallel": ("context parallel", "#8c510a"),
    "pipeline_parallel": ("pipeline messages", "#f28e2b"),
    "bubble": ("pipeline bubble", "#f7d37a"),
    "data_parallel": ("data parallel", "#8b4a9c"),
    "optimizer": ("optimizer", "#4d9d6f"),
    "offload": ("offload", "#b5a642"),
}

#: Part of the step time by what bounds it → the same.
BOUNDS = {
    "bound_by_compute": ("bound by compute", "#0b4f8a"),
    "bound_by_memory": ("by device memory", "#4d9d6f"),
    "bound_by_network": ("by the network", "#c8440a"),
    "bound_by_rest": ("the rest", "#f7d37a"),
}

#: Colour of a part this module does not know, of text, of what stands in the background, and of Pareto fronts.
OTHER, INK, PALE, FRONT = "#999999", "#1a1a1a", "#8a8a8a", "#c8440a"

#: Part of the mapping → its heading.
HEADINGS = {
    "tp": "tp", "cp": "cp", "pp": "pp", "dp": "dp", "micro_batch": "b", "virtual_stages": "v",
    "zero_stage": "ZeRO", "recompute": "recompute",
}  # fmt: skip

_PREFIXES = [
    (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"),
]  # fmt: skip

#: SI units → the ones that figures write them in, and the factor to these. Powers take no prefixes.
_WRITTEN = {
    "": (1.0, ""), "1": (1.0, ""), "K": (1.0, "K"), "m": (1e3, "mm"), "m^2": (1e6, "mm²"),
    "1/m^2": (1e-12, "M/mm²"), "B/m^2": (1e-12, "MB/mm²"), "B/s/m": (1e-12, "GB/s/mm"),
}  # fmt: skip

_STYLE: dict[RcKeyType, Any] = {
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

#: Letters of a title in an inch.
_LETTERS_AN_INCH = 12


# Numbers and names


def plain(value: float | str) -> str:
    """A number with three significant digits and no exponent."""
    if isinstance(value, str):
        return value
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def scaled(value: float, units: str) -> tuple[float, str]:
    """Factor and name of the units in which a quantity of about ``value``, in SI units, is written."""
    if units in _WRITTEN:
        return _WRITTEN[units]
    if units == "B" and value >= 2**20:
        return 1.0 / GIB, "GiB"
    if not abs(value) or not math.isfinite(value) or (units == "s" and value >= 1.0):
        return 1.0, units
    size, prefix = next((p for p in _PREFIXES if abs(value) >= 0.9999 * p[0]), _PREFIXES[-1])
    return 1.0 / size, prefix + {"s-1": "/s"}.get(units, units)


def label(value: Any, units: str = "1") -> str:
    """The value of an axis at a point, with its units."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    factor, name = scaled(float(value), units)
    number = float(value) * factor
    return f"{number:.{4 if abs(number) < 1e4 else 6}g} {name}".rstrip()


def labels(coordinate: xr.DataArray) -> list[str]:
    """The values of an axis at all of its points, with their units."""
    return [label(value, str(coordinate.attrs.get("units", "1"))) for value in coordinate.values.tolist()]


def part(name: str) -> tuple[str, str]:
    """Label and colour of a part of the step time."""
    return (PARTS | BOUNDS).get(name) or (name.replace("_", " "), OTHER)


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


def wrapped(text: str) -> str:
    """A label of a panel in lines that fit beside or above it."""
    return textwrap.fill(text, 36)


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


def set_title(figure: Figure, *lines: str) -> None:
    """The lines, broken where the figure ends."""
    room = int(_LETTERS_AN_INCH * figure.get_figwidth())
    text = "\n".join(textwrap.fill(line, room, break_on_hyphens=False) for line in lines if line)
    if text:
        figure.suptitle(text, fontsize=10)


def laid_out(figure: Figure) -> Figure:
    """The figure with its layout computed once, not each time it is written."""
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
    """Colours of an ordered axis, dark to light: told apart by colour-blind readers and in grey."""
    from matplotlib import colormaps

    return [colormaps["viridis"](place) for place in np.linspace(0.0, 0.92, count)]


def text_width(figure: Figure | SubFigure, text: str, size: float) -> float:
    """Width of a text in inches."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    measure = RendererAgg(1, 1, figure.dpi)  # one pixel will do: nothing is drawn
    pixels, _, _ = measure.get_text_width_height_descent(text, FontProperties(size=size), False)
    return pixels / figure.dpi


#: Ending → metadata of a figure: who has written it, and no date.
_METADATA: dict[str, dict[str, str | None]] = {
    ".png": {"Software": MARK}, ".svg": {"Creator": MARK, "Date": None}, ".pdf": {"Creator": MARK, "CreationDate": None}
}


def save(figure: Figure, path: str | Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> Path:
    """Write a figure; the ending (.png, .svg, .pdf) says how. The same results give the same file.

    See :func:`dse.outputs.checked` for which files are replaced.
    """
    path = Path(path)
    endings = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix.lstrip(".").lower() not in endings:
        allowed = " ".join(f".{e}" for e in endings)
        raise InputError(str(path), repr(path.suffix), allowed, "give the file such an ending")
    ending = path.suffix.lower()
    with outputs.replacing(path, force, inputs) as partial, style():
        figure.savefig(partial, format=ending[1:], dpi=200, metadata=_METADATA.get(ending))
    return path
