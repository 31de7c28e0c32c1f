"""The explorer: results as one page that needs no network.

``write`` takes a dataset to a file. ``table`` makes flat columns of it, ``lines`` what to paste for each design,
``packing`` bytes of columns, ``page`` the document; ``assets/`` holds its HTML, style and scripts. Bokeh draws
axes, fronts and marks on a canvas, ``assets/points.js`` the designs: neither needs WebGL or code made from texts, which
the policy of the page forbids.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dse.io import outputs
from dse.views.report import lines, page, table

if TYPE_CHECKING:
    import xarray as xr

#: Points that a page holds at most unless another number is asked for.
MOST_POINTS = 200_000

__all__ = ["MOST_POINTS", "write"]


def write(
    results: xr.Dataset, path: Path, points: int = MOST_POINTS, force: bool = False, inputs: Iterable[str | Path] = ()
) -> int:
    """Write the page of a results dataset.

    Args:
        results: what :func:`dse.run` or :func:`dse.open_results` gave.
        path: of the page.
        points: how many designs it holds at most: the best and the front first, then an even sample.
        force: replace a file that dse has not written.
        inputs: files that must not be replaced.

    Returns:
        How many designs the page holds.

    Raises InputError for results without the metrics of a study, and where Bokeh is not installed.
    """
    made = table.build(results, points)
    text = page.build(made, lines.build(made))
    with outputs.replacing(path, force, inputs) as partial:
        partial.write_text(text, encoding="utf-8")
    return made.size
