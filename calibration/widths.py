"""Width that each level of distance adds to intervals, from the errors of rows left out, and how many rows it holds.

Of each level the added standard deviation is the one at which 80 % of its rows lie in their intervals, each group that
was left out with the same weight (split conformal, with ``1 + 1 / groups``; of two vendors 80 % of each). Widths of a
respect do not fall outwards: levels of hardware that would have one width of the rows of both (isotonic regression),
others that of the level within. A group is scored by widths that were learnt without any of its rows, whatever was left
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.scipy.special import ndtr

from calibration.left_out import PLACES, LeftOut, group_of
from dse import types
from dse.designs import catalog
from dse.lab.fits import residuals
from dse.measured.uncertainty.distance import HARDWARE, MODEL, SOFTWARE
from dse.measured.uncertainty.parts import COVERAGE, quantile, weighted_quantile
from dse.types.paths import leaves

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


class Shared(NamedTuple):
    """Share of the variance of log errors that rows of a group have in common on one stack and chip."""

    home: float
    levels: float  #: beyond home
    home_model: float  #: of one model too
    levels_model: float

    @classmethod
    def of(cls, known: Sequence[Figures]) -> Shared:
        """The mean of some kinds of figures."""
        every = [
            [shared(one, at_home, of_model) for of_model in (False, True) for at_home in (True, False)] for one in known
        ]
        return cls(*map(float, np.mean(every, axis=0)))


def shared(known: Figures, at_home: bool, of_model: bool = False) -> float:
    """Share of the variance of log errors, at home or beyond it, that rows of a group on one stack and chip share.

    By the variance of their means, less what scatter alone makes of it; ``of_model``: those of one model.
    """
    sets: dict[tuple[Any, ...], list[float]] = {}
    for one, error, groups in zip(known.rows, known.errors, known.groups, strict=True):
        if at_home == (not one.levels):
            model = (one.place.family, one.size[1]) if of_model else ()
            sets.setdefault((*groups, one.place.stack, one.place.chip, *model), []).append(error)
    some = [np.array(errors) for errors in sets.values() if len(errors) >= _LEAST]
    if not some:
        return 0.0
    between = np.mean([errors.mean() ** 2 - errors.var(ddof=1) / len(errors) for errors in some])
    return float(np.clip(between / np.mean([np.mean(errors**2) for errors in some]), 0.0, 1.0))


class Score(NamedTuple):
    """How well pairs of figures left out are told apart."""

    pairs: int
    groups: int
    brier: float  #: mean square of probability less outcome
    best: float  #: the same of the mean outcome of equal bins by probability
    by_group: float  #: as ``brier``, each group with the same weight
    right: float  #: share of the pairs of which the more probable order is that measured


def pairs(known: Figures, deviation: np.ndarray, by: str, common: Shared, factor: float = 2.0) -> Score:
    """Pairs of rows of one group of what was left out, predicted within a factor of each other.

    Args:
        known: the figures.
        deviation: of their log errors.
        by: what was left out.
        common: what rows have in common.
        factor: largest ratio of two predictions.
    """
    predicted = np.array([one.measured + one.error for one in known.rows])
    measured = np.array([one.measured for one in known.rows])
    places = np.array([f"{one.place.stack} {one.place.chip}" for one in known.rows])
    models = np.array([f"{one.place.family} {one.size[1]}" for one in known.rows])
    homes = np.minimum(known.home, deviation)
    parts = np.stack([homes, np.sqrt(deviation**2 - homes**2)])  # at home, beyond
    shares = np.array([[0.0, common.home, common.home_model], [0.0, common.levels, common.levels_model]])
    shares = np.maximum.accumulate(shares, axis=1)
    scores, right, told = [], [], []
    for group in dict.fromkeys(group for group in known.groups if group[0] == by):
        at = np.array([one == group for one in known.groups])
        at &= np.array([one.metric == known.rows[int(np.argmax(at))].metric for one in known.rows])
        first, second = np.triu_indices(int(at.sum()), 1)
        gap = predicted[at][first] - predicted[at][second]
        kept = (np.abs(gap) < np.log(factor)) & (measured[at][first] != measured[at][second])
        rows = np.flatnonzero(at)
        first, second, gap = rows[first[kept]], rows[second[kept]], gap[kept]
        if not len(gap):
            continue
        alike = (places[first] == places[second]) * (1 + (models[first] == models[second]))
        both = (shares[:, alike] * parts[:, first] * parts[:, second]).sum(axis=0)
        sure = gap / np.sqrt(deviation[first] ** 2 + deviation[second] ** 2 - 2.0 * both)
        chance = np.asarray(ndtr(np.asarray(sure, np.float32)))
        outcome = measured[first] > measured[second]
        scores.append((chance - outcome) ** 2)
        right.append((chance > 0.5) == outcome)
        told.append(np.stack([chance, outcome]))
    every = np.concatenate(scores)
    means = float(np.mean([one.mean() for one in scores]))
    chances, outcomes = np.concatenate(told, axis=1)
    bins = np.array_split(outcomes[np.argsort(chances, kind="stable")], _BINS)
    best = sum(one.var() * len(one) for one in bins if len(one)) / len(every)
    return Score(len(every), len(scores), float(every.mean()), float(best), means, float(np.concatenate(right).mean()))


#: Bins of pairs by probability.
_BINS = 50


def freedom(known: Sequence[Figures], deviation: Sequence[np.ndarray]) -> float:
    """Degrees of freedom of Student's t with the tails of log errors: by 95 % over 80 % quantiles, groups as equals."""
    ratios = [
        weighted_quantile(size, weights, 0.95) / weighted_quantile(size, weights, COVERAGE)
        for one, own in zip(known, deviation, strict=True)
        for size, weights in [(np.abs(one.errors) / own, weights_of(one.groups))]
    ]
    rng, candidates = np.random.default_rng(0), (2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 30.0)
    normal = rng.standard_normal(100_000)
    found = [
        np.quantile(sizes, 0.95) / np.quantile(sizes, COVERAGE)
        for nu in candidates
        for sizes in [np.abs(normal * np.sqrt(nu / rng.chisquare(nu, 100_000)))]
    ]
    return candidates[int(np.argmin(np.abs(np.array(found) - np.median(ratios))))]


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
        level: np.array([level in known.rows[i].levels for i in at], bool) for level in (*MODEL, *SOFTWARE, *HARDWARE)
    }
    found = {level: 0.0 for level, held in holds.items() if held.any()}

    def needed(levels: Sequence[str]) -> float:
        """The width that rows of any of some levels need, of which each row has one."""
        held = np.any([holds[level] for level in levels], axis=0)
        others = sum((found[other] ** 2 * holds[other] for other in found if other not in levels), home**2)
        rows = [known.rows[i] for i in at[held]]
        label = [next(one for one in levels if one in row.levels) for row in rows]
        named = np.array([_name(row, level) for row, level in zip(rows, label, strict=True)])
        groups = len({known.groups[i] for i in at[held]})
        return _added(named, groups, errors[held], np.sqrt(others[held]), weights[held])

    for _ in range(_PASSES):
        for respect in (MODEL, SOFTWARE, HARDWARE):
            pools: list[list[str]] = []
            for level in (one for one in respect if one in found):
                pools.append([level])
                found[level] = needed([level])
                while len(pools) > 1 and found[pools[-1][0]] < (inner := found[pools[-2][0]]):
                    if respect == HARDWARE:
                        pools[-2:] = [pools[-2] + pools[-1]]
                        inner = needed(pools[-1])
                    found.update(dict.fromkeys(pools[-1], inner))
    return found


