r"""Decisions between designs: draws of their metrics in which designs alike share errors, probabilities, regrets.

Draws are those of :class:`dse.measured.uncertainty.posterior.Posterior`: what designs have in common (stack, chip,
links, levels, prices) cancels. Regret of a design in a draw: by which factor it is worse than the best one; its mean
is that of the logarithm, since a factor with the tails of Student's t has none. With stated scenarios
(:mod:`dse.measured.decisions.scenarios`) every draw counts in each of them, by their weights.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.doors import Study
from dse.equations import ScalarFunction
from dse.measured.decisions.scenarios import Scenario, add_base, apply_scenario
from dse.measured.prediction import evaluate_many, group_by_structure
from dse.measured.uncertainty.intervals import has_interval
from dse.measured.uncertainty.parts import MetricInterval, interval, quantile, weighted_quantile
from dse.measured.uncertainty.posterior import DRAWS, Choice, Posterior, posterior, posteriors
from dse.sweep.results.summary import named_designs
from dse.types import Design, Scalar

if TYPE_CHECKING:
    from dse.measured.decisions.evidence import Evidence

#: Designs of a sweep that are judged, at most.
MAX_DESIGNS = 200

#: Probability of being better up to which two designs are a tie.
TIE_PROBABILITY = 0.8


class Verdict(NamedTuple):
    """Interval, probabilities and regret of one design among others."""

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
        """Probability that it can run: :attr:`fits_probability`, or 0 where something else forbids it."""
        return self.fits_probability if self.can_run else 0.0


class ScenarioOutcome(NamedTuple):
    """The best design in a scenario and its relative lead over the best as stated."""

    scenario: str
    weight: float  #: share of all
    best: str  #: at the mean; empty where no design can run
    ahead: float  #: by how much it is better than the best as stated
    values: list[float]  #: of each design; NaN where it cannot run


class Decision(NamedTuple):
    """Designs compared by a metric."""

    metric: str
    higher_is_better: bool
    verdicts: list[Verdict]
    better: np.ndarray  #: probability that a row's design is better than a column's, [designs, designs]
    shares: dict[str, float]  #: what the difference of the two best at the mean depends on, share of its variance
    outcomes: list[ScenarioOutcome]  #: by scenario, as stated first
    unclear: dict[str, list[str]]  #: least ``expected`` and ``90 %`` regret → others that draws do not tell from it

    @property
    def best(self) -> Verdict:
        """The best design at the mean."""
        return (max if self.higher_is_better else min)(self.verdicts, key=lambda verdict: verdict.value)

    @property
    def robust(self) -> Verdict | None:
        """The design of least expected regret, None where none can run in every scenario."""
        least_regret = min(self.verdicts, key=lambda verdict: verdict.expected_regret)
        return least_regret if math.isfinite(least_regret.expected_regret) else None

    @property
    def cautious(self) -> Verdict | None:
        """The design of least 90 % regret, None where none can run in 90 % of cases."""
        least_regret = min(self.verdicts, key=lambda verdict: verdict.regret_90)
        return least_regret if math.isfinite(least_regret.regret_90) else None

    @property
    def ties(self) -> list[str]:
        """Designs that draws do not tell from the best at the mean."""
        names = [verdict.name for verdict in self.verdicts]
        best_index = names.index(self.best.name)
        return [
            name for i, name in enumerate(names) if i != best_index and self.better[best_index, i] < TIE_PROBABILITY
        ]


def decide(
    choices: Sequence[Choice],
    metric: str,
    study: Study,
    higher_is_better: bool = False,
    scenarios: Sequence[Scenario] = (),
    evidence: Evidence | None = None,
    metric_posterior: Posterior | None = None,
) -> Decision:
    """Decide which of some designs is better by a metric and how sure that is.

    Args:
        choices: two designs or more, of one study.
        metric: its name; one with an interval.
        study: the study.
        higher_is_better: whether more of the metric is better.
        scenarios: stated ones, in addition to the designs as they are.
        evidence: measured figures of the designs, or of others.
        metric_posterior: the posterior of the metric, where it is at hand.
    """
    designs, sign = [choice.design for choice in choices], -1.0 if higher_is_better else 1.0
    metrics = evaluate_many(designs, study)
    all_scenarios = add_base(scenarios)
    weights = np.array([scenario.weight for scenario in all_scenarios])
    weights = weights / weights.sum()
    values = np.array([_scenario_values(scenario, designs, metrics, metric, study) for scenario in all_scenarios])
    metric_posterior = metric_posterior or posterior(choices, metric, study)
    errors, deviations = metric_posterior.draws() - metric_posterior.logs[:, None], metric_posterior.deviations
    if evidence is not None:
        from dse.measured.decisions.evidence import condition  # reads rows by all of dse.measured

        update = condition(metric_posterior, evidence)
        errors, deviations = errors + update.correction - update.shift[:, None], update.deviations
        values = values * np.exp(update.shift)
    errors = sign * errors
    means = np.nan_to_num(sign * np.log(values), nan=np.inf, posinf=np.inf)
    loss = means[:, :, None] + errors
    best_loss = loss.min(axis=1, keepdims=True)
    regret = loss - np.where(np.isfinite(best_loss), best_loss, 0.0)  # where none can run all regret is infinite
    draw_weights = np.repeat(weights / DRAWS, DRAWS)
    feasible_weights = _feasible_weights(weights, np.isfinite(means).any(axis=1))
    better = np.array([(loss[:, i : i + 1] < loss).mean(axis=2).T @ feasible_weights for i in range(len(choices))])
    wins = np.bincount(loss.argmin(axis=1).reshape(-1), np.repeat(feasible_weights / DRAWS, DRAWS), len(choices))
    regrets = regret.transpose(1, 0, 2).reshape(len(choices), -1)
    regret_90 = np.expm1([weighted_quantile(design_regrets, draw_weights, 0.9) for design_regrets in regrets])
    width_factors = np.exp(quantile() * deviations)
    can_run = (np.asarray(metrics["infeasible_reason"], int) & ~int(study.memory_reasons)) == 0
    bounds = values[0], values[0] / width_factors, values[0] * width_factors
    fits = _fits_probabilities(choices, metrics, study)
    columns = (*bounds, wins, fits, can_run, np.expm1(regrets @ draw_weights), regret_90)
    verdicts = [
        Verdict(choice.name, *(scalar.item() for scalar in scalars))
        for choice, *scalars in zip(choices, *columns, strict=True)
    ]
    order = np.argsort(means[0])
    outcomes = [
        ScenarioOutcome(
            scenario.name, float(share), *_scenario_best(choices, mean, int(order[0])), scenario_values.tolist()
        )
        for scenario, share, mean, scenario_values in zip(all_scenarios, weights, means, values, strict=True)
    ]
    shares = {} if evidence is not None else metric_posterior.shares(int(order[0]), int(order[min(1, len(order) - 1)]))
    unclear = {
        "expected": _tied_in_expected_regret(choices, regrets, draw_weights),
        "90 %": _tied_in_regret_90(choices, regrets, draw_weights, regret_90),
    }
    return Decision(metric, higher_is_better, verdicts, better, shares, outcomes, unclear)


def _feasible_weights(weights: np.ndarray, has_design: np.ndarray) -> np.ndarray:
    """Return the weights of the scenarios in which some design can run, with sum 1; all weights where none can."""
    feasible = weights * has_design
    return feasible / feasible.sum() if feasible.sum() else weights


def _scenario_best(choices: Sequence[Choice], mean: np.ndarray, reference_index: int) -> tuple[str, float]:
    """Return the name of a scenario's best and its relative lead over the best as stated, or ("", NaN) if none can run.

    ``mean``: log of the metric, less is better [designs].
    """
    if not np.isfinite(mean).any():
        return "", math.nan
    best_index = int(mean.argmin())
    return choices[best_index].name, float(np.expm1(mean[reference_index] - mean[best_index]))


def _scenario_values(
    scenario: Scenario, designs: Sequence[Design], metrics: Mapping[str, np.ndarray], metric: str, study: Study
) -> np.ndarray:
    """Return a metric of each design in a scenario, in SI units; NaN where only the scenario forbids it [designs]."""
    if not scenario.values:
        return np.asarray(metrics[metric], float)
    scenario_metrics = evaluate_many(apply_scenario(scenario, designs, study), study)
    is_forbidden = (np.asarray(metrics["feasible"]) != 0) & (np.asarray(scenario_metrics["feasible"]) == 0)
    return np.where(is_forbidden, np.nan, scenario_metrics[metric])


def _tied_in_expected_regret(choices: Sequence[Choice], regrets: np.ndarray, draw_weights: np.ndarray) -> list[str]:
    """Return names of further designs whose expected log regret is within two standard errors of the least."""
    expected, names = regrets @ draw_weights, []
    best_index = int(expected.argmin())
    for i in map(int, np.flatnonzero(np.isfinite(expected))):
        difference = regrets[i] - regrets[best_index]
        error = math.sqrt(max(float(difference**2 @ draw_weights) - float(difference @ draw_weights) ** 2, 0.0) / DRAWS)
        if i != best_index and expected[i] - expected[best_index] <= 2.0 * error:
            names.append(choices[i].name)
    return names


def _tied_in_regret_90(
    choices: Sequence[Choice], regrets: np.ndarray, draw_weights: np.ndarray, regret_90: np.ndarray, digit: float = 5e-4
) -> list[str]:
    """Return names of further designs whose 90 % regret is within a standard error of the least or printed as it is."""
    best_index, error = int(regret_90.argmin()), math.sqrt(0.9 * 0.1 / DRAWS)
    if not math.isfinite(regret_90[best_index]):
        return []

    def regret_at(i: int, share: float) -> float:
        return float(np.expm1(weighted_quantile(regrets[i], draw_weights, share)))

    threshold = max(regret_90[best_index] + digit, regret_at(best_index, 0.9 + error))
    indices = (i for i in range(len(choices)) if i != best_index)
    return [choices[i].name for i in indices if regret_at(i, 0.9 - error) < threshold]


def _fits_probabilities(choices: Sequence[Choice], metrics: Mapping[str, np.ndarray], study: Study) -> np.ndarray:
    """Return the probability that each design's peak memory fits, by the metric or its function [designs]."""
    if "fits_probability" in metrics:
        return np.asarray(metrics["fits_probability"], float)
    peaks, probabilities = np.maximum(metrics[study.memory], 1.0), np.zeros(len(choices))
    for indices, batch in group_by_structure([choice.design for choice in choices]):
        probabilities[indices] = _fits_function(study).batch_values(len(indices), batch, peaks[indices])
    return probabilities


