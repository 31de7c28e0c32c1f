"""The kept designs of a whole sweep, merged from the results of its blocks."""

from __future__ import annotations

import numpy as np

from dse.errors import InputError
from dse.spec.output import Keep
from dse.sweep.grid.grid import Grid
from dse.sweep.reduce.keep import BlockResult, no_counts
from dse.sweep.reduce.overview import n_axis_values
from dse.sweep.reduce.winners import Winners, best_of


class Collection:
    """The results of blocks in order; with ``keep = "all"`` they are copied into arrays of all designs as they come."""

    def __init__(self, grid: Grid, keep: Keep) -> None:
        self.grid, self.keep = grid, keep
        self._parts: list[BlockResult] = []
        self._counts = no_counts(grid.spec.study)
        n_objectives, bins = len(grid.spec.objectives), grid.spec.histogram
        self._best_scores = np.full((n_objectives, n_axis_values(grid)), np.inf, np.float32)
        self._edges = np.empty((n_objectives, 0), np.float32)
        self._histogram = np.zeros((n_objectives, bins), np.int64)
        self._filled = 0
        if keep.mode == "all":
            self._index = np.empty(grid.n_designs, np.int64)
            self._values = np.empty((len(grid.spec.metrics), grid.n_designs), np.float32)
            self._scores = np.empty((n_objectives, grid.n_designs), np.float32)

    def add(self, result: BlockResult) -> None:
        """Add the result of the next block; InputError where its edges of bins differ from those before."""
        self._reduce(result)
        if self.keep.mode == "all":
            rows = slice(self._filled, self._filled + len(result.index))
            self._index[rows] = result.index
            self._values[:, rows], self._scores[:, rows] = result.values, result.scores
            self._filled = rows.stop
        else:
            self._parts.append(result)

    def _reduce(self, result: BlockResult) -> None:
        """Add a block's counts, histogram and minima; InputError where edges of bins differ from earlier blocks'."""
        if self._edges.size and not np.array_equal(self._edges, result.edges):
            raise InputError(
                "output.histogram",
                "parts whose bins have different edges",
                "parts computed on processors of one kind",
                "run the sweep again on one machine, or without a histogram",
            )
        self._edges = result.edges
        self._counts += result.counts
        self._histogram += result.histogram
        np.minimum(self._best_scores, result.best_scores, out=self._best_scores)

    def result(self) -> BlockResult:
        """Return the kept designs of the sweep: of ``top`` and ``pareto`` by first objective, else by index.

        Of ``all`` they are in the order of blocks, which is not that of indices where designs have several structures.
        """
        reduced = self._counts, self._best_scores, self._edges, self._histogram
        if self.keep.mode == "all":
            return BlockResult(self._index, self._values, self._scores, *reduced)
        index = np.concatenate([block_result.index for block_result in self._parts])
        scores = np.concatenate([block_result.scores for block_result in self._parts], axis=1)
        values = np.concatenate([block_result.values for block_result in self._parts], axis=1)
        if self.keep.mode == "feasible":
            order = np.argsort(index) if self.grid.members else slice(None)
            return BlockResult(index[order], values[:, order], scores[:, order], *reduced)
        winners = best_of(self.grid, self.keep, Winners(index, scores))
        order = np.argsort(index)
        position = order[np.searchsorted(index, winners.index, sorter=order)]
        return BlockResult(winners.index, values[:, position], winners.scores, *reduced)
