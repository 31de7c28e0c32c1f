"""Many designs at once: the programs of one grid, called with Python's integers and giving NumPy arrays."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax import Array

from dse.sweep.engine import nesting
from dse.sweep.engine.chunks import evaluate_chunk, outer_chunk, score_chunk
from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import Nest
from dse.sweep.engine.numpy_backend import evaluate_few, evaluate_lines, joined, score_lines
from dse.sweep.engine.point import Program, equations_of, neutral
from dse.sweep.engine.programs import persistent_value
from dse.sweep.engine.reductions import Scores, count_below, summarise
from dse.sweep.engine.tables import Tables, host_values, tables
from dse.sweep.grid.grid import Grid

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
        self._tables: dict[Any, Tables] = {}
        self.each: tuple[SweepEngine, ...] = (self,)
        if grid.members:
            self.each = tuple(SweepEngine(one, chunk, by_numpy) for one in grid.each)

    @functools.cached_property
    def _nests(self) -> tuple[Nest, Nest]:
        """The nests in which points stay apart, for all outputs, and in which they need not, for scores."""
        dimensions, options = [d.columns for d in self.grid.dimensions], nesting.option_axes(self.grid)
        axis_of = {path: i for i, axis in enumerate([*dimensions, *options, self.grid.table.degrees]) for path in axis}
        n_options = {len(dimensions) + i: len(next(iter(axis.values()))) for i, axis in enumerate(options)}
        n_positions = dict(enumerate(self.grid.shape))

        def choose() -> list[frozenset[int]]:
            structure = jax.tree.structure((self.grid.base, dict.fromkeys(axis_of, 0.0)))
            base = [None] * len(jax.tree.leaves(self.grid.base))
            model, _ = equations_of(self.program, structure)
            counts = nesting.axis_dependence(model, [*base, *(axis_of[path] for path in sorted(axis_of))])
            return [nesting.choose(counts, sizes) for sizes in (n_options, n_positions | n_options)]

        made_from = f"nests {self.program} {sorted(axis_of.items())} {n_options} {n_positions}"
        chosen = persistent_value(made_from, choose) if self.program.can_be_kept else choose()
        apart, together = map(self._nest, chosen)
        return apart, together

    def _nest(self, inner: frozenset[int]) -> Nest:
        n = len(self.grid.dimensions)
        return Nest(self.grid, tuple(sorted(i for i in inner if i < n)), tuple(sorted(i - n for i in inner if i >= n)))

    @functools.cached_property
    def full_nest(self) -> Nest:
        """What all outputs are computed in: points of the grid stay in their order."""
        return self._nests[0]

    def score_nest(self, by_point: bool) -> Nest:
        """What scores are computed in; ``by_point`` keeps the points of the grid apart."""
        return self._nests[0 if by_point else 1]

    def tables(self, nest: Nest) -> Tables:
        """The tables of a nest, on the device."""
        key = nest.inner_dimensions, nest.inner_options
        if key not in self._tables:
            self._tables[key] = tables(nest)
        return self._tables[key]

    def lines(self, nest: Nest, default: int) -> int:
        """Lines a chunk, for about ``default`` designs.

        A grid that is smaller than a long chunk has short ones, and no others: programs are shared. So has a nest
        without an inner product: what lies between the operations of single designs must fit into caches.
        """
        if nest.n_inner == 1 or nest.n_lines * nest.outer_a_line * nest.n_inner < default:
            default = CHUNK_SHORT
        return max(1, (self._chunk or default) // (nest.outer_a_line * nest.n_inner))

    def halve(self) -> bool:
        """Have chunks half as long computed from now on; False where they have been halved too often."""
        for one in self.each:
            one._halvings += 1
        return self.each[0]._halvings <= _MOST_HALVINGS

    def lines_at_once(self, nest: Nest, default: int) -> int:
        """Lines that are computed at once: those of a chunk, fewer once memory was short."""
        return max(1, self.lines(nest, default) >> self._halvings)

    def outer(self, nest: Nest, line: int, count: int, stop: int | None = None) -> tuple[dict[str, Array], Array]:
        """Dispatch the outer values of ``count`` lines from ``line``, and a few more for devices to share evenly.

        Nothing is a mapping from the line ``stop`` on.
        """
        start = np.array(nest.start_digits(line), np.int32)
        n_valid = np.int32(min(count, (nest.n_lines if stop is None else stop) - line) * nest.outer_a_line)
        together = len(jax.local_devices()) * (_GROUP if count * nest.outer_a_line > _GROUPED else 1)
        padded = -(-count * nest.outer_a_line // together) * together
        return outer_chunk(self.tables(nest), start, n_valid, count=padded, sharding=over_devices("outer"))

    def full(self, line: int, count: int) -> tuple[Any, tuple[Any, ...]]:
        """Dispatch all outputs of ``count`` lines from ``line``."""
        if self.by_numpy:
            return evaluate_lines(self.full_nest, _of(self.full_nest, line, count), program=self.program)
        values, _ = self.outer(self.full_nest, line, count)
        return evaluate_chunk(self.tables(self.full_nest), values, program=self.program)

    def scores(
        self, nest: Nest, line: int, count: int, pivots: np.ndarray, thresholds: np.ndarray | None = None,
        stop: int | None = None,
    ) -> Scores:  # fmt: skip
        """Dispatch the scores of ``count`` lines from ``line``, by as many objectives as the pivots have.

        Nothing is a mapping from the line ``stop`` on. ``thresholds`` [objective, threshold] asks how many scores are
        below each.
        """
        if self.by_numpy:
            lines, n_outer = _of(nest, line, count, stop), count * nest.outer_a_line
            return score_lines(nest, lines, n_outer, pivots.shape[1], thresholds, program=self.program)
        program = dataclasses.replace(self.program, objectives=self.program.objectives[: pivots.shape[1]])
        scores, reasons = score_chunk(self.tables(nest), *self.outer(nest, line, count, stop), program=program)
        found = summarise(scores, reasons, pivots, feasible_bit=self.program.study.feasible_bit)
        return found if thresholds is None else found._replace(below=count_below(scores, thresholds))

    def designs(self, index: np.ndarray) -> tuple[Any, tuple[np.ndarray, ...]]:
        """All outputs of the designs at these indices."""
        if not self.grid.members:
            nest = Nest(self.grid, (), ())
            return evaluate_few(self.grid.base, host_values(nest, nest.digits(index)), program=self.program)
        engines = dict(zip(map(id, self.grid.each), self.each, strict=True))
        found = [(places, engines[id(grid)].designs(own)) for places, grid, own in self.grid.by_structure(index)]
        return joined(found)


def _of(nest: Nest, line: int, count: int, stop: int | None = None) -> range:
    """So many lines of a nest from ``line``, as far as there are."""
    return range(line, min(line + count, nest.n_lines if stop is None else stop))
