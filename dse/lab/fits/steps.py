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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from dse.designs import replace
from dse.errors import InputError
from dse.io import counted
from dse.lab.fits import experts, residuals
from dse.lab.fits.fit import MAX_SPREAD_RATIO, FitProblem, folds, posterior
from dse.lab.fits.step_priors import (
    FAMILY_SPREADS,
    LINEAGE_SPREADS,
    NAMES,
    NOT_FITTED,
    PARAMETERS,
    fitted_as,
    lineage_of,
    prior_of,
    published,
    stack_parameters,
)
from dse.lab.fits.step_rows import StepModel, StepRows, rows_of
from dse.measured import Lookup, predict_cases, read_cases
from dse.measured.comparison import compare_predictions
from dse.types import Software

#: Relative size of an error against which priors are weighted, and above which the loss is linear.
NOISE, DELTA = 0.02, 0.05


@dataclasses.dataclass(frozen=True)
class StackSolution:
    """Fitted values in prior spreads, with their posterior."""

    columns: list[tuple[str, str]]  #: (stack, lineage, family, or "" for shared; name)
    z: np.ndarray
    spread: np.ndarray  #: posterior over prior standard deviation of each ``z``
    conditional_spread: np.ndarray  #: with all other values fixed; smaller, since values can compensate each other
    errors: np.ndarray  #: log(predicted / measured) of every row
    families: dict[str, str]  #: stack → family of its chips

    def z_of(self, stack: str, name: str) -> float:
        """Return ``z`` of a stack's parameter: the sum of published, shared, chips', lineage's and own values."""
        parts = {(group, name) for group in ("", self.families.get(stack, ""), lineage_of(stack), fitted_as(stack))}
        shifts = (z for column, z in zip(self.columns, self.z, strict=True) if column in parts)
        return float(published(stack)[NAMES.index(name)] + sum(shifts))

    def value(self, stack: str, name: str) -> float:
        """Return the parameter of a stack in SI units, from shared values for one without rows."""
        return float(PARAMETERS[NAMES.index(name)].value(self.z_of(stack, name)))

    def values(self, stack: str) -> dict[str, float]:
        """Return name → value in SI units of every parameter of a stack."""
        return {name: self.value(stack, name) for name in NAMES}

    def spread_of(self, stack: str, name: str, conditional: bool = False) -> float:
        """Return the posterior standard deviation of the logarithm of a stack's value, of the narrowest group with it.

        ``conditional``: with all other values fixed; independent samples of these are closest to the posterior (the
        mean-field approximation; Bishop, *Pattern Recognition and Machine Learning*, section 10.1.2).
        """
        candidates = [(fitted_as(stack), name), (lineage_of(stack), name), ("", name)]
        column = next(candidate for candidate in candidates if candidate in self.columns)
        spread = self.conditional_spread if conditional else self.spread
        return float(spread[self.columns.index(column)] * prior_of(*column) * self._slope(stack, name))

    def _slope(self, stack: str, name: str) -> float:
        """Return the change of the logarithm of a stack's value per unit of ``z``."""
        return abs(PARAMETERS[NAMES.index(name)].slope(self.z_of(stack, name)))

    def deviations(self, rows: StepRows) -> np.ndarray:
        """Return the standard deviation of log step times over the spread of stacks' values, to first order [row]."""
        z = np.array([[self.z_of(stack, name) for name in NAMES] for stack in rows.stacks])
        slopes = StepModel(rows, PARAMETERS, (), ()).slopes(z)
        units = {
            stack: [self.spread_of(stack, name, True) / self._slope(stack, name) for name in NAMES]
            for stack in set(rows.stacks)
        }
        return np.sqrt(np.sum((slopes * np.array([units[s] for s in rows.stacks])) ** 2, axis=1))

    def narrowing(self, stack: str, name: str) -> float:
        """Return the ratio of posterior to prior spread of a stack's own deviation, 1 without one."""
        stack_column = (fitted_as(stack), name)
        return next((s for c, s in zip(self.columns, self.spread, strict=True) if c == stack_column), 1.0)


