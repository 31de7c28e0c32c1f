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

from dse.designs.catalog.filling import LEVELLED
from dse.designs.leaves import leaf
from dse.doors.study import Study
from dse.lab.fits.fit import curvature, posterior
from dse.lab.fits.step_priors import PARAMETERS
from dse.measured import KINDS, TRACE_PARTS, Comparison, Lookup
from dse.measured.decisions.evidence import RUN, figure_of_row
from dse.measured.prediction import by_structure, evaluate_stack
from dse.measured.table import number
from dse.measured.uncertainty import distance
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.rows import choice_of
from dse.measured.uncertainty.spreads import spreads_of, total
from dse.types import Design

#: Numbers of a fit, the level included.
MOST = 8

#: Change of a log metric by a spread of a value, below which the rows say nothing of it.
_SEEN = 2e-3

#: Linearisations of the model; steps of expectation and maximisation in each; step of finite differences, in spreads.
_LINES, _ROUNDS, _STEP = 6, 20, 0.02

#: Runs of which each is left out once; of more, tenths of them.
_FOLDS = 10


class OwnRows(NamedTuple):
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

    def apart(self, count: int) -> np.ndarray:
        """Standard deviation of what each row has of its own, with a fit to ``count`` of them."""
        return np.hypot(self.home, self.levels / count)


class OwnFit(NamedTuple):
    """Changes of the values, with what they leave open."""

    logs: np.ndarray  #: of the values by their logarithm, the level last
    spreads: np.ndarray  #: posterior standard deviation of each
    alone: np.ndarray  #: the same, the others fixed: independent draws of these are closest to the posterior
    errors: np.ndarray  #: log(predicted / measured) of the rows
    apart: np.ndarray  #: standard deviation of what each row has of its own
    common: float  #: and of what they have in common


# Rows


def rows_of_own(compared: Sequence[Comparison], name: str) -> OwnRows:
    """Rows as if nothing had been fitted as ``name`` before."""
    figures = [figure_of_row(c) for c in compared]
    study = KINDS[compared[0].prediction.case.kind].study
    common, home, levels, runs, lookup = [], [], [], [id(c.prediction) for c in compared], Lookup()
    for c, (metric, _) in zip(compared, figures, strict=True):
        choice = choice_of(c.prediction, "")
        new = not lookup.is_measured(choice.stack, c.source)
        at = distance.levels_of(choice.stack, choice.accelerator, choice.design, choice.model, new, name)
        kind = uncertainty.figure_of(metric, study) or "step"
        squares = {part: one**2 for part, one in distance.parts(kind, choice.stack, at).items()}
        rest = {part: (1.0 - distance.shared(part, kind)[0]) * one for part, one in squares.items()}
        common.append(sum(squares.values()) - sum(rest.values()))
        home.append(rest.pop("home"))
        levels.append(sum(rest.values()))
    return OwnRows(
        [c.prediction.chosen for c in compared],
        [metric for metric, _ in figures],
        np.log([value for _, value in figures]),
        np.unique(runs, return_inverse=True)[1],
        [_parts(c) for c in compared],
        math.sqrt(float(np.mean(common))),
        np.sqrt(home),
        np.sqrt(levels),
        study,
    )


def _parts(c: Comparison) -> dict[str, float]:
    """Parts of a step that a trace has, in shares of it: of one stage, since those of several wait for each other."""
    row, design = c.prediction.case.row, c.prediction.chosen
    if float(design.mapping.pp) > 1.0:
        return {}
    found = {name: number(row, f"{column}_ms", 0.0) for name, (column, _) in TRACE_PARTS.items()}
    step = sum(found.values())
    return {name: one / step for name, one in found.items()} if step else {}


def priors_of(base: str, designs: Sequence[Design]) -> dict[str, float]:
    """Value of the stack → its spread before, as its file has it, else that of all stacks of training."""
    usual = {one.path: one.spread for one in PARAMETERS if designs[0].workload.requests is None}
    stated = {path: total(factors) for path, factors in spreads_of(base).items()}
    found = usual | stated
    return {path: width for path, width in found.items() if all(_has(design, path) for design in designs)}


