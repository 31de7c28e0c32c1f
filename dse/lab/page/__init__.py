"""Pages: results to explore, a model that computes, or both, as one HTML file without network access.

A page answers which designs of results are worth a look, and what a design becomes when its leaves are moved: the model
itself runs in the browser, in single precision. Start with ``write``, below.

Of results ``table`` makes flat columns, ``lines`` command lines and specifications, ``explorer`` what a page holds of
them. Of a model ``program`` makes a list of operations, and loops from the JavaScript in the table of primitives;
``model`` is what a page holds of it, ``best`` where a model beside results begins. ``assets/`` is what browsers run,
``html`` the file: no script but its own, as its policy says, and no text that is run as code.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dse.io import outputs
from dse.lab.page import html, model
from dse.lab.page.model import CatalogNames, Start, value_text

if TYPE_CHECKING:
    import xarray as xr

#: Default maximum number of designs of a page.
MAX_POINTS = 200_000

__all__ = ["MAX_POINTS", "CatalogNames", "Start", "value_text", "write"]


def write(
    path: Path,
    results: xr.Dataset | None = None,
    start: Start | None = None,
    *,
    live: bool = False,
    points: int = MAX_POINTS,
    force: bool = False,
    inputs: Iterable[str | Path] = (),
) -> int:
    """Write a page (one HTML file) and return the count of designs of the results in it.

    Args:
        path: of the page.
        results: dataset of :func:`dse.run` or :func:`dse.open_results`, to explore.
        start: design at which a model begins that computes it, what a reader changes, and what is chosen of results.
        live: with a model without ``start``, which begins at the best design of the results.
        points: maximum number of designs: the best and the front first, then an even sample.
        force: replace a file that dse has not written.
        inputs: files that must not be replaced.

    Returns:
        Number of designs of the results in the page.

    Raises:
        InputError: for results without the metrics of a study; with a model beside results, for results without a
            valid specification.
    """
    document, title, columns, size = None, start.names.title if start else "", "", 0
    if results is not None:  # a page of a design alone needs neither xarray nor figures
        from dse.lab.page import best, explorer, lines, table

        designs = table.build(results, points)
        texts = lines.build(designs)
        document, columns = explorer.document(designs, texts)
        title, size = designs.title, designs.size
        if start is not None:
            start = best.start_with_results(designs, texts, start)
        elif live:
            start = best.start(designs, texts)
    text = html.page(title, document, columns, model.document(start) if start else None)
    with outputs.replacing(path, force, inputs) as partial:
        partial.write_text(text, encoding="utf-8")
    return size
