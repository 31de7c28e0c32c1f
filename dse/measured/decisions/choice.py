r"""Decisions between designs: draws of their metrics in which designs alike share errors, probabilities, regrets.

Draws are those of :class:`dse.measured.uncertainty.posterior.Posterior`: what designs have in common (stack, chip,
links, levels, prices) cancels. Regret of a design in a draw: by which factor it is worse than the best one; its mean
is that of the logarithm, since a factor with the tails of Student's t has none. With stated scenarios
(:mod:`dse.measured.decisions.scenarios`) every draw counts in each of them, by their weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dse.doors.study import Study
from dse.measured.decisions.evidence import Evidence, conditioned
from dse.measured.decisions.scenarios import Scenario, applied, with_base
from dse.measured.prediction import evaluate_many
from dse.measured.uncertainty.intervals import has_interval
from dse.measured.uncertainty.parts import MetricInterval, interval, quantile
from dse.measured.uncertainty.posterior import DRAWS, Choice, Posterior, posterior, posteriors
from dse.model.accounts.feasibility import fits_probability
from dse.model.machine.technology import generated
from dse.sweep.results.summary import named_designs
from dse.types import Design

#: Designs of a sweep that are judged, at most.
MOST = 200

#: Probability of being better up to which two designs are a tie.
TIE = 0.8


class Verdict(NamedTuple):
    """What is known of one design among others."""

    name: str
    value: float  #: of the metric, as predicted
    low: float  #: ends of its 80 % interval
    high: float
    probability_best: float
    fits_probability: float  #: that its peak memory fits
    can_run: bool  #: whether nothing but memory may forbid it
    expected_regret: float  #: relative, of the mean logarithm; infinite where it cannot run in a scenario
    regret_90: float  #: which 90 % of draws do not exceed

    @property
    def probability_feasible(self) -> float:
        """That it can run: :attr:`fits_probability`, 0 where something else forbids it."""
        return self.fits_probability if self.can_run else 0.0


class Outcome(NamedTuple):
    """What is best in a scenario."""

    scenario: str
    weight: float  #: share of all
    best: str  #: at the mean; empty where no design can run
    ahead: float  #: by how much it is better than the best as stated
    values: list[float]  #: of each design; NaN where it cannot run


class Decision(NamedTuple):
    """Designs by a metric."""

    metric: str
    higher_is_better: bool
    verdicts: list[Verdict]
    better: np.ndarray  #: probability that a row's design is better than a column's, [designs, designs]
    shares: dict[str, float]  #: what the difference of the two best at the mean depends on, share of its variance
    outcomes: list[Outcome]  #: by scenario, as stated first
    unclear: dict[str, list[str]]  #: least ``expected`` and ``90 %`` regret → others that draws do not tell from it

    @property
    def best(self) -> Verdict:
        """The best at the mean."""
        return (max if self.higher_is_better else min)(self.verdicts, key=lambda one: one.value)

    @property
    def robust(self) -> Verdict | None:
        """The one of least expected regret; None where none can run in every scenario."""
        found = min(self.verdicts, key=lambda one: one.expected_regret)
        return found if math.isfinite(found.expected_regret) else None

    @property
    def cautious(self) -> Verdict | None:
        """The one of least 90 % regret; None where none can run in 90 % of cases."""
        found = min(self.verdicts, key=lambda one: one.regret_90)
        return found if math.isfinite(found.regret_90) else None

    @property
    def ties(self) -> list[str]:
        """Designs that are not told apart from the best at the mean."""
        names = [one.name for one in self.verdicts]
        first = names.index(self.best.name)
        return [name for i, name in enumerate(names) if i != first and self.better[first, i] < TIE]


def decide(
    choices: Sequence[Choice],
    metric: str,
    study: Study,
    higher_is_better: bool = False,
    scenarios: Sequence[Scenario] = (),
    evidence: Evidence | None = None,
    known: Posterior | None = None,
) -> Decision:
    """Which of some designs is better by a metric, and how sure that is.

    Args:
        choices: two designs or more, of one study.
        metric: its name; one with an interval.
        study: the study.
        higher_is_better: whether more of the metric is better.
        scenarios: stated ones, in addition to the designs as they are.
        evidence: measured figures of the designs, or of others.
        known: the posterior of the metric, where it is at hand.
    """
    designs, sign = [choice.design for choice in choices], -1.0 if higher_is_better else 1.0
    metrics = evaluate_many(designs, study)
    futures = with_base(scenarios)
    weights = np.array([one.weight for one in futures]) / sum(one.weight for one in futures)
    values = np.array([_values(one, designs, metrics, metric, study) for one in futures])
    known = known or posterior(choices, metric, study)
    errors, deviations = known.draws() - known.logs[:, None], known.deviations
    if evidence is not None:
        after = conditioned(known, evidence)
        errors, deviations = errors + after.correction - after.shift[:, None], after.deviations
        values = values * np.exp(after.shift)
    errors = sign * errors
    means = np.nan_to_num(sign * np.log(values), nan=np.inf, posinf=np.inf)
    loss = means[:, :, None] + errors
    least = loss.min(axis=1, keepdims=True)
    regret = loss - np.where(np.isfinite(least), least, 0.0)  # where none can run all regret is infinite
    each = np.repeat(weights / DRAWS, DRAWS)
    told = _told(weights, np.isfinite(means).any(axis=1))
    better = np.array([(loss[:, i : i + 1] < loss).mean(axis=2).T @ told for i in range(len(choices))])
    wins = np.bincount(loss.argmin(axis=1).reshape(-1), np.repeat(told / DRAWS, DRAWS), len(choices))
    lost = regret.transpose(1, 0, 2).reshape(len(choices), -1)
    expected, most = np.expm1(lost @ each), np.expm1([_quantile(one, each, 0.9) for one in lost])
    factors = np.exp(quantile() * deviations)
    base = values[0]
    can_run = (np.asarray(metrics["infeasible_reason"], int) & ~int(study.memory_reasons)) == 0
    columns = base, base / factors, base * factors, wins, _fits(choices, metrics, study), can_run, expected, most
    verdicts = [
        Verdict(choice.name, *(one.item() for one in row))
        for choice, row in zip(choices, zip(*columns, strict=True), strict=True)
    ]
    order = np.argsort(means[0])
    outcomes = [
        Outcome(one.name, float(share), *_best(choices, mean, int(order[0])), [float(value) for value in row])
        for one, share, mean, row in zip(futures, weights, means, values, strict=True)
    ]
    shares = {} if evidence is not None else known.shares(int(order[0]), int(order[min(1, len(order) - 1)]))
    unclear = {"expected": _unclear(choices, lost, each), "90 %": _alike(choices, lost, each, most)}
    return Decision(metric, higher_is_better, verdicts, better, shares, outcomes, unclear)


def _told(weights: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """Weights of the scenarios in which some design can run, the only ones that have a best one; sum 1."""
    kept = weights * runs
    return kept / kept.sum() if kept.sum() else weights


def _best(choices: Sequence[Choice], mean: np.ndarray, stated: int) -> tuple[str, float]:
    """The best of a scenario and how far ahead of the best as stated it is; none, and NaN, where none can run."""
    if not np.isfinite(mean).any():
        return "", math.nan
    first = int(mean.argmin())
    return choices[first].name, float(np.expm1(mean[stated] - mean[first]))


def _values(
    scenario: Scenario, designs: Sequence[Design], metrics: Mapping[str, np.ndarray], metric: str, study: Study
) -> np.ndarray:
    """A metric of each design in a scenario, NaN where only the scenario forbids it."""
    if not scenario.values:
        return np.asarray(metrics[metric], float)
    found = evaluate_many(applied(scenario, designs, study), study)
    lost = (np.asarray(metrics["feasible"]) != 0) & (np.asarray(found["feasible"]) == 0)
    return np.where(lost, np.nan, found[metric])


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The value that a share of the weight does not exceed."""
    order = np.argsort(values)
    held = np.cumsum(weights[order])
    return float(values[order][min(int(np.searchsorted(held, share * held[-1])), len(order) - 1)])


