"""Citations: works behind the model, and sources of the used catalogue values, as BibTeX."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from dse.designs import catalog


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
