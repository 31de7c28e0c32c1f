"""The page on intervals: how wide they are by distance from measured rows, and how many rows left out they hold.

``python -m docs.make.intervals docs/intervals.md CASES.csv … --catalog hw_catalog``: errors of rows left out, the
widths of the catalogue (``intervals.toml``), and the page.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration import left_out, scores, widths
from calibration.left_out import LeftOut
from calibration.widths import Figures, Shared, Widths
from docs.make.command import command, page_parser
from docs.make.markdown import document, filed, percent, publish, table
from dse.lab.fits import writing
from dse.measured.uncertainty import distance

#: Widths → figures that they are learnt from, and what these are in words.
LEARNT = {
    "step": (("step",), "step time and rates of training"),
    "serving": (("token", "latency", "rate", "energy"), "time of a token and of a request, throughput, energy"),
    "first": (("first",), "time to the first token"),
    "memory": (("memory",), "peak memory"),
}

#: The same in the tables of the page.
_SHOWN = {"step": "training", "serving": "serving", "first": "time to first token", "memory": "peak memory"}

_LEVELS = (*distance.HARDWARE, *distance.SOFTWARE, *distance.MODEL)

_ABOUT = """\
An interval adds, in squares, standard deviations of the log error: of the fitted parameters (first order), of the
residual of the stack, and of every level at which the design lies off all measured rows
(`dse/measured/uncertainty/distance.py`). In each respect the outermost level counts: hardware (*chip*, *generation*,
*vendor* without rows of the stack), software (*source* or cluster, *stack*, *framework* without rows), model (*family*
without rows, *kind* of attention or experts without rows of the stack). The width of a level is learnt from rows left
out of all fits by chip, generation, vendor, framework, family and source in turn: 80 % of these lie in their intervals,
each group with the same weight (split conformal). A generation is left out with its kernels, and a vendor is predicted
without kernels of any family. Widths do not fall outwards. Leaves of chip, links, engine and experts that the catalogue
does not know exactly are drawn ([measure.md](measure.md)); what they explain is taken from the width of their level.
`dse evaluate` prints the interval and its three largest parts, `--json` has them as `interval_parts`.

