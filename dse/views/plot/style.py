"""Common style of all figures: colours, fonts, numbers, files."""

from __future__ import annotations

import contextlib
import functools
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.errors import LAYOUT, InputError, visible
from dse.io import outputs, toml
from dse.io.files import MARK
from dse.io.quantities import counted_units, settings
from dse.views.words import LETTERS

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.legend import Legend


class PlottedPart(NamedTuple):
    """Label and style of a part of the step time."""

    label: str
    colour: str
    hatch: str = ""

    @property
    def fill(self) -> dict[str, Any]:
        """Return the keywords of the style for bars of matplotlib."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": "white", "linewidth": 0.0}


#: Looks as data: parts and bounds by figure, settings of matplotlib.
_LOOKS = toml.table(Path(__file__).with_name("style.toml"))

#: Name of a part → its style: of the step time, of the time per output token, of bounds, of a step of post-training.
PARTS, SERVING_PARTS, BOUNDS, POSTTRAINING_PARTS = (
    {name: PlottedPart(**look) for name, look in _LOOKS[figure].items()}
    for figure in ("step_time", "token_time", "bounds", "posttraining")
)

#: Colours of unknown parts, of text, of the background, and of Pareto fronts.
OTHER, INK, PALE, FRONT = "#6d7270", "#1a1a1a", "#747474", "#c8440a"

#: Colours of an ordered axis: viridis up to a contrast of 3 against white, without its yellow end.
_SHADES = ("#3c014b", "#392263", "#2b3c6c", "#1a526b", "#006566", "#007859", "#26893e", "#639400", "#9c9500")

#: Colours of designs that fit into memory and that do not.
FITS, TOO_LARGE = "#1a5282", "#949494"

#: Part of the mapping → its heading.
HEADINGS = {
    **{name: LETTERS[name] for name in ("tp", "cp", "pp", "dp", "micro_batch", "virtual_stages")},
    "zero_stage": "ZeRO",
    "recompute": "recompute",
}

#: Inches of a column and of a two-column page of a paper; size of all text in points.
COLUMN, PAGE, SIZE = 3.4, 7.0, _LOOKS["matplotlib"]["font.size"]

#: Size of markers and lines of a curve.
THIN: dict[str, Any] = {"markersize": 3.2, "linewidth": 1.3}

#: Endings of figure files: for screens, for pages, for papers.
ENDINGS = (".png", ".svg", ".pdf")

#: Letters per inch of text at this size: usual texts, and narrow letters.
_LETTERS_AN_INCH, _MOST_LETTERS_AN_INCH = 14, 24

#: Inches per line of a title, of a legend, and of small print.
_TITLE_LINE, _LEGEND_LINE, _SMALL_LINE = 0.14, 0.19, 0.1

#: Points of small print, its lines at most, and the name by which its text is known in a figure.
_SMALL, _MOST_SMALL, _SMALL_PRINT = 5.5, 10, "small print"

#: Inches left and right of titles and legends; gap between mark and text of a legend, in letter heights.
_MARGIN, _HANDLE_GAP = 0.06, 0.8


# Numbers and names


def labels(coordinate: xr.DataArray) -> list[str]:
    """Return the values of an axis as texts with units."""
    return settings(coordinate.values.tolist(), str(coordinate.attrs.get("units", "1")))


def part(name: str) -> PlottedPart:
    """Return the style of a part of the step time.

    Args:
        name: of a part or bound, as in the names of metrics; unknown ones are grey.
    """
    return (SERVING_PARTS | PARTS | BOUNDS).get(name) or PlottedPart(name.replace("_", " "), OTHER, "xxxxx")


def heading(name: str) -> str:
    """Return the short heading of an axis."""
    return HEADINGS.get(name) or name.removeprefix("chip_").removeprefix("power_").replace("_", " ")


def pair(name: str, text: str) -> str:
    """Return the heading of axis ``name`` and a value, joined by non-breaking spaces."""
    return f"{heading(name)} {text}".replace(" ", "\u00a0")


def axis_label(variable: xr.DataArray, units: str) -> str:
    """Return the long name of a variable with its units in brackets, without these where ""."""
    units = counted_units(str(variable.name), units)
    words = str(variable.attrs.get("long_name", str(variable.name).replace("_", " "))).removesuffix(" (catalogue name)")
    return f"{words} ({units})" if units else words


def wrap_label(text: str, inches: float = 2.6) -> str:
    """Return a label wrapped to lines that fit next to or above a panel of this width."""
    return textwrap.fill(text, int(_LETTERS_AN_INCH * inches))


# Figures


def style() -> contextlib.AbstractContextManager[None]:
    """Return the context manager with the style, for drawing and writing."""
    import matplotlib

    return matplotlib.rc_context(_LOOKS["matplotlib"])


def new_figure(width: float, height: float) -> Figure:
    """Create a figure without a window or global state.

    Args:
        width: inches.
        height: inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


