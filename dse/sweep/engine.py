"""Many designs at once: the compiled programs of a sweep.

A chunk of outer indices x all columns of options is evaluated by two nested ``vmap``s, so that
what an option does not touch is computed once a row. Tables, radices and the start are
traced: one program serves all chunks, and every sweep of the same axes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dse.design import leaf, replace
from dse.sweep.expression import Expression, metric_units
from dse.sweep.grid import Grid
from dse.sweep.spec import Objective
from dse.types import Design, Infeasible, Metrics, Scalar

#: Bit of ``infeasible_reason`` for a constraint of the specification: the one after the model's own.
CONSTRAINT = 1 << max(Infeasible).bit_length()

#: Designs a chunk, when all outputs are stored and when only scores are.
CHUNK_FULL = 1 << 16
CHUNK_SCORES = 1 << 17

#: Tables and lists of designs are padded to this length at least.
_SHORTEST = 1024

#: ``start + iota`` is exact in int32 while both stay below this.
LONGEST_CHUNK = 1 << 21


@dataclasses.dataclass(frozen=True)
class Program:
    """What is compiled: the model, and the constraints and objectives on top of it."""

    model: Callable[[Design], Metrics]
    constraints: tuple[Expression, ...] = ()
    objectives: tuple[Objective, ...] = ()


class Tables(NamedTuple):
    """A grid on the device. Tables are padded to few lengths, so that most grids share their programs."""

    base: Design
    dimensions: tuple[dict[str, Array], ...]
    degrees: dict[str, Array]
    options: dict[str, Array]
    distinct: Array  #: [row, column]
    radices: Array  #: sizes of the dimensions and the number of rows


class Scores(NamedTuple):
    """Scores of a chunk: the smaller the better, infinite for what is infeasible or no mapping."""

    scores: Array  #: [objective, outer, column]
    row_best: Array  #: [objective, outer] the best of each row
    counts: Array  #: feasible designs, then designs by bit of infeasible_reason


def tables(grid: Grid) -> Tables:
    """The tables of a grid, in float32."""
    host = Tables(
        base=grid.base,
        dimensions=tuple(_padded_columns(dimension.columns) for dimension in grid.dimensions),
        degrees=_padded_columns(grid.table.degrees),
        options={path: column.astype(np.float32) for path, column in grid.table.options.items()},
        distinct=_padded(grid.table.distinct),
        radices=np.array([*grid.shape, grid.table.n_rows], np.int32),
    )
    return jax.device_put(host)


def _padded(column: np.ndarray) -> np.ndarray:
    """A table with its last row repeated up to a power of two, 1024 at least; no index ever points there."""
    extra = max(1 << (len(column) - 1).bit_length(), _SHORTEST) - len(column)
    return np.pad(column, [(0, extra)] + [(0, 0)] * (column.ndim - 1), mode="edge")


def _padded_columns(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {path: _padded(column).astype(np.float32) for path, column in columns.items()}


def decode(start: Array, radices: Array, count: int) -> list[Array]:
    """Mixed-radix digits of ``start + 0 … start + count - 1``, most significant first.

    Args:
        start: digits of the first index, decoded on the host, so that the index itself may exceed 2^31.
        radices: the sizes; index and radix may be anything below 2^30.
        count: how many, at most ``LONGEST_CHUNK``.

    Past the last index the digits begin again at 0.
    """
    carry = jnp.arange(count, dtype=jnp.int32)
    digits: list[Array] = []
    for position in reversed(range(radices.shape[0])):
        total = start[position] + carry
        carry = lax.div(total, jnp.broadcast_to(radices[position], total.shape))
        digits.append(total - carry * radices[position])
    return digits[::-1]


def _look_up(table: dict[str, Array], index: Array) -> dict[str, Array]:
    return {path: column.at[index].get(mode="promise_in_bounds") for path, column in table.items()}


def _outer_values(grid: Tables, digits: Sequence[Array]) -> dict[str, Array]:
    """Leaf path → values at outer indices given by their digits."""
    values = _look_up(grid.degrees, digits[-1])
    for table, digit in zip(grid.dimensions, digits[:-1], strict=True):
        values |= _look_up(table, digit)
    return values


def _point(program: Program, base: Design, outer: dict[str, Scalar], option: dict[str, Scalar]) -> tuple[Any, Any]:
    """Metrics and objective values (made small) of one design."""
    design = replace(base, outer | option)
    metrics = program.model(design)

    def lookup(name: str) -> Scalar:
        return getattr(metrics, name) if name in metric_units() else leaf(design, name)

    reason = jnp.asarray(metrics.infeasible_reason, jnp.int32)
    for constraint in program.constraints:
        reason = reason | jnp.where(constraint(lookup), 0, CONSTRAINT)
    metrics = dataclasses.replace(metrics, feasible=reason == 0, infeasible_reason=reason)
    objectives = tuple(objective.sign * objective.expression(lookup) for objective in program.objectives)
    return metrics, objectives


def _nested(program: Program, grid: Tables, digits: Sequence[Array]) -> tuple[Metrics, tuple[Array, ...]]:
    """The same for outer indices x all columns: arrays [outer, column]."""
    point = functools.partial(_point, program, grid.base)
    over_columns = jax.vmap(point, in_axes=(None, 0))
    return jax.vmap(over_columns, in_axes=(0, None))(_outer_values(grid, digits), grid.options)


@functools.partial(jax.jit, static_argnames=("program", "count"))
def evaluate_chunk(grid: Tables, start: Array, *, program: Program, count: int) -> tuple[Metrics, tuple[Array, ...]]:
    """All metrics and the objectives of ``count`` outer indices from ``start``: arrays [outer, column]."""
    return _nested(program, grid, decode(start, grid.radices, count))


@functools.partial(jax.jit, static_argnames=("program", "count"))
def score_chunk(grid: Tables, start: Array, n_valid: Array, *, program: Program, count: int) -> Scores:
    """Scores of ``count`` outer indices from ``start``, of which the first ``n_valid`` count."""
    digits = decode(start, grid.radices, count)
    metrics, objectives = _nested(program, grid, digits)
    valid = grid.distinct[digits[-1]] & (jnp.arange(count) < n_valid)[:, None]
    feasible = valid & metrics.feasible
    scores = jnp.stack([jnp.where(feasible, objective, jnp.inf) for objective in objectives])
    bits = [*map(int, Infeasible), CONSTRAINT]
    counted = [feasible, *(valid & ((metrics.infeasible_reason & bit) != 0) for bit in bits)]
    by_row = jnp.stack([jnp.sum(flags, axis=1, dtype=jnp.int32) for flags in counted])  # twice as fast as one sum
    return Scores(scores, scores.min(axis=2), by_row.sum(axis=1))


@functools.partial(jax.jit, static_argnames=("program",))
def evaluate_designs(
    grid: Tables, digits: Array, column: Array, *, program: Program
) -> tuple[Metrics, tuple[Array, ...]]:
    """All metrics and the objectives of single designs: arrays [design].

    ``digits`` [dimension… and row, design] are those of their outer indices, ``column`` [design] their
    columns of options.
    """
    point = functools.partial(_point, program, grid.base)
    return jax.vmap(point)(_outer_values(grid, list(digits)), _look_up(grid.options, column))


class Engine:
    """The programs of one grid, called with Python's integers and giving NumPy arrays."""

    def __init__(self, grid: Grid, model: Callable[[Design], Metrics], chunk: int | None = None) -> None:
        self.grid = grid
        self.program = Program(model, grid.constraints, grid.spec.objectives)
        self.tables = tables(grid)
        self._chunk = chunk

    def rows(self, default: int) -> int:
        """Outer indices a chunk, for about ``default`` designs, however small the grid: programs are shared."""
        return max(1, (self._chunk or default) // self.grid.table.n_columns)

    def _start(self, outer: int) -> np.ndarray:
        return np.array(self.grid.start_digits(outer), np.int32)

    def full(self, outer: int, count: int) -> tuple[Metrics, tuple[Array, ...]]:
        """Dispatch all outputs of ``count`` outer indices from ``outer``."""
        return evaluate_chunk(self.tables, self._start(outer), program=self.program, count=count)

    def scores(self, outer: int, count: int) -> Scores:
        """Dispatch the scores of ``count`` outer indices from ``outer``."""
        n_valid = np.int32(min(count, self.grid.n_outer - outer))
        return score_chunk(self.tables, self._start(outer), n_valid, program=self.program, count=count)

    def designs(self, index: np.ndarray) -> tuple[Metrics, tuple[Array, ...]]:
        """All outputs of the designs at these indices, a chunk at a time, padded to powers of two."""
        pieces = [self._designs(index[i : i + CHUNK_FULL]) for i in range(0, max(len(index), 1), CHUNK_FULL)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *pieces)

    def _designs(self, index: np.ndarray) -> tuple[Metrics, tuple[Array, ...]]:
        padded = np.zeros(max(1 << (len(index) - 1).bit_length(), _SHORTEST), np.int64)
        padded[: len(index)] = index
        digits, column = self.grid.locate(padded)
        found = evaluate_designs(self.tables, digits.astype(np.int32), column.astype(np.int32), program=self.program)
        return jax.tree.map(lambda array: np.asarray(array)[: len(index)], found)


class CompileClock:
    """Seconds that JAX has spent tracing and compiling in this process, as JAX itself reports them."""

    seconds: ClassVar[dict[str, float]] = {"trace": 0.0, "compile": 0.0}
    programs: ClassVar[int] = 0
    _listening: ClassVar[bool] = False

    @classmethod
    def read(cls) -> tuple[float, float, int]:
        """(seconds traced, seconds compiled, programs compiled) since the first reading."""
        if not cls._listening:
            jax.monitoring.register_event_duration_secs_listener(cls._note)
            cls._listening = True
        return cls.seconds["trace"], cls.seconds["compile"], cls.programs

    @classmethod
    def _note(cls, event: str, duration: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            cls.seconds["compile"] += duration
            cls.programs += 1
        elif event.startswith("/jax/core/compile/"):
            cls.seconds["trace"] += duration
