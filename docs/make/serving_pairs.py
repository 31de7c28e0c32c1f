"""Pairs of measured figures that differ in the mapping alone: how often the model has the faster one.

``python -m docs.make.serving_pairs CASES.csv …`` prints those of some tables, predicted by the catalogue.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from docs.make.markdown import percent, table
from dse.designs import catalog
from dse.measured.comparison import Comparison, compare

#: What two figures of a pair have in common.
_SAME = ("model", "gpu", "n_gpus", "precision", "batch", "isl", "osl")

#: Difference below which two figures count as equal, and the one up to which runs may tell nothing.
_EQUAL, _CLOSE = 0.03, 0.05

_ABOUT = (
    "Figures of one source, model, device, format and load that differ in the mapping alone, by more than "
    f"{percent(_EQUAL)}: whole experts on each device (ep) or slices of all (etp), attention apart on each rank (dp) "
    "or split over all (tp). *Right*: the faster one is predicted, of fitted rows by fits without the configurations of "
    "the pair, of others by the stacks of the catalogue. Releases of one code base differ in more than the mapping, and "
    "in first tokens most of all."
)

_ALL = "**all**"
_KINDS = ("whole experts or slices", "attention apart or split")

#: What is compared → metrics of it.
METRICS = {
    "time per token, rate": (
        "time_per_output_token",
        "inter_token_latency",
        "output_tokens_per_second",
        "output_tokens_per_second_per_device",
    ),
    "first token": ("time_to_first_token",),
}


class Pair(NamedTuple):
    """Two figures of mappings: logarithms of the ratio of their times."""

    kind: str
    measured: float
    predicted: float

    @property
    def is_right(self) -> bool:
        """Whether the faster one is predicted."""
        return self.measured * self.predicted > 0.0


def predicted(compared: Iterable[Comparison]) -> Iterator[tuple[Comparison, float]]:
    """Figures of mixtures that can be compared, with their errors log(predicted / measured) by the catalogue."""
    metrics = {metric for listed in METRICS.values() for metric in listed}
    for one in compared:
        if one.skip is None and one.metric in metrics and one.prediction.chosen.mapping.experts is not None:
            yield one, float(np.log(one.predicted / one.measured))


def pairs(figures: Iterable[tuple[Comparison, float]], metrics: Sequence[str], same_release: bool) -> Iterator[Pair]:
    """Pairs among figures with their errors, log(predicted / measured); of one release, or of one code base."""
    groups: dict[tuple[str, ...], list[tuple[Comparison, float]]] = defaultdict(list)
    for one, error in figures:
        mapping = one.prediction.chosen.mapping
        if one.metric in metrics and mapping.experts is not None:
            row, drafts = one.measurement.row, 0.0 if mapping.serving is None else mapping.serving.drafts
            release = row.get("framework") if same_release else _code_base(one.prediction.stack)
            key = (one.metric, one.source, release, f"{drafts:g}", f"{mapping.pp:g}", *map(row.get, _SAME))
            groups[key].append((one, error))
    for members in groups.values():
        for (one, error), (other, its) in itertools.combinations(members, 2):
            mappings = [c.prediction.chosen.mapping for c in (one, other)]
            apart = mappings[0].dp != mappings[1].dp
            splits = [None if m.experts is None else (float(m.experts.ep), float(m.experts.etp)) for m in mappings]
            measured = float(np.log(one.measured / other.measured))
            if (apart or splits[0] != splits[1]) and abs(measured) > _EQUAL:
                yield Pair(_KINDS[int(apart)], measured, measured + error - its)


def _code_base(stack: str) -> str:
    """The code base of an engine, whose releases may be engines of their own."""
    return str(catalog.entry("software", stack).value("lineage", stack))


def section(figures: Sequence[tuple[Comparison, float]]) -> list[str]:
    """The heading, and a line a metric and kind: pairs of one release, and of all releases of one code base.

    Args:
        figures: with their errors, log(predicted / measured).
    """
    lines = []
    for what, metrics in METRICS.items():
        found = [list(pairs(figures, metrics, same_release)) for same_release in (True, False)]
        found += [[pair for pair in listed if abs(pair.measured) > _CLOSE] for listed in found]
        lines += [[what, *_line(kind, *found)] for kind in (*_KINDS, _ALL)]
    header = ["of", "pairs of"]
    for beyond in ("", f", more than {percent(_CLOSE)} apart"):
        header += [f"one release{beyond}", "right", f"one code base{beyond}", "right"]
    return ["## Pairs of mappings", _ABOUT, table(header, lines, words=("of", "pairs of"))]


def _line(kind: str, *found: Sequence[Pair]) -> list[str]:
    cells = [kind]
    for listed in found:
        right = [pair.is_right for pair in listed if kind in (pair.kind, _ALL)]
        cells += [f"{len(right)}", percent(float(np.mean(right))) if right else "–"]
    return cells


def main() -> None:
    """Print the section of some tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    print("\n\n".join(section(list(predicted(compare(parser.parse_args().tables))))))


if __name__ == "__main__":
    main()
