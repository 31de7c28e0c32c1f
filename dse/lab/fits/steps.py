r"""Calibration of software stacks to measured training steps, few parameters per stack.

A stack is software, an era and a cluster; all stacks have the same kinds of parameters. Each is drawn around a value
shared within its lineage (its code base), shifted by a value shared by the stacks on its family of chips, and these
around one shared by all; the shared ones are fitted too, and serve stacks without measurements (a hierarchical prior;
Gelman et al., *Bayesian Data Analysis*, chapter 5): in prior spreads, ``z = known + shared + family + lineage + own``
with ``known`` from publications on the kernels of a stack, and

.. math:: \sum_i w_i \rho\Big(\frac{\log \hat T_i / T_i}{\sigma}\Big) + \frac12 \sum_j z_j^2
   + \frac12 \sum_{s,j} \Big(\frac{z_{s,j}}{r_j}\Big)^2

with the robust ``rho`` of :mod:`dse.lab.fits.fit`. All rows of all stacks are fitted together, on the designs chosen
for them, with derivatives of ``evaluate``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dse.designs.leaves import replace
from dse.errors import InputError
from dse.io.quantities import counted
from dse.lab.fits import experts, residuals
from dse.lab.fits.fit import MOVED, FitProblem, folds, posterior
from dse.lab.fits.step_priors import (
    FAMILY,
    LINEAGE,
    NAMES,
    NOT_FITTED,
    PARAMETERS,
    fitted_as,
    lineage_of,
    own_names,
    prior_of,
    published,
)
from dse.lab.fits.step_rows import StepModel, StepRows, rows_of
from dse.measured import Lookup, predict_cases, read_cases
from dse.measured.comparison import compare_predictions
from dse.types import Software

#: Relative size of an error against which priors are weighted, and above which the loss is linear.
NOISE, DELTA = 0.02, 0.05


@dataclasses.dataclass(frozen=True)
class Solution:
    """Fitted values in prior spreads, with their posterior."""

    columns: list[tuple[str, str]]  #: (stack, lineage, family, or "" for shared; name)
    z: np.ndarray
    spread: np.ndarray  #: posterior over prior standard deviation of each ``z``
    alone: np.ndarray  #: the same with all other values fixed; smaller, since values can compensate each other
    errors: np.ndarray  #: log(predicted / measured) of every row

    families: dict[str, str]  #: stack → family of its chips

    def at(self, stack: str, name: str) -> float:
        """``z`` of a stack's parameter: published, shared by all, chips and lineage, and own."""
        parts = {(whose, name) for whose in ("", self.families.get(stack, ""), lineage_of(stack), fitted_as(stack))}
        known = published(stack)[NAMES.index(name)]
        return float(known + sum(z for column, z in zip(self.columns, self.z, strict=True) if column in parts))

    def value(self, stack: str, name: str) -> float:
        """The parameter of a stack, from shared values for one without rows."""
        return float(PARAMETERS[NAMES.index(name)].value(self.at(stack, name)))

    def values(self, stack: str) -> dict[str, float]:
        """Every parameter of a stack."""
        return {name: self.value(stack, name) for name in NAMES}

    def spread_of(self, stack: str, name: str) -> float:
        """Posterior standard deviation of the logarithm of a stack's value, or of the shared one."""
        return self._spread_of(stack, name, self.spread)

    def spread_alone(self, stack: str, name: str) -> float:
        """The same with all other values fixed: independent samples of these are closest to the joint posterior.

        (The mean-field approximation; Bishop, *Pattern Recognition and Machine Learning*, section 10.1.2.)
        """
        return self._spread_of(stack, name, self.alone)

    def _spread_of(self, stack: str, name: str, spread: np.ndarray) -> float:
        # That of the narrowest group with the parameter.
        candidates = [(fitted_as(stack), name), (lineage_of(stack), name), ("", name)]
        column = next(candidate for candidate in candidates if candidate in self.columns)
        return float(spread[self.columns.index(column)] * prior_of(*column) * self._slope(stack, name))

    def _slope(self, stack: str, name: str) -> float:
        """Change of the logarithm of a stack's value per unit of ``z``."""
        return abs(PARAMETERS[NAMES.index(name)].slope(self.at(stack, name)))

    def deviations(self, rows: StepRows) -> np.ndarray:
        """Standard deviation of each row's log step time over the spread of its stack's values, to first order."""
        z = np.array([[self.at(stack, name) for name in NAMES] for stack in rows.stacks])
        slopes = StepModel(rows, PARAMETERS, (), ()).slopes(z)
        units = {
            stack: [self.spread_alone(stack, name) / self._slope(stack, name) for name in NAMES]
            for stack in set(rows.stacks)
        }
        return np.sqrt(np.sum((slopes * np.array([units[s] for s in rows.stacks])) ** 2, axis=1))

    def narrowing(self, stack: str, name: str) -> float:
        """Posterior over prior spread of a stack's own deviation, 1 without one."""
        own = (fitted_as(stack), name)
        return next((s for c, s in zip(self.columns, self.spread, strict=True) if c == own), 1.0)


