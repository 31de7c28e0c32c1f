"""Methods of other libraries, which ask and tell on the host: Sobol points, CMA-ES, NSGA-II.

They see the unit cube. One is made again after an interruption by asking and telling what was told before: their
generators are seeded, so no library's state has to be stored.
"""

from __future__ import annotations

import importlib
import math
from types import ModuleType
from typing import Any, Protocol

import jax
import numpy as np

from dse.errors import InputError
from dse.io.distribution import install_extra
from dse.search import space as spaces
from dse.search.methods.base import Method
from dse.search.space import Space

#: The first width of the normal that CMA-ES samples, as a share of the cube.
_FIRST_WIDTH = 0.3

#: CMA-ES begins again with a population larger by this factor where it has converged (Auger and Hansen 2005).
_GROWTH = 2


class AskTell(Protocol):
    """A searcher of one seed on the host; a step is one ``ask`` and one ``tell``."""

    batch: int  #: evaluations of a step

    def ask(self) -> np.ndarray:
        """Positions [batch, axis] in the unit cube."""

    def tell(self, objectives: np.ndarray, violation: np.ndarray, value: np.ndarray) -> None:
        """What they are worth: objectives [batch, objective], the others [batch]."""


def available(name: str, where: str) -> ModuleType:
    """A library; one that is missing is an InputError."""
    try:
        return importlib.import_module(name)
    except ImportError:
        fix = f"install the extra: {install_extra('search')}"
        raise InputError(
            where, f"a method that needs {name}, which is not installed", "methods that do not need it", fix
        ) from None


class Sobol:
    """Sobol's sequence, shifted at random for each seed (Sobol' 1967; Cranley and Patterson 1976).

    Spread evenly over the valid mappings, as random search draws them.
    """

    def __init__(self, space: Space, n_objectives: int, seed: int, where: str, population: int) -> None:
        qmc = importlib.import_module("scipy.stats.qmc")
        self.batch = population
        n = spaces.n_spread(space)
        self._sequence, self._shift = qmc.Sobol(n, scramble=False), np.random.default_rng(seed).random(n)
        self._space = space

    def ask(self) -> np.ndarray:
        """The next points of the sequence, one at a time: blocks need not be powers of two."""
        points = np.concatenate([self._sequence.random(1) for _ in range(self.batch)])
        return np.asarray(_placed(self._space, ((points + self._shift) % 1.0).astype(np.float32)))

    def tell(self, objectives: np.ndarray, violation: np.ndarray, value: np.ndarray) -> None:
        """Nothing is learnt."""


@jax.jit
def _placed(space: Space, cube: jax.Array) -> jax.Array:
    """Where :func:`~dse.search.space.decode` finds the designs that are spread evenly at these positions."""
    return spaces.encode(space, spaces.spread(space, cube))


class CovarianceAdaptation:
    """CMA-ES with margin (Hamano et al. 2022): coordinates are steps of the cube, continuous axes have none.

    It begins at the best of ``first`` random designs, and again so, with a larger population, where it has converged or
    has found nothing better for ``patience`` generations.
    """

    def __init__(
        self, space: Space, n_objectives: int, seed: int, where: str, population: int, first: int, patience: int
    ) -> None:
        self._cmaes = available("cmaes", where)
        self.batch, self._size, self._first, self._patience = population, population, first, patience
        n_real = len(space.paths)
        steps = [1.0 / space.radices[i] for i in space.moving] + [0.0] * n_real
        bounds = [(step / 2.0, 1.0 - step / 2.0) for step in steps]
        padding = max(0, 2 - len(steps))  # the library wants two axes at least
        self._steps, self._bounds = np.array(steps + [0.0] * padding), np.array(bounds + [(0.0, 1.0)] * padding)
        self._space, self._n, self._random = space, len(steps), np.random.default_rng(seed)
        self._optimizer: Any = None
        self._asked: list[np.ndarray] = []
        self._told: list[tuple[np.ndarray, float, float]] = []
        self._best, self._waited = (math.inf, math.inf), 0

    def ask(self) -> np.ndarray:
        """A batch of samples; a population may take several batches."""
        if self._optimizer is None:
            drawn = self._random.random((self.batch, spaces.n_spread(self._space))).astype(np.float32)
            shown = np.asarray(_placed(self._space, drawn), float)
            middle = np.full((self.batch, len(self._steps) - self._n), 0.5)
            self._asked = list(np.clip(np.concatenate([shown, middle], axis=1), *self._bounds.T))
            return shown
        waiting = [self._optimizer.ask() for _ in range(self.batch)]
        self._asked = [own for _, own in waiting]
        return np.stack([shown for shown, _ in waiting])[:, : self._n]

    def tell(self, objectives: np.ndarray, violation: np.ndarray, value: np.ndarray) -> None:
        """Learn from ranks (violation, then value), when a population is complete."""
        self._told += zip(self._asked, violation.tolist(), value.tolist(), strict=True)
        if len(self._told) < (self._first if self._optimizer is None else self._size):
            return
        ranked = np.lexsort(([v for _, _, v in self._told], [v for _, v, _ in self._told]))
        at, *best = self._told[ranked[0]]
        if self._optimizer is None:
            self._begin(at)
            self._best, self._waited = tuple(best), 0
        else:
            rank = np.empty(self._size)
            rank[ranked] = np.arange(self._size)
            self._optimizer.tell([(told, float(r)) for (told, _, _), r in zip(self._told, rank, strict=True)])
            won = tuple(best) < self._best
            self._best, self._waited = min(tuple(best), self._best), 0 if won else self._waited + 1
            if self._waited >= self._patience or self._optimizer.should_stop():
                self._size, self._optimizer = self._size * _GROWTH, None
        self._told = []

    def _begin(self, mean: np.ndarray) -> None:
        self._optimizer = self._cmaes.CMAwM(
            mean=mean, sigma=_FIRST_WIDTH, bounds=self._bounds, steps=self._steps, population_size=self._size,
            seed=int(self._random.integers(1 << 31)),
        )  # fmt: skip


class NonDominatedSorting:
    """NSGA-II (Deb et al. 2002) of pymoo."""

    def __init__(self, space: Space, n_objectives: int, seed: int, where: str, population: int) -> None:
        available("pymoo", where)
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination

        self.batch = population
        self._problem = Problem(n_var=max(space.n_cube, 1), n_obj=n_objectives, n_ieq_constr=1, xl=0.0, xu=1.0)
        self._algorithm = NSGA2(pop_size=population, eliminate_duplicates=False)
        self._algorithm.setup(self._problem, termination=NoTermination(), seed=seed, verbose=False)
        self._n = space.n_cube
        self._asked: Any = None  # a population of pymoo

    def ask(self) -> np.ndarray:
        """The next generation."""
        self._asked = self._algorithm.ask()
        return self._asked.get("X")[:, : self._n]

    def tell(self, objectives: np.ndarray, violation: np.ndarray, value: np.ndarray) -> None:
        """Objectives, and the violation as the one constraint."""
        from pymoo.core.evaluator import Evaluator
        from pymoo.problems.static import StaticProblem

        static = StaticProblem(self._problem, F=objectives.astype(float), G=violation.astype(float)[:, None])
        Evaluator().eval(static, self._asked)
        self._algorithm.tell(infills=self._asked)


SOBOL = Method("sobol", "Sobol's sequence, shifted for each seed", Sobol, external=True)
CMAES = Method("cmaes", "CMA-ES with margin, restarted with a larger population", CovarianceAdaptation, external=True)
NSGA2 = Method("nsga2", "NSGA-II of pymoo, for several objectives", NonDominatedSorting, external=True)
