"""How well each method does on a space: gaps to the exact optimum, or shares of the exact hypervolume."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.search import suite
from benchmarks.search.exact import Optimum
from dse.errors import InputError
from dse.optimizers import pareto, problem, space as spaces
from dse.optimizers.driver import METHODS, Chunk, Driver, HostDriver, driver, release
from dse.optimizers.judging import weights_of
from dse.optimizers.polish import polish
from dse.optimizers.problem import Problem
from dse.optimizers.space import Point

#: Evaluations of a seed at which every page has figures; those of the space's shares come on top.
COUNTS = (100, 1_000, 5_000, 10_000, 20_000, 100_000)
SHARES = (0.0001, 0.001, 0.01)

#: Evaluations at which methods are held against random search, seed by seed.
MARKS = (1_000, 5_000, 20_000)

#: Evaluations after which the best of each seed is polished too.
POLISH_AT = 5_000

#: Quantiles of the seeds.
QUANTILES = (0.05, 0.5, 0.95)

#: Methods made for several objectives, of no use for one.
_FOR_FRONTS = ("nsga2",)

#: A seed whose gap is below this has found the optimum: programs differ by roundings.
_FOUND = 1e-5


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is measured."""

    seeds: int = 32
    evaluations: int = 20_000  #: of a seed, methods on the device
    host_evaluations: int = 5_000  #: of a seed, methods that ask and tell on the host
    front_evaluations: int = 10_000  #: of a seed, several objectives


#: What continuous integration affords.
TINY = Effort(seeds=4, evaluations=2_000, host_evaluations=500, front_evaluations=1_000)


def methods_for_one() -> tuple[str, ...]:
    """Methods that are measured where there is one objective."""
    return tuple(name for name in METHODS if name not in _FOR_FRONTS)


def measured(name: str, optimum: Optimum, effort: Effort, methods: tuple[str, ...] = ()) -> dict[str, Any]:
    """By method: what :func:`_gaps` or :func:`_volumes` gives; methods whose library is missing are left out."""
    found = {}
    chosen = methods or (tuple(METHODS) if optimum.front else methods_for_one())
    task = problem.build(suite.search_spec(name, chosen, effort.seeds))
    for method in chosen:
        try:
            one = driver(task, method)
        except InputError:
            continue
        most = _budget(method, effort, effort.front_evaluations if optimum.front else effort.evaluations)
        found[method] = (_volumes if optimum.front else _gaps)(one, optimum, effort.seeds, most)
        release()
    return found


def _budget(method: str, effort: Effort, most: int) -> int:
    return min(most, effort.host_evaluations) if METHODS[method].external else most


class Clock:
    """Seconds of steps after the first, which compiles."""

    def __init__(self) -> None:
        self.first = self.seconds = 0.0
        self.steps = 0

    def chunks(self, one: Driver | HostDriver, last: int) -> Iterator[Chunk]:
        """Chunks up to step ``last``, going on from where the last call stopped."""
        done = self.steps + (self.first > 0.0)
        while done < last:
            n_steps = min(one.chunk, last - done) if done else 1
            began = time.perf_counter()
            chunk = one.advance(done, n_steps)
            if done:
                self.seconds, self.steps = self.seconds + time.perf_counter() - began, self.steps + n_steps
            else:
                self.first = time.perf_counter() - began
            done += n_steps
            yield chunk

    def rate(self, batch: int, seeds: int) -> float:
        """Evaluations a second, all seeds together."""
        return self.steps * batch * seeds / self.seconds if self.seconds else math.nan


# --- one objective ----------------------------------------------------------------------------------------