def _unclear(choices: Sequence[Choice], lost: np.ndarray, each: np.ndarray) -> list[str]:
    """Designs whose expected log regret is within two standard errors of its difference from the least."""
    expected = lost @ each
    first = int(expected.argmin())
    if not math.isfinite(expected[first]):
        return []
    found = []
    for i in range(len(choices)):
        if i == first or not math.isfinite(expected[i]):
            continue
        gap = lost[i] - lost[first]
        error = math.sqrt(max(float(gap**2 @ each) - float(gap @ each) ** 2, 0.0) / DRAWS)
        found += [choices[i].name] if expected[i] - expected[first] <= 2.0 * error else []
    return found


def _alike(
    choices: Sequence[Choice], lost: np.ndarray, each: np.ndarray, most: np.ndarray, digit: float = 5e-4
) -> list[str]:
    """Designs whose 90 % regret is printed as the least one is, or not told from it: a standard error of both."""
    first, error = int(most.argmin()), math.sqrt(0.9 * 0.1 / DRAWS)
    if not math.isfinite(most[first]):
        return []
    most_of_first = max(most[first] + digit, np.expm1(_quantile(lost[first], each, 0.9 + error)))
    found = (i for i in range(len(choices)) if i != first)
    return [choices[i].name for i in found if np.expm1(_quantile(lost[i], each, 0.9 - error)) < most_of_first]


