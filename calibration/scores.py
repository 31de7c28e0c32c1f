"""How good forecasts of rows left out are: reliability at 50, 80 and 95 %, sharpness, and proper scores.

A forecast is Student's t of the log figure about the prediction, as wide at 80 % as the interval
(:mod:`calibration.widths`, with widths that no row of the group has made). Both scores are of the log error, least is
best: CRPS, the mean distance of the forecast from what came (of a forecast without spread the absolute error), and the
log score, minus the log density there. The constant of a source, MFU of steps, bytes over bandwidth of serving, has
seen the rows that it is scored by, and one spread for all, their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import stats

from calibration.left_out import LeftOut, group_of
from calibration.widths import Figures, weights_of
from dse.measured.uncertainty import distance
from dse.measured.uncertainty.parts import COVERAGE, quantile

#: Probabilities of the intervals of the reliability diagram.
SHARES = (0.5, 0.8, 0.95)

#: Devices of the classes of size, from and to.
SIZES = ((0, 8), (8, 64), (64, 512), (512, 10**7))

#: Levels of the quantiles of a CRPS.
_LEVELS = (np.arange(200) + 0.5) / 200


class Score(NamedTuple):
    """Scores of some forecasts, each group that was left out with the same weight."""

    figures: int
    groups: int
    held: tuple[float, ...]  #: share within the intervals of SHARES
    width: float  #: median half-width of the 80 % interval, of the logarithm
    crps: float
    log_score: float
    crps_constant: float  #: of the constant of the source, of the same rows; NaN where there is none
    log_score_constant: float


def _unit() -> stats.rv_continuous:
    """Student's t of the forecasts, of deviation one: as wide as a normal one at 80 %."""
    freedom = distance.degrees_of_freedom()
    return stats.t(freedom, scale=quantile() / stats.t.ppf(0.5 + 0.5 * COVERAGE, freedom))


def crps(errors: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Continuous ranked probability score of log errors, by twice the mean pinball loss of quantiles."""
    found = np.zeros(len(errors))
    for level, at in zip(_LEVELS, _unit().ppf(_LEVELS), strict=True):
        gap = -errors - at * deviation  # measured less the forecast's quantile, from the prediction on
        found += 2.0 * np.where(gap > 0.0, level * gap, (level - 1.0) * gap)
    return found / len(_LEVELS)


def log_score(errors: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Minus the log density of what came."""
    return -_unit().logpdf(errors / deviation) + np.log(deviation)


def score(known: Figures, deviation: np.ndarray, part: np.ndarray) -> Score:
    """Scores of the figures where ``part`` holds."""
    at = np.flatnonzero(part)
    errors, own = known.errors[at], deviation[at]
    groups = [known.groups[i] for i in at]
    weights = weights_of(groups)
    constant = np.array([known.rows[i].baseline for i in at])
    has = np.isfinite(constant)
    spread = np.full(int(has.sum()), np.quantile(np.abs(constant[has]), COVERAGE) / quantile() if has.any() else 1.0)
    spread = np.maximum(spread, 1e-3)

    def mean(values: np.ndarray, where: np.ndarray | None = None) -> float:
        counted = weights if where is None else weights[where]
        return float(np.average(values, weights=counted)) if len(values) else np.nan

    held = tuple(mean(np.abs(errors) <= _unit().ppf(0.5 + 0.5 * share) * own) for share in SHARES)
    constants = (mean(of(constant[has], spread), has) for of in (crps, log_score))
    own_scores = mean(crps(errors, own)), mean(log_score(errors, own))
    return Score(len(at), len(set(groups)), held, float(quantile() * np.median(own)), *own_scores, *constants)


#: What a table lists groups of, of rows that were left out by it.
BY = ("chip", "vendor", "family", "framework", "source")


def size_class(row: LeftOut) -> str:
    """Devices of a row, in words."""
    low, high = next((low, high) for low, high in SIZES if row.size[0] <= np.log(high) + 1e-6)
    return f"{low + 1} to {high} devices" if high < SIZES[-1][1] else f"more than {low} devices"


def tables(known: Figures, deviation: np.ndarray) -> Iterator[tuple[str, str, Score]]:
    """(what was left out, group or "all", score): by chip, vendor, family, framework, source, and size at home."""
    by = np.array([one for one, *_ in known.groups])
    for name in BY:
        part = by == name
        if part.any():
            yield name, "all", score(known, deviation, part)
            labels = np.array([group_of(one, name) for one in known.rows])
            for label in sorted(set(labels[part])):
                yield name, label, score(known, deviation, part & (labels == label))
    home = by == "configuration"
    if home.any():
        yield "configuration", "all", score(known, deviation, home)
        sizes = np.array([size_class(one) for one in known.rows])
        for label in sorted(set(sizes[home]), key=lambda text: int(text.split()[-2 if "more" in text else 0])):
            yield "size", label, score(known, deviation, home & (sizes == label))
