"""Width that each level of distance adds to intervals, from the errors of rows left out, and how many rows it holds.

Of each level the added standard deviation is the one at which 80 % of its rows lie in their intervals, each group that
was left out with the same weight (split conformal, with ``1 + 1 / groups``; of two vendors 80 % of each). Widths of a
respect do not fall outwards. A group is scored by widths that were learnt without any of its rows, whatever was left
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax.scipy.special import ndtr

from calibration.left_out import LeftOut
from dse import types
from dse.calibrate import residuals
from dse.designs import catalog
from dse.measured.uncertainty.distance import HARDWARE, MODEL, SOFTWARE
from dse.measured.uncertainty.parts import SHARE, quantile
from dse.types.paths import leaves

#: What may be left out → the group of a row.
GROUPS: Mapping[str, Callable[[LeftOut], str]] = {
    "chip": lambda one: one.place.chip, "generation": lambda one: one.place.generation,
    "vendor": lambda one: one.place.vendor, "family": lambda one: one.place.family,
    "framework": lambda one: one.place.framework, "source": lambda one: one.source,
}  # fmt: skip

#: Passes over the levels, each with the others as of the last one.
_PASSES = 4

Widths = dict[str, float]


class Figures(NamedTuple):
    """Figures of a kind left out, as arrays."""

    rows: list[LeftOut]
    errors: np.ndarray
    home: np.ndarray  #: standard deviation of the log error of rows at no distance
    groups: list[tuple[str, str, str]]  #: what was left out, which, and the kind of figure


def figures_of(rows: Sequence[LeftOut], figures: Sequence[str]) -> Figures:
    """The rows of kinds of figures whose widths are learnt together."""
    own = [one for one in rows if one.figure in figures]
    home = [np.hypot(home_of(one.figure, one.place.stack, one.levels), one.deviation) for one in own]
    errors = np.array([one.error for one in own])
    return Figures(own, errors, np.array(home), [(one.by, one.group, one.figure) for one in own])


def home_of(figure: str, stack: str, levels: Sequence[str]) -> float:
    """Residual of a stack with rows, else the median of all stacks."""
    found = None if {"stack", "framework"} & {*levels} else residual(figure, stack)
    return typical(figure) if found is None else found


def residual(figure: str, stack: str) -> float | None:
    """Residual of a stack of the catalogue."""
    field = {"step": "residual", "memory": "memory_spread"}.get(figure, f"residuals.{figure}")
    found = catalog.entry("software", stack).value(field)
    return None if found is None else float(found)


def typical(figure: str) -> float:
    """Median residual of the stacks with rows."""
    fitted = [one for one in catalog.names("software") if catalog.entry("software", one).states("calibrated")]
    return float(np.median([found for one in fitted if (found := residual(figure, one)) is not None]))


def shared(known: Figures, at_home: bool) -> float:
    """Share of the variance of log errors, at home or beyond it, that rows of a group on one stack and chip share.

    By the variance of their means, less what scatter alone makes of it.
    """
    sets: dict[tuple[str, ...], list[float]] = {}
    for one, error, groups in zip(known.rows, known.errors, known.groups, strict=True):
        if at_home == (not one.levels):
            sets.setdefault((*groups, one.place.stack, one.place.chip), []).append(error)
    some = [np.array(errors) for errors in sets.values() if len(errors) >= _LEAST]
    between = np.mean([errors.mean() ** 2 - errors.var(ddof=1) / len(errors) for errors in some])
    return float(np.clip(between / np.mean([np.mean(errors**2) for errors in some]), 0.0, 1.0))


class Score(NamedTuple):
    """How well pairs of figures left out are told apart."""

    pairs: int
    groups: int
    brier: float  #: mean square of probability less outcome
    by_group: float  #: the same, each group with the same weight
    right: float  #: share of the pairs of which the more probable order is that measured


def pairs(known: Figures, deviation: np.ndarray, by: str, common: float, factor: float = 2.0) -> Score:
    """Pairs of rows of one group of what was left out, predicted within a factor of each other.

    Args:
        known: the figures.
        deviation: of their log errors.
        by: what was left out.
        common: share of the variance that rows of one stack and chip have in common.
        factor: largest ratio of two predictions.
    """
    predicted = np.array([one.measured + one.error for one in known.rows])
    measured = np.array([one.measured for one in known.rows])
    places = np.array([f"{one.place.stack} {one.place.chip}" for one in known.rows])
    scores, right = [], []
    for group in dict.fromkeys(group for group in known.groups if group[0] == by):
        at = np.array([one == group for one in known.groups])
        at &= np.array([one.metric == known.rows[int(np.argmax(at))].metric for one in known.rows])
        first, second = np.triu_indices(int(at.sum()), 1)
        gap = predicted[at][first] - predicted[at][second]
        kept = (np.abs(gap) < np.log(factor)) & (measured[at][first] != measured[at][second])
        first, second, gap = first[kept], second[kept], gap[kept]
        if not len(gap):
            continue
        one, other = deviation[at][first], deviation[at][second]
        alike = np.where(places[at][first] == places[at][second], common, 0.0)
        sure = gap / np.sqrt(one**2 + other**2 - 2.0 * alike * one * other)
        chance = np.asarray(ndtr(np.asarray(sure, np.float32)))
        outcome = measured[at][first] > measured[at][second]
        scores.append((chance - outcome) ** 2)
        right.append((chance > 0.5) == outcome)
    every = np.concatenate(scores)
    means = float(np.mean([one.mean() for one in scores]))
    return Score(len(every), len(scores), float(every.mean()), means, float(np.concatenate(right).mean()))


def freedom(known: Sequence[Figures], deviation: Sequence[np.ndarray]) -> float:
    """Degrees of freedom of Student's t with the tails of log errors: by 95 % over 80 % quantiles, groups as equals."""
    ratios = [
        _quantile(size, weights, 0.95) / _quantile(size, weights, SHARE)
        for one, own in zip(known, deviation, strict=True)
        for size, weights in [(np.abs(one.errors) / own, weights_of(one.groups))]
    ]
    rng, candidates = np.random.default_rng(0), (2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 30.0)
    normal = rng.standard_normal(100_000)
    found = [
        np.quantile(sizes, 0.95) / np.quantile(sizes, SHARE)
        for nu in candidates
        for sizes in [np.abs(normal * np.sqrt(nu / rng.chisquare(nu, 100_000)))]
    ]
    return candidates[int(np.argmin(np.abs(np.array(found) - np.median(ratios))))]


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    held = np.cumsum(weights[order])
    return float(values[order][min(np.searchsorted(held, share * held[-1]), len(order) - 1)])


