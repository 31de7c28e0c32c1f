"""The explorer: results as one HTML page without network access.

``write`` writes a dataset to a file. ``table`` makes flat columns, ``lines`` command lines and specifications,
``packing`` bytes of columns, ``page`` the document; ``assets/`` has HTML, style and scripts. Bokeh draws axes, fronts
and marks on a canvas, ``assets/points.js`` the designs: neither needs WebGL or ``eval``, which the policy of the page
forbids.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dse.io import outputs
from dse.views.report import best, lines, page, table

if TYPE_CHECKING:
    import xarray as xr

#: Default maximum number of designs of a page.
MOST_POINTS = 200_000

__all__ = ["MOST_POINTS", "write"]


def write(
    results: xr.Dataset,
    path: Path,
    points: int = MOST_POINTS,
    force: bool = False,
    inputs: Iterable[str | Path] = (),
    live: bool = False,
) -> int:
    """Write the page of a results dataset.

    Args:
        results: dataset of :func:`dse.run` or :func:`dse.open_results`.
        path: of the page.
        points: maximum number of designs: the best and the front first, then an even sample.
        force: replace a file that dse has not written.
        inputs: files that must not be replaced.
        live: with the model, which computes the best design and those that a reader chooses or changes.

    Returns:
        Number of designs of the page.

    Raises:
        InputError: for results without the metrics of a study, and without Bokeh; with the model, for results
            without a valid specification.
    """
    made = table.build(results, points)
    said = lines.build(made)
    text = page.build(made, said, *([best.of(made, said)] if live else []))
    with outputs.replacing(path, force, inputs) as partial:
        partial.write_text(text, encoding="utf-8")
    return made.size
