r"""The job on mixtures of experts: what their layers cost beyond kernels and messages, from measured training steps.

The same mapping runs up to twice as fast a few releases later. What the releases changed is physics and stands in
their files: how tokens are sent (``all_to_all``), and products of experts in one kernel that the host does not wait for
(``fused``). So all stacks share the numbers that are fitted, none of which is a level of a chip or of a release. What
dense steps told (:mod:`dse.calibrate.steps`) stays as it is. Of several measurements of one design with one stack each
counts in part.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.calibrate.fit import Parameter, folds, gauss_newton, held_out, posterior
from dse.calibrate.structures import Alike, by_structure, rows_alike
from dse.designs.leaves import leaf, replace
from dse.doors.evaluation import evaluate
from dse.measured import predict_cases
from dse.measured.comparison import Comparison, compare_predictions, is_timed, step_time
from dse.measured.names import Lookup
from dse.measured.prediction import evaluate_many
from dse.measured.table import Case
from dse.sweep.engine.programs import persistent_jit
from dse.types import ExpertKernels, paths

#: What steps can tell, with what is believed before any step is seen, and the bounds.
PARAMETERS = (
    Parameter("software.experts.grouped_efficiency", 0.9, 0.1, 0.5, 1.0),
    Parameter("software.experts.expert_time", 2e-5, 0.5),
    Parameter("software.experts.expert_host_time", 3e-3, 0.5),
)
HOST = "software.experts.expert_host_time"
NAMES = tuple(p.path.rpartition(".")[2] for p in PARAMETERS)

#: Stack → its range of releases.
STACKS = {
    f"megatron-bridge{chips}{release}": release.strip("-") or "25"
    for chips in ("", "-blackwell", "-blackwell-ultra") for release in ("", "-26-02", "-26-06")
}  # fmt: skip

#: Relative size of an error that the priors are weighed against, and from which it counts linearly.
NOISE, DELTA = 0.05, 0.1


class Rows(NamedTuple):
    """Measured steps of mixtures of experts as arrays, one a row."""

    alike: list[Alike]
    measured: np.ndarray  #: log of the step time in seconds
    stacks: np.ndarray
    waits: np.ndarray  #: 1 where the host waits for what experts get, 0 where tokens are dropped to fixed sizes
    cells: list[str]  #: accelerator and range of releases
    points: list[tuple[object, ...]]  #: what was measured: rows of one point are the same design with the same stack
    utilisation: np.ndarray  #: log of the measured share of the peak
    compared: list[Comparison]

    @property
    def weights(self) -> np.ndarray:
        """One for each point, shared by its rows."""
        return np.array([1.0 / self.points.count(point) for point in self.points])


class Found(NamedTuple):
    """A fit, its errors row by row (of the logarithm), and those of rows it had not seen."""

    rows: Rows
    values: dict[str, float]  #: leaf → value, of all stacks
    spreads: dict[str, float]  #: the same of the standard deviation of its logarithm
    seen: np.ndarray
    unseen: np.ndarray  #: by a fit without the row's configuration
    cell: np.ndarray  #: by a fit without all rows of its accelerator and release range
    blind: np.ndarray  #: by the defaults of the leaves, which no step of a mixture of experts was seen for
    constant: np.ndarray  #: by the mean utilisation of the other cells

    @property
    def firsts(self) -> list[int]:
        """The first row of every point."""
        return [self.rows.points.index(point) for point in dict.fromkeys(self.rows.points)]

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """Kind of prediction → the relative error of every point: the mean size over its rows, with the mean's sign."""
        points = self.rows.points
        by_point = np.array([[other == points[i] for other in points] for i in self.firsts], float)
        by_point /= by_point.sum(axis=1, keepdims=True)
        kinds = {"in sample": self.seen, "configuration left out": self.unseen, "cell left out": self.cell,
                 "blind": self.blind, "constant MFU of other cells": self.constant}  # fmt: skip
        return {
            name: by_point @ np.abs(np.expm1(errors)) * np.sign(by_point @ np.expm1(errors))
            for name, errors in kinds.items()
        }


