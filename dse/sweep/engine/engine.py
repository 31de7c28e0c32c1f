"""Many designs at once: the programs of one grid, with Python's integers as arguments and arrays as values."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.equations.folding import DecidedVariable, Ranges, are_integers, decisions
from dse.equations.rules import Pair
from dse.io import cache
from dse.io.environment import software_versions
from dse.sweep.engine import nesting
from dse.sweep.engine.nesting import LONGEST_CHUNK, Inner, Nest
from dse.sweep.engine.numpy_backend import evaluate_few, evaluate_outer, merge_structures, score_outer
from dse.sweep.engine.options import Density, option_axes
from dse.sweep.engine.point import Program, equations_of, neutral_inputs
from dse.sweep.engine.scores import Scores, expand_groups, host_rows
from dse.sweep.grid.grid import Grid
from dse.types.trees import tree_leaves

if TYPE_CHECKING:
    import jax

    from dse.sweep.engine.chunks import ChunkPrograms
    from dse.sweep.engine.staging import Outputs, ProgramStages, StagedProgram

# What compiles programs is imported where programs are needed: small sweeps have none, nor JAX.

#: Metrics that scores are computed from.
_SCORE_METRICS = ("feasible", "infeasible_reason")

#: Designs a chunk, when all outputs are stored and when only scores are; and where designs or sweeps are few.
CHUNK_FULL = 1 << 18
CHUNK_SCORES = 1 << 19
CHUNK_SHORT = 1 << 16

#: Designs of a sweep up to which NumPy evaluates all of them, whatever the device: within a second, where programs take
#: five or more to compile and a third of one to load.
MAX_NUMPY_DESIGNS = 200_000

#: Designs of a chunk that are counted in whole numbers of 32 bits.
_MAX_COUNTED = 1 << 30

#: How often chunks may be halved.
_MAX_HALVINGS = 12


class SweepEngine:
    """The programs of one grid. A grid of several structures has one engine for each member, in ``each``.

    Args:
        grid: the sweep; its specification has the study, the objectives and the metrics.
        chunk: designs evaluated at once; by default what suits the sweep.
        by_numpy: True to compile nothing; by default True for small sweeps.
    """

    def __init__(self, grid: Grid, chunk: int | None = None, by_numpy: bool | None = None) -> None:
        self.grid = grid
        is_small = grid.n_designs <= MAX_NUMPY_DESIGNS
        self.by_numpy = is_small if by_numpy is None else by_numpy
        inputs = () if grid.members else neutral_inputs(grid.base, grid.columns)
        self.program = Program(grid.spec.study, grid.constraints, grid.spec.objectives, grid.spec.metrics, inputs)
        self._chunk, self._halvings = chunk, 0
        self._score_programs: dict[Any, ChunkPrograms] = {}
        self._decided: dict[Program, Program] = {}
        self.structure_engines: tuple[SweepEngine, ...] = (self,)
        if grid.members:
            self.structure_engines = tuple(
                SweepEngine(structure_grid, chunk, by_numpy) for structure_grid in grid.structure_grids
            )

    @functools.cached_property
    def full_nest(self) -> Nest:
        """The nest of all outputs: only options are inner axes, so that lines are rows of the grid in their order."""
        return self._best_nest(self.compiled, options_only=True)

    @functools.cached_property
    def _joint_nest(self) -> Nest:
        """The nest of scores in which dimensions may be inner axes too."""
        program = dataclasses.replace(self.compiled, metrics=_SCORE_METRICS)
        return self._best_nest(program, options_only=False)

    def score_nest(self, by_point: bool) -> Nest:
        """Return the nest of scores; with ``by_point`` no outer index has several points of the grid."""
        return self.full_nest if by_point else self._joint_nest

    def _best_nest(self, program: Program, options_only: bool) -> Nest:
        """Return the nest in which a program costs least (:func:`~.nesting.cost_per_design`)."""
        flat_nest = Nest(self.grid)
        axis_of = {path: axis for axis, columns in enumerate(flat_nest.axes) for path in columns}
        input_axes = [
            *[None] * self._n_base,
            *(axis_of.get(path, len(flat_nest.sizes)) for path in sorted(self.grid.columns)),
        ]
        sizes = dict(enumerate(flat_nest.sizes))
        options = {axis: size for axis, size in sizes.items() if axis >= len(self.grid.shape)}

        def choose() -> Inner:
            equations, _ = equations_of(program, self._structure)
            from dse.sweep.engine.staging import score_outputs

            outputs = () if options_only else itertools.chain(*score_outputs(program, self._structure))
            dependence = nesting.axis_dependence(equations, input_axes, tuple(outputs))
            density = Density(self.grid, flat_nest.sizes)
            return nesting.choose_inner(dependence, options if options_only else sizes, tuple(options), density)

        table = hashlib.sha256(np.packbits(self.grid.table.distinct).tobytes()).hexdigest()
        cache_key = f"nest {program} {sorted(axis_of.items())} {sizes} {options_only} {table}"
        return Nest(self.grid, Inner(*self._cached(cache_key, choose)))

    @property
    def _n_base(self) -> int:
        """Number of leaves of the base."""
        return len(tree_leaves(self.grid.base))

    @functools.cached_property
    def _structure(self) -> jax.tree_util.PyTreeDef:
        """Structure of the inputs of programs: (base, leaf path → value) as a pytree."""
        import jax

        return jax.tree.structure((self.grid.base, dict.fromkeys(self.grid.columns, 0.0)))

    def _cached(self, cache_key: str, find: Callable[[], Any]) -> Any:
        """Return the value of ``find``, from disk if it was computed before by the package's own code for this key."""
        return cache.get_or_compute(f"{software_versions()} {cache_key}", find) if self.program.is_cacheable else find()

    # --- how much at once -------------------------------------------------------------------------------

    def length(self, nest: Nest, default: int) -> int:
        """Return the number of outer indices of a chunk, for ``chunk`` or else about ``default`` scores or outputs.

        A grid that is smaller than a long chunk has short ones, and no others: programs are shared. So has a nest
        without an inner product: what lies between the operations of single designs must fit into caches. What a chunk
        costs besides its designs (a millisecond) is a fifth of that of 65,536 scores.
        """
        if nest.scores_per_outer == 1:
            default = CHUNK_SHORT
        elif nest.n_outer * nest.scores_per_outer < default:
            default //= 4
        if not self.by_numpy:
            from dse.sweep.engine.devices import chunk_scale

            default *= chunk_scale()
        length = (self._chunk or default) // nest.scores_per_outer
        return max(1, min(length, LONGEST_CHUNK >> 1, _MAX_COUNTED // nest.n_inner))

    def lines(self, nest: Nest, default: int, dispatched: bool = False) -> int:
        """Return the number of lines of a chunk or of a dispatch: the most whose outer indices fit, at least 1."""
        length = (self.dispatch_length if dispatched else self.length)(nest, default)
        return max(1, bisect.bisect_right(range(nest.n_lines + 1), length, key=nest.max_outer_in) - 1)

    def halve(self) -> bool:
        """Halve the chunks from now on; return False where they have been halved too often."""
        for engine in self.structure_engines:
            engine._halvings += 1
        return self.structure_engines[0]._halvings <= _MAX_HALVINGS

    def dispatch_length(self, nest: Nest, default: int) -> int:
        """Return the number of outer indices of a dispatch: those of a chunk, fewer once memory was short."""
        return max(1, self.length(nest, default) >> self._halvings)

    # --- what is computed -------------------------------------------------------------------------------

    @property
    def compiled(self) -> Program:
        """The program as it is compiled: equations that the ranges of the sweep's values decide are constants."""
        return self._compiled(self.program)

    def _compiled(self, program: Program) -> Program:
        """Return a program with what the sweep's ranges of values decide as constants; unchanged for NumPy."""
        if self.by_numpy:
            return program
        if program not in self._decided:
            full_program, cells = dataclasses.replace(program, metrics=None), GridCells(self.grid)

            def find() -> tuple[DecidedVariable, ...]:
                equations, _ = equations_of(dataclasses.replace(full_program, neutral_inputs=()), self._structure)
                return decisions(equations, dict(program.neutral_inputs), cells.ranges())

            decided = self._cached(f"decided {full_program} {self._structure} {cells.digest}", find)
            self._decided[program] = dataclasses.replace(program, decided=decided)
        return self._decided[program]

    def _stage_program(self, nest: Nest, program: Program) -> StagedProgram:
        """Return a program with the array axes of its inputs in a nest."""
        from dse.sweep.engine.staging import stage_program

        return stage_program(program, nest, self._structure, self._n_base)

    @functools.cached_property
    def _outputs(self) -> tuple[ChunkPrograms, Outputs]:
        """The compiled stages of all outputs, and the variables that these are."""
        from dse.sweep.engine.chunks import ChunkPrograms

        staged_program = self._stage_program(self.full_nest, self.compiled)

        def find() -> tuple[ProgramStages, Outputs]:
            equations, structure = equations_of(staged_program.program, self._structure)
            outputs = staged_program.outputs(equations.outputs, structure)
            return staged_program.output_stages(equations.outputs), outputs

        stages, outputs = self._cached(f"stages {staged_program}", find)
        return ChunkPrograms(self.full_nest, staged_program, stages, outputs.variables), outputs

    def score_programs(self, nest: Nest, n_objectives: int) -> ChunkPrograms:
        """Return the compiled stages of the scores by the first ``n_objectives`` objectives."""
        from dse.sweep.engine.chunks import ChunkPrograms
        from dse.sweep.engine.staging import score_outputs

        key = nest.inner, n_objectives
        if key not in self._score_programs:
            program = dataclasses.replace(self.program, objectives=self.program.objectives[:n_objectives])
            program = dataclasses.replace(self._compiled(program), metrics=_SCORE_METRICS)
            staged_program = self._stage_program(nest, program)

            def find() -> ProgramStages:
                return staged_program.score_stages(score_outputs(program, self._structure), nest.inner)

            self._score_programs[key] = ChunkPrograms(
                nest, staged_program, self._cached(f"scores {staged_program} {nest.inner}", find)
            )
        return self._score_programs[key]

    def full(self, line: int, count: int) -> tuple[Any, tuple[Any, ...]]:
        """Dispatch ``count`` lines from ``line`` and return all their outputs.

        Args:
            line: the first line of the full nest.
            count: number of lines.

        Returns:
            The study's record of metrics and the objectives, an :class:`~dse.sweep.engine.scores.Output` each.
        """
        nest = self.full_nest
        first, stop = nest.line_start(line), nest.line_start(min(line + count, nest.n_lines))
        if self.by_numpy:
            return evaluate_outer(nest, range(first, stop), program=self.program)
        programs, outputs = self._outputs
        length = max(self.dispatch_length(nest, CHUNK_FULL), nest.max_outer_in(count))
        values, padded = programs.values(first, length, stop)
        return outputs.from_values(values, (*nest.factor_sizes, padded))

    def scores(
        self,
        nest: Nest,
        first: int,
        count: int,
        pivots: np.ndarray,
        thresholds: np.ndarray | None = None,
        stop: int | None = None,
    ) -> Scores:
        """Dispatch a chunk and return its scores by as many objectives as the pivots have.

        Args:
            nest: the nest of the scores.
            first: first outer index.
            count: number of outer indices.
            pivots: [pivot, objective] scores of known designs that rule out others.
            thresholds: [objective, threshold] below which scores are counted; None for no counts.
            stop: outer index from which on nothing counts as a mapping; by default the end of the sweep.

        Returns:
            The scores with their minima and counts, on the device.
        """
        stop = nest.n_outer if stop is None else stop
        if self.by_numpy:
            outer = range(first, min(first + count, stop))
            return score_outer(nest, outer, count, pivots.shape[1], thresholds, program=self.program)
        return self.score_programs(nest, pivots.shape[1]).scores(first, count, stop, pivots, thresholds)

    def inner_scores(self, nest: Nest, chunk_scores: Scores, rows: np.ndarray) -> np.ndarray:
        """Return [objective, row, inner] scores of ``rows``: outer indices, counted from the chunk's start."""
        is_separable = nest.inner.separable and not self.by_numpy
        owners = self.score_programs(nest, len(chunk_scores.outer_best)).owners if is_separable else ()
        take_rows: Callable[[Any, np.ndarray], np.ndarray] = host_rows
        if not self.by_numpy:
            from dse.sweep.engine.reductions import device_rows as take_rows
        return expand_groups(chunk_scores, rows, owners, self.program.study.feasible_bit, take_rows)

    def designs(self, index: np.ndarray) -> tuple[Any, tuple[np.ndarray, ...]]:
        """Return all metrics and the objectives, arrays [design], of the designs with these indices."""
        if not self.grid.members:
            return evaluate_few(self.grid.base, self.grid.values(index), program=self.program)
        engines = dict(zip(map(id, self.grid.structure_grids), self.structure_engines, strict=True))
        outputs = [
            (positions, engines[id(grid)].designs(local_index))
            for positions, grid, local_index in self.grid.by_structure(index)
        ]
        return merge_structures(outputs)


#: Maximum number of cells, and of rows of degrees that are cells of their own: what follows from degrees alone
#: (divisors, ceilings) decides most and is best known exactly.
_MAX_CELLS, _MAX_ROWS = 4096, 16384


class GridCells:
    """The designs of a grid of one structure in cells of a coarser grid, for interval arithmetic over each cell."""

    def __init__(self, grid: Grid) -> None:
        self._base = [np.float32(leaf) for leaf in tree_leaves(grid.base)]
        self._axes = [grid.table.degrees, *(dimension.columns for dimension in grid.dimensions), *option_axes(grid)]
        self._paths = sorted(grid.columns)

    @property
    def digest(self) -> str:
        """SHA-256 of the values of all leaves, hexadecimal."""
        hasher = hashlib.sha256(np.array(self._base).tobytes())
        for axis in self._axes:
            for path, values in axis.items():
                hasher.update(f"{path} {len(values)} ".encode() + values.astype(np.float32).tobytes())
            hasher.update(b"axis ")
        return hasher.hexdigest()

    def ranges(self) -> Ranges:
        """Return the least and the largest value in each cell of every input: of the base, then of axes by path."""
        sizes = [max(map(len, axis.values()), default=1) for axis in self._axes]
        range_of_path = {
            path: _cell_bounds(values, starts, i, len(sizes))
            for i, (axis, count) in enumerate(zip(self._axes, _cells_by_axis(sizes), strict=True))
            for starts in [_cell_starts(axis, sizes[i], count)]
            for path, values in axis.items()
        }
        base_values = (value.reshape((1,) * len(sizes)) for value in self._base)
        inputs = [(value, value) for value in base_values]
        values = [*self._base, *(axis[path] for path in self._paths for axis in self._axes if path in axis)]
        integer_inputs = [
            position for position, array in enumerate(values) if are_integers(np.asarray(array, np.float32))
        ]
        return Ranges(dict(enumerate([*inputs, *(range_of_path[path] for path in self._paths)])), integer_inputs)


def _cells_by_axis(sizes: Sequence[int]) -> list[int]:
    """Return the number of cells along each axis, of degrees first: as many as allowed, then for the shortest axes."""
    counts = [min(sizes[0], _MAX_ROWS)] + [1] * (len(sizes) - 1)
    remaining = _MAX_CELLS // counts[0]
    for axis in sorted(range(1, len(sizes)), key=lambda axis: sizes[axis]):
        counts[axis] = max(1, min(sizes[axis], remaining))
        remaining //= counts[axis]
    return counts


def _cell_starts(columns: Mapping[str, np.ndarray], size: int, count: int) -> np.ndarray:
    """Return [cell] the index of an axis of ``size`` values at which each of about ``count`` cells starts.

    Cells have equal lengths, or equal ratios where the axis has one leaf with ascending positive values.
    """
    values = next(iter(columns.values()), np.ones(1))
    if count < size and len(columns) == 1 and values[0] > 0.0 and (np.diff(values) > 0.0).all():
        return np.unique(np.searchsorted(values, np.geomspace(values[0], values[-1], count + 1)[:-1]))
    return np.arange(count) * size // count


def _cell_bounds(values: np.ndarray, starts: np.ndarray, axis: int, n_axes: int) -> Pair:
    """Return (least, largest) value in each cell along ``axis``, arrays of length 1 along the other axes."""
    values = values.astype(np.float32)
    shape = [len(starts) if i == axis else 1 for i in range(n_axes)]
    low, high = (reduction.reduceat(values, starts).reshape(shape) for reduction in (np.minimum, np.maximum))
    return (low, low) if (low == high).all() else (low, high)
