"""Measured steps as arrays: chosen designs, times and slopes by the model, and their fit problem."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.designs import leaf, leaf_path, replace
from dse.doors.evaluation import evaluate
from dse.equations import Equations, recording
from dse.equations.operations import lower_equations
from dse.errors import InputError
from dse.lab.fits.fit import FitProblem, Parameter
from dse.lab.fits.step_priors import NOT_FITTED, is_levelled
from dse.measured import Comparison, rules
from dse.measured.comparison import is_timed, step_time
from dse.measured.completion import SEARCHED
from dse.measured.prediction import group_by_structure
from dse.sweep.engine.gradients import Differentiated
from dse.sweep.engine.programs import persistent_jit
from dse.types import Scalar, Workload

#: Weight of a figure that its collector quotes from memory.
FROM_MEMORY = 0.2


class StructureRows(NamedTuple):
    """Designs of one structure (for example with a power limit), as rows of leaves."""

    members: list[int]  #: their rows
    leaves: np.ndarray
    structure: Any


@dataclasses.dataclass(frozen=True)
class StepRows:
    """Measured steps as arrays, one entry per row: chosen designs and measurements."""

    structures: list[StructureRows]
    measured: np.ndarray  #: log of the step time in s
    stacks: np.ndarray
    families: np.ndarray  #: of chips
    sources: np.ndarray
    groups: list[tuple[float, ...]]  #: rows of one configuration
    compared: list[Comparison]

    @classmethod
    def from_comparisons(cls, compared: Sequence[Comparison], chips: dict[object, str]) -> StepRows:
        """Return the rows of comparisons; ``chips``: (rates, cores) of an accelerator → its family."""
        designs = [c.prediction.chosen for c in compared]
        return cls(
            structures=[
                StructureRows(
                    members, np.stack(jax.tree.leaves(stacked_design), axis=1), jax.tree.structure(stacked_design)
                )
                for members, stacked_design in group_by_structure(designs)
            ],
            measured=np.log([step_time(c) for c in compared]),
            stacks=np.array([c.prediction.stack for c in compared]),
            families=np.array([chips[d.system.accelerator.matrix_rate, d.system.accelerator.cores] for d in designs]),
            sources=np.array([c.source for c in compared]),
            groups=[tuple(float(leaf(d, leaf_path(path))) for path in _CONFIGURATION) for d in designs],
            compared=list(compared),
        )

    @property
    def weights(self) -> np.ndarray:
        """Weight [row]: a source of ``n`` rows counts as ``sqrt(n)`` sources of one row, less if from memory."""
        size = {source: np.count_nonzero(self.sources == source) for source in set(self.sources)}
        return np.array([size[source] ** -0.5 for source in self.sources]) * self.trust

    @property
    def completed(self) -> np.ndarray:
        """True for rows with a part of the mapping chosen by the model among candidates [row]."""
        return np.array([bool(SEARCHED & c.prediction.completed.keys()) for c in self.compared])

    @property
    def trust(self) -> np.ndarray:
        """Weight of each row by its confidence, lower if quoted from memory [row]."""
        quoted = [c.measurement.row.get("confidence") == "memory" for c in self.compared]
        return np.where(quoted, FROM_MEMORY, 1.0)


_CONFIGURATION = (
    "workload.n_layers",
    "workload.hidden",
    "workload.seq_len",
    "workload.global_batch",
    "mapping.tp",
    "mapping.pp",
    "mapping.cp",
    "mapping.dp",
    "mapping.micro_batch",
    "mapping.recompute",
)


def is_plain(workload: Workload) -> bool:
    """True for a dense model with all weights trained on whole sequences."""
    return workload.experts is None and workload.adapters is None and workload.packing is None


def rows_of(compared: Sequence[Comparison], chips: dict[object, str], levelled: bool = False) -> StepRows:
    """Return the timed rows of dense models with a stack of the catalogue.

    Args:
        compared: predictions with measurements.
        chips: (rates, cores) of an accelerator → its family.
        levelled: keep rows with a stack of TPU levels, instead of the others.

    Raises:
        InputError: where there are none.
    """
    fitted_rows = [c for c in compared if is_timed(c) and c.prediction.stack not in (*NOT_FITTED, "")]
    fitted_rows = [c for c in fitted_rows if is_plain(c.prediction.chosen.workload)]
    fitted_rows = [c for c in fitted_rows if rules.unused(c.prediction.case.row, "fit of steps") is None]
    fitted_rows = [c for c in fitted_rows if is_levelled(c.prediction.stack) == levelled]
    if not fitted_rows:
        raise InputError("calibrate", "no measured step that can be predicted", "training rows", "see dse validate")
    return StepRows.from_comparisons(fitted_rows, chips)


class StepModel(NamedTuple):
    """Leaves of the designs of steps as functions of ``z``, for all jobs on steps.

    Column ``c`` changes parameter ``names[c]`` of the rows ``rows_by_column[c]``: ``z_row = offsets + moves x``.
    """

    rows: StepRows
    parameters: tuple[Parameter, ...]
    columns: Sequence[int]  #: parameter changed by each column
    rows_by_column: Sequence[np.ndarray]  #: rows changed by each column
    offsets: np.ndarray | float = 0.0  #: ``z`` of each row and parameter with all columns at zero
    factors: np.ndarray | float = 1.0  #: multiplies the values of each row and parameter

    @property
    def moves(self) -> np.ndarray:
        """1 where a column changes a ``z`` of a row, [columns, rows, parameters]."""
        indicators = np.zeros((len(self.columns), len(self.rows.measured), len(self.parameters)))
        for index, (parameter, column_rows) in enumerate(zip(self.columns, self.rows_by_column, strict=True)):
            indicators[index, column_rows, parameter] = 1.0
        return indicators

    def problem(self, weights: np.ndarray, noise: float, delta: float, prior: np.ndarray | float = 1.0) -> FitProblem:
        """Return the fit problem of the columns to the rows, in one ``z`` per column."""
        moves = self.moves

        def by_row(x: np.ndarray) -> np.ndarray:
            return self.offsets + np.einsum("c,crp->rp", x, moves)

        def residuals(x: np.ndarray) -> np.ndarray:
            return self.log_times(by_row(x)) - self.rows.measured

        def slopes(x: np.ndarray, _: np.ndarray) -> np.ndarray:
            return np.einsum("rp,crp->rc", self.slopes(by_row(x)), moves)

        return FitProblem(residuals, slopes, weights, noise, delta, np.broadcast_to(prior, len(moves)))

    def log_times(self, z: np.ndarray) -> np.ndarray:
        """Return log step times, in s, [row] at ``z`` [row, parameter]."""
        return self._by_structure(_log_step_times, z, z.shape[:1])

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Return the derivatives of the log step times by ``z`` [row, parameter], at ``z`` [row, parameter]."""
        return self._by_structure(_slopes, z, z.shape)

    def _by_structure(self, function: Callable[..., Any], z: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return values of a shape that begins with [row], computed by a function of the rows of each structure."""
        values, z = np.zeros(shape), z.astype(np.float32)
        factors = np.broadcast_to(np.asarray(self.factors, np.float32), z.shape)
        for members, leaves, structure in self.rows.structures:
            part = function(leaves, z[members], factors[members], structure=structure, parameters=self.parameters)
            values[members] = np.stack(part, axis=1) if isinstance(part, list) else part
        return values


@functools.lru_cache(maxsize=32)
def _recorded_step_time(structure: Any, paths: tuple[str, ...]) -> tuple[Equations, Any]:
    """Return the equations of the log step time, a function of ``paths``, then all leaves, and its tree structure."""

    def log_step_time(values: list[Scalar], row: list[Scalar]) -> Scalar:
        design = replace(jax.tree.unflatten(structure, row), dict(zip(paths, values, strict=True)))
        return jnp.log(evaluate(design).step_time)

    number = jax.ShapeDtypeStruct((), jnp.float32)
    return recording.trace(log_step_time, [number] * len(paths), [number] * structure.num_leaves)


@persistent_jit("structure", "parameters", quickly=True)
def _log_step_times(
    leaves: jax.Array, z: jax.Array, factors: jax.Array, *, structure: Any, parameters: tuple[Parameter, ...]
) -> jax.Array:
    """Return log step times in s, [row], of the parameters at ``z`` times ``factors``, both [row, parameter]."""
    equations, _ = _recorded_step_time(structure, tuple(p.path for p in parameters))

    def row_log_time(row: jax.Array, z: jax.Array, factors: jax.Array) -> jax.Array:
        value: jax.Array = equations(*_values(z, factors, parameters), *row)[0]
        return value

    return jax.vmap(row_log_time)(leaves, z, factors)


@persistent_jit("structure", "parameters", quickly=True)
def _slopes(
    leaves: jax.Array, z: jax.Array, factors: jax.Array, *, structure: Any, parameters: tuple[Parameter, ...]
) -> list[jax.Array]:
    """Return the derivatives of log step times, by parameter a list of [row]; one array would compute each anew."""
    operations = lower_equations(*_recorded_step_time(structure, tuple(p.path for p in parameters)), None, "float32")

    def row_slopes(row: jax.Array, z: jax.Array, factors: jax.Array) -> list[jax.Array]:
        _, slopes = Differentiated(operations, len(parameters))((*_values(z, factors, parameters), *row), ())
        return [
            g * f * jax.grad(p.value)(z_value) for g, f, p, z_value in zip(slopes, factors, parameters, z, strict=True)
        ]

    return jax.vmap(row_slopes)(leaves, z, factors)


def _values(z: jax.Array, factors: jax.Array, parameters: tuple[Parameter, ...]) -> list[jax.Array]:
    """Return the values of the parameters of one row at ``z`` [parameter], times its factors."""
    return [factor * p.value(z_value) for factor, p, z_value in zip(factors, parameters, z, strict=True)]
