r"""Calibration of stacks and chips to measured training steps, of dense models and of mixtures of experts at once.

A value belongs to what decides it: the rate of products that a chip sustains, by format, to the chip; element-wise
kernels, host and links to a code base; products and attention to a stack; experts to all stacks. Each value is drawn
around that of the wider group (a hierarchical prior; Gelman et al., *Bayesian Data Analysis*, chapter 5): in prior
spreads ``z`` is the sum over the groups that a row is in (shared, family, chip, code base, stack, releases), attention
times what publications on the kernels of a stack say, and

.. math:: \sum_i w_i \rho\Big(\frac{\log \hat T_i / T_i}{\sigma}\Big)
   + \frac12 \sum_c \Big(\frac{z_c - m_c}{r_c}\Big)^2

with the robust ``rho`` of :mod:`dse.lab.fits.fit`. A release is a step from the one before, by its prior a faster one.
All rows are fitted together, on the designs chosen for them, with finite differences of ``evaluate``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.designs import catalog, leaf
from dse.errors import InputError
from dse.io import counted
from dse.lab.fits import residuals
from dse.lab.fits.fit import MAX_SPREAD_RATIO, FitProblem, cross_validation_errors, folds, posterior
from dse.lab.fits.step_priors import (
    ALL_NAMES,
    CHIP_NAMES,
    EXPERT_NAMES,
    NAMES,
    PARAMETERS,
    SPREADS,
    chip_groups,
    fitted_as,
    groups_of,
    published,
)
from dse.lab.fits.step_rows import StepModel, StepRows, rows_of
from dse.measured import Lookup, predict_cases, read_cases
from dse.measured.comparison import compare_predictions

#: Relative size of an error against which priors are weighted, and above which the loss is linear.
NOISE, DELTA = 0.03, 0.06

#: Fits without a group: most changes of slopes, and move of a value in prior spreads below which slopes stay.
_RESTARTS, _NEAR = 1, 0.5

#: Prior mean of the step of a release, in its prior spreads: newer ones are not slower.
_NEWER = -0.5

_HOST, _FLASH = "software.experts.expert_host_time", "flash_slowdown"


class FitColumn(NamedTuple):
    """One number of the fit: its group, and the parameters that it changes."""

    kind: str  #: of the group: "" for shared, or a key of ``SPREADS``
    label: str
    names: tuple[str, ...]
    prior: float  #: standard deviation in prior spreads

    @property
    def group(self) -> tuple[str, str]:
        """Kind and label of the group."""
        return self.kind, self.label


@dataclasses.dataclass(frozen=True)
class StackSolution:
    """Fitted values in prior spreads, with their posterior."""

    columns: list[FitColumn]
    z: np.ndarray
    spread: np.ndarray  #: posterior over prior standard deviation of each ``z``
    conditional_spread: np.ndarray  #: with all other values fixed; smaller, since values can compensate each other
    errors: np.ndarray  #: log(predicted / measured) of every row
    jacobian: np.ndarray  #: of the errors by ``z`` [row, column]

    def z_of(self, name: str, groups: Sequence[tuple[str, str]]) -> float:
        """Return ``z`` of a parameter: the sum over its columns of some groups (kind, label)."""
        return sum(float(z) for c, z in zip(self.columns, self.z, strict=True) if c.group in groups and name in c.names)

    def value(self, stack: str, name: str) -> float:
        """Return a parameter of a stack in SI units, from its code base or shared values for one without rows."""
        factor = published(stack) if name == _FLASH else 1.0
        return factor * self._value(name, self.z_of(name, groups_of(stack)))

    def values(self, stack: str) -> dict[str, float]:
        """Return name → value in SI units of every parameter of a stack."""
        return {name: self.value(stack, name) for name in NAMES}

    def expert_values(self) -> dict[str, float]:
        """Return name → value in SI units of the parameters of experts."""
        return {name: self.value("", name) for name in EXPERT_NAMES}

    def chip_values(self, family: str = "", chip: str = "") -> dict[str, float]:
        """Return name → share that a chip sustains of the rates of kernels alone, at the power of its family's chip."""
        groups = chip_groups(family, chip)
        return {name: self._value(name, self.z_of(name, groups)) for name in CHIP_NAMES}

    def _value(self, name: str, z: float) -> float:
        return float(PARAMETERS[ALL_NAMES.index(name)].value(z))

    def spread_of(self, stack: str, name: str, conditional: bool = False) -> float:
        """Return the posterior standard deviation of the logarithm of a stack's value, of the narrowest group with it.

        ``conditional``: with all other values fixed; independent samples of these are closest to the posterior (the
        mean-field approximation; Bishop, *Pattern Recognition and Machine Learning*, section 10.1.2).
        """
        groups = groups_of(stack)
        return self._spread(name, groups, self.z_of(name, groups), conditional)

    def chip_spread(self, name: str, family: str = "", chip: str = "", conditional: bool = True) -> float:
        """Return the posterior standard deviation of the logarithm of a chip's share, of its narrowest group."""
        groups = chip_groups(family, chip)
        return self._spread(name, groups, self.z_of(name, groups), conditional)

    def _spread(self, name: str, groups: Sequence[tuple[str, str]], z: float, conditional: bool) -> float:
        """Return the standard deviation of the logarithm of a value in the last of ``groups`` that has a column."""
        spreads = self.conditional_spread if conditional else self.spread
        own = [i for i, c in enumerate(self.columns) if c.group in groups and name in c.names]
        index = max(own, key=lambda i: groups.index(self.columns[i].group))
        slope = abs(PARAMETERS[ALL_NAMES.index(name)].slope(z))
        return float(spreads[index] * self.columns[index].prior * slope)

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviation of log step times over the spread of all values, to first order [row]."""
        scale = self.conditional_spread * np.array([c.prior for c in self.columns])
        return np.sqrt(np.sum((self.jacobian * scale) ** 2, axis=1))

    def narrowing(self, stack: str, name: str) -> float:
        """Return the ratio of posterior to prior spread of a stack's own deviation, 1 without one."""
        group = ("stack", fitted_as(stack))
        own = (s for c, s in zip(self.columns, self.spread, strict=True) if c.group == group and name in c.names)
        return float(next(own, 1.0))


