"""Where the results of a sweep come from: version, entries of the catalogue, what to cite, what is unverified."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np

import dse
from dse.designs import catalog
from dse.designs.leaves import leaf, leaves_of
from dse.sweep.grid.grid import Grid
from dse.sweep.results import prices, schema


def provenance(grid: Grid) -> dict[str, Any]:
    """Global attributes of what made the results and the data that they use."""
    sources = [source for kind, slug in grid.used for source, _ in catalog.provenance(kind, slug)]
    return {
        schema.ATTRIBUTE: schema.VERSION,
        "source": f"dse {dse.__version__}",
        "catalog_entries": json.dumps(catalog.digests(grid.used)),
        "base_design": json.dumps(_base_values(grid)),
        "sources": "\n".join(dict.fromkeys(sources)),
        "bibliography": bibliography(grid.used),
        "unverified_constants": "\n".join(_unverified(grid)),
    }


def _unverified(grid: Grid) -> list[str]:
    """Constants behind the sweep that are estimates, from memory or defaults, but for leaves that it sets itself."""
    own = {axis.key for axis in grid.fixed} | {path for one in grid.dimensions for path in one.columns}
    set_here = {path.partition(".")[2].removeprefix("accelerator.") for path in own}
    found = [constant for kind, slug in grid.used for constant in catalog.unverified(kind, slug)]
    kept = [constant for constant in found if constant.field not in set_here]
    return list(dict.fromkeys(map(str, (*kept, *prices.constants(grid)))))


def _base_values(grid: Grid) -> dict[str, float]:
    """Leaf path → value of the design that the axes move, as single precision holds it: the catalogue's, the spec's."""
    found = {path: leaf(one.base, path) for one in reversed(grid.each) for path in leaves_of(one.base)}
    return {path: float(str(np.float32(value))) for path, value in found.items() if value is not None}


def bibliography(used: Iterable[tuple[str, str]]) -> str:
    """BibTeX of the model's works, and of the sources of each used catalogue entry.

    Args:
        used: (kind, slug) of catalogue entries.
    """
    works = resources.files("dse.designs").joinpath("references.bib").read_text(encoding="utf-8")
    return "\n".join([works, *(_entry(kind, slug) for kind, slug in dict.fromkeys(used))])


def _entry(kind: str, slug: str) -> str:
    entry = catalog.entry(kind, slug)
    found = catalog.provenance(kind, slug)
    sources = "; ".join(dict.fromkeys(f"{source} ({confidence})" for source, confidence in found))
    return f"@misc{{{kind}-{slug},\n  title = {{{_plain(entry.name)}}},\n  note  = {{{_plain(sources)}}},\n}}\n"


def _plain(text: str) -> str:
    """Text without characters that end a BibTeX field or start a command."""
    return text.translate(str.maketrans("{}\\", "()/"))