@functools.cache
def _fits_function(study: Study) -> ScalarFunction:
    """Return the function of a design and its peak memory in B that gives the probability that it fits."""

    def probability(design: Design, memory: Scalar) -> tuple[Scalar, None]:
        from dse.model import fits_probability, generated

        return fits_probability(design.software.memory_spread, study.capacity(generated(design)), memory), None

    return ScalarFunction(probability, f"probability to fit, {study.name}" if study.is_builtin else None)


# Designs of a sweep


def judge(grid: Any, index: np.ndarray) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """Return further variables of designs of a sweep, name → (values, attributes): interval ends and probabilities.

    ``<metric>_low`` and ``<metric>_high`` of objectives and of what tables and figures show; ``probability_best`` by
    the first objective and ``probability_feasible``, ``fits_probability`` of a study without that metric. Empty for
    more than ``MAX_DESIGNS`` designs and where one has no stack; no probabilities for one design, for designs of
    several models and for an objective without an interval.
    """
    objective, study = grid.spec.objectives[0], grid.spec.study
    if not 0 < len(index) <= MAX_DESIGNS:
        return {}
    choices = named_choices(grid, index)
    if not all(choice.stack for choice in choices):
        return {}
    goals = (goal.expression.text for goal in grid.spec.objectives)
    candidates = dict.fromkeys([*goals, *study.totals, *(study.front_axes or ()), *study.main_metrics])
    names = [name for name in candidates if name in grid.spec.metrics]
    posterior_by_metric = posteriors(choices, [name for name in names if has_interval(name, study)], study)
    variables = dict(_interval_ends(_intervals(posterior_by_metric), study))
    metric = objective.expression.text
    if not has_interval(metric, study) or len(choices) < 2 or len({choice.model for choice in choices}) > 1:
        return variables
    verdicts = decide(
        choices, metric, study, objective.sign < 0.0, metric_posterior=posterior_by_metric.get(metric)
    ).verdicts
    long_names = {
        "probability_best": "probability that it is the best of the designs that are kept",
        "probability_feasible": "probability that it can run: fits_probability, 0 where another reason forbids it",
    }
    if "fits_probability" not in grid.spec.metrics:
        long_names |= {"fits_probability": "probability that peak memory fits"}
    values = {name: np.array([getattr(verdict, name) for verdict in verdicts], np.float32) for name in long_names}
    return variables | {name: (values[name], {"units": "1", "long_name": text}) for name, text in long_names.items()}