def columns_of(rows: StepRows) -> list[FitColumn]:
    """Return the numbers of a fit to rows: shared ones, then those of every group that rows are in.

    A chip has one number for its products in all formats and for attention: its clock under the power limit.
    """
    has_chips = fits_chips(rows)
    names = ALL_NAMES if has_chips else (*NAMES, *EXPERT_NAMES)
    columns = [FitColumn("", "", (name,), 1.0) for name in names]
    for kind, label in sorted(set().union(*rows.groups_by_row)):
        if kind in ("family", "chip") and not has_chips:
            continue
        if kind == "chip":
            columns.append(FitColumn(kind, label, CHIP_NAMES, SPREADS["chip"][CHIP_NAMES[0]]))
        elif kind and label:
            columns += [FitColumn(kind, label, (name,), spread) for name, spread in SPREADS[kind].items()]
    return columns


def fits_chips(rows: StepRows) -> bool:
    """Return whether rows tell shares of chips from slow-downs of stacks, which multiply: those of two stacks or more.

    Of one stack, as a user's own, the chips keep what the catalogue says.
    """
    return len({fitted_as(str(stack)) for stack in rows.stacks}) > 1


def model_of(rows: StepRows, columns: Sequence[FitColumn]) -> StepModel:
    """Return the leaves of the designs of rows as functions of the columns."""
    members = [np.array([c.group in groups for groups in rows.groups_by_row]) for c in columns]
    factors = np.ones((len(rows.stacks), len(PARAMETERS)))
    factors[:, ALL_NAMES.index(_FLASH)] = [published(str(stack)) for stack in rows.stacks]
    host = ALL_NAMES.index(_HOST.rpartition(".")[2])
    for i, c in enumerate(rows.compared):
        design = c.prediction.chosen
        if design.software.experts is not None:  # 0 with a capacity factor
            factors[i, host] = float(leaf(design, _HOST) > 0.0)
    limits = {chip: catalog.clock_share(str(chip)) for chip in set(rows.chips)}
    has_chips = fits_chips(rows)
    for i in map(ALL_NAMES.index, CHIP_NAMES):
        if has_chips:
            factors[:, i] = [limits[chip] for chip in rows.chips]
        else:
            known = [leaf(c.prediction.chosen, PARAMETERS[i].path) for c in rows.compared]
            factors[:, i] = np.array(known, float) / PARAMETERS[i].value(0.0)
    indices = [tuple(ALL_NAMES.index(name) for name in c.names) for c in columns]
    return StepModel(rows, PARAMETERS, indices, members, factors)