#: Smallest set of rows whose mean tells what they share.
_LEAST = 4


def weights_of(groups: Sequence[tuple[str, str, str]]) -> np.ndarray:
    """Equal weights of groups."""
    size = Counter(groups)
    return np.array([1.0 / size[group] for group in groups])


def fit(known: Figures, keep: np.ndarray) -> Widths:
    """Level → the standard deviation that it adds, by some of the figures."""
    at = np.flatnonzero(keep)
    errors, home = known.errors[at], known.home[at]
    weights = weights_of([known.groups[i] for i in at])
    holds = {
        level: np.array([level in known.rows[i].levels for i in at], bool)
        for level in (*MODEL, *SOFTWARE, *HARDWARE)
    }  # fmt: skip
    found = {level: 0.0 for level, held in holds.items() if held.any()}
    for _ in range(_PASSES):
        for level in found:
            held = holds[level]
            others = sum((found[other] ** 2 * holds[other] for other in found if other != level), home**2)
            some = errors[held], np.sqrt(others[held]), weights[held]
            groups = [known.groups[i] for i in at[held]]
            label = GROUPS.get(level, lambda row: row.group)
            named = np.array([label(known.rows[i]) for i in at[held]])
            found[level] = _added(named, len(set(groups)), *some)
        for respect in (HARDWARE, SOFTWARE, MODEL):
            least = 0.0
            for level in respect:
                if level in found:
                    least = found[level] = max(found[level], least)
    return found


