"""Table of the README on errors of rows that no fit has seen, by chip.

``python -m docs.make.readme README.md`` writes it in its place, from the errors of the last fit beside the page on it
(``docs/calibration.json``, as ``python -m docs.make.calibration`` writes it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from docs.make.command import page_parser
from docs.make.markdown import fill, percent, table
from dse.designs import catalog

FITS = Path(__file__).parents[1] / "calibration.json"

#: Heading → the error of a fit, from what its fit left out.
_ERRORS = {"unseen publication": "foreign", "unseen configuration": "unseen", "fitted rows": "seen"}


def filled(page: str) -> str:
    """The page with the table of the last fit."""
    chips = json.loads(FITS.read_text(encoding="utf-8"))["chips"]
    return fill(page, {"unseen errors by chip": by_chip(chips)})


def by_chip(errors: Mapping[str, Mapping[str, float]]) -> str:
    """Mean errors by accelerator of the catalogue.

    Sources have several names of one chip: its mean is that of all rows.

    Args:
        errors: a source's name of a chip → ``rows`` and the mean errors of them.
    """
    chips: dict[str, list[Mapping[str, float]]] = {}
    for name, one in errors.items():
        chips.setdefault(catalog.resolve("accelerator", name), []).append(one)
    rows = []
    for slug, parts in sorted(chips.items(), key=lambda chip: -sum(one["rows"] for one in chip[1])):
        count = sum(one["rows"] for one in parts)
        means = (sum(one["rows"] * one[kind] for one in parts) / count for kind in _ERRORS.values())
        rows.append([catalog.entry("accelerator", slug).name, f"{count:g}", *map(percent, means)])
    return table(["chip", "rows", *_ERRORS], rows)


if __name__ == "__main__":
    target: Path = page_parser(__doc__).parse_args().page
    target.write_text(filled(target.read_text(encoding="utf-8")), encoding="utf-8")
