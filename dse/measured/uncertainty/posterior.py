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
from collections.abc import Collection, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dse.doors.study import Study
from dse.measured.uncertainty import bills, distance
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.parts import Carved, Uncertainty, carved, moves, parts_of, quantile
from dse.measured.uncertainty.spreads import Factor, Spreads, group_of, spreads_of, total, within
from dse.types import Design

#: Draws of every design: over seeds a probability of 15 % varies by 0.7 points, by 1.9 where there are 200 at random.
DRAWS = 1000

#: Designs whose draws are evaluated at once.
_AT_ONCE = 100


class Choice(NamedTuple):
    """A design to decide on."""

    name: str
    design: Design
    stack: str
    accelerator: str = ""  #: by its name in the catalogue
    model: str = ""
    system: str = ""  #: whose networks it has; by default the accelerator's usual node
    at: distance.Levels | None = None  #: levels of its distance; None: from the measured rows of the catalogue
    stated: Collection[str] = ()  #: paths of values that the user has stated, which have no spread


class Posterior(NamedTuple):
    """A metric of some designs with everything that is not known of it."""

    logs: np.ndarray  #: predicted, logarithm [designs]
    effects: dict[str, np.ndarray]  #: factor → change of each design's log metric by one standard deviation [designs]
    names: dict[str, str]  #: factor → leaf or part of the interval
    choices: Sequence[Choice]
    metric: str
    study: Study
    spreads: list[Spreads]  #: of each design, as drawn

    @property
    def matrix(self) -> np.ndarray:
        """Effects [designs, factors], in the order of ``effects``."""
        return np.stack([*self.effects.values()], axis=1) if self.effects else np.zeros((len(self.logs), 0))

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviation of each design's log metric."""
        return np.sqrt((self.matrix**2).sum(axis=1))

    def parts(self, one: int) -> dict[str, float]:
        """Part of a design's log error → its standard deviation: groups of leaves, levels, prices."""
        squares = dict[str, float]()
        for key, effect in self.effects.items():
            name = self.names[key]
            if key.startswith(_PRICE):
                name = bills.part_of(name, self.metric)
            elif not key.startswith(_PART):
                name = group_of(name)
            squares[name] = squares.get(name, 0.0) + float(effect[one]) ** 2
        return {name: math.sqrt(square) for name, square in squares.items() if square}

    def shares(self, one: int, other: int) -> dict[str, float]:
        """Leaf or part → its share of the variance of the difference of two designs, largest first."""
        found = dict[str, float]()
        for key, effect in self.effects.items():
            found[self.names[key]] = found.get(self.names[key], 0.0) + float(effect[one] - effect[other]) ** 2
        whole = sum(found.values()) or 1.0
        return {name: v / whole for name, v in sorted(found.items(), key=lambda item: -item[1]) if v > 1e-12 * whole}

    def draws(self) -> np.ndarray:
        """Log metrics at joint draws [designs, draws]: the model at drawn leaves, and the rest with fat tails."""
        found = self._moved()
        if rest := [key for key in self.effects if key.startswith((_PART, _PRICE))]:
            effects = np.stack([self.effects[key] for key in rest], axis=1)
            found += effects @ np.array([draws_of(key) for key in rest])
        return found

    def _moved(self) -> np.ndarray:
        """Log metrics of the model at joint draws of all leaves [designs, draws]."""
        found = np.repeat(self.logs[:, None], DRAWS, axis=1)
        for start in range(0, len(found), _AT_ONCE):
            self._move(found, range(start, min(start + _AT_ONCE, len(found))))
        return found

    def _move(self, found: np.ndarray, some: range) -> None:
        """Those of some designs, in place."""
        from dse.measured.prediction import by_structure, evaluate_stack

        for places, stack in by_structure([self.choices[i].design for i in some]):
            members = [some[place] for place in places]
            paths = list(dict.fromkeys(path for i in members for path in self.spreads[i]))
            logs = {path: np.array([_drawn(self.spreads[i].get(path, ())) for i in members]) for path in paths}
            if paths:
                metrics = evaluate_stack(uncertainty.scaled(stack, logs), self.study)
                with np.errstate(divide="ignore", invalid="ignore"):
                    values = np.log(np.asarray(getattr(metrics, self.metric), float)).reshape(len(members), DRAWS)
                found[members] = np.where(np.isfinite(values), values, self.logs[members][:, None])


#: How the factors begin that no leaf explains, and those of prices, emission factors and failures.
_PART, _PRICE = "part ", "price "


def posterior(choices: Sequence[Choice], metric: str, study: Study) -> Posterior:
    """The posterior of a metric of designs.

    Args:
        choices: designs of one study.
        metric: its name; one with an interval.
        study: the study.
    """
    return posteriors(choices, [metric], study)[metric]


def posteriors(choices: Sequence[Choice], metrics: Sequence[str], study: Study) -> dict[str, Posterior]:
    """Metric → its posterior, of all from one call of the model."""
    looked_up = functools.lru_cache(maxsize=None)(spreads_of)
    known = [within(one.design, looked_up(one.stack, one.accelerator, one.system)) for one in choices]
    widths = [Uncertainty({path: total(factors) for path, factors in one.items()}, 0.0) for one in known]
    designs = [one.design for one in choices]
    moved = moves(designs, widths, study)
    owed = bills.bills(designs, [one.accelerator for one in choices], metrics, study, [one.stated for one in choices])
    return {name: _of_metric(choices, name, study, known, moved, [one.get(name) for one in owed]) for name in metrics}


