r"""The job on steps: the few numbers of each software stack, from measured training steps.

A stack is software, an era and a cluster. All stacks have the same kinds of numbers. Each is drawn around a value
that stacks of its lineage share (the code base it descends from), moved by what stacks on its family of chips share,
and these around one of all; they are fitted too and are what a stack without measurements gets (a hierarchical prior;
Gelman et al., *Bayesian Data Analysis*, chapter 5): in prior spreads, ``z = known + shared + family + lineage + own``,
of which ``known`` is what is published of the kernels that a stack calls, with

.. math:: \sum_i w_i \rho\Big(\frac{\log \hat T_i / T_i}{\sigma}\Big) + \frac12 \sum_j z_j^2
   + \frac12 \sum_{s,j} \Big(\frac{z_{s,j}}{r_j}\Big)^2

and the robust ``rho`` of :mod:`dse.calibrate.fit`. Every row of every stack takes part at once, on the design that
was chosen for it, with derivatives of ``evaluate``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dse.calibrate import experts, residuals
from dse.calibrate.fit import MOVED, folds, gauss_newton, held_out, posterior
from dse.calibrate.step_priors import (
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
from dse.calibrate.step_rows import Rows, log_step_times, rows_of, slopes_of
from dse.designs.leaves import replace
from dse.errors import InputError
from dse.io.quantities import counted
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import compare_predictions
from dse.measured.names import Lookup
from dse.types import Software

#: Relative size of an error that the priors are weighed against, and from which it counts linearly.
NOISE, DELTA = 0.02, 0.05


@dataclasses.dataclass(frozen=True)
class Solution:
    """Fitted values in prior spreads, with how much of them the data said."""

    columns: list[tuple[str, str]]  #: (stack, lineage, family, or "" for shared; name)
    z: np.ndarray
    spread: np.ndarray  #: standard deviation of each ``z`` after the data over that before
    alone: np.ndarray  #: the same where all other values stay: less, because they can stand in for one another
    errors: np.ndarray  #: log(predicted / measured) of every row

    families: dict[str, str]  #: stack → family of its chips

    def at(self, stack: str, name: str) -> float:
        """``z`` of a stack's parameter: what is published, what all, its chips and its lineage share, and its own."""
        parts = {(whose, name) for whose in ("", self.families.get(stack, ""), lineage_of(stack), fitted_as(stack))}
        known = published(stack)[NAMES.index(name)]
        return float(known + sum(z for column, z in zip(self.columns, self.z, strict=True) if column in parts))

    def value(self, stack: str, name: str) -> float:
        """The parameter of a stack; one without rows has nothing of its own."""
        return float(PARAMETERS[NAMES.index(name)].value(self.at(stack, name)))

    def values(self, stack: str) -> dict[str, float]:
        """Every parameter of a stack."""
        return {name: self.value(stack, name) for name in NAMES}

    def spread_of(self, stack: str, name: str) -> float:
        """Standard deviation of the logarithm of a stack's value after the data; of the shared one if it has none."""
        return self._spread_of(stack, name, self.spread)

    def spread_alone(self, stack: str, name: str) -> float:
        """The same where all other values stay: independent draws of these are nearest to the joint posterior.

        (The mean-field approximation; Bishop, *Pattern Recognition and Machine Learning*, section 10.1.2.)
        """
        return self._spread_of(stack, name, self.alone)

    def _spread_of(self, stack: str, name: str, spread: np.ndarray) -> float:
        # Of the narrowest group that has the parameter.
        candidates = [(fitted_as(stack), name), (lineage_of(stack), name), ("", name)]
        column = next(candidate for candidate in candidates if candidate in self.columns)
        return float(spread[self.columns.index(column)] * prior_of(*column) * self._slope(stack, name))

    def _slope(self, stack: str, name: str) -> float:
        """Change of the logarithm of a stack's value for one unit of ``z``."""
        return abs(PARAMETERS[NAMES.index(name)].slope(self.at(stack, name)))

    def deviations(self, rows: Rows) -> np.ndarray:
        """Standard deviation of each row's log step time over the spread of its stack's values, to first order."""
        z = np.array([[self.at(stack, name) for name in NAMES] for stack in rows.stacks], np.float32)
        slopes = slopes_of(rows, z)
        units = {stack: [self.spread_alone(stack, name) / self._slope(stack, name) for name in NAMES]
                 for stack in set(rows.stacks)}  # fmt: skip
        return np.sqrt(np.sum((slopes * np.array([units[s] for s in rows.stacks])) ** 2, axis=1))

    def narrowing(self, stack: str, name: str) -> float:
        """Posterior over prior spread of a stack's own deviation, 1 where it has none."""
        own = (fitted_as(stack), name)
        return next((s for c, s in zip(self.columns, self.spread, strict=True) if c == own), 1.0)