def rows_of(compared: Sequence[Comparison]) -> Rows | None:
    """The timed rows of mixtures of experts of the stacks that are fitted; None where there are none."""
    kept = [c for c in compared if is_timed(c) and c.prediction.stack in STACKS]
    kept = [c for c in kept if c.prediction.chosen.workload.experts is not None]
    if not kept:
        return None
    designs = [c.prediction.chosen for c in kept]
    stacks = [c.prediction.stack for c in kept]
    waits = [leaf(d, HOST) > 0.0 for d in designs]
    times = np.array([step_time(c) for c in kept])
    reached = np.array([c.prediction.metrics["mfu"] * c.prediction.metrics["step_time"] for c in kept]) / times
    return Rows(
        alike=rows_alike(designs),
        measured=np.log(times), stacks=np.array(stacks),
        waits=np.array(waits, np.float32),
        cells=[f"{c.prediction.case.row.get('gpu')}, {STACKS[s]}" for c, s in zip(kept, stacks, strict=True)],
        points=[
            (stack, *(float(x) for x in jax.tree.leaves(
                (d.workload, d.mapping, d.system.accelerator.matrix_rate, wait)
            )))
            for d, stack, wait in zip(designs, stacks, waits, strict=True)
        ],
        utilisation=np.log(reached), compared=kept,
    )  # fmt: skip


def calibrate(cases: Sequence[Case], lookup: Lookup, k: int = 5) -> Found | None:
    """What the stacks that ``lookup`` gives share, from the rows of ``cases``; None where none is of experts."""
    rows = rows_of(compare_predictions(predict_cases(cases, lookup)))
    if rows is None:
        return None

    def solve(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = gauss_newton(
            lambda z: _log_errors(rows, z), lambda z, _: _slopes_of(rows, z), np.zeros(len(PARAMETERS)), weights,
            noise=NOISE, delta=DELTA,
        )  # fmt: skip
        return found.z, posterior(found.curvature), found.errors

    z, after, seen = solve(rows.weights)
    cells, configurations = np.array(rows.cells), folds([point[1:] for point in rows.points], k)
    parts = [cells == cell for cell in dict.fromkeys(rows.cells)]

    def without(part: np.ndarray) -> np.ndarray:
        return solve(rows.weights * ~part)[2]

    def constant(part: np.ndarray) -> np.ndarray:
        weights = rows.weights * ~part
        return rows.utilisation - weights @ rows.utilisation / weights.sum()

    values = {name: float(p.value(at)) for name, p, at in zip(NAMES, PARAMETERS, z, strict=True)}
    spreads = {
        name: float(spread * abs(p.slope(at))) for name, p, at, spread in zip(NAMES, PARAMETERS, z, after, strict=True)
    }
    return Found(
        rows, values, spreads, seen, held_out([configurations == fold for fold in set(configurations)], without),
        held_out(parts, without), _with_defaults(rows), held_out(parts, constant),
    )  # fmt: skip


def _with_defaults(rows: Rows) -> np.ndarray:
    """log(predicted / measured) with the defaults of what stacks say of their experts."""
    defaults = {f"software.experts.{name}": about["default"] for name, about in paths.leaves(ExpertKernels).items()}
    designs = [replace(c.prediction.chosen, defaults) for c in rows.compared]
    return np.log(evaluate_many(designs)["step_time"]) - rows.measured


def _log_errors(rows: Rows, z: np.ndarray) -> np.ndarray:
    """log(predicted / measured) at ``z``."""
    at = np.broadcast_to(z.astype(np.float32), (len(rows.measured), len(z)))
    return by_structure(rows.alike, _log_step_times, at.shape[:1], at, rows.waits) - rows.measured


def _slopes_of(rows: Rows, z: np.ndarray) -> np.ndarray:
    """Derivatives of the log step times (rows x parameters)."""
    at = np.broadcast_to(z.astype(np.float32), (len(rows.measured), len(z)))
    return by_structure(rows.alike, _slopes, at.shape, at, rows.waits)


def _log_step_time(row: jax.Array, z: jax.Array, waits: jax.Array, structure: Any) -> jax.Array:
    design = jax.tree.unflatten(structure, list(row))
    values = {p.path: p.value(z[i]) for i, p in enumerate(PARAMETERS)}
    values[HOST] = waits * values[HOST]
    return jnp.log(evaluate(replace(design, values)).step_time)


@persistent_jit("structure")
def _log_step_times(leaves: jax.Array, z: jax.Array, waits: jax.Array, *, structure: Any) -> jax.Array:
    """Log step times (rows) at ``z`` (rows x parameters)."""
    return jax.vmap(functools.partial(_log_step_time, structure=structure))(leaves, z, waits)


@persistent_jit("structure")
def _slopes(leaves: jax.Array, z: jax.Array, waits: jax.Array, *, structure: Any) -> jax.Array:
    """Their derivatives (rows x parameters)."""
    return jax.vmap(jax.jacfwd(functools.partial(_log_step_time, structure=structure), argnums=1))(leaves, z, waits)