def _of_metric(
    choices: Sequence[Choice],
    metric: str,
    study: Study,
    known: Sequence[Spreads],
    moved: uncertainty.Moves,
    owed: Sequence[bills.Bill | None],
) -> Posterior:
    changes = moved.of(metric)
    effects: dict[str, np.ndarray] = {}
    names: dict[str, str] = {}

    def add(key: str, name: str, place: int, effect: float) -> None:
        if effect:
            effects.setdefault(key, np.zeros(len(choices)))[place] += effect
            names[key] = name

    figure = uncertainty.figure_of(metric, study) or uncertainty.figure_of(study.rate, study) or "step"
    drawn: list[Spreads] = []
    for i, choice in enumerate(choices):
        moving = {} if metric == study.memory else known[i]
        slopes = {path: float(changes[path].slope[i]) for path in moving}
        found = carve(choice, metric, study, slopes, owed[i])
        scaled = {path: found.scales.get(group_of(path), 1.0) for path in moving}
        drawn.append(
            {
                path: tuple(one._replace(deviation=one.deviation * scaled[path]) for one in factors)
                for path, factors in moving.items()
                if slopes[path] and path not in choice.stated
            }
        )
        for path, factors in drawn[-1].items():
            for one in factors:
                add(one.key, path, i, slopes[path] * one.deviation / total(moving[path]))
        groups = {group_of(path) for path in moving}
        for part, deviation in found.parts.items():
            if part not in groups:
                alike, model = (found.common(part, share) for share in distance.shared(part, figure))
                add(shared_key(part, choice), part, i, deviation * math.sqrt(alike))
                add(f"{_PART}{part} {_model(choice)}", part, i, deviation * math.sqrt(model - alike))
                add(f"{_PART}{part} {i} {choice.name}", part, i, deviation * math.sqrt(1.0 - model))
        for path, effect in bill.prices.items() if (bill := owed[i]) else ():
            whose = choice.accelerator if path in (bills.DEVICE, bills.MARGIN) else ""
            add(f"{_PRICE}{path} {whose}", path, i, effect)
    return Posterior(_logs(moved, metric, len(choices)), effects, names, choices, metric, study, drawn)


def carve(
    choice: Choice, metric: str, study: Study, slopes: Mapping[str, float], bill: bills.Bill | None = None
) -> Carved:
    """Parts of a design's log error; ``slopes``: leaf → change of the log metric by its spread."""
    at = choice.at
    if at is None:
        at = distance.levels_of(choice.stack, choice.accelerator, choice.design, choice.model)
    where = metric, choice.design, choice.stack, at, study
    parts = parts_of(*where) if bill is None else bills.of_time(bill, *where)
    squares = dict[str, float]()
    for path, slope in slopes.items():
        squares[group_of(path)] = squares.get(group_of(path), 0.0) + slope**2
    parts.pop("parameters", None)
    return carved(parts, {group: math.sqrt(square) for group, square in squares.items()})


def _logs(moved: uncertainty.Moves, metric: str, count: int) -> np.ndarray:
    found, copies = np.zeros(count), 1 + 2 * len(moved.paths)
    for members, metrics in moved.parts:
        with np.errstate(divide="ignore"):
            found[members] = np.log(np.asarray(getattr(metrics, metric), float))[::copies]
    return found


def shared_key(part: str, choice: Choice) -> str:
    """The factor of a part that designs alike in it share."""
    return f"{_PART}{part} {_alike(part, choice)}"


def _alike(part: str, choice: Choice) -> tuple[str, ...]:
    """What designs have in common that are alike in a part."""
    at = distance.place_of(choice.stack, choice.accelerator, choice.design.workload, choice.model)
    if part in distance.HARDWARE or part in ("announced", "board"):
        return (at.chip,)
    if part == "level" or part in distance.SOFTWARE:
        return (at.stack,)
    return (at.kind, at.family) if part in distance.MODEL else (at.stack, at.chip)


def _model(choice: Choice) -> tuple[Any, ...]:
    """A model on a stack and a chip."""
    w = choice.design.workload
    return choice.stack, choice.accelerator, choice.model, float(w.hidden), float(w.n_layers)


def _drawn(factors: Sequence[Factor]) -> np.ndarray:
    """Draws of a leaf's logarithm."""
    return sum((one.deviation * normal(one.key) for one in factors), np.zeros(DRAWS))


def draws_of(key: str) -> np.ndarray:
    """Draws of a factor, as :meth:`Posterior.draws` has them."""
    return normal(key) * _tails() if key.startswith(_PART) else normal(key)


@functools.lru_cache(maxsize=4)
def points(count: int) -> np.ndarray:
    """Equally probable values of a standard normal, symmetric."""
    return np.array([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])


@functools.lru_cache(maxsize=4096)
def normal(key: str) -> np.ndarray:
    """Normal draws, the same for equal keys: equally probable values in an order of its own.

    (A Latin hypercube; McKay, Beckman and Conover, Technometrics 21, 1979.)
    """
    return np.random.default_rng(zlib.crc32(key.encode())).permutation(points(DRAWS))


@functools.lru_cache(maxsize=1)
def _tails() -> np.ndarray:
    """Factors common to all errors of a draw: they make normal draws those of Student's t, as wide at 80 %."""
    rng, freedom = np.random.default_rng(0), distance.freedom()
    many = rng.standard_normal(100_000)
    factors = np.sqrt(freedom / rng.chisquare(freedom, 100_000))
    scale = quantile() / np.quantile(np.abs(many * factors), uncertainty.SHARE)
    return rng.permutation(scale * np.quantile(factors, (np.arange(DRAWS) + 0.5) / DRAWS))
