r"""The fit of a stack of one's own: values and level by the errors of a few runs.

With the measured over predicted logarithm ``r`` of each configuration, changes ``x`` of up to seven values of the stack
(priors: those of the stack it starts from), the level ``o`` that multiplies all its times, and what a configuration has
of its own,

.. math:: r_i = f_i(x) + o + c_i + e_i, \quad x_j \sim N(0, \sigma_j^2), \quad o \sim t_\nu(\tau), \quad
   c_i \sim t_\nu(\kappa), \quad e_i \sim N(0, 0.02^2).

``tau`` and ``kappa`` are what rows left out have shown: of each part of an interval
(:mod:`dse.measured.uncertainty.distance`) the share that designs alike have in common, and the rest, of which what
levels add is an ``n``-th with ``n`` runs, since values fitted to rows of a stack leave no more than ``home``. Of one
run these shrink the level, both as wide as its error asks for; of several their own scatter counts too, ``nu``
(``[tail]`` of ``intervals.toml``) being the weight of what was known, in runs. Found by expectation and maximisation
(Dempster, Laird and Rubin 1977): Gauss-Newton in ``x, o``, then both variances by what is left and its posterior
variance. Figures of one run count as one; of a trace with its parts, compute, communication and gaps are held against
the predicted ones too, in shares of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.designs import leaf, leaves_of
from dse.doors import Study
from dse.lab.fits.adding import is_level_scaled
from dse.lab.fits.fit import curvature, posterior
from dse.lab.fits.step_priors import NAMES, PARAMETERS
from dse.measured import KINDS, TRACE_PARTS, Comparison, Lookup
from dse.measured.decisions.evidence import RUN_DEVIATION, figure_of_row
from dse.measured.prediction import evaluate_batch, group_by_structure
from dse.measured.table import nonnegative_number
from dse.measured.uncertainty import distance, parts as uncertainty
from dse.measured.uncertainty.rows import choice_of
from dse.measured.uncertainty.spreads import spreads_of, total_deviations
from dse.types import Design

#: Numbers of a fit, the level included.
MAX_VALUES = 8

#: Change of a log metric by a spread of a value, below which the rows say nothing of it.
_MIN_EFFECT = 2e-3

#: Linearisations of the model; steps of expectation and maximisation in each; step of finite differences, in spreads.
_LINEARISATIONS, _ROUNDS, _STEP = 6, 20, 0.02

#: Runs of which each is left out once; of more, tenths of them.
_FOLDS = 10


class StackRows(NamedTuple):
    """Measured figures of one stack, with what is known of them before."""

    designs: list[Design]
    metrics: list[str]
    measured: np.ndarray  #: logarithm, in SI units [rows]
    runs: np.ndarray  #: index of the run of each figure [rows]
    parts: list[dict[str, float]]  #: part of a step as a trace has it → share of the measured step [rows]
    common: float  #: standard deviation of what configurations of a stack share
    home: np.ndarray  #: standard deviation of what each has of its own where a stack has rows [rows]
    levels: np.ndarray  #: the same of what levels of distance add to it before there are any [rows]
    study: Study

    def configuration_spread(self, count: int) -> np.ndarray:
        """Return the standard deviation of what each row has of its own [row], for a fit to ``count`` runs."""
        return np.hypot(self.home, self.levels / count)


class StackFit(NamedTuple):
    """Changes of the values, with what they leave open."""

    logs: np.ndarray  #: of the values by their logarithm, the level last
    spreads: np.ndarray  #: posterior standard deviation of each
    conditional_spreads: np.ndarray  #: the same, the others fixed: their independent draws are closest to the posterior
    errors: np.ndarray  #: log(predicted / measured) of the rows
    configuration_spread: np.ndarray  #: standard deviation of what each row has of its own
    common: float  #: and of what they have in common


# Rows


def stack_rows(compared: Sequence[Comparison], name: str) -> StackRows:
    """Return the log measured figures with their prior spreads, as if no stack ``name`` had been fitted before.

    Args:
        compared: predictions with measurements, of one stack.
        name: of the new stack.
    """
    figures = [figure_of_row(c) for c in compared]
    study = KINDS[compared[0].prediction.case.kind].study
    common, home, levels, runs, lookup = [], [], [], [id(c.prediction) for c in compared], Lookup()
    for c, (metric, _) in zip(compared, figures, strict=True):
        choice = choice_of(c.prediction, "")
        is_new = not lookup.is_measured(choice.stack, c.source)
        distances = distance.design_levels(choice.stack, choice.accelerator, choice.design, choice.model, is_new, name)
        kind = uncertainty.figure_of(metric, study) or "step"
        squares = {part: deviation**2 for part, deviation in distance.parts(kind, choice.stack, distances).items()}
        unshared = {part: (1.0 - distance.common_shares(part, kind)[0]) * square for part, square in squares.items()}
        common.append(sum(squares.values()) - sum(unshared.values()))
        home.append(unshared.pop("home"))
        levels.append(sum(unshared.values()))
    return StackRows(
        [c.prediction.chosen for c in compared],
        [metric for metric, _ in figures],
        np.log([value for _, value in figures]),
        np.unique(runs, return_inverse=True)[1],
        [_part_shares(c) for c in compared],
        math.sqrt(float(np.mean(common))),
        np.sqrt(home),
        np.sqrt(levels),
        study,
    )


def _part_shares(c: Comparison) -> dict[str, float]:
    """Return trace part → its share of the step; empty for several stages, which wait for each other."""
    row, design = c.prediction.case.row, c.prediction.chosen
    if float(design.mapping.pp) > 1.0:
        return {}
    milliseconds = {name: nonnegative_number(row, f"{column}_ms", 0.0) for name, (column, _) in TRACE_PARTS.items()}
    step = sum(milliseconds.values())
    return {name: part_time / step for name, part_time in milliseconds.items()} if step else {}


def priors_of(base: str, designs: Sequence[Design]) -> dict[str, float]:
    """Return leaf path of a stack's value → its prior spread (of the logarithm), by its file, else by training stacks.

    Args:
        base: stack that the fit starts from.
        designs: of the rows; values that one of them lacks are left out.
    """
    trains = designs[0].workload.requests is None
    default_spreads = {p.path: p.spread for p in PARAMETERS if trains and p.path.removeprefix("software.") in NAMES}
    priors = default_spreads | total_deviations(spreads_of(base))
    for design in designs:
        priors = {path: width for path, width in priors.items() if path in leaves_of(design) and leaf(design, path)}
    return priors


def informed_values(rows: StackRows, priors: dict[str, float]) -> tuple[list[str], np.ndarray]:
    """Return the leaf paths of the values that move the rows most, at most seven, and their prior spreads.

    Args:
        rows: measured figures.
        priors: path of a value → its prior spread.
    """
    paths, widths = list(priors), np.array(list(priors.values()))
    log_changes = np.vstack([np.zeros(len(paths) + 1), np.diag([*widths, 0.0])[:-1]])
    logs = _predict(rows, paths, log_changes)[0]
    effects = np.sqrt(np.mean((logs[1:] - logs[0]) ** 2, axis=1))
    indices = [i for i in np.argsort(-effects) if effects[i] > _MIN_EFFECT][: MAX_VALUES - 1]
    return [paths[i] for i in indices], widths[indices]


# The fit


def _predict(rows: StackRows, paths: Sequence[str], sets: np.ndarray) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """Return log metrics [set, row], and of each row trace part → seconds [set], with changed values.

    Args:
        rows: measured figures.
        paths: of the changed values.
        sets: logarithms of their factors and of the level [set, value and level].
    """
    logs, part_seconds = np.zeros((len(sets), len(rows.designs))), [dict[str, np.ndarray]() for _ in rows.designs]
    for members, stacked_design in group_by_structure(rows.designs):
        scaled = [path for path in leaves_of(stacked_design) if is_level_scaled(path)]
        changes = dict.fromkeys((path for path in scaled if leaf(stacked_design, path) is not None), 0.0)
        log_factors = {
            path: np.tile(change + sets[:, -1] * is_level_scaled(path), (len(members), 1))
            for path, change in (changes | dict(zip(paths, sets.T, strict=False))).items()
        }
        metrics = evaluate_batch(uncertainty.scale_leaves(stacked_design, log_factors), rows.study)

        def metric_values(metric: str, metrics: Any = metrics, count: int = len(members)) -> np.ndarray:
            values = np.asarray(getattr(metrics, metric), float)
            return np.broadcast_to(values, (count * len(sets),)).reshape(count, len(sets))

        for position, i in enumerate(members):
            logs[:, i] = np.log(metric_values(rows.metrics[i])[position])
            for name in rows.parts[i]:
                seconds = [metric_values(f"step_time_{part}")[position] for part in TRACE_PARTS[name][1]]
                part_seconds[i][name] = np.sum([np.zeros(len(sets)), *seconds], axis=0)
    return logs, part_seconds


def errors_at(rows: StackRows, paths: Sequence[str], sets: np.ndarray) -> np.ndarray:
    """Return log(predicted / measured) of rows, then errors of their parts in shares of the measured step [set, error].

    Args:
        rows: measured figures.
        paths: of the changed values.
        sets: logarithms of their factors and of the level [set, value and level].
    """
    logs, part_seconds = _predict(rows, paths, sets)
    part_errors = [
        times / np.exp(rows.measured[i]) - rows.parts[i][name]
        for i, seconds_by_part in enumerate(part_seconds)
        for name, times in seconds_by_part.items()
    ]
    return np.concatenate([logs - rows.measured, np.array(part_errors).reshape(-1, len(sets)).T], axis=1)


def _rows_of_errors(rows: StackRows) -> np.ndarray:
    """Return the index of the row of each error of :func:`errors_at` [error]."""
    count = len(rows.measured)
    return np.array([*range(count), *(i for i, row_parts in enumerate(rows.parts) for _ in row_parts)], int)


def solve(rows: StackRows, paths: Sequence[str], widths: np.ndarray, row_masks: Sequence[np.ndarray]) -> list[StackFit]:
    """Fit values and level to the rows of each mask, all in one batch; return a fit per mask.

    Args:
        rows: measured figures.
        paths: of the fitted values.
        widths: their prior spreads.
        row_masks: a mask of rows for each fit.
    """
    scale, rows_of_errors, count = np.append(widths, 1.0), _rows_of_errors(rows), len(rows.measured)
    states = [_FitState.start(rows, row_mask) for row_mask in row_masks]
    nearby = np.vstack([np.zeros(len(scale)), _STEP * np.eye(len(scale))])
    z_values = [np.zeros(len(scale)) for _ in row_masks]
    for _ in range(_LINEARISATIONS):
        sets = np.concatenate([(z + nearby) * scale for z in z_values])
        for i, errors in enumerate(np.split(errors_at(rows, paths, sets), len(row_masks))):
            states[i] = states[i].optimise(errors[0], (errors[1:] - errors[0]).T / _STEP, z_values[i], rows_of_errors)
        z_values = [z + np.clip(state.z - z, -1.0, 1.0) for z, state in zip(z_values, states, strict=True)]
    ends = errors_at(rows, paths, np.array(z_values) * scale)[:, :count]
    return [
        StackFit(
            z * scale,
            posterior(state.curvature) * scale,
            np.diag(state.curvature) ** -0.5 * scale,
            row_errors,
            state.spread_factor * state.prior_spread,
            state.common,
        )
        for z, state, row_errors in zip(z_values, states, ends, strict=True)
    ]


class _FitState(NamedTuple):
    """Optimum and variances where the errors are linear in the values."""

    weights: np.ndarray  #: of the rows: figures of a run count as one
    runs: int
    prior_spread: np.ndarray  #: prior standard deviation of what each row has of its own [rows]
    prior_common: float  #: prior standard deviation of what rows have in common
    common: float  #: fitted standard deviation of what rows have in common
    spread_factor: float = 1.0  #: of ``prior_spread``
    z: np.ndarray = np.zeros(0)
    curvature: np.ndarray = np.zeros(0)

    @classmethod
    def start(cls, rows: StackRows, row_mask: np.ndarray) -> _FitState:
        """Return the state before the fit to the rows marked by ``row_mask``."""
        sizes = np.bincount(rows.runs[row_mask], minlength=rows.runs.max() + 1)
        runs = int((sizes > 0).sum())
        return cls(
            row_mask / np.maximum(sizes[rows.runs], 1), runs, rows.configuration_spread(runs), rows.common, rows.common
        )

    def optimise(
        self, errors: np.ndarray, slopes: np.ndarray, z_start: np.ndarray, rows_of_errors: np.ndarray
    ) -> _FitState:
        """Return the state at the optimum where errors are linear in ``z``.

        Args:
            errors: at ``z_start`` [error].
            slopes: their derivatives [error, z].
            z_start: point of the linearisation.
            rows_of_errors: index of the row of each error.
        """
        count, freedom, state = len(self.prior_spread), distance.degrees_of_freedom(), self
        if self.runs == 1 and not len(self.z):  # nothing tells both apart: as wide as the tails have it
            prior = np.append(np.ones(len(z_start) - 1), self.prior_common)
            spread = self.prior_spread**2 + RUN_DEVIATION**2 + ((slopes[:count] * prior) ** 2).sum(axis=1)
            widening = math.sqrt((freedom + self.weights @ (errors[:count] ** 2 / spread)) / (freedom + 1.0))
            state = self._replace(spread_factor=widening, common=widening * self.prior_common)
        for _ in range(_ROUNDS if self.runs > 1 else 1):
            weights = self.weights[rows_of_errors] / (
                np.hypot(state.spread_factor * self.prior_spread, RUN_DEVIATION)[rows_of_errors] ** 2
            )
            prior = np.append(np.ones(len(z_start) - 1), state.common)
            matrix = curvature(slopes, weights, prior)
            z = -np.linalg.solve(matrix, slopes.T @ (weights * (errors - slopes @ z_start)))
            state = state._replace(z=z, curvature=matrix)
            if self.runs == 1:
                break
            covariance = np.linalg.inv(matrix)
            residuals = (errors + slopes @ (z - z_start))[:count]
            squares = residuals**2 + np.einsum("rp,pq,rq->r", slopes[:count], covariance, slopes[:count])
            spread_factor = math.sqrt(
                (freedom + self.weights @ (squares / self.prior_spread**2)) / (freedom + self.runs)
            )
            common = math.sqrt((freedom * self.prior_common**2 + z[-1] ** 2 + covariance[-1, -1]) / (freedom + 1.0))
            state = state._replace(spread_factor=spread_factor, common=common)
        return state


def cross_validation_errors(rows: StackRows, paths: Sequence[str], widths: np.ndarray) -> np.ndarray:
    """Return log(predicted / measured) [row] by a fit without the row's run, or without its tenth of the runs."""
    labels = rows.runs % _FOLDS
    row_masks = [labels != label for label in sorted(set(labels.tolist()))]
    fits = solve(rows, paths, widths, row_masks)
    return np.sum(
        [np.where(row_mask, 0.0, stack_fit.errors) for row_mask, stack_fit in zip(row_masks, fits, strict=True)], axis=0
    )


def stack_share(rows: StackRows, stack_fit: StackFit) -> float:
    """Return the share (0 to 1) of the rows' common error that the fit attributes to the stack."""
    noise = (float(np.mean(stack_fit.configuration_spread**2)) + RUN_DEVIATION**2) / (rows.runs.max() + 1)
    return stack_fit.common**2 / (stack_fit.common**2 + noise)
