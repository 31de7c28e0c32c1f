"""The stages of one nest, ready to be run: tables on the device, programs at hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax import Array

from dse.sweep.engine.chunks import full_chunk, inner_chunk, outer_chunk, score_chunk
from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import OUTER, Nest
from dse.sweep.engine.programs import PersistentFunction
from dse.sweep.engine.reductions import Owners, Scores, count_below, summarise
from dse.sweep.engine.staging import Moving, Stages
from dse.sweep.engine.tables import Tables, mask_places, tables

#: Outer indices of a group, the unit of reductions in longer chunks.
_GROUPED, _GROUP = 256, 16

#: Outer indices that are computed at least: XLA writes other programs for one than for many, with other last bits.
_FEWEST = 4

#: Equations times outer indices of a sweep up to which a stage is compiled quickly. It then takes a third of a
#: nanosecond longer for each, a twentieth of a second, and compiles in a millisecond less for each equation, seconds.
_LITTLE = 150_000_000


class Prepared:
    """The stages of a program in a nest, with what all chunks share.

    Args:
        nest: what the outer index and the inner product are.
        of: the program, and how its inputs move in the nest.
        stages: those of all outputs, or of scores.
        wanted: variables of which the values are asked for.
    """

    def __init__(self, nest: Nest, of: Moving, stages: Stages, wanted: tuple[int, ...] = ()) -> None:
        self.nest, self.of, self.stages, self._wanted = nest, of, stages, wanted
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        paths = sorted(nest.grid.columns)
        every = (*stages.tables, *(group.stage for group in stages.groups))
        given = {*wanted}.union(*(stage.inputs for stage in every))
        numbered = enumerate(paths, len(of.levels) - len(paths))
        self._tables: Tables = tables(nest, [path for number, path in numbered if number in given])
        self._masks, self._lengths = _masks(nest)
        places = {k: (g, row) for g, group in enumerate(stages.groups) for row, k in enumerate(group.objectives)}
        self.owners: Owners = tuple(places[k] for k in sorted(places))

    def _run(self, function: PersistentFunction, count: int, *arguments: Any, **static: Any) -> Any:
        """A function's value; its program is looked up once for each count: there are hundreds of arguments."""
        key = function, count
        if key not in self._programs:
            named = dict(of=self.of, stages=self.stages, count=count, sharding=over_devices("outer"), **static)
            self._programs[key] = function.compiled(self._tables, *arguments, **named)
        return self._programs[key](self._tables, *arguments)

    def outer(self, first: int, count: int, stop: int) -> tuple[np.ndarray, np.int32, int]:
        """Digits of the first of ``count`` outer indices, how many are before ``stop``, and how many are computed.

        A few more than ``count``, for devices to share evenly.
        """
        together = len(jax.local_devices()) * (_GROUP if count > _GROUPED else 1)
        padded = -(-max(count, _FEWEST) // together) * together
        return np.array(self.nest.start_digits(first), np.int32), np.int32(min(count, stop - first)), padded

    def values(self, first: int, count: int, stop: int) -> tuple[dict[int, Array], int]:
        """Dispatch the wanted variables of a chunk: their values by number, and the outer indices that they have."""
        start, _, padded = self.outer(first, count, stop)
        made = self._run(full_chunk, padded, start, wanted=self._wanted)
        return dict(zip(self._wanted, made, strict=True)), padded

    def scores(self, first: int, count: int, stop: int, pivots: np.ndarray, thresholds: np.ndarray | None) -> Scores:
        """See :meth:`~dse.sweep.engine.engine.SweepEngine.scores`."""
        start, n_valid, padded = self.outer(first, count, stop)
        static = dict(owners=self.owners, feasible_bit=self.of.program.study.feasible_bit)
        if self._in_two:
            scores, reasons = self._scores_in_two(padded, start, n_valid, pivots, static)
        else:
            scores, reasons = self._run(score_chunk, padded, start, n_valid, self._masks, lengths=self._lengths)
        made = Scores(scores, reasons, *summarise(scores, reasons, pivots, **static))
        if thresholds is None:
            return made
        return made._replace(below=count_below(scores, reasons, thresholds, **static))

    @functools.cached_property
    def _in_two(self) -> bool:
        """Whether the stage of the outer index is a program of its own, compiled quickly: where it has little to do."""
        first = self.stages.tables[0] if self.stages.tables else None
        if not first or first.level != OUTER or jax.default_backend() != "cpu" or len(jax.local_devices()) > 1:
            return False
        return first.n_equations * self.nest.n_outer < _LITTLE

    def _scores_in_two(
        self, count: int, start: np.ndarray, n_valid: np.int32, pivots: np.ndarray, reduced: dict[str, Any]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Scores and reasons; programs that are not kept are compiled side by side, that of the reductions too."""
        named = dict(of=self.of, stages=self.stages, count=count, sharding=over_devices("outer"))
        if (outer_chunk, count) not in self._programs:
            outer = _zeros(outer_chunk.begin(self._tables, start, n_valid, **named))
            inner = outer and inner_chunk.begin(self._tables, *outer, self._masks, lengths=self._lengths, **named)
            if inner:
                summarise.begin(*_zeros(inner), pivots, **reduced)
        outer = self._run(outer_chunk, count, start, n_valid)
        return self._run(inner_chunk, count, *outer, self._masks, lengths=self._lengths)


def _zeros(shapes: Any) -> Any:
    """Arrays of these shapes on the device, to compile for; None where there are none."""
    return shapes and jax.device_put(jax.tree.map(lambda one: np.zeros(one.shape, one.dtype), shapes), over_devices())


def _masks(nest: Nest) -> tuple[tuple[Any, ...], tuple[tuple[int, int], ...]]:
    """By group (word, bit) of each position, None where another group has the options; lengths of its parts."""
    first, second = nest.parts_shape
    lengths = ((first, 1), (1, second)) if nest.inner.apart else ((first, second),)
    own = [bool(set(axes) & set(nest.inner_options)) for axes in nest.groups]
    with_mask = own.index(True) if any(own) else 0
    masks = tuple(
        tuple(place.reshape(shape) for place in mask_places(nest, axes)) if number == with_mask else None
        for number, (axes, shape) in enumerate(zip(nest.groups, lengths, strict=True))
    )
    return masks, lengths