@contextlib.contextmanager
def canvas(
    width: float,
    height: float,
    shape: tuple[int, int] = (1, 1),
    *,
    titles: Iterable[str] = (),
    cautions: Iterable[str] = (),
    panels: float | Callable[[list[Axes]], float] | None = None,
    legend: Mapping[str, Any] | None = None,
    **grid: Any,
) -> Iterator[list[Axes]]:
    """Yield the panels of a new figure to draw on; then add legend, title and small print, and freeze the layout.

    Args:
        width: inches.
        height: inches.
        shape: rows and columns of panels.
        titles: texts of the title, a line or more each.
        cautions: texts of the small print.
        panels: inches of height of the panels and their labels, or a function of the panels that returns them.
        legend: options of :func:`legend_below`, each label once; None for no legend.
        grid: options of ``figure.subplots``.
    """
    with style():
        figure = new_figure(width, height)
        axes: list[Axes] = list(figure.subplots(*shape, squeeze=False, **grid).ravel())
        yield axes
        if legend is not None:
            handles: dict[str, Any] = {}
            for panel in axes:
                for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                    handles.setdefault(label, handle)
            legend_below(figure, list(handles.values()), list(handles), **legend)
        set_title(figure, *titles)
        small_print(figure, cautions)
        freeze_layout(figure, panels(axes) if callable(panels) else panels)


def figure_of(axes: Axes) -> Figure:
    """Return the figure that a panel of a canvas is on."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "a panel of a canvas"
    return figure


def stack_bars(
    axes: Axes, positions: Any, parts: Mapping[str, tuple[np.ndarray, PlottedPart | str | None]], height: float
) -> None:
    """Draw horizontal bars of parts, one after the other.

    Args:
        axes: the panel.
        positions: of the bars.
        parts: label → its length in each bar, and its style or colour; None for a part that only takes its place.
        height: of a bar.
    """
    starts = np.zeros(len(positions))
    for label, (lengths, look) in parts.items():
        if look is not None:
            fill = {"color": look} if isinstance(look, str) else look.fill
            axes.barh(positions, lengths, left=starts, height=height, label=label, **fill)
        starts = starts + lengths


def set_title(figure: Figure, *texts: str) -> None:
    """Set a title of several texts, wrapped to the figure.

    Args:
        figure: without a title.
        texts: a line or more each; empty ones are left out.
    """
    inches = figure.get_figwidth() - 2.0 * _MARGIN
    lines = [line for text in texts for line in text.split("\n") if line]
    if lines:
        figure.suptitle("\n".join(_balance(figure, line, inches) for line in lines))


def small_print(figure: Figure, texts: Iterable[str]) -> None:
    """Write texts in small letters below everything else, for which :func:`freeze_layout` makes room."""
    inches = figure.get_figwidth() - 2.0 * _MARGIN
    lines = [line for text in texts for line in _wrap_to_width(figure, text, inches, _SMALL)]
    if len(lines) > _MOST_SMALL:
        lines[_MOST_SMALL - 1 :] = ["… (attribute cautions of the results)"]
    if lines:
        place = _MARGIN / figure.get_figwidth()
        artist = figure.text(place, 0.0, "\n".join(lines), size=_SMALL, color=PALE, ha="left", va="bottom")
        artist.set_gid(_SMALL_PRINT)
        artist.set_in_layout(False)


def _wrap_to_width(figure: Figure, text: str, inches: float, size: float) -> list[str]:
    """Return the lines of a text, as full as this width allows."""
    lines = [""]
    for word in text.split():
        candidate = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and text_width(figure, candidate, size) > inches:
            lines.append(word)
        else:
            lines[-1] = candidate
    return lines


def _make_room(figure: Figure) -> None:
    """Make a figure higher by its small print, and move everything else above that."""
    texts = [text for text in figure.texts if text.get_gid() == _SMALL_PRINT]
    if not texts:
        return
    low = _SMALL_LINE * sum(text.get_text().count("\n") + 1 for text in texts) + _MARGIN
    old_height = figure.get_figheight()
    new_height = old_height + low
    for axes in figure.axes:
        x, bottom, width, height = axes.get_position().bounds
        axes.set_position((x, (bottom * old_height + low) / new_height, width, height * old_height / new_height))
    title = figure._suptitle  # type: ignore[attr-defined]
    if title is not None:
        title.set_y((title.get_position()[1] * old_height + low) / new_height)
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0.0, low / new_height, 1.0, old_height / new_height), figure.transFigure)
    figure.set_figheight(new_height)


def _balance(figure: Figure, text: str, inches: float) -> str:
    """Return a text wrapped to the fewest lines of this width, of similar length."""
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
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], most: int = 4, **legend_options: Any
) -> Legend:
    """Draw and return a legend below the panels, in at most ``most`` columns, with rows of similar length."""
    length, spacing = legend_options.setdefault("handlelength", 1.1), legend_options.setdefault("columnspacing", 1.6)
    widths = [text_width(figure, label, SIZE) + SIZE / 72.0 * (length + _HANDLE_GAP) for label in labels]

    def fits(columns: int) -> bool:
        total_width = sum(max(part) for part in np.array_split(widths, columns)) + SIZE / 72.0 * spacing * (columns - 1)
        return bool(total_width <= figure.get_figwidth() - 2.0 * _MARGIN)

    most = next((n for n in range(max(min(most, len(labels)), 1), 1, -1) if fits(n)), 1)
    rows = math.ceil(len(labels) / most)
    return figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=max(math.ceil(len(labels) / max(rows, 1)), 1),
        handletextpad=_HANDLE_GAP,
        **legend_options,
    )


def _text_height(figure: Figure) -> float:
    """Return the height in inches of a figure's title and of the legends below its panels."""
    title = figure.get_suptitle()
    rows = sum(
        math.ceil(len(legend.get_texts()) / legend._ncols) + bool(legend.get_title().get_text())  # type: ignore[attr-defined]
        for legend in figure.legends
    )
    return (title.count("\n") + 1) * _TITLE_LINE * bool(title) + rows * _LEGEND_LINE