def _name(row: LeftOut, level: str) -> str:
    """The group of a row by a level: by its place or source, else what was left out of it."""
    return group_of(row, level) if level in (*PLACES, "source") else row.group


def _added(names: np.ndarray, groups: int, errors: np.ndarray, others: np.ndarray, weights: np.ndarray) -> float:
    """Standard deviation at which 80 % of the rows of a level are held; of fewer than three names those of each."""
    if len(set(names)) < _FEW:
        parts = [names == one for one in set(names)]
        return max(residuals.residual(errors[part], others[part], weights[part]) for part in parts)
    return residuals.residual(errors, others, weights, min(COVERAGE * (1.0 + 1.0 / groups), 0.95))


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
                measured = types.MEASURED_ALONE.get(name, name)
                rounded, fitted = entry.values.get(name), entry.values.get(f"{table}.{measured}")
                if rounded is not None and fitted is not None and fitted.value > 0.0 < rounded.value:
                    group = "share" if bounds.high <= 1.0 else "time" if about[name]["units"] == "s" else "rate"
                    off.setdefault(group, []).append(abs(float(np.log(rounded.value / fitted.value))))
    return {group: float(np.quantile(errors, COVERAGE)) / quantile() for group, errors in sorted(off.items())}


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
    labels = {by: np.array([group_of(one, by) for one in known.rows]) for by in (*PLACES, "source")}
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
            int(part.sum()),
            len({group for group in known.groups if group[0] == by}),
            float(inside[part].mean()),
            float(np.average(inside[part], weights=weights)),
            float(quantile() * np.median(deviation[part])),
        )
    return result
