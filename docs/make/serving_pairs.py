"""Pairs of measured figures that differ in the mapping alone: how often the model has the faster one."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from docs.make.markdown import percent, table
from dse.designs import catalog
from dse.measured.comparison import Comparison

#: What two figures of a pair have in common.
_SAME = ("model", "gpu", "n_gpus", "precision", "batch", "isl", "osl")

#: Difference below which two figures count as equal, and the one up to which runs may tell nothing.
_EQUAL, _CLOSE = 0.03, 0.05

_ABOUT = (
    "Figures of one source, model, device, format and load that differ in the mapping alone, by more than "
    f"{percent(_EQUAL)}: whole experts on each device (ep) or slices of all (etp), attention apart on each rank (dp) "
    "or split over all (tp). *Right*: the faster one is predicted, by fits without the configurations of the pair."
)

_ALL = "**all**"
_KINDS = ("whole experts or slices", "attention apart or split")


class Pair(NamedTuple):
    """Two figures of mappings: logarithms of the ratio of their times."""

    kind: str
    measured: float
    predicted: float

    @property
    def is_right(self) -> bool:
        """Whether the faster one is predicted."""
        return self.measured * self.predicted > 0.0


def pairs(figures: Iterable[tuple[Comparison, float]], metrics: Sequence[str], same_release: bool) -> Iterator[Pair]:
    """Pairs among figures with their errors, log(predicted / measured); of one release, or of one code base."""
    groups: dict[tuple[str, ...], list[tuple[Comparison, float]]] = defaultdict(list)
    for one, error in figures:
        if one.metric in metrics and one.prediction.chosen.mapping.experts is not None:
            row, drafts = one.measurement.row, one.prediction.chosen.mapping.serving.drafts
            release = row.get("framework") if same_release else _code_base(one.prediction.stack)
            key = (one.metric, one.source, release, f"{drafts:g}", *map(row.get, _SAME))
            groups[key].append((one, error))
    for members in groups.values():
        for (one, error), (other, its) in itertools.combinations(members, 2):
            mappings = [c.prediction.chosen.mapping for c in (one, other)]
            apart = mappings[0].dp != mappings[1].dp
            experts = [m.experts for m in mappings]
            measured = float(np.log(one.measured / other.measured))
            if (apart or experts[0] != experts[1]) and abs(measured) > _EQUAL:
                yield Pair(_KINDS[int(apart)], measured, measured + error - its)


def _code_base(stack: str) -> str:
    """The code base of an engine, whose releases may be engines of their own."""
    return str(catalog.entry("software", stack).value("lineage", stack))


def section(of_release: Sequence[Pair], of_code_base: Sequence[Pair]) -> list[str]:
    """The heading, and a line a kind: pairs of one release, and of all releases of one code base."""
    apart = ([pair for pair in listed if abs(pair.measured) > _CLOSE] for listed in (of_release, of_code_base))
    listed = (of_release, of_code_base, *apart)
    lines = [_line(kind, *listed) for kind in (*_KINDS, _ALL)]
    beyond = f"more than {percent(_CLOSE)} apart"
    header = (
        "pairs of",
        "one release",
        "right",
        "one code base",
        "right",
        f"one release, {beyond}",
        "right",
        f"one code base, {beyond}",
        "right",
    )
    return ["## Mappings of experts", _ABOUT, table(header, lines, words=("pairs of",))]


def _line(kind: str, *found: Sequence[Pair]) -> list[str]:
    cells = [kind]
    for listed in found:
        right = [pair.is_right for pair in listed if kind in (pair.kind, _ALL)]
        cells += [f"{len(right)}", percent(float(np.mean(right))) if right else "–"]
    return cells