def _added(
    names: np.ndarray, groups: int, errors: np.ndarray, others: np.ndarray, weights: np.ndarray
) -> float:
    """Standard deviation at which 80 % of the rows of a level are held; of fewer than three names those of each."""
    if len(set(names)) < _FEW:
        parts = [names == one for one in set(names)]
        return max(residuals.residual(errors[part], others[part], weights[part]) for part in parts)
    return residuals.residual(errors, others, weights, min(SHARE * (1.0 + 1.0 / groups), 0.95))


#: Vendors, say, that are too few for a share of them.
_FEW = 3


def deviations(known: Figures, widths: Widths) -> np.ndarray:
    """Standard deviation of every figure's log error at its distance: of the chip what is drawn, if that is more."""
    added = [
        sum(widths.get(level, 0.0) ** 2 for level in one.levels if level not in HARDWARE)
        + max(sum(widths.get(level, 0.0) ** 2 for level in one.levels if level in HARDWARE), one.chip**2)
        for one in known.rows
    ]
    return np.sqrt(known.home**2 + added)


def estimates() -> dict[str, float]:
    """Widths of estimates by kind: where 80 % of those lie that a fit tells too, of kernels and of links."""
    off: dict[str, list[float]] = {}
    for kind, table, record in (("kernels", "fine", types.Kernels), ("network", "alone", types.Network)):
        about = leaves(record)
        for entry in (catalog.entry(kind, slug) for slug in catalog.names(kind)):
            for name, bounds in ((name, one["bounds"]) for name, one in about.items()):
                rounded, fitted = entry.values.get(name), entry.values.get(f"{table}.{name}")
                if rounded is not None and fitted is not None and fitted.value > 0.0 < rounded.value:
                    group = "share" if bounds.high <= 1.0 else "time" if about[name]["units"] == "s" else "rate"
                    off.setdefault(group, []).append(abs(float(np.log(rounded.value / fitted.value))))
    return {group: float(np.quantile(errors, SHARE)) / quantile() for group, errors in sorted(off.items())}


class Held(NamedTuple):
    """What intervals hold of figures left out."""

    figures: int
    groups: int
    held: float  #: share of the figures
    by_group: float  #: the same, each group with the same weight
    width: float  #: half of it, of the logarithm: median


def crossed(known: Figures) -> np.ndarray:
    """Standard deviation of every figure by widths learnt without any row of its group."""
    found = np.zeros(len(known.rows))
    labels = {by: np.array([group(one) for one in known.rows]) for by, group in GROUPS.items()}
    for by, group in dict.fromkeys((by, group) for by, group, _ in known.groups):
        part = np.array([one[:2] == (by, group) for one in known.groups])
        column = labels.get(by, labels["source"])
        found[part] = deviations(known, fit(known, column != group))[part]
    return found


def held(known: Figures, deviation: np.ndarray) -> dict[str, Held]:
    """What was left out → what intervals hold."""
    inside = np.abs(known.errors) <= quantile() * deviation
    result = {}
    for by in dict.fromkeys(by for by, *_ in known.groups):
        part = np.array([one == by for one, *_ in known.groups])
        weights = weights_of([group for group, own in zip(known.groups, part, strict=True) if own])
        result[by] = Held(
            int(part.sum()), len({group for group in known.groups if group[0] == by}), float(inside[part].mean()),
            float(np.average(inside[part], weights=weights)), float(quantile() * np.median(deviation[part])),
        )  # fmt: skip
    return result
