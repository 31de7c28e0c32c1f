r"""Decisions between designs: draws of their metrics in which designs alike share errors, probabilities, regrets.

Draws are those of :class:`dse.measured.posterior.Posterior`: what designs have in common (stack, chip, links, levels)
cancels. Regret of a design in a draw: by which factor it is worse than the best one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dse.doors.study import Study
from dse.measured import uncertainty
from dse.measured.posterior import Choice, posterior
from dse.measured.prediction import evaluate_many
from dse.measured.uncertainty import parts_of, quantile
from dse.sweep.results.summary import named_designs

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
    probability_feasible: float  #: that it fits in memory; 0 where another reason forbids it
    expected_regret: float  #: relative
    regret_90: float  #: which 90 % of draws do not exceed


class Decision(NamedTuple):
    """Designs by a metric."""

    metric: str
    higher_is_better: bool
    verdicts: list[Verdict]
    better: np.ndarray  #: probability that a row's design is better than a column's, [designs, designs]
    shares: dict[str, float]  #: what the difference of the two best at the mean depends on, share of its variance

    @property
    def best(self) -> Verdict:
        """The best at the mean."""
        return (max if self.higher_is_better else min)(self.verdicts, key=lambda one: one.value)

    @property
    def robust(self) -> Verdict:
        """The one of least expected regret."""
        return min(self.verdicts, key=lambda one: one.expected_regret)

    @property
    def cautious(self) -> Verdict:
        """The one of least 90 % regret."""
        return min(self.verdicts, key=lambda one: one.regret_90)

    @property
    def ties(self) -> list[str]:
        """Designs that errors of the model do not distinguish from the best at the mean."""
        names = [one.name for one in self.verdicts]
        first = names.index(self.best.name)
        return [name for i, name in enumerate(names) if i != first and self.better[first, i] < TIE]


def decide(choices: Sequence[Choice], metric: str, study: Study, higher_is_better: bool = False) -> Decision:
    """Which of some designs is better by a metric, and how sure that is.

    Args:
        choices: two designs or more, of one study.
        metric: its name; one with an interval.
        study: the study.
        higher_is_better: whether more of the metric is better.
    """
    metrics = evaluate_many([choice.design for choice in choices], study)
    known, values = posterior(choices, metric, study), metrics[metric]
    logs = known.draws()
    loss = -logs if higher_is_better else logs
    regret = loss - loss.min(axis=0)
    better = np.array([(own < loss).mean(axis=1) for own in loss])
    wins = np.bincount(loss.argmin(axis=0), minlength=len(choices)) / loss.shape[1]
    factors = np.exp(quantile() * known.deviations)
    columns = (
        values, values / factors, values * factors, wins, _feasible(choices, metrics, study),
        np.mean(np.expm1(regret), axis=1), np.expm1(np.quantile(regret, 0.9, axis=1)),
    )  # fmt: skip
    rows = zip(*columns, strict=True)
    verdicts = [Verdict(choice.name, *map(float, row)) for choice, row in zip(choices, rows, strict=True)]
    order = np.argsort(-values if higher_is_better else values)
    return Decision(metric, higher_is_better, verdicts, better, known.shares(order[0], order[1]))


def _feasible(choices: Sequence[Choice], metrics: Mapping[str, np.ndarray], study: Study) -> list[float]:
    """Probability that each design fits in memory, 0 where another reason forbids it."""
    found = []
    for choice, need, reason in zip(choices, metrics[study.memory], metrics["infeasible_reason"], strict=True):
        spare = math.log(float(study.capacity(choice.design)) / max(float(need), 1.0))
        deviation = math.hypot(*parts_of(study.memory, choice.design, choice.stack, (), study).values())
        fits = NormalDist(0.0, max(deviation, 1e-6)).cdf(spare)
        found.append(0.0 if int(reason) & ~int(study.memory_reasons) else fits)
    return found


# Designs of a sweep


def judge(grid: Any, index: np.ndarray) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """``probability_best`` and ``probability_feasible`` of designs of a sweep, by its first objective.

    None for more than ``MOST`` designs, for designs of several models and for an objective without an interval.
    """
    objective, study = grid.spec.objectives[0], grid.spec.study
    metric = objective.expression.text
    if not 1 < len(index) <= MOST or metric not in study.units or uncertainty.figure_of(metric, study) is None:
        return {}
    choices = [Choice(*one) for one in named_designs(grid, [int(one) for one in index])]
    if len({choice.model for choice in choices}) > 1 or not all(choice.stack for choice in choices):
        return {}
    found = decide(choices, metric, study, objective.sign < 0.0).verdicts
    about = {"probability_best": "probability that it is the best of the designs that are kept",
             "probability_feasible": "probability that it fits in memory"}  # fmt: skip
    return {
        name: (np.array([getattr(one, name) for one in found], np.float32), {"units": "1", "long_name": text})
        for name, text in about.items()
    }