def columns_of(rows: StepRows, stack_names: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return the columns of the fit: (stack, lineage, family, or "" for shared; name).

    Args:
        rows: measured steps.
        stack_names: stack → names of its own parameters.
    """
    lineages = {lineage_of(fitted_as(stack)) for stack in rows.stacks} - {""}
    groups: dict[str, Iterable[str]] = {"": NAMES} | dict.fromkeys(sorted(set(rows.families)), FAMILY_SPREADS)
    groups |= dict.fromkeys(sorted(lineages), LINEAGE_SPREADS) | dict(sorted(stack_names.items()))
    return [(group, name) for group, names in groups.items() for name in names]


def problem_of(rows: StepRows, columns: Sequence[tuple[str, str]], weights: np.ndarray) -> FitProblem:
    """Return the fit problem of shared and own values to the rows.

    Args:
        rows: measured steps.
        columns: as :func:`columns_of` returns them.
        weights: of the rows.
    """
    stacks = np.array([fitted_as(stack) for stack in rows.stacks])
    lineages = np.array([lineage_of(stack) for stack in stacks])
    rows_by_column = [
        (group == "") | (rows.families == group) | (lineages == group) | (stacks == group) for group, _ in columns
    ]
    published_shifts = np.array([published(stack) for stack in rows.stacks])
    model = StepModel(rows, PARAMETERS, [NAMES.index(name) for _, name in columns], rows_by_column, published_shifts)
    return model.problem(weights, NOISE, DELTA, np.array([prior_of(*column) for column in columns]))


def solve(
    rows: StepRows, stack_names: dict[str, list[str]], weights: np.ndarray, start: np.ndarray | None = None
) -> StackSolution:
    """Fit shared and own values to the rows of positive weight; return them with their posterior.

    Args:
        rows: measured steps.
        stack_names: stack → names of its own parameters.
        weights: of the rows.
        start: first ``z``, by default the priors.
    """
    columns = columns_of(rows, stack_names)
    problem = problem_of(rows, columns, weights)
    minimum = problem.solve(start=start)
    chips = dict(zip(rows.stacks, rows.families, strict=True))
    spreads, conditional_spreads = posterior(minimum.curvature), np.diag(minimum.curvature) ** -0.5
    return StackSolution(
        columns, minimum.z, spreads / problem.prior, conditional_spreads / problem.prior, minimum.errors, chips
    )


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fit of all stacks, with errors of seen and unseen rows."""

    rows: StepRows
    parameters_by_stack: dict[str, list[str]]
    solution: StackSolution
    unseen: np.ndarray  #: log errors, each row by a fit without the rows of its configuration
    foreign: np.ndarray  #: the same by a fit without the rows of its source, by shared values for stacks without rows
    fold: np.ndarray  #: fold of each row in ``unseen``
    experts: experts.ExpertCalibration | None = None  #: values of expert layers, where rows have experts

    @property
    def stacks(self) -> list[str]:
        """Stacks with measured rows, sorted."""
        return sorted(set(self.rows.stacks))

    def values(self, stack: str, family: str = "") -> dict[str, float]:
        """Return name → value of all parameters of a stack, without rows those shared by its lineage and ``family``."""
        families = {stack: family} | self.solution.families
        return dataclasses.replace(self.solution, families=families).values(stack)

    @functools.cached_property
    def deviations(self) -> np.ndarray:
        """Standard deviation of log step times [row]: see :meth:`StackSolution.deviations`."""
        return self.solution.deviations(self.rows)

    def residual(self, stack: str, row_mask: np.ndarray | None = None) -> float:
        """Return the residual (deviation of the logarithm) of a stack by its unseen rows in a mask, by default all."""
        row_mask = np.ones(len(self.fold), bool) if row_mask is None else row_mask
        sources, trust = self.rows.sources[row_mask], self.rows.trust[row_mask]
        members = np.array([fitted_as(other) == fitted_as(stack) for other in self.rows.stacks[row_mask]])
        if not members.any():
            return residuals.unmeasured_residual(sources, self.foreign[row_mask], self.deviations[row_mask], trust)
        return residuals.class_residual(members, sources, self.unseen[row_mask], self.deviations[row_mask], trust)

    def _residuals_by_others(self, labels: np.ndarray, stacks: np.ndarray) -> np.ndarray:
        """Return the residual of the stack of each row by the rows of other labels [row]."""
        row_residuals = np.zeros(len(labels))
        for label, stack in set(zip(labels, stacks, strict=True)):
            row_residuals[(labels == label) & (stacks == stack)] = self.residual(stack, labels != label)
        return row_residuals

    @functools.cached_property
    def residuals(self) -> np.ndarray:
        """Residual of each row's stack by the rows of the other folds [row]."""
        return self._residuals_by_others(self.fold, self.rows.stacks)

    @functools.cached_property
    def foreign_residuals(self) -> np.ndarray:
        """Residual of a stack without rows, by the sources other than that of the row [row]."""
        return self._residuals_by_others(self.rows.sources, np.full(len(self.foreign), ""))

    def informed_parameters(self, stack: str) -> list[str]:
        """Return the names of the stack's own parameters whose posterior spread is well below their prior."""
        return [
            name
            for name in self.parameters_by_stack.get(fitted_as(stack), [])
            if self.solution.narrowing(stack, name) < MAX_SPREAD_RATIO
        ]


def calibrate(
    paths: Sequence[str | Path], k: int = 5, rounds: int = 2, progress: Callable[[str], None] = print
) -> Calibration:
    """Fit every stack to the timed rows of the tables, and return the fit with errors of unseen rows.

    Completed values of rows depend on the fit (a fastest micro-batch, for example), so designs are chosen again with
    the result, ``rounds`` times in total. Then follow ``k`` folds by configuration, and one fit without each source.

    Args:
        paths: tables of measured steps.
        k: count of folds.
        rounds: count of fits, each with designs chosen by the one before.
        progress: called with lines on the progress.
    """
    cases = [case for path in paths for case in read_cases(path)]
    lookup = Lookup()
    start = None
    for number in range(rounds):
        rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.kernel_families)
        check_enough(rows, k)
        stack_names = {
            stack: stack_parameters(lookup.software(stack)) for stack in sorted(set(map(fitted_as, rows.stacks)))
        }
        solution = solve(rows, stack_names, rows.weights, start)
        start = solution.z
        progress(
            f"round {number + 1}: {counted(len(rows.measured), 'row')}, mean error {mean_error(solution.errors):.2%}"
        )
        lookup = fitted_lookup(lookup, solution)
    fold_of_row = folds(rows.groups, k)
    problem = problem_of(rows, solution.columns, rows.weights)
    unseen, foreign = (problem.cross_validate(list(labels), solution.z) for labels in (fold_of_row, rows.sources))
    return Calibration(rows, stack_names, solution, unseen, foreign, fold_of_row, experts.calibrate(cases, lookup, k))


def check_enough(rows: StepRows, k: int) -> None:
    """Check that the rows suffice for cross-validation.

    Raises:
        InputError: for rows of one fold.
    """
    if len(set(folds(rows.groups, k))) < 2:
        raise InputError(
            "calibrate",
            f"predicted step times of {counted(len(set(rows.groups)), 'configuration')}",
            "several configurations: models, mappings or numbers of devices",
            "add rows; dse validate lists skipped rows",
        )


def fitted_lookup(lookup: Lookup, solution: StackSolution) -> Lookup:
    """Return a look-up whose stacks have the fitted values, but for those that are not fitted."""

    def fitted(stack: str) -> Software:
        return replace(lookup.software(stack), {} if stack in NOT_FITTED else solution.values(stack))

    return Lookup(software=fitted)


def mean_error(errors: np.ndarray) -> float:
    """Return the mean of |predicted / measured - 1| from log errors."""
    return float(np.mean(np.abs(np.expm1(errors))))