def _has(design: Design, path: str) -> bool:
    try:
        return bool(leaf(design, path))
    except AttributeError:  # of a record that the design lacks
        return False


def chosen(rows: OwnRows, priors: dict[str, float]) -> tuple[list[str], np.ndarray]:
    """The values of which the rows tell most, and their spreads."""
    paths, widths = list(priors), np.array(list(priors.values()))
    moved = np.vstack([np.zeros(len(paths) + 1), np.diag([*widths, 0.0])[:-1]])
    logs = _predicted(rows, paths, moved)[0]
    told = np.sqrt(np.mean((logs[1:] - logs[0]) ** 2, axis=1))
    kept = [i for i in np.argsort(-told) if told[i] > _SEEN][: MOST - 1]
    return [paths[i] for i in kept], widths[kept]


# The fit


def _predicted(rows: OwnRows, paths: Sequence[str], sets: np.ndarray) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """Log metrics [sets, rows] with values changed by logarithms ``sets`` [sets, values and level], and parts."""
    logs, shares = np.zeros((len(sets), len(rows.designs))), [dict[str, np.ndarray]() for _ in rows.designs]
    for members, stack in by_structure(rows.designs):
        changes = dict(zip(paths, sets.T, strict=False)) | {
            path: np.zeros(len(sets)) for path in _levelled(stack) if path not in paths
        }
        moved = {
            path: np.tile(
                change + (sets[:, -1] if path.removeprefix("software.") in LEVELLED else 0.0), (len(members), 1)
            )
            for path, change in changes.items()
        }
        found = evaluate_stack(uncertainty.scaled(stack, moved), rows.study)

        def of(metric: str, found: Any = found, count: int = len(members)) -> np.ndarray:
            values = np.asarray(getattr(found, metric), float)
            return np.broadcast_to(values, (count * len(sets),)).reshape(count, len(sets))

        for place, i in enumerate(members):
            logs[:, i] = np.log(of(rows.metrics[i])[place])
            shares[i] = {
                name: sum((of(f"step_time_{one}")[place] for one in TRACE_PARTS[name][1]), np.zeros(len(sets)))
                for name in rows.parts[i]
            }
    return logs, shares


def _levelled(design: Design) -> list[str]:
    """Leaves of a design that the level multiplies."""
    return [f"software.{name}" for name in sorted(LEVELLED) if _present(design, f"software.{name}")]


def _present(design: Design, path: str) -> bool:
    try:
        return leaf(design, path) is not None
    except AttributeError:
        return False


def errors_at(rows: OwnRows, paths: Sequence[str], sets: np.ndarray) -> np.ndarray:
    """Errors of the rows, then of their parts in shares of the measured step [sets, rows and parts]."""
    logs, shares = _predicted(rows, paths, sets)
    of_parts = [
        times / np.exp(rows.measured[i]) - rows.parts[i][name]
        for i, one in enumerate(shares)
        for name, times in one.items()
    ]
    return np.concatenate([logs - rows.measured, np.array(of_parts).reshape(-1, len(sets)).T], axis=1)


def _owners(rows: OwnRows) -> np.ndarray:
    """The row of each error of :func:`errors_at`."""
    count = len(rows.measured)
    return np.array([*range(count), *(i for i, one in enumerate(rows.parts) for _ in one)], int)


def solve(rows: OwnRows, paths: Sequence[str], widths: np.ndarray, kept: Sequence[np.ndarray]) -> list[OwnFit]:
    """Values and level by the rows marked by each of ``kept``, all fits side by side."""
    scale, owners, count = np.append(widths, 1.0), _owners(rows), len(rows.measured)
    states = [_State.of(rows, marked) for marked in kept]
    nearby = np.vstack([np.zeros(len(scale)), _STEP * np.eye(len(scale))])
    places = [np.zeros(len(scale)) for _ in kept]
    for _ in range(_LINES):
        sets = np.concatenate([(z + nearby) * scale for z in places])
        for i, found in enumerate(np.split(errors_at(rows, paths, sets), len(kept))):
            states[i] = states[i].moved(found[0], (found[1:] - found[0]).T / _STEP, places[i], owners)
        places = [z + np.clip(state.z - z, -1.0, 1.0) for z, state in zip(places, states, strict=True)]
    ends = errors_at(rows, paths, np.array(places) * scale)[:, :count]
    return [
        OwnFit(
            z * scale,
            posterior(one.curvature) * scale,
            np.diag(one.curvature) ** -0.5 * scale,
            errors,
            one.apart * one.known,
            one.common,
        )
        for z, one, errors in zip(places, states, ends, strict=True)
    ]