def named_choices(grid: Any, index: Iterable[int]) -> list[Choice]:
    """Return designs of a sweep as choices, in which values that the sweep states have no spread.

    Args:
        grid: of the sweep.
        index: designs of the grid.

    Returns:
        One choice per index.
    """
    fixed_paths = frozenset(axis.key for axis in (*grid.spec.fixed.values(), *grid.spec.axes))
    return [Choice(*fields, fixed_paths=fixed_paths) for fields in named_designs(grid, [int(i) for i in index])]


def _interval_ends(
    intervals: Mapping[str, list[MetricInterval | None]], study: Study
) -> Iterator[tuple[str, tuple[np.ndarray, dict[str, str]]]]:
    """Yield (variable, (values, units and long name)) of the ends of the 80 % intervals of metrics."""
    for metric, metric_intervals in intervals.items():
        for end, text in (("low", "lower"), ("high", "upper")):
            values = np.array([getattr(bounds, end) if bounds else np.nan for bounds in metric_intervals], np.float32)
            long_name = f"{study.long_names[metric]}, {text} end of the 80 % interval"
            yield f"{metric}_{end}", (values, {"units": study.units[metric], "long_name": long_name})


def intervals_of(
    choices: Sequence[Choice], metrics: Sequence[str], study: Study
) -> dict[str, list[MetricInterval | None]]:
    """Return metric → 80 % interval of each of many designs, without metrics that have none.

    Args:
        choices: designs of one study.
        metrics: names.
        study: their study.

    Returns:
        Metric → one interval per design, None where it has none.
    """
    return _intervals(posteriors(choices, [name for name in metrics if has_interval(name, study)], study))


def _intervals(posterior_by_metric: Mapping[str, Posterior]) -> dict[str, list[MetricInterval | None]]:
    """Return metric → 80 % interval of each design, None without; metrics without any interval are left out."""
    intervals = {
        name: [interval(float(v), {"all": float(d)}) for v, d in zip(np.exp(p.logs), p.deviations, strict=True)]
        for name, p in posterior_by_metric.items()
    }
    return {name: ends for name, ends in intervals.items() if any(ends)}
