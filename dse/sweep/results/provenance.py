"""Where the results of a sweep come from: version, entries of the catalogue, what to cite, what is unverified."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np

import dse
from dse.designs import catalog, leaf, leaves_of
from dse.sweep.grid.grid import Grid
from dse.sweep.results import prices, schema


def provenance(grid: Grid) -> dict[str, Any]:
    """Return name → value of the global attributes on what made the results and the data that they use."""
    sources = [source for kind, slug in grid.catalog_entries for source, _ in catalog.provenance(kind, slug)]
    return {
        schema.ATTRIBUTE: schema.VERSION,
        "source": f"dse {dse.__version__}",
        "catalog_entries": json.dumps(catalog.digests(grid.catalog_entries)),
        "base_design": json.dumps(_base_values(grid)),
        "sources": "\n".join(dict.fromkeys(sources)),
        "bibliography": bibliography(grid.catalog_entries),
        "unverified_constants": "\n".join(_unverified(grid)),
    }


def _unverified(grid: Grid) -> list[str]:
    """Return lines on constants that are estimates, from memory or defaults, but for leaves that the sweep sets."""
    set_paths = {axis.key for axis in grid.fixed} | {
        path for dimension in grid.dimensions for path in dimension.columns
    }
    set_fields = {path.partition(".")[2].removeprefix("accelerator.") for path in set_paths}
    unverified = [constant for kind, slug in grid.catalog_entries for constant in catalog.unverified(kind, slug)]
    relevant = [constant for constant in unverified if constant.field not in set_fields]
    return list(dict.fromkeys(map(str, (*relevant, *prices.constants(grid)))))


def _base_values(grid: Grid) -> dict[str, float]:
    """Return leaf path → value, in single precision, of the design that the axes move."""
    leaf_values = {
        path: leaf(member_grid.base, path)
        for member_grid in reversed(grid.structure_grids)
        for path in leaves_of(member_grid.base)
    }
    return {path: float(str(np.float32(value))) for path, value in leaf_values.items() if value is not None}


def bibliography(entries: Iterable[tuple[str, str]]) -> str:
    """Return the BibTeX text of the model's works, and of the sources of each used catalogue entry.

    Args:
        entries: (kind, slug) of catalogue entries.
    """
    works = resources.files("dse.designs").joinpath("references.bib").read_text(encoding="utf-8")
    return "\n".join([works, *(_entry(kind, slug) for kind, slug in dict.fromkeys(entries))])


def _entry(kind: str, slug: str) -> str:
    """Return the BibTeX entry of the sources of a catalogue entry."""
    entry = catalog.entry(kind, slug)
    pairs = catalog.provenance(kind, slug)
    sources = "; ".join(dict.fromkeys(f"{source} ({confidence})" for source, confidence in pairs))
    return f"@misc{{{kind}-{slug},\n  title = {{{_plain(entry.name)}}},\n  note  = {{{_plain(sources)}}},\n}}\n"


def _plain(text: str) -> str:
    """Return the text with braces and backslashes, which BibTeX reads, replaced by ``(``, ``)`` and ``/``."""
    return text.translate(str.maketrans("{}\\", "()/"))
