"""Methods of other libraries, which ask and tell on the host: NSGA-II.

They see the unit cube. A method is rebuilt after an interruption by replaying its asks and tells: its generator is
seeded, so no library's state has to be stored.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from dse.errors import InputError
from dse.io import install_extra
from dse.optimizers.methods.base import Method
from dse.optimizers.space import Space


class AskTell(Protocol):
    """A searcher of one seed on the host, whose step is one ``ask`` and one ``tell``."""

    batch: int  #: evaluations of a step

    def ask(self) -> np.ndarray:
        """Return positions [batch, axis] in the unit cube."""

    def tell(self, objectives: np.ndarray, violation: np.ndarray, value: np.ndarray) -> None:
        """Take minimised objectives [batch, objective], violation [batch] and value [batch] of the last positions."""


def available(name: str, where: str) -> ModuleType:
    """Return the module of an optional library by name, or raise InputError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        fix = install_extra("search")
        raise InputError(
            where, f"a method that needs {name}, which is not installed", "methods that do not need it", fix
        ) from None


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
        """Return the next generation as positions [member, axis] in the unit cube."""
        self._asked = self._algorithm.ask()
        return self._asked.get("X")[:, : self._n]

    def tell(self, objectives: np.ndarray, violation: np.ndarray, value: np.ndarray) -> None:
        """Take minimised objectives, with the violation as the one constraint; ``value`` is not used."""
        from pymoo.core.evaluator import Evaluator
        from pymoo.problems.static import StaticProblem

        static = StaticProblem(self._problem, F=objectives.astype(float), G=violation.astype(float)[:, None])
        Evaluator().eval(static, self._asked)
        self._algorithm.tell(infills=self._asked)


NSGA2 = Method("nsga2", "NSGA-II of pymoo, for several objectives", NonDominatedSorting, external=True)
