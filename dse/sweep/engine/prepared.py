"""The stages of one nest, ready to be run: tables on the device, programs at hand."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax import Array

from dse.sweep.engine.chunks import outer_chunk, score_chunk, stage_chunk
from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import Nest
from dse.sweep.engine.programs import PersistentFunction
from dse.sweep.engine.reductions import Owners, Scores, count_below, summarise
from dse.sweep.engine.staging import Moving, Stages
from dse.sweep.engine.tables import Tables, mask_places, tables

#: Outer indices of a group, the unit of reductions in longer chunks.
_GROUPED, _GROUP = 256, 16

#: Outer indices that are computed at least: XLA writes other programs for one than for many, with other last bits.
_FEWEST = 4


class Prepared:
    """The stages of a program in a nest, with what all chunks share.

    Args:
        nest: what the outer index and the inner product are.
        of: the program, and how its inputs move in the nest.
        stages: those of all outputs, or of scores.
    """

    def __init__(self, nest: Nest, of: Moving, stages: Stages) -> None:
        self.nest, self.of, self.stages = nest, of, stages
        self._sharding = over_devices("outer")
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        paths = sorted(nest.grid.columns)
        self._number = {path: i for i, path in enumerate(paths, len(of.levels) - len(paths))}
        given = {i for stage in (*stages.tables, *(group.stage for group in stages.groups)) for i in stage.inputs}
        self._tables: Tables = tables(nest, [path for path in paths if self._number[path] in given])
        self._shared = dict(enumerate(jax.tree.leaves(self._tables.base)))
        self._shared |= self._numbered(self._tables.first) | self._numbered(self._tables.second)
        self._masks, self._lengths = _masks(nest)
        places = {k: (g, row) for g, group in enumerate(stages.groups) for row, k in enumerate(group.objectives)}
        self.owners: Owners = tuple(places[k] for k in sorted(places))

    def _numbered(self, columns: dict[str, Array]) -> dict[int, Array]:
        """By variable the values of leaves."""
        return {self._number[path]: values for path, values in columns.items()}

    def _run(self, key: Hashable, function: PersistentFunction, *arguments: Any, **static: Any) -> Any:
        """A function's value; its program is looked up once for each key: there are hundreds of arguments."""
        if key not in self._programs:
            self._programs[key] = function.compiled(*arguments, **static)
        return self._programs[key](*arguments)

    def outer(self, first: int, count: int, stop: int) -> tuple[dict[str, Array], Array]:
        """Dispatch the outer values of ``count`` indices from ``first``, and a few more for devices to share evenly.

        Nothing is a mapping from the index ``stop`` on.
        """
        together = len(jax.local_devices()) * (_GROUP if count > _GROUPED else 1)
        padded = -(-max(count, _FEWEST) // together) * together
        start, n_valid = np.array(self.nest.start_digits(first), np.int32), np.int32(min(count, stop - first))
        given = self._tables, start, n_valid
        found: tuple[dict[str, Array], Array] = self._run(
            ("outer", padded), outer_chunk, *given, count=padded, sharding=self._sharding
        )
        return found

    def values(self, first: int, count: int, stop: int) -> tuple[dict[int, Array], Array]:
        """By variable the values of a chunk after its tables, and the words of its masks."""
        outer, words = self.outer(first, count, stop)
        values = self._shared | self._numbered(outer)
        for number, stage in enumerate(self.stages.tables):
            given = tuple(values[i] for i in stage.inputs)
            made = self._run((number, len(words)), stage_chunk, given, of=self.of, stage=stage)
            values |= dict(zip(stage.outputs, made, strict=True))
        return values, words

    def scores(
        self, first: int, count: int, stop: int, pivots: np.ndarray, thresholds: np.ndarray | None
    ) -> Scores:  # fmt: skip
        """See :meth:`~dse.sweep.engine.engine.SweepEngine.scores`."""
        values, words = self.values(first, count, stop)
        found = []
        of_each = zip(self.stages.groups, self._masks, self._lengths, strict=True)
        for number, (group, mask, lengths) in enumerate(of_each):
            given = tuple(values[i] for i in group.stage.inputs)
            static = dict(of=self.of, group=group, lengths=lengths)
            found.append(self._run(("scores", number, len(words)), score_chunk, given, words, mask, **static))
        scores, reasons = tuple(own for own, _ in found), tuple(own for _, own in found)
        feasible_bit = self.of.program.study.feasible_bit
        bits = tuple(group.bits | feasible_bit for group in self.stages.groups)
        made = summarise(scores, reasons, pivots, owners=self.owners, bits=bits, feasible_bit=feasible_bit)
        if thresholds is None:
            return made
        static = dict(owners=self.owners, feasible_bit=feasible_bit)
        return made._replace(below=count_below(scores, reasons, thresholds, **static))


def _masks(nest: Nest) -> tuple[list[Any], list[tuple[int, int]]]:
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