def _fits(choices: Sequence[Choice], metrics: Mapping[str, np.ndarray], study: Study) -> np.ndarray:
    """Probability that each design's peak memory fits: the metric, of a study without one by the same function."""
    if "fits_probability" in metrics:
        return np.asarray(metrics["fits_probability"], float)
    spread = jnp.array([float(choice.design.software.memory_spread) for choice in choices])
    usable = jnp.array([float(study.capacity(generated(choice.design))) for choice in choices])
    return np.asarray(fits_probability(spread, usable, jnp.maximum(metrics[study.memory], 1.0)), float)


# Designs of a sweep


def judge(grid: Any, index: np.ndarray) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """Further variables of designs of a sweep: ends of the 80 % intervals of its metrics, and how sure the best one is.

    ``<metric>_low`` and ``<metric>_high`` of objectives and of what tables and figures show; ``probability_best`` by
    the first objective and ``probability_feasible``, ``fits_probability`` of a study without that metric. Empty for
    more than ``MOST`` designs; no probabilities for designs of several models and an objective without an interval.
    """
    objective, study = grid.spec.objectives[0], grid.spec.study
    if not 0 < len(index) <= MOST:
        return {}
    choices = named_choices(grid, index)
    if not all(choice.stack for choice in choices):
        return {}
    asked = (
        (one.expression.text for one in grid.spec.objectives),
        study.totals,
        study.trade or (),
        (one.metric for one in study.shown),
    )
    names = dict.fromkeys(name for some in asked for name in some if name in grid.spec.metrics)
    known = posteriors(choices, [name for name in names if has_interval(name, study)], study)
    found = dict(_ends(_intervals(known), study))
    metric = objective.expression.text
    if not has_interval(metric, study) or len(choices) < 2 or len({choice.model for choice in choices}) > 1:
        return found
    verdicts = decide(choices, metric, study, objective.sign < 0.0, known=known.get(metric)).verdicts
    about = {
        "probability_best": "probability that it is the best of the designs that are kept",
        "probability_feasible": "probability that it can run: fits_probability, 0 where another reason forbids it",
    }
    if "fits_probability" not in grid.spec.metrics:
        about |= {"fits_probability": "probability that peak memory fits"}
    return found | {
        name: (np.array([getattr(one, name) for one in verdicts], np.float32), {"units": "1", "long_name": text})
        for name, text in about.items()
    }


def named_choices(grid: Any, index: Iterable[int]) -> list[Choice]:
    """Designs of a sweep; values that it states have no spread."""
    stated = frozenset(axis.key for axis in (*grid.spec.fixed.values(), *grid.spec.axes))
    return [Choice(*one, stated=stated) for one in named_designs(grid, [int(one) for one in index])]


def _ends(
    intervals: Mapping[str, list[MetricInterval | None]], study: Study
) -> Iterator[tuple[str, tuple[np.ndarray, dict[str, str]]]]:
    """Ends of the 80 % intervals of metrics, with units and long names."""
    for metric, found in intervals.items():
        for end, text in (("low", "lower"), ("high", "upper")):
            values = np.array([getattr(one, end) if one else np.nan for one in found], np.float32)
            about = f"{study.long_names[metric]}, {text} end of the 80 % interval"
            yield f"{metric}_{end}", (values, {"units": study.units[metric], "long_name": about})


def intervals_of(
    choices: Sequence[Choice], metrics: Sequence[str], study: Study
) -> dict[str, list[MetricInterval | None]]:
    """80 % intervals of many designs, by metric; metrics without any are left out."""
    return _intervals(posteriors(choices, [name for name in metrics if has_interval(name, study)], study))


def _intervals(known: Mapping[str, Posterior]) -> dict[str, list[MetricInterval | None]]:
    found: dict[str, list[MetricInterval | None]] = {}
    for name, one in known.items():
        pairs = zip(np.exp(one.logs), one.deviations, strict=True)
        found[name] = [interval(float(value), {"all": float(width)}) for value, width in pairs]
    return {name: ends for name, ends in found.items() if any(ends)}
