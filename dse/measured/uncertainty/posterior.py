r"""One posterior of some designs' metric: everything that is not known of it, as independent standard normals.

The log of a metric of design ``d`` is

.. math:: \log m_d = \log \hat m_d + \sum_k b_{dk} z_k, \qquad z_k \sim N(0, 1),

where ``k`` runs over the factors of all leaves with a spread (:mod:`~dse.measured.uncertainty.spreads`: kernels by
family and chip, links, power, process, stacks, engines) and over the parts of the interval that no leaf explains
(:mod:`dse.measured.uncertainty.distance`), each once for designs alike in it, once for those of one model on one stack
and chip, and once for every design, and prices
(:mod:`~dse.measured.uncertainty.bills`). Designs with the same chip have the same ``z`` for it, which cancels between
them. ``b`` is of first order, for probabilities of measurements and for naming what a difference depends on;
:meth:`Posterior.draws` evaluates the model itself at joint draws of all leaves, in one call of the compiled program,
and adds the rest with fat tails.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dse.doors import Study
from dse.measured.uncertainty import bills, distance, parts as uncertainty
from dse.measured.uncertainty.parts import ReducedParts, parts_of, perturb, quantile, subtract_leaf_variance
from dse.measured.uncertainty.spreads import (
    Factor,
    Spreads,
    group_of,
    present_spreads,
    spreads_of,
    total_deviation,
    total_deviations,
)
from dse.types import Design

#: Draws of every design: over seeds a probability of 15 % varies by 0.7 points, by 1.9 where there are 200 at random.
DRAWS = 1000

#: Designs whose draws are evaluated at once.
_DESIGNS_PER_BATCH = 100


class Choice(NamedTuple):
    """A design to decide on, with the names of its parts in the catalogue."""

    name: str
    design: Design
    stack: str
    accelerator: str = ""  #: by its name in the catalogue
    model: str = ""
    system: str = ""  #: whose networks it has; by default the accelerator's usual node
    levels: distance.Levels | None = None  #: levels of its distance; None: from the measured rows of the catalogue
    fixed_paths: Collection[str] = ()  #: paths of values that the user has stated, which have no spread
    place: distance.Place | None = None  #: None: from stack, accelerator and model


class Posterior(NamedTuple):
    """A metric of some designs, with the effects of all that is uncertain of it as independent normals."""

    logs: np.ndarray  #: predicted, logarithm [designs]
    effects: dict[str, np.ndarray]  #: factor → change of each design's log metric by one standard deviation [designs]
    names: dict[str, str]  #: factor → leaf or part of the interval
    choices: Sequence[Choice]
    metric: str
    study: Study
    spreads: list[Spreads]  #: of each design, as drawn

    def effects_of(self, keys: Sequence[str]) -> np.ndarray:
        """Return the change of the log metric by one standard deviation of factors [designs, factors], 0 of others."""
        absent = np.zeros(len(self.logs))
        return np.array([self.effects.get(key, absent) for key in keys]).reshape(len(keys), len(absent)).T

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviation of each design's log metric [designs]."""
        return np.sqrt((self.effects_of([*self.effects]) ** 2).sum(axis=1))

    def parts(self, index: int) -> dict[str, float]:
        """Return part → standard deviation in a design's log error: groups of leaves, levels, prices."""

        def part_of(key: str) -> str:
            if key.startswith(_PRICE):
                return bills.part_name(self.names[key], self.metric)
            return self.names[key] if key.startswith(_PART) else group_of(self.names[key])

        squares = _square_sums((part_of(key), effect[index]) for key, effect in self.effects.items())
        return {name: math.sqrt(square) for name, square in squares.items() if square}

    def shares(self, first: int, second: int) -> dict[str, float]:
        """Return leaf or part → share of the variance of two designs' log difference, largest first.

        ``first`` and ``second`` are indices of designs.
        """
        differences = ((self.names[key], effect[first] - effect[second]) for key, effect in self.effects.items())
        shares = variance_shares(_square_sums(differences))
        return {name: share for name, share in shares.items() if share > 1e-12}

    def draws(self) -> np.ndarray:
        """Return log metrics at joint draws of leaves, and of the rest with fat tails [designs, draws]."""
        log_metrics = np.repeat(self.logs[:, None], DRAWS, axis=1)
        for start in range(0, len(log_metrics), _DESIGNS_PER_BATCH):
            self._fill_model_draws(log_metrics, range(start, min(start + _DESIGNS_PER_BATCH, len(log_metrics))))
        if residual_keys := [key for key in self.effects if key.startswith((_PART, _PRICE))]:
            log_metrics += self.effects_of(residual_keys) @ np.array([factor_draws(key) for key in residual_keys])
        return log_metrics

    def _fill_model_draws(self, log_metrics: np.ndarray, design_range: range) -> None:
        """Fill in place the rows of ``log_metrics`` of some designs by the model at joint draws of all leaves."""
        from dse.measured.prediction import evaluate_batch, group_by_structure

        for positions, batch in group_by_structure([self.choices[i].design for i in design_range]):
            indices = [design_range[position] for position in positions]
            paths = list(dict.fromkeys(path for i in indices for path in self.spreads[i]))
            logs = {path: np.array([_leaf_draws(self.spreads[i].get(path, ())) for i in indices]) for path in paths}
            if paths:
                metrics = evaluate_batch(uncertainty.scale_leaves(batch, logs), self.study)
                with np.errstate(divide="ignore", invalid="ignore"):
                    values = np.log(np.asarray(getattr(metrics, self.metric), float)).reshape(len(indices), DRAWS)
                log_metrics[indices] = np.where(np.isfinite(values), values, self.logs[indices][:, None])