def solve(
    rows: Rows, own: dict[str, list[str]], weights: np.ndarray, start: np.ndarray | None = None
) -> Solution:
    """The most probable shared and own values given the rows of positive weight."""
    kinds = sorted(set(rows.families))
    columns = [("", name) for name in NAMES] + [(family, name) for family in kinds for name in FAMILY]
    stacks = np.array([fitted_as(stack) for stack in rows.stacks])
    lineages = np.array([lineage_of(stack) for stack in stacks])
    columns += [(lineage, name) for lineage in sorted(set(lineages) - {""}) for name in LINEAGE]
    columns += [(stack, name) for stack in sorted(own) for name in own[stack]]
    prior = np.array([prior_of(*column) for column in columns])
    # Which ``z`` of which row a column moves.
    moves = np.zeros((len(columns), len(rows.measured), len(NAMES)))
    for index, (whose, name) in enumerate(columns):
        held = (whose == "") | (rows.families == whose) | (lineages == whose) | (stacks == whose)
        moves[index, held, NAMES.index(name)] = 1.0

    known = np.array([published(stack) for stack in rows.stacks])

    def by_row(x: np.ndarray) -> np.ndarray:
        return (known + np.einsum("c,crp->rp", x, moves)).astype(np.float32)

    def residuals(x: np.ndarray) -> np.ndarray:
        return log_step_times(rows, by_row(x)) - rows.measured

    def slopes(x: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.einsum("rp,crp->rc", slopes_of(rows, by_row(x)), moves)

    first = np.zeros(len(columns)) if start is None else start
    found = gauss_newton(residuals, slopes, first, weights, noise=NOISE, delta=DELTA, prior=prior)
    chips = dict(zip(rows.stacks, rows.families, strict=True))
    after, alone = posterior(found.curvature), np.diag(found.curvature) ** -0.5
    return Solution(columns, found.z, after / prior, alone / prior, found.errors, chips)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fit of all stacks, its errors row by row, and those of rows it had not seen."""

    rows: Rows
    own: dict[str, list[str]]
    solution: Solution
    unseen: np.ndarray  #: log errors, each row by a fit without any row of its configuration
    foreign: np.ndarray  #: the same by a fit without any row of its source, by shared values where no stack is left
    fold: np.ndarray  #: of each row among those of ``unseen``
    experts: experts.Found | None = None  #: what stacks' mixtures of experts cost, where rows tell of them

    @property
    def stacks(self) -> list[str]:
        """Stacks that rows were measured of."""
        return sorted(set(self.rows.stacks))

    def values(self, stack: str, family: str = "") -> dict[str, float]:
        """Every parameter of a stack; one without rows gets what its lineage and what stacks on ``family`` share."""
        known = {stack: family} | self.solution.families
        return dataclasses.replace(self.solution, families=known).values(stack)

    @functools.cached_property
    def deviations(self) -> np.ndarray:
        """See :meth:`Solution.deviations`."""
        return self.solution.deviations(self.rows)

    def residual(self, stack: str, among: np.ndarray | None = None) -> float:
        """What a stack's values leave unexplained, by its unseen rows (those ``among`` marks; all by default)."""
        among = np.ones(len(self.fold), bool) if among is None else among
        known = (self.rows.sources[among], self.rows.trust[among])
        members = np.array([fitted_as(other) == fitted_as(stack) for other in self.rows.stacks[among]])
        if not members.any():
            return residuals.of_unmeasured(known[0], self.foreign[among], self.deviations[among], known[1])
        return residuals.of_class(members, known[0], self.unseen[among], self.deviations[among], known[1])

    @functools.cached_property
    def residuals(self) -> np.ndarray:
        """The residual of each row's stack by the rows of the other folds."""
        found = np.zeros(len(self.fold))
        for fold in set(self.fold):
            by_stack = {stack: self.residual(stack, self.fold != fold) for stack in set(self.rows.stacks)}
            part = self.fold == fold
            found[part] = [by_stack[stack] for stack in self.rows.stacks[part]]
        return found

    @functools.cached_property
    def foreign_residuals(self) -> np.ndarray:
        """The residual of a stack without rows by the other sources, for the rows of each source left out."""
        found, sources = np.zeros(len(self.foreign)), self.rows.sources
        for source in set(sources):
            others = sources != source
            found[~others] = residuals.of_unmeasured(
                sources[others], self.foreign[others], self.deviations[others], self.rows.trust[others]
            )
        return found

    def moved(self, stack: str) -> list[str]:
        """Own parameters that the data narrowed well below their prior."""
        return [name for name in self.own.get(fitted_as(stack), []) if self.solution.narrowing(stack, name) < MOVED]


def calibrate(
    paths: Sequence[str | Path], k: int = 5, rounds: int = 2, progress: Callable[[str], None] = print
) -> Calibration:
    """Fits every stack to the timed rows of the tables.

    What rows leave open depends on the values (a fastest micro-batch, say), so designs are chosen again with
    what was found, ``rounds`` times in all. Then come ``k`` folds by configuration, and one fit without each source.
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
        progress(f"round {number + 1}: {len(rows.measured)} rows, mean error {mean_error(solution.errors):.2%}")
        lookup = _with(lookup, solution)
    folded = folds(rows.groups, k)
    unseen = _held_out(rows, own, solution, [folded == fold for fold in range(k)])
    foreign = _held_out(rows, own, solution, [rows.sources == source for source in sorted(set(rows.sources))])
    return Calibration(rows, own, solution, unseen, foreign, folded, experts.calibrate(cases, lookup, k))


def check_enough(rows: Rows, k: int) -> None:
    """That the rows can be divided: errors are those of folds that a fit has not seen."""
    if len(set(folds(rows.groups, k))) < 2:
        raise InputError(
            "calibrate", f"predicted step times of {counted(len(set(rows.groups)), 'configuration')}",
            "several configurations: models, mappings or numbers of devices",
            "add rows; dse validate tells which are skipped",
        )  # fmt: skip


def _with(lookup: Lookup, solution: Solution) -> Lookup:
    """A look-up whose stacks have the fitted values."""

    def fitted(stack: str) -> Software:
        before = lookup.software(stack)
        if stack in NOT_FITTED:
            return before
        return replace(before, solution.values(stack))

    return Lookup(software=fitted)


def _held_out(rows: Rows, own: dict[str, list[str]], solution: Solution, parts: list[np.ndarray]) -> np.ndarray:
    """Errors of each part by a fit without it."""
    return held_out(parts, lambda part: solve(rows, own, rows.weights * ~part, solution.z).errors)


def mean_error(errors: np.ndarray) -> float:
    """Mean of |predicted / measured - 1|."""
    return float(np.mean(np.abs(np.expm1(errors))))
