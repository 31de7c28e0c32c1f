r"""Decisions between designs: draws of their metrics in which designs alike share errors, probabilities, regrets.

Of each design, draws of a metric are those of the model at samples of its stack's parameters, times errors of each part
of its interval (:func:`dse.measured.uncertainty.parts_of`) with fat tails. Designs with the same stack have the same
samples; a part ``p`` of standard deviation ``s`` that they have alike (the same chip without rows, the same stack, …)
is common to them by its share ``c`` of the variance,

.. math:: \log e = s \, (\sqrt c \, u_{p, key} + \sqrt{1 - c} \, v_{p, design}),

so that what they have in common cancels. Regret of a design in a draw: by which factor it is worse than the best one.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dse.doors.study import Study
from dse.measured import distance, uncertainty
from dse.measured.prediction import evaluate_many
from dse.measured.uncertainty import parts_of, quantile, shifts, uncertainty_of
from dse.sweep.results.summary import named_designs
from dse.types import Design

#: Draws of every design.
DRAWS = 200

#: Designs of a sweep that are judged, at most.
MOST = 200

#: Probability of being better up to which two designs are a tie.
TIE = 0.8


class Choice(NamedTuple):
    """A design to decide on."""

    name: str
    design: Design
    stack: str
    accelerator: str = ""  #: by its name in the catalogue
    model: str = ""


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
    parts, values = _draws(choices, metric, study), metrics[metric]
    logs = np.log(values)[:, None] + sum(parts.values())
    loss = -logs if higher_is_better else logs
    regret = loss - loss.min(axis=0)
    better = np.array([(own < loss).mean(axis=1) for own in loss])
    wins = np.bincount(loss.argmin(axis=0), minlength=len(choices)) / loss.shape[1]
    factors = np.exp(quantile() * np.sqrt(sum(part.std(axis=1) ** 2 for part in parts.values())))
    columns = (
        values, values / factors, values * factors, wins, _feasible(choices, metrics, study),
        np.mean(np.expm1(regret), axis=1), np.expm1(np.quantile(regret, 0.9, axis=1)),
    )  # fmt: skip
    rows = zip(*columns, strict=True)
    verdicts = [Verdict(choice.name, *map(float, row)) for choice, row in zip(choices, rows, strict=True)]
    order = np.argsort(-values if higher_is_better else values)
    return Decision(metric, higher_is_better, verdicts, better, _shares(parts, order[:2]))


def _shares(parts: Mapping[str, np.ndarray], two: np.ndarray) -> dict[str, float]:
    """Part → its share of the variance of the difference of two designs, largest first."""
    found = {name: float(np.var(part[two[0]] - part[two[-1]])) for name, part in parts.items()}
    total = sum(found.values()) or 1.0
    return {name: one / total for name, one in sorted(found.items(), key=lambda item: -item[1]) if one}


def _draws(choices: Sequence[Choice], metric: str, study: Study) -> dict[str, np.ndarray]:
    """Part of the log error → its draws [designs, draws]."""
    found: dict[str, np.ndarray] = {}
    for i, choice in enumerate(choices):
        at = distance.levels_of(choice.stack, choice.accelerator, choice.design, choice.model)
        for part, deviation in parts_of(metric, choice.design, choice.stack, at, study).items():
            if deviation:
                column = found.setdefault(part, np.zeros((len(choices), DRAWS)))
                column[i] = deviation * _common(part, choice, i)
    return found if study.residuals else found | _parameters(choices, metric, study)


def _parameters(choices: Sequence[Choice], metric: str, study: Study) -> dict[str, np.ndarray]:
    """Parameter → draws of the log error that it makes [designs, draws], to second order in its spread."""
    designs = [choice.design for choice in choices]
    moved = shifts(designs, [uncertainty_of(choice.stack) for choice in choices], metric, study)
    found = {}
    for path, (up, down) in moved.items():
        normal = np.array([_normal(f"{path} {choice.stack}") for choice in choices])
        found[path] = (up - down)[:, None] / 2.0 * normal + (up + down)[:, None] / 2.0 * normal**2
    return {path: draws for path, draws in found.items() if draws.any()}


def _common(part: str, choice: Choice, place: int) -> np.ndarray:
    """Draws of a part of a design, of unit size, with what designs alike in it share."""
    at = distance.place_of(choice.stack, choice.accelerator, choice.design.workload, choice.model)
    alike = {
        "home": (at.stack, at.chip, choice.model), **dict.fromkeys((*distance.HARDWARE, "announced"), (at.chip,)),
        **dict.fromkeys(distance.SOFTWARE, (at.stack,)), **dict.fromkeys(distance.MODEL, (at.kind, at.family)),
    }[part]  # fmt: skip
    share = distance.shared(part)
    own = _normal(f"{part} {place} {choice.name}")
    return (math.sqrt(share) * _normal(f"{part} {alike}") + math.sqrt(1.0 - share) * own) * _tails()


@functools.lru_cache(maxsize=4096)
def _normal(key: str) -> np.ndarray:
    """Normal draws in antithetic pairs, the same for equal keys."""
    half = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(DRAWS // 2)
    return np.concatenate([half, -half])


@functools.lru_cache(maxsize=1)
def _tails() -> np.ndarray:
    """Factors common to all errors of a draw: they make normal draws those of Student's t, as wide at 80 %."""
    rng, freedom = np.random.default_rng(0), distance.freedom()
    many = rng.standard_normal(100_000) * np.sqrt(freedom / rng.chisquare(freedom, 100_000))
    scale = quantile() / np.quantile(np.abs(many), uncertainty.SHARE)
    half = np.sqrt(freedom / rng.chisquare(freedom, DRAWS // 2))
    return scale * np.concatenate([half, half])


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
