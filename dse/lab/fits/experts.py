r"""Calibration of the cost of expert layers beyond kernels and messages, from measured training steps.

The same mapping runs up to twice as fast a few releases later. The changes are physical and stated in the files of the
releases: token dispatch (``all_to_all``), and fused expert products without a wait of the host (``fused``). All stacks
therefore share the fitted values, none of which is a level of a chip or of a release. Values fitted to dense steps
(:mod:`dse.lab.fits.steps`) are fixed. Several measurements of one design with one stack share its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from dse.designs import leaf, replace
from dse.lab.fits.fit import Fit, FitProblem, cross_validation_errors, folds, parameters_of
from dse.lab.fits.step_priors import DOCUMENT
from dse.lab.fits.step_rows import StepModel, StepRows
from dse.measured import Case, Comparison, Lookup, evaluate_many, predict_cases, rules
from dse.measured.comparison import compare_predictions, is_timed
from dse.types import ExpertKernels, paths

#: Parameters with priors and bounds, and the names of their fields of :class:`dse.types.ExpertKernels`.
PARAMETERS, NAMES = parameters_of(DOCUMENT["experts"], "software.experts."), tuple(DOCUMENT["experts"])
HOST = "software.experts.expert_host_time"

#: Stack → its range of releases.
STACKS = {
    f"megatron-bridge{chips}{release}": release.strip("-") or "25"
    for chips in ("", "-blackwell", "-blackwell-ultra")
    for release in ("", "-26-02", "-26-06")
}

#: Relative size of an error against which priors are weighted, and above which the loss is linear.
NOISE, DELTA = 0.05, 0.1


class ExpertRows(NamedTuple):
    """Measured steps of mixtures of experts, one per row."""

    steps: StepRows
    waits: np.ndarray  #: 1 where the host waits for the rows of experts, 0 with a capacity factor
    cells: list[str]  #: accelerator and range of releases
    points: list[tuple[object, ...]]  #: design and stack; rows of one point are repetitions
    utilisation: np.ndarray  #: log of the measured share of the peak

    @property
    def weights(self) -> np.ndarray:
        """Weight per row [row]: 1 per point, divided equally among its rows."""
        return np.array([1.0 / self.points.count(point) for point in self.points])


class ExpertCalibration(NamedTuple):
    """A fit, and log errors of rows by fits without them."""

    rows: ExpertRows
    fit: Fit  #: of the shared values
    unseen: np.ndarray  #: by a fit without the row's configuration
    cell: np.ndarray  #: by a fit without the rows of its accelerator and release range
    model: np.ndarray  #: by a fit without the rows of its model
    blind: np.ndarray  #: by the defaults of the leaves, without any step of a mixture of experts
    constant: np.ndarray  #: by the mean utilisation of the other cells

    @property
    def values(self) -> dict[str, float]:
        """Name of the field of expert kernels → fitted value in SI units, common to all stacks."""
        return dict(zip(NAMES, self.fit.values.values(), strict=True))

    @property
    def firsts(self) -> list[int]:
        """Index of the first row of every point."""
        return [self.rows.points.index(point) for point in dict.fromkeys(self.rows.points)]

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """Kind of prediction → relative error [point] as a fraction: mean size over its rows, with the mean's sign."""
        points = self.rows.points
        by_point = np.array([[other == points[i] for other in points] for i in self.firsts], float)
        by_point /= by_point.sum(axis=1, keepdims=True)
        kinds = {
            "in sample": self.fit.errors,
            "configuration left out": self.unseen,
            "cell left out": self.cell,
            "model left out": self.model,
            "blind": self.blind,
            "constant MFU of other cells": self.constant,
        }
        return {
            name: by_point @ np.abs(np.expm1(errors)) * np.sign(by_point @ np.expm1(errors))
            for name, errors in kinds.items()
        }


def rows_of(compared: Sequence[Comparison], chips: dict[object, str]) -> ExpertRows | None:
    """Return the timed rows of mixtures of experts with a fitted stack, None where there are none.

    Args:
        compared: predictions with measurements.
        chips: (rates, cores) of an accelerator → its family.
    """
    fitted_rows = [c for c in compared if is_fitted(c)]
    if not fitted_rows:
        return None
    steps = StepRows.from_comparisons(fitted_rows, chips)
    waits = [leaf(c.prediction.chosen, HOST) > 0.0 for c in fitted_rows]
    log_utilisation = (
        np.log([c.prediction.metrics["mfu"] * c.prediction.metrics["step_time"] for c in fitted_rows]) - steps.measured
    )
    cells = [f"{c.prediction.case.row.get('gpu')}, {STACKS[c.prediction.stack]}" for c in fitted_rows]
    points = [_design_point(c, wait) for c, wait in zip(fitted_rows, waits, strict=True)]
    return ExpertRows(steps, np.array(waits, np.float32), cells, points, log_utilisation)


def is_fitted(c: Comparison) -> bool:
    """True for a timed row of a mixture of experts with a fitted stack."""
    return (
        is_timed(c)
        and c.prediction.stack in STACKS
        and c.prediction.chosen.workload.experts is not None
        and rules.unused(c.prediction.case.row, "fit of experts") is None
    )


def _design_point(compared: Comparison, waits: bool) -> tuple[object, ...]:
    """Return a key that repetitions share: stack, leaves of workload and mapping, matrix rates, wait of the host."""
    design = compared.prediction.chosen
    design_records = (design.workload, design.mapping, design.system.accelerator.matrix_rate, waits)
    return (compared.prediction.stack, *(float(x) for x in jax.tree.leaves(design_records)))


def calibrate(cases: Sequence[Case], lookup: Lookup, k: int = 5) -> ExpertCalibration | None:
    """Fit the values that all stacks share to measured steps; return the fit, None where no row has experts.

    Args:
        cases: measured rows.
        lookup: catalogue with the stacks.
        k: count of folds.
    """
    rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.kernel_families)
    if rows is None:
        return None
    problem = problem_of(rows)

    def constant(part: np.ndarray) -> np.ndarray:
        weights = rows.weights * ~part
        return rows.utilisation - weights @ rows.utilisation / weights.sum()

    configurations = folds([point[1:] for point in rows.points], k)
    return ExpertCalibration(
        rows,
        problem.solve().fit(PARAMETERS),
        problem.cross_validate(list(configurations)),
        problem.cross_validate(rows.cells),
        problem.cross_validate([str(c.prediction.case.row.get("model")) for c in rows.steps.compared]),
        with_defaults(rows.steps),
        cross_validation_errors(rows.cells, constant),
    )


def problem_of(rows: ExpertRows) -> FitProblem:
    """Return the fit problem of the shared values."""
    columns, everywhere = range(len(PARAMETERS)), np.ones(len(rows.cells), bool)
    factors = np.ones((len(rows.cells), len(PARAMETERS)))
    factors[:, [p.path for p in PARAMETERS].index(HOST)] = rows.waits
    model = StepModel(rows.steps, PARAMETERS, columns, [everywhere for _ in columns], factors=factors)
    return model.problem(rows.weights, NOISE, DELTA)


def with_defaults(rows: StepRows) -> np.ndarray:
    """Return log(predicted / measured) of the step time [row] with the default expert kernels."""
    defaults = {f"software.experts.{name}": about["default"] for name, about in paths.leaves(ExpertKernels).items()}
    designs = [replace(c.prediction.chosen, defaults) for c in rows.compared]
    return np.log(evaluate_many(designs)["step_time"]) - rows.measured
