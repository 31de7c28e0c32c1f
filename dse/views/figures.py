"""Figures of a results file, written next to it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from dse.errors import InputError
from dse.io import install_extra, outputs

#: For screens and for papers.
ENDINGS = (".png", ".svg")

#: Kinds of figures for a grid of machines only (:func:`dse.views.plot.suited`).
_MACHINE_KINDS = ("shares", "energy", "clock", "nodes", "bounds")


def missing_requirement() -> InputError | None:
    """Return the InputError of a missing matplotlib, None where it is installed."""
    if importlib.util.find_spec("matplotlib"):
        return None
    fix = f"{install_extra('plot')}, or --no-figure"
    return InputError("figures", "no matplotlib", "an installation with it", fix)


def check(results: Path, force: bool, machines: bool, front: bool = False) -> None:
    """Raise an InputError where results, or figures next to them, must not be written.

    Args:
        results: file of the results, which may not exist yet.
        force: replace files that dse has not written.
        machines: whether the results are of a grid of machines, with several kinds of figures.
        front: whether they hold the front of several objectives, which is drawn too.
    """
    outputs.check_output(results, force)
    for kind in ("breakdown", *_MACHINE_KINDS * machines, *("pareto",) * front):
        for ending in ENDINGS:
            path = figure_path(results, kind, ending)
            if path == results:
                raise InputError(
                    f"output {results}",
                    f"the name of a figure ({ending})",
                    "a results file (.nc)",
                    f"write {results.with_suffix('.nc')}",
                )
            outputs.check_output(path, force)


def draw(results: Path, force: bool = False) -> list[Path]:
    """Draw the figures that suit a results file next to it, in every format, and return their paths.

    What draws is imported here, since it takes as long as all else of a small sweep: results are printed before.
    """
    from dse.sweep import open_results
    from dse.views import plot

    paths = []
    with open_results(results) as dataset:
        for kind in plot.suited(dataset):
            figure = plot.KINDS[kind](dataset)
            paths += [plot.save(figure, figure_path(results, kind, ending), force, [results]) for ending in ENDINGS]
    return paths


def figure_path(results: Path, kind: str, ending: str) -> Path:
    """Return the path of a kind of figure next to its results: ``NAME_KIND.ENDING``, of a breakdown ``NAME.ENDING``."""
    return results.with_name(results.stem + ("" if kind == "breakdown" else f"_{kind}") + ending)