def _gaps(one: Driver | HostDriver, optimum: Optimum, seeds: int, budget: int) -> dict[str, Any]:
    """Gaps of one method, for all seeds at once."""
    task, clock, curves = one.problem, Clock(), []
    best = task.grid.spec.objectives[0].sign * optimum.value
    polished: dict[str, Any] = {}
    for target in dict.fromkeys((min(POLISH_AT, budget), budget)):
        for chunk in clock.chunks(one, max(1, target // one.batch)):
            curves.append(_gap(chunk.rows.value, chunk.rows.violation, best))
            if curves[-1][-1].max() < _FOUND:
                break
        polished = polished or _polished(one, best)
        if curves[-1][-1].max() < _FOUND:
            break
    curve = np.concatenate(curves)  # [step, seed]
    marks = _marks(optimum.designs, budget)
    at = {mark: _at(curve, mark, one.batch) for mark in marks}
    return {
        "batch": one.batch,
        "budget": budget,
        "marks": marks,
        "gap": [_quantiles(gaps) for gaps in at.values()],
        "seeds": {mark: _numbers(np.sort(at[mark])) for mark in MARKS if mark in at},
        "within_1": [float(np.mean(gaps <= 0.01)) for gaps in at.values()],
        "within_5": [float(np.mean(gaps <= 0.05)) for gaps in at.values()],
        "to_1": _evaluations_to(curve, 0.01, one.batch),
        "rate": clock.rate(one.batch, seeds),
        "first_seconds": clock.first,
        "polished": polished,
        "left": int(np.sum(curve[-1] > 0.01)),
        "differs": _differing(task, one, optimum, curve[-1] > 0.01),
    }


def _gap(value: np.ndarray, violation: np.ndarray, best: float) -> np.ndarray:
    """Relative distance to the optimum, infinite where nothing feasible was found."""
    gap = np.maximum((np.asarray(value, float) - best) / abs(best), 0.0)
    return np.where(violation > 0.0, np.inf, gap)


def _marks(designs: int, budget: int) -> list[int]:
    """Evaluations at which gaps are kept: a fine grid for figures, round counts, shares of the space."""
    fine = np.unique(np.round(np.geomspace(32, 100_000, 32)).astype(int)).tolist()
    shares = [round(share * designs) for share in SHARES]
    return sorted({mark for mark in (*fine, *COUNTS, *shares, budget) if 32 <= mark <= budget})


def _at(curve: np.ndarray, evaluations: int, batch: int) -> np.ndarray:
    """[seed] gaps after so many evaluations, whole steps only; the curve stays flat behind its end."""
    step = min(evaluations // batch, len(curve))
    return curve[step - 1] if step else np.full(curve.shape[1], np.inf)


def _quantiles(values: np.ndarray) -> list[float | None]:
    """The quantiles, each the value of one seed."""
    return _numbers(np.quantile(values, QUANTILES, method="higher"))


def _numbers(values: np.ndarray) -> list[float | None]:
    """Four digits of each; None for infinity, which JSON has not."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def _evaluations_to(curve: np.ndarray, gap: float, batch: int) -> int | None:
    """Evaluations after which half of the seeds are within the gap."""
    reached = np.flatnonzero(np.median(curve <= gap, axis=1) >= 0.5)
    return int(reached[0] + 1) * batch if len(reached) else None


def _polished(one: Driver | HostDriver, best: float) -> dict[str, Any]:
    """What a local exhaustive polish makes of the best of each seed so far."""
    task = one.problem
    found = polish(task, one.best, weights_of(task.spec.seeds, task.n_objectives))
    gaps = _gap(found.best.value, found.best.evaluation.violation, best)
    return {
        "gap": _quantiles(gaps),
        "within_1": float(np.mean(gaps <= 0.01)),
        "within_5": float(np.mean(gaps <= 0.05)),
        "evaluations": float(np.median(found.evaluations)),
    }


def _differing(task: Problem, one: Driver | HostDriver, optimum: Optimum, left: np.ndarray) -> dict[str, int]:
    """Coordinate → how many of the seeds that are left differ from the optimum in it, the most frequent first."""
    space = task.space
    digits, column = task.grid.locate(np.array([optimum.index]))
    whole = np.concatenate([digits[:, 0], np.asarray(space.option_digits)[column[0]]]).astype(np.int32)
    target = np.asarray(spaces.coordinates(space, Point(jax.numpy.asarray(whole), jax.numpy.zeros(0))))
    reached = np.asarray(spaces.coordinates(space, one.best.point))
    wrong = (reached != target).sum(axis=0, where=left[:, None])
    counted = Counter(dict(zip(space.names, wrong.tolist(), strict=False)))
    return {name: count for name, count in counted.most_common(4) if count}


# --- several objectives -----------------------------------------------------------------------------------


def _volumes(one: Driver | HostDriver, optimum: Optimum, seeds: int, budget: int) -> dict[str, Any]:
    """Shares of the exact hypervolume: of each seed's own front and of the front of all seeds together."""
    exact = np.array(optimum.front)
    bound = pareto.reference(exact)
    whole = pareto.hypervolume(exact, bound)
    clock = Clock()
    fronts: list[np.ndarray] = [np.empty((0, exact.shape[1]))] * seeds
    marks = [mark for mark in COUNTS if one.batch <= mark <= budget]
    single, together = [], []
    for mark in marks:
        for chunk in clock.chunks(one, mark // one.batch):
            fronts = [_joined(front, chunk, seed) for seed, front in enumerate(fronts)]
        volumes = np.array([pareto.hypervolume(front, bound) for front in fronts]) / whole
        single.append([float(np.quantile(volumes, q)) for q in QUANTILES])
        together.append(pareto.hypervolume(np.concatenate(fronts), bound) / whole)
    return {
        "batch": one.batch,
        "budget": budget,
        "marks": marks,
        "single": single,
        "together": together,
        "rate": clock.rate(one.batch, seeds),
        "first_seconds": clock.first,
    }


def _joined(front: np.ndarray, chunk: Chunk, seed: int) -> np.ndarray:
    """A seed's front with what a chunk found."""
    assert chunk.batches is not None  # a search of several objectives keeps what it evaluates
    evaluated = chunk.batches.evaluation
    found = evaluated.objectives[:, seed].reshape(-1, front.shape[1])
    fits = evaluated.violation[:, seed].reshape(-1) <= 0.0
    points = np.concatenate([front, found[fits].astype(float)])
    return points[pareto.front(points)] if len(points) else front