def columns_of(rows: StepRows, own: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Columns of the fit: (stack, lineage, family, or "" for shared; name)."""
    lineages = sorted({lineage_of(fitted_as(stack)) for stack in rows.stacks} - {""})
    groups = [("", NAMES), *((family, FAMILY) for family in sorted(set(rows.families)))]
    groups += [*((lineage, LINEAGE) for lineage in lineages), *((stack, own[stack]) for stack in sorted(own))]
    return [(whose, name) for whose, names in groups for name in names]


def problem_of(
    rows: StepRows, columns: Sequence[tuple[str, str]], weights: np.ndarray, kind: type[StepModel] = StepModel
) -> FitProblem:
    """The fit of shared and own values to the rows."""
    stacks = np.array([fitted_as(stack) for stack in rows.stacks])
    lineages = np.array([lineage_of(stack) for stack in stacks])
    holds = [(whose == "") | (rows.families == whose) | (lineages == whose) | (stacks == whose) for whose, _ in columns]
    known = np.array([published(stack) for stack in rows.stacks])
    model = kind(rows, PARAMETERS, [NAMES.index(name) for _, name in columns], holds, known)
    return model.problem(weights, NOISE, DELTA, np.array([prior_of(*column) for column in columns]))


def solve(rows: StepRows, own: dict[str, list[str]], weights: np.ndarray, start: np.ndarray | None = None) -> Solution:
    """Optimal shared and own values for the rows of positive weight."""
    columns = columns_of(rows, own)
    problem = problem_of(rows, columns, weights)
    found = problem.solve(start=start)
    chips = dict(zip(rows.stacks, rows.families, strict=True))
    after, alone = posterior(found.curvature), np.diag(found.curvature) ** -0.5
    return Solution(columns, found.z, after / problem.prior, alone / problem.prior, found.errors, chips)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fit of all stacks, with errors of seen and unseen rows."""

    rows: StepRows
    own: dict[str, list[str]]
    solution: Solution
    unseen: np.ndarray  #: log errors, each row by a fit without the rows of its configuration
    foreign: np.ndarray  #: the same by a fit without the rows of its source, by shared values for stacks without rows
    fold: np.ndarray  #: fold of each row in ``unseen``
    experts: experts.Found | None = None  #: values of expert layers, where rows have experts

    @property
    def stacks(self) -> list[str]:
        """Stacks with measured rows."""
        return sorted(set(self.rows.stacks))

    def values(self, stack: str, family: str = "") -> dict[str, float]:
        """All parameters of a stack; without rows those shared by its lineage and by stacks on ``family``."""
        known = {stack: family} | self.solution.families
        return dataclasses.replace(self.solution, families=known).values(stack)

    @functools.cached_property
    def deviations(self) -> np.ndarray:
        """See :meth:`Solution.deviations`."""
        return self.solution.deviations(self.rows)

    def residual(self, stack: str, among: np.ndarray | None = None) -> float:
        """Residual of a stack by its unseen rows (those marked by ``among``, by default all)."""
        among = np.ones(len(self.fold), bool) if among is None else among
        known = (self.rows.sources[among], self.rows.trust[among])
        members = np.array([fitted_as(other) == fitted_as(stack) for other in self.rows.stacks[among]])
        if not members.any():
            return residuals.of_unmeasured(known[0], self.foreign[among], self.deviations[among], known[1])
        return residuals.of_class(members, known[0], self.unseen[among], self.deviations[among], known[1])

    @functools.cached_property
    def residuals(self) -> np.ndarray:
        """Residual of each row's stack by the rows of the other folds."""
        found = np.zeros(len(self.fold))
        for fold in set(self.fold):
            by_stack = {stack: self.residual(stack, self.fold != fold) for stack in set(self.rows.stacks)}
            part = self.fold == fold
            found[part] = [by_stack[stack] for stack in self.rows.stacks[part]]
        return found

    @functools.cached_property
    def foreign_residuals(self) -> np.ndarray:
        """Residual of a stack without rows by the other sources, for the rows of each left-out source."""
        found, sources = np.zeros(len(self.foreign)), self.rows.sources
        for source in set(sources):
            others = sources != source
            found[~others] = residuals.of_unmeasured(
                sources[others], self.foreign[others], self.deviations[others], self.rows.trust[others]
            )
        return found

    def moved(self, stack: str) -> list[str]:
        """Own parameters whose posterior is well below their prior."""
        return [name for name in self.own.get(fitted_as(stack), []) if self.solution.narrowing(stack, name) < MOVED]


def calibrate(
    paths: Sequence[str | Path], k: int = 5, rounds: int = 2, progress: Callable[[str], None] = print
) -> Calibration:
    """Fit every stack to the timed rows of the tables.

    Completed values of rows depend on the fit (a fastest micro-batch, for example), so designs are chosen again with
    the result, ``rounds`` times in total. Then follow ``k`` folds by configuration, and one fit without each source.
    """
    cases = [case for path in paths for case in read_cases(path)]
    lookup = Lookup()
    start = None
    for number in range(rounds):
        rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.chips)
        check_enough(rows, k)
        own = {stack: own_names(lookup.software(stack)) for stack in sorted(set(map(fitted_as, rows.stacks)))}
        solution = solve(rows, own, rows.weights, start)
        start = solution.z
        every = counted(len(rows.measured), "row")
        progress(f"round {number + 1}: {every}, mean error {mean_error(solution.errors):.2%}")
        lookup = fitted_lookup(lookup, solution)
    folded = folds(rows.groups, k)
    problem = problem_of(rows, solution.columns, rows.weights)
    unseen, foreign = (problem.held_out(list(labels), solution.z) for labels in (folded, rows.sources))
    return Calibration(rows, own, solution, unseen, foreign, folded, experts.calibrate(cases, lookup, k))


def check_enough(rows: StepRows, k: int) -> None:
    """Checks that the rows suffice for cross-validation; InputError otherwise."""
    if len(set(folds(rows.groups, k))) < 2:
        raise InputError(
            "calibrate",
            f"predicted step times of {counted(len(set(rows.groups)), 'configuration')}",
            "several configurations: models, mappings or numbers of devices",
            "add rows; dse validate lists skipped rows",
        )


def fitted_lookup(lookup: Lookup, solution: Solution) -> Lookup:
    """A look-up whose stacks have the fitted values."""

    def fitted(stack: str) -> Software:
        before = lookup.software(stack)
        if stack in NOT_FITTED:
            return before
        return replace(before, solution.values(stack))

    return Lookup(software=fitted)


def mean_error(errors: np.ndarray) -> float:
    """Mean of |predicted / measured - 1|."""
    return float(np.mean(np.abs(np.expm1(errors))))
