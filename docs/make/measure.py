"""The page on measurements: what they are worth to a decision, replayed on sources left out of the fits.

``python -m docs.make.measure docs/measure.md CASES.csv …``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from calibration import replay
from calibration.replay import BELIEVED, RANDOM, WORTH, Curves
from docs.make.command import command, page_parser
from docs.make.markdown import document, filed, percent, publish, table

_ABOUT = """\
`dse measure A B … --on SYSTEM` says which measurement on the machine at hand lowers the expected loss of the decision
between A and B most, and prints for each the command that measures it and the row that `dse calibrate --add` reads back.

All that is not known of a design is a sum of independent factors (`dse/measured/uncertainty/posterior.py`): the spread
of every leaf of the catalogue, and what no leaf explains, by level of distance ([intervals.md](intervals.md)). Designs
with the same chip or stack share its factors. A fitted value has the fit's spread; an estimate that of `[estimates]` in
`hw_catalog/intervals.toml`; a chip whose kernels nobody measured, in addition, the scatter of measured chips.

A measurement is a linear function of these factors, with noise: 2 % for a run, 10 to 14 % for a kernel or a collective.
Its value is how much the expected loss falls. Measurements are listed in the order in which each lowers it most, given
those before. What the designs share cancels, so measuring it is worth nothing."""

_REPLAYED = f"""\
Of each publisher of dense training steps the largest source, if it has 8 configurations, is left out of the fits of
all stacks. Decisions are between up to {replay.DESIGNS} of its configurations, predicted within {replay.NEAR - 1.0:.0%}
of each other: which has the highest MFU? Each may be measured, which reveals what its row says; then the belief is
updated and the best chosen anew. *{WORTH}*: always the run that lowers the expected loss most; *{BELIEVED}*: that of
the design believed to be best; *{RANDOM}*: any, the mean of {replay.ORDERS} orders. All update the belief alike.
Regret is the logarithm of the highest MFU over that of the design chosen, as measured, the mean over decisions."""

_TIMES = """\
Measurements until regret stays below a half, and a quarter, of what it was before any of them (between two by a
straight line), and how many times as many a random order needs."""


_REGRET = ("source", "configurations", "decisions", "order", "none", *map(str, range(1, 6)))


def rows_of_regret(found: Sequence[Curves]) -> Iterator[list[str]]:
    """Regret by number of measurements, a line for each order of each source."""
    for one in found:
        for order, curve in one.regret.items():
            yield [one.source, str(one.rows), str(one.decisions), order, *(percent(v) for v in curve[:6])]


def rows_of_needed(found: Sequence[Curves]) -> Iterator[list[str]]:
    """Measurements needed in each order, and the ratio."""
    for one in found:
        cells = []
        for share in (0.5, 0.25):
            needed = {name: one.needed(name, share) for name in (WORTH, BELIEVED, RANDOM)}
            cells += [*(f"{number:.1f}" for number in needed.values()), f"{needed[RANDOM] / needed[WORTH]:.1f}"]
        yield [one.source, *cells]


def page(tables: Sequence[Path]) -> str:
    """The page."""
    listed = replay.left_out(tables)
    each = [replay.curves(one) for one in listed]
    found = [one._replace(source=one.source.partition(" ")[0]) for one in each if one is not None]
    right = [rows.source for rows, one in zip(listed, each, strict=True) if one is None]
    five, every = replay.together(found[:5])._replace(source="the first five"), replay.together(found)
    speeds = {share: five.needed(RANDOM, share) / five.needed(WORTH, share) for share in (0.5, 0.25)}
    slower = [
        one.source for one in found if np.any([one.needed(RANDOM, s) < 2.0 * one.needed(WORTH, s) for s in speeds])
    ]
    orders = ["measure", "best first", "random", "times"]
    needed = ("source", *(f"{what}: {name}" for what in ("half", "quarter") for name in orders))
    return document(
        [
            "# What a measurement is worth",
            f"Written by `{command('docs.make.measure')}`.",
            _ABOUT,
            "## Replayed on sources left out",
            _REPLAYED,
            f"Of the five largest sources regret halves {speeds[0.5]:.1f} times as fast as in a random order, and falls to "
            f"a quarter {speeds[0.25]:.1f} times as fast (asked: twice); of all {len(found)} "
            + " and ".join(f"{every.needed(RANDOM, s) / every.needed(WORTH, s):.1f}" for s in speeds)
            + " times. Where "
            "whole designs can be run, the best first is as good an order: what the value adds is which kernel, collective "
            "or smaller run tells as much."
            + (f" Less than twice as fast: {', '.join(slower)}." if slower else "")
            + (f" Right before any measurement, and left out here: {', '.join(right)}." if right else ""),
            table(_REGRET, rows_of_regret([five, every]), words=("source", "order")),
            "Regret after none to five measurements, as a share of the first. By source: "
            + filed("measure_regret", _REGRET, rows_of_regret(found)),
            _TIMES,
            table(needed, rows_of_needed([five, every]), words=("source",)),
            f"By source: {filed('measure_needed', needed, rows_of_needed(found))}",
        ]
    )


def main() -> None:
    """Write the page."""
    parser = page_parser(__doc__)
    parser.add_argument("tables", type=Path, nargs="+", metavar="CASES.csv", help="measured training steps")
    asked = parser.parse_args()
    publish(asked.page, page(asked.tables))


if __name__ == "__main__":
    main()