def problem_of(rows: StepRows, columns: Sequence[FitColumn], weights: np.ndarray) -> FitProblem:
    """Return the fit problem of the columns to the rows.

    Args:
        rows: measured steps.
        columns: as :func:`columns_of` returns them.
        weights: of the rows.
    """
    prior = np.array([c.prior for c in columns])
    centre = np.array([_NEWER * c.prior if c.kind == "release" else 0.0 for c in columns])
    return model_of(rows, columns).problem(weights, NOISE, DELTA, prior, centre)


def solve(rows: StepRows, weights: np.ndarray, start: np.ndarray | None = None) -> StackSolution:
    """Fit shared and other values to the rows of positive weight; return them with their posterior.

    Args:
        rows: measured steps.
        weights: of the rows.
        start: first ``z``, by default the priors.
    """
    columns = columns_of(rows)
    problem = problem_of(rows, columns, weights)
    minimum = problem.solve(start=start)
    spreads, conditional_spreads = posterior(minimum.curvature), np.diag(minimum.curvature) ** -0.5
    jacobian = problem.slopes(minimum.z, minimum.errors)
    return StackSolution(
        columns, minimum.z, spreads / problem.prior, conditional_spreads / problem.prior, minimum.errors, jacobian
    )


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fit of all stacks and chips, with errors of seen and unseen rows."""

    rows: StepRows
    solution: StackSolution
    rings: dict[str, np.ndarray]  #: what is left out → log errors of rows by fits without their group, NaN for none
    fold: np.ndarray  #: fold of each row where configurations are left out

    @property
    def stacks(self) -> list[str]:
        """Stacks with measured rows, sorted."""
        return sorted(set(map(str, self.rows.stacks)))

    @property
    def unseen(self) -> np.ndarray:
        """Log errors of rows by fits without their configuration [row]."""
        return self.rings["configuration"]

    @property
    def foreign(self) -> np.ndarray:
        """Log errors of rows by fits without their source [row]."""
        return self.rings["source"]

    @functools.cached_property
    def deviations(self) -> np.ndarray:
        """Standard deviation of log step times [row]: see :attr:`StackSolution.deviations`."""
        return self.solution.deviations

    def values(self, stack: str) -> dict[str, float]:
        """Return name → value of all parameters of a stack, of one without rows those of its code base, else shared."""
        return self.solution.values(stack)

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
        return [name for name in SPREADS["stack"] if self.solution.narrowing(stack, name) < MAX_SPREAD_RATIO]

    def point_errors(self, ring: str, mask: np.ndarray | None = None) -> np.ndarray:
        """Return the relative error of every point of a ring [point], the mean over its repeated measurements.

        Args:
            ring: of ``rings``, or "fit" for the fit itself.
            mask: rows that count, by default all.
        """
        errors = self.solution.errors if ring == "fit" else self.rings[ring]
        counts = np.isfinite(errors) if mask is None else np.isfinite(errors) & mask
        by_point: dict[Hashable, list[float]] = {}
        for i in np.flatnonzero(counts):
            by_point.setdefault((self.rows.points[i], self.rows.sources[i]), []).append(float(np.expm1(errors[i])))
        return np.array([np.mean(group) for group in by_point.values()])


def release_of(source: str) -> str:
    """Return the release of a code base that measured a source, by year and month, "" for a source without one.

    >>> release_of("Megatron-Bridge_26.04.01"), release_of("PaLM")
    ('Megatron-Bridge_26.04', '')
    """
    found = re.match(r"(Megatron-Bridge|NeMo|MLPerf_training)_v?(\d+\.\d+)", source)
    return f"{found[1]}_{found[2]}" if found else ""


def ring_labels(rows: StepRows, k: int) -> dict[str, list[str]]:
    """Return what is left out → the group of each row [row], "" for a row without one: strangers first, folds last.

    Args:
        rows: measured steps.
        k: count of folds by configuration.
    """
    models = [c.prediction.case.row.get("model") for c in rows.compared]
    labels: dict[str, list[str]] = {
        "release": [release_of(source) for source in rows.sources],
        "chip": list(map(str, rows.chips)),
        "model": models,
        "size": _larger_sizes(rows),
        "source": list(map(str, rows.sources)),
    }
    # A group that is all rows leaves nothing to fit.
    ringed = {ring: [label if n < len(group) else "" for label, n in _sized(group)] for ring, group in labels.items()}
    return ringed | {"configuration": [f"fold {fold}" for fold in folds(rows.groups, k)]}


def _larger_sizes(rows: StepRows) -> list[str]:
    """Return a label of the larger half of the sizes of a run, by devices, where a source has three or more [row].

    A run is a model of a source with equal degrees but for replicas.
    """
    runs = [
        (c.source, c.measurement.row.get("model"), *(float(getattr(m, name)) for name in ("tp", "pp", "cp")))
        for c, m in ((c, c.prediction.chosen.mapping) for c in rows.compared)
    ]
    devices = [float(c.prediction.chosen.system.n_devices) for c in rows.compared]
    sizes: dict[Hashable, set[float]] = {}
    for run, count in zip(runs, devices, strict=True):
        sizes.setdefault(run, set()).add(count)
    least = {run: sorted(counts)[len(counts) // 2] if len(counts) > 2 else np.inf for run, counts in sizes.items()}
    return [
        " ".join(map(str, run[:2])) if count >= least[run] else "" for run, count in zip(runs, devices, strict=True)
    ]


def _sized(labels: Sequence[str]) -> list[tuple[str, int]]:
    """Return (label, count of rows with it) of each row."""
    counts = Counter(labels)
    return [(label, counts[label]) for label in labels]


def left_out_errors(problem: FitProblem, solution: StackSolution, labels: Sequence[str]) -> np.ndarray:
    """Return log errors of every row by a fit without its group [row], NaN for rows of no group.

    A fit moves along the slopes at the whole fit, then, where any value moved far, along those at the point reached.

    Args:
        problem: of all rows.
        solution: the whole fit.
        labels: group of each row, "" for none.
    """

    def errors_without(part: np.ndarray) -> np.ndarray:
        z = _moved(problem, ~part, solution.z, solution.errors, solution.jacobian)
        errors = problem.residuals(z)
        for _ in range(_RESTARTS):
            if np.max(np.abs(z - solution.z)) < _NEAR:
                break
            z = _moved(problem, ~part, z, errors, problem.slopes(z, errors))
            errors = problem.residuals(z)
        return errors

    return cross_validation_errors(labels, errors_without)


def _moved(problem: FitProblem, rows: np.ndarray, z: np.ndarray, errors: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return ``z`` of the minimum over the rows of a mask, with errors that are linear about ``z``."""
    linear = dataclasses.replace(
        problem, residuals=lambda other: errors + slopes @ (other - z), slopes=lambda other, _: slopes
    )
    return linear.solve(rows, z).z


def calibrate(paths: Sequence[str | Path], k: int = 5, progress: Callable[[str], None] = print) -> Calibration:
    """Fit stacks and chips to the timed rows of the tables, and return the fit with errors of unseen rows.

    Values that rows leave open are chosen by the catalogue; with the result in it a second fit chooses again.

    Args:
        paths: tables of measured steps.
        k: count of folds.
        progress: called with lines on the progress.
    """
    cases = [case for path in paths for case in read_cases(path)]
    lookup = Lookup()
    rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.kernel_families)
    check_enough(rows, k)
    solution = solve(rows, rows.weights)
    about = f"{counted(len(rows.measured), 'row')}, {counted(len(solution.columns), 'number')}"
    progress(f"{about}, mean error {mean_error(solution.errors):.2%}")
    problem = problem_of(rows, solution.columns, rows.weights)
    rings = {ring: left_out_errors(problem, solution, labels) for ring, labels in ring_labels(rows, k).items()}
    return Calibration(rows, solution, rings, folds(rows.groups, k))


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


def mean_error(errors: np.ndarray) -> float:
    """Return the mean of |predicted / measured - 1| from log errors."""
    return float(np.mean(np.abs(np.expm1(errors))))
