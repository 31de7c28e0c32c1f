"""The kept designs of a whole sweep, merged from the results of its blocks."""

from __future__ import annotations

import numpy as np

from dse.spec.output import Keep
from dse.sweep.grid.grid import Grid
from dse.sweep.reduce.keep import BlockResult, merge_results
from dse.sweep.reduce.winners import Winners, best_of


class Collection:
    """The results of blocks in order; with ``keep = "all"`` they are copied into arrays of all designs as they come."""

    def __init__(self, grid: Grid, keep: Keep) -> None:
        self.grid, self.keep = grid, keep
        self._parts: list[BlockResult] = []
        self._designs: dict[str, np.ndarray] = {}  #: fields of all designs
        self._filled = 0
        if keep.mode == "all":
            n_metrics, n_objectives, n_designs = len(grid.spec.metrics), len(grid.spec.objectives), grid.n_designs
            self._designs["index"] = np.empty(n_designs, np.int64)
            self._designs["values"] = np.empty((n_metrics, n_designs), np.float32)
            self._designs["scores"] = np.empty((n_objectives, n_designs), np.float32)

    def add(self, result: BlockResult) -> None:
        """Add the result of the next block."""
        rows = slice(self._filled, self._filled + len(result.index))
        for name, array in self._designs.items():
            array[..., rows] = getattr(result, name)
        self._filled = rows.stop
        empty = {name: np.empty((*array.shape[:-1], 0), array.dtype) for name, array in self._designs.items()}
        self._parts.append(result._replace(**empty))

    def result(self) -> BlockResult:
        """Return the kept designs of the sweep: of ``top`` and ``pareto`` by first objective, else by index.

        Of ``all`` they are in the order of blocks, which is not that of indices where designs have several structures.

        Raises InputError where the edges of bins of the blocks differ.
        """
        merged = merge_results(self._parts)
        index, scores = merged.index, merged.scores
        if self.keep.mode == "all":
            return merged._replace(**self._designs)
        if self.keep.mode == "feasible" and not self.grid.members:
            return merged
        order = np.argsort(index)
        if self.keep.mode == "feasible":
            return merged._replace(index=index[order], values=merged.values[:, order], scores=scores[:, order])
        winners = best_of(self.grid, self.keep, Winners(index, scores))
        position = order[np.searchsorted(index, winners.index, sorter=order)]
        return merged._replace(index=winners.index, values=merged.values[:, position], scores=winners.scores)