def freeze_layout(figure: Figure, panels: float | None = None) -> Figure:
    """Compute the layout of a figure once, freeze it, and return the figure.

    Args:
        figure: with its title and legends.
        panels: inches of height of the panels and their labels, without texts above and below them.
    """
    if panels is not None:
        figure.set_figheight(panels + _text_height(figure))
    _escape(figure)
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine(None)  # "none" would leave a placeholder, for which each writing draws twice
    _make_room(figure)
    for text in figure.texts:  # within what notebooks cut out
        text.set_in_layout(True)
    return figure


def shades(count: int) -> list[Any]:
    """Return ``count`` colours (red, green, blue from 0 to 1) of an ordered axis, dark to light.

    With many, :func:`dash` and :func:`marker` distinguish neighbours.

    Args:
        count: positions of the axis.
    """
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(colour) for colour in _SHADES])
    places = np.linspace(0.0, len(palette) - 1.0, count)
    return [tuple(np.interp(place, range(len(palette)), channel) for channel in palette.T) for place in places.tolist()]


def dash(position: int) -> Any:
    """Return the dashes of a line by its position on an ordered axis.

    Args:
        position: from 0.
    """
    return ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))[position % 3]


def marker(position: int) -> str:
    """Return the marker by position on an ordered axis, never the circle of highlights.

    Args:
        position: from 0.
    """
    return "s^Dv"[position % 4]


def series(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return name → matplotlib keywords of its line: colour, dashes and marker.

    >>> series(["h100", "b200"])["b200"]["marker"]
    '^'
    """
    return {
        name: {"color": colour, "linestyle": dash(place), "marker": marker(place)}
        for place, (name, colour) in enumerate(zip(names, shades(len(names)), strict=True))
    }


def _escape(figure: Figure) -> None:
    """Escape control codes in all texts of a figure, which come from users, in place."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(visible(text.get_text(), LAYOUT))


def text_width(figure: Figure | SubFigure, text: str, size: float) -> float:
    """Return the width in inches of a text as :func:`save` writes it, that of its longest line."""
    import matplotlib as mpl

    fonts = tuple(mpl.rcParams["font.sans-serif"])
    return max(_line_width(line, size, figure.dpi, fonts) for line in visible(text, LAYOUT).split("\n"))


@functools.lru_cache(maxsize=4096)
def _line_width(line: str, size: float, dpi: float, _fonts: tuple[str, ...]) -> float:
    """Return the width in inches of a line in the font that all figures have."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    measure = RendererAgg(1, 1, dpi)  # a single pixel, since nothing is drawn
    return (
        float(measure.get_text_width_height_descent(line, FontProperties(family="sans-serif", size=size), False)[0])
        / dpi
    )


def check_ending(path: str | Path) -> Path:
    """Return the path of a figure, or raise an InputError for an unsupported ending."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        got = repr(path.suffix) if path.suffix else "no ending"
        raise InputError(str(path), got, " ".join(ENDINGS), "give the file one of these endings")
    return path


#: Ending → metadata of a figure: its creator, without a date.
_METADATA: dict[str, dict[str, str | None]] = {
    ".png": {"Software": MARK},
    ".svg": {"Creator": MARK, "Date": None},
    ".pdf": {"Creator": MARK, "CreationDate": None},
}


def save(figure: Figure, path: str | Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> Path:
    """Write a figure to a file, equal bytes for equal results, and return the path.

    Args:
        figure: the figure.
        path: of the file; its ending (.png, .svg, .pdf) is the format.
        force: replace a file that dse has not written.
        inputs: files that must not be replaced.

    Returns:
        The path.

    Raises:
        InputError: for another ending, and for a file that may not be replaced.
    """
    path = check_ending(path)
    ending = path.suffix.lower()
    _escape(figure)
    with outputs.replacing(path, force, inputs) as partial, style():
        figure.savefig(partial, format=ending[1:], dpi=200, metadata=_METADATA[ending])
    return path