class _State(NamedTuple):
    """Optimum and variances where the errors are linear in the values."""

    weights: np.ndarray  #: of the rows: figures of a run count as one
    runs: int
    known: np.ndarray  #: standard deviation of what each row has of its own, as known [rows]
    before: float  #: of what they have in common, as known
    common: float
    apart: float = 1.0  #: factor of ``known``
    z: np.ndarray = np.zeros(0)
    curvature: np.ndarray = np.zeros(0)

    @classmethod
    def of(cls, rows: OwnRows, kept: np.ndarray) -> _State:
        """What is known before the rows marked by ``kept``."""
        sizes = np.bincount(rows.runs[kept], minlength=rows.runs.max() + 1)
        runs = int((sizes > 0).sum())
        return cls(kept / np.maximum(sizes[rows.runs], 1), runs, rows.apart(runs), rows.common, rows.common)

    def moved(self, errors: np.ndarray, slopes: np.ndarray, at: np.ndarray, owners: np.ndarray) -> _State:
        """The optimum for ``errors`` with ``slopes`` at ``at``; ``owners``: the row of each error."""
        count, freedom, state = len(self.known), distance.freedom(), self
        if self.runs == 1 and not len(self.z):  # nothing tells both apart: as wide as the tails have it
            prior = np.append(np.ones(len(at) - 1), self.before)
            spread = self.known**2 + RUN**2 + ((slopes[:count] * prior) ** 2).sum(axis=1)
            wider = math.sqrt((freedom + self.weights @ (errors[:count] ** 2 / spread)) / (freedom + 1.0))
            state = self._replace(apart=wider, common=wider * self.before)
        for _ in range(_ROUNDS if self.runs > 1 else 1):
            weights = self.weights[owners] / (np.hypot(state.apart * self.known, RUN)[owners] ** 2)
            prior = np.append(np.ones(len(at) - 1), state.common)
            matrix = curvature(slopes, weights, prior)
            z = -np.linalg.solve(matrix, slopes.T @ (weights * (errors - slopes @ at)))
            state = state._replace(z=z, curvature=matrix)
            if self.runs == 1:
                break
            covariance = np.linalg.inv(matrix)
            left = (errors + slopes @ (z - at))[:count]
            squares = left**2 + np.einsum("rp,pq,rq->r", slopes[:count], covariance, slopes[:count])
            apart = math.sqrt((freedom + self.weights @ (squares / self.known**2)) / (freedom + self.runs))
            common = math.sqrt((freedom * self.before**2 + z[-1] ** 2 + covariance[-1, -1]) / (freedom + 1.0))
            state = state._replace(apart=apart, common=common)
        return state


def held_out(rows: OwnRows, paths: Sequence[str], widths: np.ndarray) -> np.ndarray:
    """Error of each row by a fit without its run, or without its tenth of the runs."""
    labels = rows.runs % _FOLDS
    kept = [labels != label for label in sorted(set(labels.tolist()))]
    fits = solve(rows, paths, widths, kept)
    return np.sum([np.where(marked, 0.0, one.errors) for marked, one in zip(kept, fits, strict=True)], axis=0)


def shrunk(rows: OwnRows, found: OwnFit) -> float:
    """Share of what the rows have in common that the fit takes as the stack's."""
    noise = (float(np.mean(found.apart**2)) + RUN**2) / (rows.runs.max() + 1)
    return found.common**2 / (found.common**2 + noise)
