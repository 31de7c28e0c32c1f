"""What is kept of a whole sweep: the parts of its blocks, joined."""

from __future__ import annotations

import numpy as np

from dse.errors import InputError
from dse.spec.output import Keep
from dse.sweep.grid.grid import Grid
from dse.sweep.reduce.keep import Part, no_counts
from dse.sweep.reduce.overview import n_positions
from dse.sweep.reduce.winners import Winners, best_of


class Collection:
    """The parts of a sweep as they come, in order of their blocks; results kept whole go straight to their place."""

    def __init__(self, grid: Grid, keep: Keep) -> None:
        self.grid, self.keep = grid, keep
        self._parts: list[Part] = []
        self._counts = no_counts(grid.spec.study)
        n_objectives, bins = len(grid.spec.objectives), grid.spec.histogram
        self._least = np.full((n_objectives, n_positions(grid)), np.inf, np.float32)
        self._edges = np.empty((n_objectives, 0), np.float32)
        self._histogram = np.zeros((n_objectives, bins), np.int64)
        self._filled = 0
        if keep.mode == "all":
            self._index = np.empty(grid.n_designs, np.int64)
            self._values = np.empty((len(grid.spec.metrics), grid.n_designs), np.float32)
            self._scores = np.empty((n_objectives, grid.n_designs), np.float32)

    def add(self, part: Part) -> None:
        """Take the part of the next block."""
        self._reduce(part)
        if self.keep.mode == "all":
            place = slice(self._filled, self._filled + len(part.index))
            self._index[place] = part.index
            self._values[:, place], self._scores[:, place] = part.values, part.scores
            self._filled = place.stop
        else:
            self._parts.append(part)

    def _reduce(self, part: Part) -> None:
        if self._edges.size and not np.array_equal(self._edges, part.edges):
            raise InputError(
                "output.histogram",
                "parts whose bins have different edges",
                "parts computed on processors of one kind",
                "run the sweep again on one machine, or without a histogram",
            )
        self._edges = part.edges
        self._counts += part.counts
        self._histogram += part.histogram
        np.minimum(self._least, part.least, out=self._least)

    def result(self) -> Part:
        """Everything that is kept of the sweep; best first where designs are ranked."""
        reduced = self._counts, self._least, self._edges, self._histogram
        if self.keep.mode == "all":
            return Part(self._index, self._values, self._scores, *reduced)
        index = np.concatenate([part.index for part in self._parts])
        scores = np.concatenate([part.scores for part in self._parts], axis=1)
        values = np.concatenate([part.values for part in self._parts], axis=1)
        if self.keep.mode == "feasible":
            order = np.argsort(index) if self.grid.members else slice(None)
            return Part(index[order], values[:, order], scores[:, order], *reduced)
        winners = best_of(self.grid, self.keep, Winners(index, scores))
        order = np.argsort(index)
        place = order[np.searchsorted(index, winners.index, sorter=order)]
        return Part(winners.index, values[:, place], winners.scores, *reduced)
