"""Figures of a results file, written next to it."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from dse.errors import InputError
from dse.io import outputs
from dse.io.distribution import install_extra

#: For screens and for papers.
ENDINGS = (".png", ".svg")

#: Kinds of figures for a grid of machines only (:func:`dse.views.plot.suited`).
_OF_MACHINES = ("shares", "energy", "clock", "bounds")


def lacking() -> InputError | None:
    """Missing requirement of figures, in four parts; None where figures can be drawn."""
    if importlib.util.find_spec("matplotlib"):
        return None
    fix = f"{install_extra('plot')}, or --no-figure"
    return InputError("figures", "no matplotlib", "an installation with it", fix)


def check(results: Path, force: bool, machines: bool, front: bool = False) -> None:
    """InputError where results, or figures next to them, must not be written.

    Args:
        results: file of the results, which may not exist yet.
        force: replace files that dse has not written.
        machines: whether the results are of a grid of machines, with several kinds of figures.
        front: whether they hold the front of several objectives, which is drawn too.
    """
    outputs.checked(results, force)
    for kind in ("breakdown", *_OF_MACHINES * machines, *("pareto",) * front):
        for ending in ENDINGS:
            path = figure_path(results, kind, ending)
            if path == results:
                raise InputError(
                    f"output {results}", f"the name of a figure ({ending})", "a results file (.nc)",
                    f"write {results.with_suffix('.nc')}",
                )  # fmt: skip
            outputs.checked(path, force)


def draw(results: Path, force: bool = False) -> list[Path]:
    """Draw the figures that suit a results file next to it; ``force`` replaces other files. Returns their paths."""
    with _without(*_UNUSED):
        from dse.sweep.results.files import open_results
        from dse.views import plot

        drawn = []
        with open_results(results) as dataset:
            for kind in plot.suited(dataset):
                figure = plot.KINDS[kind](dataset)
                drawn += [plot.save(figure, figure_path(results, kind, end), force, [results]) for end in ENDINGS]
    return drawn


#: What xarray imports where it is installed and no figure needs: dask takes a third of a second, pint a fifth.
_UNUSED = ("dask", "pint")


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    """Hide modules from a first import of xarray, and from what it asks for when it reads the first array."""
    hidden = [] if "xarray" in sys.modules else [name for name in names if name not in sys.modules]
    sys.modules |= dict.fromkeys(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def figure_path(results: Path, kind: str, ending: str) -> Path:
    """File of a kind of figure next to its results; the breakdown has the name of the results."""
    return results.with_name(results.stem + ("" if kind == "breakdown" else f"_{kind}") + ending)