def _square_sums(deviations: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return name → sum of the squares of its deviations."""
    squares = dict[str, float]()
    for name, deviation in deviations:
        squares[name] = squares.get(name, 0.0) + float(deviation) ** 2
    return squares


def variance_shares(squares: Mapping[str, float]) -> dict[str, float]:
    """Return name → share of the sum of all variances, the largest first; 0 where all are 0."""
    total = sum(squares.values()) or 1.0
    return {name: square / total for name, square in sorted(squares.items(), key=lambda item: -item[1])}


#: How the factors begin that no leaf explains, and those of prices, emission factors and failures.
_PART, _PRICE = "part ", "price "


def posterior(choices: Sequence[Choice], metric: str, study: Study) -> Posterior:
    """Return the posterior of a metric of designs.

    Args:
        choices: designs of one study.
        metric: its name; one with an interval.
        study: the study.
    """
    return posteriors(choices, [metric], study)[metric]


def posteriors(choices: Sequence[Choice], metrics: Sequence[str], study: Study) -> dict[str, Posterior]:
    """Return metric → its posterior, of all from one call of the model.

    Args:
        choices: designs of one study.
        metrics: names, each with an interval.
        study: the study.

    Returns:
        Metric → posterior.
    """
    choices = _with_places(choices)
    cached_spreads = functools.lru_cache(maxsize=None)(spreads_of)
    spreads_by_choice = [
        present_spreads(choice.design, cached_spreads(choice.stack, choice.accelerator, choice.system))
        for choice in choices
    ]
    designs = [choice.design for choice in choices]
    perturbations = perturb(designs, list(map(total_deviations, spreads_by_choice)), study)
    sensitivities = bills.price_sensitivities(
        designs, [choice.accelerator for choice in choices], metrics, study, [choice.fixed_paths for choice in choices]
    )
    return {
        name: _metric_posterior(
            choices, name, study, spreads_by_choice, perturbations, [by_metric.get(name) for by_metric in sensitivities]
        )
        for name in metrics
    }


def _with_places(choices: Sequence[Choice]) -> list[Choice]:
    """Return choices with their places and levels, which are read once for all designs alike in them."""
    place_by_key = dict[tuple[Any, ...], tuple[distance.Place, distance.Levels]]()
    choices_with_places = []
    for choice in choices:
        names, workload = (choice.stack, choice.accelerator, choice.model), choice.design.workload
        key = *names, distance.architecture_kind(workload), workload.requests is not None
        if key not in place_by_key:
            place = distance.place_of(choice.stack, choice.accelerator, workload, choice.model)
            levels = distance.design_levels(choice.stack, choice.accelerator, choice.design, choice.model)
            place_by_key[key] = place, levels
        place, levels = place_by_key[key]
        choices_with_places.append(
            choice._replace(place=place, levels=levels if choice.levels is None else choice.levels)
        )
    return choices_with_places


def _metric_posterior(
    choices: Sequence[Choice],
    metric: str,
    study: Study,
    spreads_by_choice: Sequence[Spreads],
    perturbations: uncertainty.Perturbations,
    sensitivities: Sequence[bills.PriceSensitivity | None],
) -> Posterior:
    """Return the posterior of one metric from perturbed evaluations and, of each design, its sensitivity to prices."""
    changes = perturbations.slopes(metric)
    effects: dict[str, np.ndarray] = {}
    names: dict[str, str] = {}

    def add(key: str, name: str, index: int, effect: float) -> None:
        """Add an effect of a factor on a design."""
        if effect:
            effects.setdefault(key, np.zeros(len(choices)))[index] += effect
            names[key] = name

    figure = uncertainty.figure_of(metric, study) or uncertainty.figure_of(study.rate, study) or "step"
    leaf_spreads: list[Spreads] = []
    for i, choice in enumerate(choices):
        design_spreads = {} if metric == study.memory else spreads_by_choice[i]
        slopes = {path: float(changes[path][i]) for path in design_spreads}
        reduced = reduce_parts(choice, metric, study, slopes, sensitivities[i])
        scales = {path: reduced.scales.get(group_of(path), 1.0) for path in design_spreads}
        leaf_spreads.append(
            {
                path: tuple(factor._replace(deviation=factor.deviation * scales[path]) for factor in factors)
                for path, factors in design_spreads.items()
                if slopes[path] and path not in choice.fixed_paths
            }
        )
        for path, factors in leaf_spreads[-1].items():
            for factor in factors:
                add(factor.key, path, i, slopes[path] * factor.deviation / total_deviation(design_spreads[path]))
        groups = {group_of(path) for path in design_spreads}
        for part, deviation in reduced.parts.items():
            if part not in groups:
                kind_share, model_share = (
                    reduced.common_share(part, share) for share in distance.common_shares(part, figure)
                )
                add(shared_key(part, choice), part, i, deviation * math.sqrt(kind_share))
                add(f"{_PART}{part} {_model_key(choice)}", part, i, deviation * math.sqrt(model_share - kind_share))
                add(f"{_PART}{part} {i} {choice.name}", part, i, deviation * math.sqrt(1.0 - model_share))
        for path, effect in sensitivity.prices.items() if (sensitivity := sensitivities[i]) else ():
            owner = choice.accelerator if path in (bills.DEVICE, bills.MARGIN) else ""
            add(f"{_PRICE}{path} {owner}", path, i, effect)
    return Posterior(perturbations.logs(metric)[:, 0], effects, names, choices, metric, study, leaf_spreads)


def reduce_parts(
    choice: Choice,
    metric: str,
    study: Study,
    slopes: Mapping[str, float],
    sensitivity: bills.PriceSensitivity | None = None,
) -> ReducedParts:
    """Return the parts of a design's log error after the variance of its leaves was subtracted.

    ``slopes``: leaf → change of the log metric by its spread.
    """
    arguments = metric, choice.design, choice.stack, choice.levels or (), study
    parts = parts_of(*arguments) if sensitivity is None else bills.time_and_energy_parts(sensitivity, *arguments)
    squares = _square_sums((group_of(path), slope) for path, slope in slopes.items())
    parts.pop("parameters", None)
    return subtract_leaf_variance(parts, {group: math.sqrt(square) for group, square in squares.items()})


def shared_key(part: str, choice: Choice) -> str:
    """Return the key of the factor that designs alike in a part share, in ``effects`` of a posterior.

    Args:
        part: of a log error.
        choice: one of the designs.
    """
    place = choice.place
    if place is None:
        place = distance.place_of(choice.stack, choice.accelerator, choice.design.workload, choice.model)
    alike: tuple[str, ...] = place.stack, place.chip
    if part in (*distance.HARDWARE, "announced", "board"):
        alike = (place.chip,)
    elif part in (*distance.SOFTWARE, "level"):
        alike = (place.stack,)
    elif part in distance.MODEL:
        alike = place.kind, place.family
    return f"{_PART}{part} {alike}"


def _model_key(choice: Choice) -> tuple[Any, ...]:
    """Return what tells a model on a stack and a chip from others."""
    w = choice.design.workload
    return choice.stack, choice.accelerator, choice.model, float(w.hidden), float(w.n_layers)


def _leaf_draws(factors: Sequence[Factor]) -> np.ndarray:
    """Return draws of a leaf's logarithm around its value [draws]."""
    return sum((factor.deviation * normal_draws(factor.key) for factor in factors), np.zeros(DRAWS))


def factor_draws(key: str) -> np.ndarray:
    """Return draws of a factor, in standard deviations, as :meth:`Posterior.draws` has them [draws]."""
    return normal_draws(key) * _tail_factors() if key.startswith(_PART) else normal_draws(key)


@functools.lru_cache(maxsize=4)
def normal_quantiles(count: int) -> np.ndarray:
    """Return equally probable values of a standard normal, symmetric [count].

    Args:
        count: number of values.
    """
    return np.array([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])


@functools.lru_cache(maxsize=4096)
def normal_draws(key: str) -> np.ndarray:
    """Return standard normal draws, the same for equal keys: equally probable values in a permuted order [draws].

    (A Latin hypercube; McKay, Beckman and Conover, Technometrics 21, 1979.)
    """
    return np.random.default_rng(zlib.crc32(key.encode())).permutation(normal_quantiles(DRAWS))


@functools.lru_cache(maxsize=1)
def _tail_factors() -> np.ndarray:
    """Return factors, common to all errors of a draw, that make normal draws those of Student's t [draws].

    The 80 % interval stays as wide.
    """
    rng, freedom = np.random.default_rng(0), distance.degrees_of_freedom()
    normals = rng.standard_normal(100_000)
    factors = np.sqrt(freedom / rng.chisquare(freedom, 100_000))
    scale = quantile() / np.quantile(np.abs(normals * factors), uncertainty.COVERAGE)
    return rng.permutation(scale * np.quantile(factors, (np.arange(DRAWS) + 0.5) / DRAWS))
