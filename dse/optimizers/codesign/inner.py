"""The best mapping of given hardware, exactly: every mapping of a sweep's table at many hardware points at once.

The objective is a minimum over mappings. Where the winner does not change, the gradient of that minimum is the gradient
at the winner alone (envelope theorem), so that no mapping is ever differentiated but the few best.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.designs import leaf, replace
from dse.equations import Equations, ScalarFunction
from dse.io.files import search_digest
from dse.model import generated
from dse.sweep import Grid
from dse.sweep.engine.gradients import Gradient
from dse.sweep.engine.point import Program, evaluate_point, traced
from dse.sweep.engine.programs import persistent_jit
from dse.types import Design, Scalar

#: Evaluations of the model that a value with its gradient takes the time of (docs/benchmarks.md).
GRADIENT_COST = 12


class InnerPoint(NamedTuple):
    """Objective, memory excess and infeasibility of designs."""

    objective: Scalar  #: logarithm of what is made small
    excess: Scalar  #: logarithm of peak memory over usable memory
    reason: Scalar  #: bits of infeasible_reason


class BestMappings(NamedTuple):
    """The best mappings of hardware points; a mapping is its row of degrees x columns + its column of options."""

    best: np.ndarray  #: [point, workload] logarithm of the least objective of mappings that can run; inf for none
    mapping: np.ndarray  #: [point, workload] the mapping that has it
    relaxed: np.ndarray  #: [point, workload, k] the k least, where too little memory is a penalty and no more
    mappings: np.ndarray  #: [point, workload, k] and their mappings


@functools.lru_cache(maxsize=16)
def _equations(
    program: Program, structure: jax.tree_util.PyTreeDef, dtype: Any
) -> tuple[Equations, jax.tree_util.PyTreeDef]:
    """Return the equations of :func:`_point` for scalars of such a structure, and the structure of their outputs."""
    return traced(functools.partial(_point, program), structure, dtype)


def _point(program: Program, base: Design, values: dict[str, Scalar]) -> InnerPoint:
    """Return objective, excess and reason of the base design with ``values`` (full path → value), by the model."""
    metrics, (objective,) = evaluate_point(program, base, values)
    sign, study = program.objectives[0].sign, program.study
    usable, memory = study.capacity(generated(replace(base, values))), getattr(metrics, study.memory)
    return InnerPoint(
        sign * jnp.log(jnp.maximum(sign * objective, 1e-30)),
        jnp.log(memory / jnp.maximum(usable, 1.0)),
        metrics.infeasible_reason,
    )


@persistent_jit("program")
def _all_mappings(base: Design, tables: Sequence[dict[str, Array]], *, program: Program) -> InnerPoint:
    """Return the points of a product of tables: arrays [hardware, workload x row, column].

    ``tables`` are those of the hardware, of workloads, of degrees and of options: leaf path → column.
    """
    *axes, options = tables
    sizes = tuple(len(next(iter(axis.values()))) for axis in axes)
    grid_columns: dict[str, Array] = {}
    for axis_index, axis in enumerate(axes):
        shape = [size if i == axis_index else 1 for i, size in enumerate(sizes)]
        grid_columns |= {
            path: jnp.broadcast_to(column.reshape(shape), sizes).reshape(-1) for path, column in axis.items()
        }

    def point(values: dict[str, Array], option: dict[str, Array]) -> InnerPoint:
        leaves, structure = jax.tree.flatten((base, values | option))
        run, outputs = _equations(program, structure, jnp.zeros(()).dtype)
        return jax.tree.unflatten(outputs, run(*leaves))

    points = jax.vmap(jax.vmap(point, in_axes=(None, 0)), in_axes=(0, None))(grid_columns, options)
    return jax.tree.map(lambda array: array.reshape(sizes[0], sizes[1] * sizes[2], -1), points)


@functools.lru_cache(maxsize=4)
def _relaxed(program: Program) -> Gradient:
    """Return the function (hardware, mapping, stiffness, base) → relaxed log objective and its gradient by hardware."""

    def relaxed(
        hardware: dict[str, Scalar], mapping: dict[str, Scalar], stiffness: Scalar, base: Design
    ) -> tuple[tuple[Scalar], None]:
        point = _point(program, base, hardware | mapping)
        return (point.objective + stiffness * jnp.maximum(point.excess, 0.0),), None

    cache_key = f"relaxed {search_digest()} {program}" if program.is_cacheable else None
    return Gradient(ScalarFunction(relaxed, cache_key))


class InnerProblem:
    """The minimum over mappings at hardware points, for a grid whose points are workloads.

    Args:
        grid: its dimensions are the workloads, its table the mappings.
        hardware: full paths of the hardware leaves that every call passes.
        k: mappings that the relaxed problem keeps.
    """

    def __init__(self, grid: Grid, hardware: tuple[str, ...], k: int) -> None:
        self.grid, self.hardware, self.k = grid, hardware, k
        metrics = grid.spec.study.memory, "infeasible_reason"
        self.program = Program(grid.spec.study, grid.constraints, grid.spec.objectives, metrics)
        self.degrees, self.options = grid.table.degrees, grid.table.options
        digits = np.unravel_index(np.arange(grid.n_points), grid.shape) if grid.shape else ()
        self.workloads = {
            path: column[digit]
            for dimension, digit in zip(grid.dimensions, digits, strict=True)
            for path, column in dimension.columns.items()
        } or {"workload.n_layers": np.array([float(grid.base.workload.n_layers)])}
        self.evaluations = 0  #: of the model so far, a gradient as GRADIENT_COST of them

    @property
    def evaluations_per_point(self) -> int:
        """Number of evaluations of the model for the exact minimum of one hardware point, all workloads."""
        return self.grid.n_points * self.grid.table.distinct.size

    def evaluations_per_step(self, points: int) -> int:
        """Return the evaluations of a descent's step at ``points`` points, slopes of the best mappings included."""
        n_gradients = min(self.k, self.grid.table.distinct.size)
        return points * (self.evaluations_per_point + GRADIENT_COST * self.grid.n_points * n_gradients)

    def all_leaves(self, leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return full path → values [point] of all hardware leaves, those absent from ``leaves`` as in the base."""
        count = len(next(iter(leaves.values())))
        base_leaves = {path: np.full(count, leaf(self.grid.base, path)) for path in self.hardware if path not in leaves}
        return self._array(base_leaves | leaves)

    def best(self, leaves: dict[str, np.ndarray], stiffness: float = 0.0) -> BestMappings:
        """Return the best mappings of every workload at hardware points, and count the evaluations.

        Args:
            leaves: path → [point].
            stiffness: penalty of a logarithm of too much memory.
        """
        count = len(next(iter(leaves.values())))
        self.evaluations += count * self.evaluations_per_point
        tables = self.all_leaves(leaves), *map(self._array, (self.workloads, self.degrees, self.options))
        evaluations = _all_mappings(self._base(), tables, program=self.program)
        objective, excess, reason = (np.asarray(array).reshape(count, self.grid.n_points, -1) for array in evaluations)
        is_mapping = self.grid.table.distinct.reshape(-1)
        can_run = is_mapping & (reason == 0)
        exact_objective = np.where(can_run, objective, np.inf)
        mapping = exact_objective.argmin(axis=2)
        penalty = np.asarray(stiffness, objective.dtype) * np.maximum(excess, 0.0)
        runs_with_memory = is_mapping & ((reason & ~self._memory_reasons) == 0)
        relaxed = np.where(runs_with_memory, objective + penalty, np.inf)
        k = min(self.k, relaxed.shape[2])
        nearest = np.sort(np.argpartition(relaxed, k - 1, axis=2)[..., :k], axis=2)  # ties in the table's order
        smallest = np.take_along_axis(relaxed, nearest, axis=2)
        order = smallest.argsort(axis=2, kind="stable")
        return BestMappings(
            np.take_along_axis(exact_objective, mapping[..., None], axis=2)[..., 0],
            mapping,
            np.take_along_axis(smallest, order, axis=2),
            np.take_along_axis(nearest, order, axis=2),
        )

    def slopes(
        self, leaves: dict[str, np.ndarray], mappings: np.ndarray, stiffness: float = 0.0
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return relaxed log objective and path → gradient by hardware leaf, each [point, workload, k].

        Args:
            leaves: path → [point].
            mappings: [point, workload, k] mappings to differentiate.
            stiffness: see :meth:`best`.
        """
        shape = mappings.shape
        self.evaluations += GRADIENT_COST * mappings.size
        points, workloads = (np.broadcast_to(index, shape) for index in np.ix_(*map(range, shape[:2]), (0,))[:2])
        hardware = {path: column[points].reshape(-1) for path, column in self.all_leaves(leaves).items()}
        values = {path: column.reshape(-1) for path, column in self._values(workloads, mappings).items()}
        stiffness_of_design = np.full(mappings.size, stiffness)  # of every design its own: it differs between steps
        arguments = hardware, values, stiffness_of_design, self.grid.base
        relaxed, slopes = _relaxed(self.program).over(mappings.size, *arguments)
        return relaxed.reshape(shape), {path: slope.reshape(shape) for path, slope in slopes.items()}

    def labels(self, mapping: int) -> dict[str, Any]:
        """Return axis name → label of a mapping, by its index: row of degrees x columns + column of options."""
        mapping_index = int(np.count_nonzero(self.grid.table.distinct.reshape(-1)[: int(mapping)]))
        labels = self.grid.labels(mapping_index)
        return {axis.name: labels[axis.name] for axis in self.grid.mapping_axes}

    def values(self, workload: int, mapping: int) -> dict[str, float]:
        """Return full path → value of a workload and a mapping, both by index."""
        return {path: float(value) for path, value in self._values(workload, int(mapping)).items()}

    def _values(self, workloads: Any, mappings: Any) -> dict[str, Any]:
        """Return full path → values [...] of workloads [...] and mappings [...], by index."""
        index = (workloads, *np.divmod(mappings, self.grid.table.n_columns))
        tables = zip((self.workloads, self.degrees, self.options), index, strict=True)
        return {path: column[i] for table, i in tables for path, column in table.items()}

    @property
    def _memory_reasons(self) -> int:
        """Bits of the infeasibility reasons that less memory removes: capacity, and constraints on its fit."""
        bits, constraints = self.grid.spec.study.reason_bits, self.grid.constraints
        only_memory = all(set(constraint.names) <= {"fits_probability"} for constraint in constraints)
        return bits["memory"] | (bits["constraint"] if only_memory else 0)

    def _base(self) -> Design:
        """Return the base design with its leaves as arrays of JAX's default precision."""
        dtype = jnp.zeros(()).dtype
        return jax.tree.map(lambda value: np.asarray(value, dtype), self.grid.base)

    @staticmethod
    def _array(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return path → column as arrays of JAX's default precision."""
        dtype = jnp.zeros(()).dtype
        return {path: np.asarray(column, dtype) for path, column in columns.items()}