Figures are of *training* (step times and rates), of *serving* (time per output token and per request, throughput,
energy), of the *time to first token*, and of *peak memory*."""

_CROSSED = """\
*Held*: share of rows within their 80 % interval, by widths learnt without any row of the group; *each group once* gives
groups the same weight. *Configuration*: only the row's configuration was unseen. *Never fitted*: rows that no fit uses
(mixtures of further stacks, adapters, further vendors). Few groups of vendors and generations say little about the next
one."""

_PAIRS = """\
Pairs of rows of one group left out, predicted within a factor of two of each other: how often the faster one is
predicted (*right*), and the Brier score of the probability (mean square of probability less outcome; 0.25 is a coin).
*Best*: the least that 50 bins of the predicted probability reach; where it equals *Brier*, what is left is wrong order,
not width."""


def rows_of(paths: Sequence[Path]) -> list[LeftOut]:
    """All figures left out."""
    steps, served = left_out.tables_of(paths)
    return [*left_out.training(steps), *left_out.serving(served)]


class Found(NamedTuple):
    """Figures left out by what their widths are, as :data:`LEARNT` has them."""

    rows: list[LeftOut]
    known: dict[str, Figures]
    learnt: dict[str, Widths]
    crossed: dict[str, np.ndarray]  #: standard deviations, by widths learnt without the group

    @property
    def shared(self) -> dict[str, Shared]:
        """Kind of figures → what rows of a group have in common: on one stack and chip the mean of all kinds."""
        own = {name: Shared.of([self.known[name]]) for name in ("step", "serving", "first")}
        every = Shared.of([self.known[name] for name in own])
        return {name: one._replace(home=every.home, levels=every.levels) for name, one in own.items()}


def found_in(rows: list[LeftOut]) -> Found:
    """Widths of the rows."""
    known = {name: widths.figures_of(rows, figures) for name, (figures, _) in LEARNT.items()}
    learnt = {name: widths.fit(figures, np.ones(len(figures.rows), bool)) for name, figures in known.items()}
    return Found(rows, known, learnt, {name: widths.crossed(figures) for name, figures in known.items()})


def catalogue(found: Found, date: str) -> str:
    """``intervals.toml``: widths by level, what is shared, and what the rows are of."""
    rows, learnt, shared = found.rows, found.learnt, found.shared
    fitted = [one for one in rows if one.by not in ("vendor", "never fitted")]
    trained = [one.place for one in fitted if one.figure == "step"]
    served = [one.place for one in fitted if one.figure in (*LEARNT["serving"][0], "first")]
    frameworks = sorted({one.place.framework for one in rows if one.figure == "memory"})
    homes = ("step", *dict.fromkeys(one.figure for one in rows if one.figure not in ("step", "memory")))
    tables = {
        "": {"source": writing.quoted("rows left out: docs/intervals.md"), "date": writing.quoted(date)},
        **{
            name: {"families": _texts(p.family for p in places), "kinds": _texts(p.kind for p in places)}
            for name, places in (("training", trained), ("serving", served))
        },
        "memory": {"frameworks": _texts(frameworks)},
        "home": {name: f"{widths.typical(name):.3f}" for name in homes} | {"power": f"{POWER}"},
        "assumed": {"announced": f"{ANNOUNCED}"},
        "estimates": {name: f"{width:.3f}" for name, width in (widths.estimates() | ASSUMED).items()},
        **{f"shared.{name}": {part: f"{s:.2f}" for part, s in one._asdict().items()} for name, one in shared.items()},
        "tail": {"freedom": f"{widths.freedom([*found.known.values()], [*found.crossed.values()])}"},
        **{f"widths.{name}": {level: f"{s:.3f}" for level, s in own.items()} for name, own in learnt.items()},
    }
    return writing.document(tables, "Standard deviations of log errors: python -m docs.make.intervals")


#: Standard deviation of the log of a device's mean power, of which energy of training takes its own part: that of the
#: power of loads (docs/energy.md, docs/kernels.md).
POWER = 0.1


#: That of an accelerator that is announced, an assumption: rates and bandwidths of announcements move by 10 to 40 %
#: until chips ship (Rubin's memory by 70 %).
ANNOUNCED = 0.15


#: That of rates and sizes that no fit tells, an assumption: ramps of messages are the only sizes that have both, and
#: there the two mean different things.
ASSUMED = {"rate": 0.1}


def _texts(values: Sequence[str] | Iterator[str]) -> str:
    return f"[{', '.join(writing.quoted(one) for one in sorted(set(values)) if one)}]"


def rows_of_widths(learnt: dict[str, Widths]) -> Iterator[list[str]]:
    """Figures, the median stack, and what each level adds."""
    for name, own in learnt.items():
        home = f"{widths.typical(LEARNT[name][0][0]):.3f}"
        yield [_SHOWN[name], home, *(f"{own[level]:.3f}" if level in own else "–" for level in _LEVELS)]


def rows_held(found: Found) -> Iterator[list[str]]:
    """What intervals hold by what was left out."""
    for name, figures in found.known.items():
        for by, held in widths.held(figures, found.crossed[name]).items():
            yield [
                _SHOWN[name],
                by,
                f"{held.figures}",
                f"{held.groups}",
                percent(held.held, digits=0),
                percent(held.by_group, digits=0),
                f"÷ and × {np.exp(held.width):.2f}",
            ]


def rows_of_pairs(found: Found) -> Iterator[list[str]]:
    """How well pairs are told apart whose chip, source or framework was left out."""
    shared = found.shared
    for name in ("step", "serving", "first"):
        for by in ("configuration", "chip", "framework", "source"):
            score = widths.pairs(found.known[name], found.crossed[name], by, shared[name])
            yield [
                _SHOWN[name],
                by,
                f"{score.pairs:,}",
                *(f"{one:.3f}" for one in (score.brier, score.best, score.by_group)),
                percent(score.right, digits=0),
            ]


def page(found: Found) -> str:
    """The page."""
    return document(
        [
            "# Intervals by distance",
            f"Written by `{command('docs.make.intervals')}`.",
            _ABOUT,
            "## What a level adds",
            "Standard deviations of the log error; *home* is the residual of the median stack. Assumed, not learnt: "
            f"{ANNOUNCED} for an accelerator that is announced, {POWER} for the power of a device in energy of training.",
            table(("figures", "home", *_LEVELS), rows_of_widths(found.learnt), words=("figures",)),
            "## What intervals hold of rows left out",
            _CROSSED,
            table(
                ("figures", "left out", "rows", "groups", "held", "each group once", "width"),
                rows_held(found),
                words=("figures", "left out"),
            ),
            "## Which of two is faster",
            _PAIRS,
            filed(
                "intervals_pairs",
                ("figures", "left out", "pairs", "Brier", "best", "each group once", "right"),
                rows_of_pairs(found),
            ),
            "Share of the variance of log errors that two designs of one stack and chip have in common, and of one model too:",
            table(
                ("figures", "at home", "beyond", "one model: at home", "one model: beyond"),
                [[_SHOWN[name], *(percent(share, digits=0) for share in one)] for name, one in found.shared.items()],
                words=("figures",),
            ),
            f"Groups one by one: {filed('intervals_groups', _GROUP, rows_of_groups(found.rows))}",
            "Reliability at 50, 80 and 95 % and proper scores ([forecasts.md](forecasts.md)): "
            + filed("intervals_scores", _SCORE, rows_of_scores(found)),
        ]
    )


_GROUP = ("figure", "left out", "group", "levels", "rows", "median error", "80 % of errors below")


_SCORE = ("key", "figures", "left_out", "group", "rows", "groups", "held_50", "held_80", "held_95", "width", "crps",
          "log_score", "crps_constant", "log_score_constant")  # fmt: skip


def rows_of_scores(found: Found) -> Iterator[list[str]]:
    """Scores of what was left out, all and by group, by widths learnt without the group."""
    for name in ("step", "serving", "first"):
        for by, group, one in scores.tables(found.known[name], found.crossed[name]):
            numbers = *one.held, one.width, one.crps, one.log_score, one.crps_constant, one.log_score_constant
            yield [
                name,
                LEARNT[name][1],
                by,
                group,
                f"{one.figures}",
                f"{one.groups}",
                *(f"{number:.3f}" for number in numbers),
            ]


def rows_of_groups(rows: Sequence[LeftOut]) -> Iterator[list[str]]:
    """Errors of every group left out, by levels."""
    sets: dict[tuple[str, str, str, str], list[float]] = {}
    for one in rows:
        sets.setdefault((one.figure, one.by, one.group, ", ".join(one.levels)), []).append(one.error)
    for names, errors in sorted(sets.items()):
        median = percent(float(np.expm1(np.median(errors))), "+")
        yield [*names, f"{len(errors)}", median, percent(float(np.expm1(np.quantile(np.abs(errors), 0.8))))]


def main() -> None:
    """Leave out, learn, write the table of the catalogue and the page."""
    parser = page_parser(__doc__)
    parser.add_argument("tables", type=Path, nargs="+", metavar="CASES.csv", help="measured rows")
    parser.add_argument("--catalog", type=Path, metavar="FOLDER", help="also replace its intervals.toml")
    asked = parser.parse_args()
    found = found_in(rows_of(asked.tables))
    if asked.catalog:
        text = catalogue(found, datetime.date.today().isoformat())
        (asked.catalog / "intervals.toml").write_text(text, encoding="utf-8")
    publish(asked.page, page(found))


if __name__ == "__main__":
    main()
