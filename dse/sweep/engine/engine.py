"""Many designs at once: the programs of one grid, called with Python's integers and giving NumPy arrays."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from dse.sweep.engine import nesting
from dse.sweep.engine.chunks import outer_chunk, score_chunk, stage_chunk
from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import Inner, Nest
from dse.sweep.engine.numpy_backend import evaluate_few, evaluate_outer, joined, score_outer
from dse.sweep.engine.point import Program, equations_of, neutral
from dse.sweep.engine.programs import persistent_value
from dse.sweep.engine.reductions import Owners, Scores, count_below, expanded, summarise
from dse.sweep.engine.staging import Moving, Outputs, Stages, goals, moving, outputs_of, staged, staged_scores
from dse.sweep.engine.tables import Tables, mask_places, tables
from dse.sweep.grid.grid import Grid

#: Metrics that scores need.
_OF_SCORES = ("feasible", "infeasible_reason")

#: Designs a chunk, when all outputs are stored and when only scores are; and where designs or sweeps are few.
CHUNK_FULL = 1 << 18
CHUNK_SCORES = 1 << 19
CHUNK_SHORT = 1 << 16

#: Designs of a sweep up to which NumPy evaluates all of them on a processor: within a second, where programs take five
#: or more to compile and a third of one to load.
MOST_BY_NUMPY = 200_000

#: How often chunks may be halved.
_MOST_HALVINGS = 12

#: Outer indices of a longer chunk come in groups of so many, which reductions take together.
_GROUPED, _GROUP = 256, 16

#: Outer indices that are computed at least: XLA writes other programs for one than for many, with other last bits.
_FEWEST = 4


class SweepEngine:
    """The programs of one grid: of several structures those of each member, which ``each`` has.

    Args:
        grid: the sweep; its specification tells the study, the objectives and the metrics.
        chunk: designs evaluated at once; by default what suits the sweep.
        by_numpy: whether nothing is compiled; by default so for small sweeps on processors.
    """

    def __init__(self, grid: Grid, chunk: int | None = None, by_numpy: bool | None = None) -> None:
        self.grid = grid
        is_small = grid.n_designs <= MOST_BY_NUMPY
        self.by_numpy = is_small and jax.default_backend() == "cpu" if by_numpy is None else by_numpy
        known = () if grid.members else neutral(grid.base, grid.columns)
        self.program = Program(grid.spec.study, grid.constraints, grid.spec.objectives, grid.spec.metrics, known)
        self._chunk, self._halvings = chunk, 0
        self._tables: dict[Any, tuple[Tables, dict[int, Array]]] = {}
        self.each: tuple[SweepEngine, ...] = (self,)
        if grid.members:
            self.each = tuple(SweepEngine(one, chunk, by_numpy) for one in grid.each)

    @functools.cached_property
    def full_nest(self) -> Nest:
        """What all outputs are computed in: points of the grid stay in their order."""
        return self._chosen(self.program, points_stay=True)

    @functools.cached_property
    def _joint_nest(self) -> Nest:
        return self._chosen(dataclasses.replace(self.program, metrics=_OF_SCORES), points_stay=False)

    def score_nest(self, by_point: bool) -> Nest:
        """What scores are computed in; ``by_point`` keeps the points of the grid apart."""
        return self.full_nest if by_point else self._joint_nest

    def _chosen(self, program: Program, points_stay: bool) -> Nest:
        """The nest in which a program takes least work."""
        plain = Nest(self.grid)
        axis_of = {path: axis for axis, columns in enumerate(plain.axes) for path in columns}
        along = [*[None] * self._n_base, *(axis_of.get(path, len(plain.sizes)) for path in sorted(self.grid.columns))]
        sizes = dict(enumerate(plain.sizes))
        options = {axis: size for axis, size in sizes.items() if axis >= len(self.grid.shape)}

        def choose() -> Inner:
            found, _ = equations_of(program, self._structure)
            wanted = () if points_stay else itertools.chain(*goals(program, self._structure))
            depends = nesting.axis_dependence(found, along, tuple(wanted))
            density = nesting.Density(self.grid, plain.sizes)
            return nesting.choose(depends, options if points_stay else sizes, tuple(options), density)

        table = hashlib.sha256(np.packbits(self.grid.table.distinct).tobytes()).hexdigest()
        made_from = f"nest {program} {sorted(axis_of.items())} {sizes} {points_stay} {table}"
        return Nest(self.grid, Inner(*self._kept(made_from, choose)))

    @property
    def _n_base(self) -> int:
        return len(jax.tree.leaves(self.grid.base))

    @functools.cached_property
    def _structure(self) -> jax.tree_util.PyTreeDef:
        """Of the inputs of programs."""
        return jax.tree.structure((self.grid.base, dict.fromkeys(self.grid.columns, 0.0)))

    def _kept(self, made_from: str, find: Callable[[], Any]) -> Any:
        """What follows from the code and a text alone, kept where the code is the package's own."""
        return persistent_value(made_from, find) if self.program.can_be_kept else find()

    # --- how much at once -------------------------------------------------------------------------------

    def length(self, nest: Nest, default: int) -> int:
        """Outer indices of a chunk, for about ``default`` scores or outputs.

        A grid that is smaller than a long chunk has short ones, and no others: programs are shared. So has a nest
        without an inner product: what lies between the operations of single designs must fit into caches.
        """
        if nest.n_positions == 1 or nest.n_outer * nest.n_positions < default:
            default = CHUNK_SHORT
        return max(1, (self._chunk or default) // nest.n_positions)

    def lines(self, nest: Nest, default: int) -> int:
        """The most lines that no more than a chunk of outer indices holds, at least one."""
        return self._lines_within(nest, self.length(nest, default))

    def _lines_within(self, nest: Nest, length: int) -> int:
        return max(1, bisect.bisect_right(range(nest.n_lines + 1), length, key=nest.most_in) - 1)

    def halve(self) -> bool:
        """Have chunks half as long computed from now on; False where they have been halved too often."""
        for one in self.each:
            one._halvings += 1
        return self.each[0]._halvings <= _MOST_HALVINGS

    def length_at_once(self, nest: Nest, default: int) -> int:
        """Outer indices that are computed at once: those of a chunk, fewer once memory was short."""
        return max(1, self.length(nest, default) >> self._halvings)

    def lines_at_once(self, nest: Nest, default: int) -> int:
        """Lines that are computed at once."""
        return self._lines_within(nest, self.length_at_once(nest, default))

    # --- what is computed -------------------------------------------------------------------------------

    def _moving(self, nest: Nest, program: Program) -> Moving:
        return moving(program, nest, self._structure, self._n_base)

    def _stages(self, nest: Nest) -> tuple[Moving, Stages, Outputs]:
        """The stages of all outputs, and where these are."""
        of = self._moving(nest, self.program)

        def find() -> tuple[Stages, Outputs]:
            found, structure = equations_of(self.program, self._structure)
            return staged(of, found.outputs), outputs_of(of, found.outputs, structure)

        return of, *self._kept(f"stages {of}", find)

    def score_stages(self, nest: Nest, n_objectives: int) -> tuple[Moving, Stages]:
        """The stages of the scores by the first objectives."""
        program = dataclasses.replace(
            self.program, objectives=self.program.objectives[:n_objectives], metrics=_OF_SCORES
        )
        of = self._moving(nest, program)

        def find() -> Stages:
            return staged_scores(of, goals(program, self._structure), nest.inner)

        return of, self._kept(f"scores {of} {nest.inner}", find)

    def _on_device(self, nest: Nest, of: Moving, stages: Stages) -> tuple[Tables, dict[int, Array]]:
        """The tables of a nest, and by variable the values that all chunks share."""
        key = nest.inner, of
        if key not in self._tables:
            given = {i for stage in (*stages.tables, *(group.stage for group in stages.groups)) for i in stage.inputs}
            paths = [path for i, path in enumerate(sorted(self.grid.columns), self._n_base) if i in given]
            made = tables(nest, paths)
            shared = dict(enumerate(jax.tree.leaves(made.base)))
            shared |= self._numbered(made.first) | self._numbered(made.second)
            self._tables[key] = made, shared
        return self._tables[key]

    def _numbered(self, columns: dict[str, Array]) -> dict[int, Array]:
        """By variable the values of leaves."""
        number = {path: i for i, path in enumerate(sorted(self.grid.columns), self._n_base)}
        return {number[path]: values for path, values in columns.items()}

    def outer(self, nest: Nest, grid: Tables, first: int, count: int, stop: int) -> tuple[dict[str, Array], Array]:
        """Dispatch the outer values of ``count`` indices from ``first``, and a few more for devices to share evenly.

        Nothing is a mapping from the index ``stop`` on.
        """
        together = len(jax.local_devices()) * (_GROUP if count > _GROUPED else 1)
        padded = -(-max(count, _FEWEST) // together) * together
        start, n_valid = np.array(nest.start_digits(first), np.int32), np.int32(min(count, stop - first))
        return outer_chunk(grid, start, n_valid, count=padded, sharding=over_devices("outer"))

    def _values(
        self, nest: Nest, of: Moving, stages: Stages, first: int, count: int, stop: int
    ) -> tuple[dict[int, Array], Array]:
        """By variable the values of a chunk after its tables, and the words of its masks."""
        grid, shared = self._on_device(nest, of, stages)
        outer, words = self.outer(nest, grid, first, count, stop)
        values = shared | self._numbered(outer)
        for stage in stages.tables:
            given = tuple(values[i] for i in stage.inputs)
            made = stage_chunk(given, of=of, stage=stage, sharding=over_devices("outer"))
            values |= dict(zip(stage.outputs, made, strict=True))
        return values, words

    def full(self, line: int, count: int) -> tuple[Any, tuple[Any, ...]]:
        """Dispatch all outputs of ``count`` lines from ``line``.

        Returns:
            Metrics and objectives, an :class:`~dse.sweep.engine.staging.Output` each.
        """
        nest = self.full_nest
        first, stop = nest.first_of(line), nest.first_of(min(line + count, nest.n_lines))
        if self.by_numpy:
            return evaluate_outer(nest, range(first, stop), program=self.program)
        of, stages, outputs = self._stages(nest)
        length = max(self.length_at_once(nest, CHUNK_FULL), nest.most_in(count))
        values, words = self._values(nest, of, stages, first, length, stop)
        return outputs.of(values, (len(words), *nest.parts_shape))

    def scores(
        self, nest: Nest, first: int, count: int, pivots: np.ndarray, thresholds: np.ndarray | None = None,
        stop: int | None = None,
    ) -> Scores:  # fmt: skip
        """Dispatch the scores of ``count`` outer indices from ``first``, by as many objectives as the pivots have.

        Nothing is a mapping from the index ``stop`` on. ``thresholds`` [objective, threshold] asks how many scores are
        below each.
        """
        stop = nest.n_outer if stop is None else stop
        if self.by_numpy:
            outer = range(first, min(first + count, stop))
            return score_outer(nest, outer, count, pivots.shape[1], thresholds, program=self.program)
        of, stages = self.score_stages(nest, pivots.shape[1])
        values, words = self._values(nest, of, stages, first, count, stop)
        found = [
            score_chunk(
                tuple(values[i] for i in group.stage.inputs), words, mask, of=of, group=group, lengths=lengths
            )
            for group, mask, lengths in zip(stages.groups, *self._masks(nest), strict=True)
        ]  # fmt: skip
        scores, reasons = tuple(own for own, _ in found), tuple(own for _, own in found)
        feasible_bit, owners = self.program.study.feasible_bit, owners_of(stages)
        bits = tuple(group.bits | feasible_bit for group in stages.groups)
        made = summarise(scores, reasons, pivots, owners=owners, bits=bits, feasible_bit=feasible_bit)
        if thresholds is None:
            return made
        return made._replace(below=count_below(scores, reasons, thresholds, owners=owners, feasible_bit=feasible_bit))

    def _masks(self, nest: Nest) -> tuple[list[Any], list[tuple[int, int]]]:
        """By group (word, bit) of each position, None where another group has the options; lengths of its parts."""
        first, second = nest.parts_shape
        lengths = [(first, 1), (1, second)] if nest.inner.apart else [(first, second)]
        own = [bool(set(axes) & set(nest.inner_options)) for axes in nest.groups]
        with_mask = own.index(True) if any(own) else 0
        masks = [
            tuple(place.reshape(shape) for place in mask_places(nest, axes)) if number == with_mask else None
            for number, (axes, shape) in enumerate(zip(nest.groups, lengths, strict=True))
        ]
        return masks, lengths

    def expanded(self, nest: Nest, found: Scores, rows: np.ndarray) -> np.ndarray:
        """[objective, row, inner] the scores at some outer indices of a chunk."""
        owners = tuple((0, row) for row in range(len(found.outer_best)))
        if nest.inner.apart and not self.by_numpy:
            owners = owners_of(self.score_stages(nest, len(found.outer_best))[1])
        return expanded(found, rows, owners, self.program.study.feasible_bit)

    def designs(self, index: np.ndarray) -> tuple[Any, tuple[np.ndarray, ...]]:
        """All outputs of the designs at these indices."""
        if not self.grid.members:
            return evaluate_few(self.grid.base, self.grid.values(index), program=self.program)
        engines = dict(zip(map(id, self.grid.each), self.each, strict=True))
        found = [(places, engines[id(grid)].designs(own)) for places, grid, own in self.grid.by_structure(index)]
        return joined(found)


def owners_of(stages: Stages) -> Owners:
    """By objective its group and its number there."""
    places = {k: (g, row) for g, group in enumerate(stages.groups) for row, k in enumerate(group.objectives)}
    return tuple(places[k] for k in sorted(places))
