"""Which designs of a block are kept: all, the feasible, the best, the top, the Pareto front.

A block is a range of outer indices; what is kept of it depends on nothing else. Blocks kept in
full are one chunk; the other modes look at scores chunk by chunk, holding O(chunk) memory: the device
tells which outer indices may hold a winner, the host looks into those alone, exactly, and
evaluates in full only the designs that win. Of equals the lowest index wins, whatever the order.
Counts by reason, minima by axis and histograms are of all designs, in every mode.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.doors import Study
from dse.spec.output import Keep
from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SCORES, SweepEngine
from dse.sweep.engine.nesting import Nest
from dse.sweep.engine.scores import DesignIndices, Output, Scores, count_below_on_host, count_on_host
from dse.sweep.grid.grid import Grid
from dse.sweep.reduce import overview as overviews
from dse.sweep.reduce.overview import Minima, outer_and_inner_minima, to_sweep_minima
from dse.sweep.reduce.winners import Winners, best_of, dominated, ties_of_best
from dse.types.trees import tree_leaves

#: Chunks of a block when scores alone are looked at.
_CHUNKS_PER_BLOCK = 16

#: Number of designs of the front with which the device compares others.
_MAX_PIVOTS = 32

#: Number of outer indices whose designs are compared at once with a front.
_MAX_EXPANDED = 64


class BlockResult(NamedTuple):
    """The kept designs of a block, ascending by index, with counts, minima and histogram of all its designs."""

    index: np.ndarray  # type: ignore[assignment]  #: [design] int64; not the method of tuples
    values: np.ndarray  #: [metric of ``spec.metrics``, design] float32; reasons, below 2^24, are exact
    scores: np.ndarray  #: [objective, design] float32, the smaller the better, infinite when infeasible
    counts: np.ndarray  #: int64: feasible designs, designs by :attr:`~dse.doors.study.Study.reason_bits`, unranked ones
    best_scores: np.ndarray  #: [objective, axis value] float32: the block's least scores, see :func:`overview.axes_of`
    edges: np.ndarray  #: [objective, bins + 1] float32: the same for all blocks; no columns without a histogram
    histogram: np.ndarray  #: [objective, bin] int64: feasible designs of the block


def block_ranges(engine: SweepEngine, keep: Keep) -> list[range]:
    """Return the blocks of a sweep, whole lines each, as ranges of the grid's outer indices.

    Args:
        engine: of the sweep.
        keep: which designs are kept.

    Returns:
        Contiguous ranges of the grid's outer indices; those of each structure follow those of the one before it.
    """
    block_ranges, offset = list[range](), 0
    for member_engine in engine.structure_engines:
        nest = _nest(member_engine, keep)
        step = (
            member_engine.lines(nest, CHUNK_FULL)
            if _evaluates_all(keep)
            else member_engine.lines(nest, CHUNK_SCORES) * _CHUNKS_PER_BLOCK
        )
        total, step = offset + member_engine.grid.n_outer, step * nest.points_per_line
        block_ranges += [range(start, min(start + step, total)) for start in range(offset, total, step)]
        offset = total
    return block_ranges


def share_range(engine: SweepEngine, keep: Keep, number: int, n_shares: int) -> range:
    """Return the range of the grid's outer indices of share ``number``, from 1, of ``n_shares``.

    Shares have numbers of designs as equal as whole lines allow; none is empty while there are enough lines.
    """
    lines, stop = _SweepLines(engine, keep), 0
    for i in range(1, number + 1):
        first, ideal = stop, lines.nearest(engine.grid.n_designs * i // n_shares)
        stop = min(max(ideal, first + 1), min(lines.count, i + max(lines.count - n_shares, 0)))
    return range(lines.outer(first), lines.outer(stop))


def count_chunks(engine: SweepEngine, keep: Keep) -> int:
    """Return the number of chunks of a sweep; a share that is shorter than a chunk takes as long as one."""
    nests = [(member_engine, _nest(member_engine, keep)) for member_engine in engine.structure_engines]
    return sum(
        -(-nest.n_lines // member_engine.lines(nest, CHUNK_FULL if _evaluates_all(keep) else CHUNK_SCORES))
        for member_engine, nest in nests
    )


def designs_in(engine: SweepEngine, keep: Keep, block: range) -> int:
    """Return the number of designs of a block."""
    return _designs_before(engine, keep, block.stop) - _designs_before(engine, keep, block.start)


def _designs_before(engine: SweepEngine, keep: Keep, outer: int) -> int:
    """Return the number of designs before an outer index of the grid at which a line begins."""
    count = 0
    for member_engine in engine.structure_engines:
        points_per_line, local_outer = (
            _nest(member_engine, keep).points_per_line,
            min(outer, member_engine.grid.n_outer),
        )
        count, outer = (
            count + member_engine.grid.first_design(local_outer // points_per_line) * points_per_line,
            outer - local_outer,
        )
    return count


class _SweepLines:
    """The lines of a sweep, those of each structure after those of the one before it."""

    def __init__(self, engine: SweepEngine, keep: Keep) -> None:
        self._engine, self._keep = engine, keep
        self._nests = [_nest(member_engine, keep) for member_engine in engine.structure_engines]
        self.count = sum(nest.n_lines for nest in self._nests)

    def outer(self, line: int) -> int:
        """Return the outer index of the grid at which a line begins."""
        start = 0
        for nest in self._nests:
            local_line = min(line, nest.n_lines)
            start, line = start + local_line * nest.points_per_line, line - local_line
        return start

    def nearest(self, designs: int) -> int:
        """Return the line before which the number of designs is nearest to ``designs``."""
        next_line = bisect.bisect_left(range(self.count), designs, key=self._designs)
        candidates = [line for line in (next_line - 1, next_line) if line >= 0]
        return min(candidates, key=lambda line: abs(self._designs(line) - designs))

    def _designs(self, line: int) -> int:
        """Return the number of designs before a line."""
        return _designs_before(self._engine, self._keep, self.outer(line))


def _nest(engine: SweepEngine, keep: Keep) -> Nest:
    """Return the nest in which a structure's lines are counted: of all outputs, or else of scores."""
    return engine.full_nest if _evaluates_all(keep) else engine.score_nest(by_point=keep.mode == "best")


def _evaluates_all(keep: Keep) -> bool:
    """Return True where all metrics of every design are computed: ``all`` and ``feasible``."""
    return keep.mode in ("all", "feasible")


def block_results(engine: SweepEngine, keep: Keep, block_ranges: list[range]) -> Iterator[BlockResult]:
    """Yield the result of each block, ascending, while the device works on the next one."""
    bins, n_objectives = engine.grid.spec.histogram, len(engine.program.objectives)
    edges = overviews.edges(engine, bins) if bins and block_ranges else np.empty((n_objectives, 0), np.float32)
    offset = 0
    for number, member_engine in enumerate(engine.structure_engines):
        local_blocks = [block for block in block_ranges if offset <= block.start < offset + member_engine.grid.n_outer]
        if local_blocks:
            results = _member_results(
                member_engine, keep, [range(block.start - offset, block.stop - offset) for block in local_blocks], edges
            )
            yield from (_to_sweep(engine.grid, number, result) for result in results)
        offset += member_engine.grid.n_outer


def _to_sweep(sweep_grid: Grid, number: int, result: BlockResult) -> BlockResult:
    """Return the result of a block of one structure with indices and minima of the sweep of all structures."""
    if not sweep_grid.members:
        return result
    member = sweep_grid.members[number]
    return result._replace(
        index=member.index_in(sweep_grid, result.index),
        best_scores=to_sweep_minima(sweep_grid, member, result.best_scores),
    )


def _member_results(
    engine: SweepEngine, keep: Keep, block_ranges: list[range], edges: np.ndarray
) -> Iterator[BlockResult]:
    """Yield :func:`block_results` of blocks of one structure, in its grid's outer indices, with these edges of bins."""
    if not _evaluates_all(keep):
        yield from (_winner_result(engine, keep, block, edges) for block in block_ranges)
        return
    n_lines = engine.dispatch_lines(engine.full_nest, CHUNK_FULL)
    chunks = [chunk for block in block_ranges for chunk in _chunk_ranges(block, n_lines)]
    ends, chunk_results = {block.stop for block in block_ranges}, list[BlockResult]()
    dispatched = None
    for chunk, next_chunk in zip(chunks, [*chunks[1:], None], strict=True):
        outputs = dispatched or engine.full(chunk.start, n_lines)
        dispatched = engine.full(next_chunk.start, n_lines) if next_chunk else None
        chunk_results.append(_mapping_results(engine.full_nest, keep, chunk, edges, *outputs))
        if chunk.stop in ends:
            yield _merge_results(chunk_results)
            chunk_results = []


def _chunk_ranges(block: range, length: int) -> list[range]:
    """Return a block divided into ranges of at most ``length`` lines, one dispatch each."""
    return [range(start, min(start + length, block.stop)) for start in range(block.start, block.stop, length)]


def _merge_results(results: list[BlockResult]) -> BlockResult:
    """Return the result of a block from those of its chunks, in order."""
    if len(results) == 1:
        return results[0]
    index, values, scores = (
        np.concatenate([getattr(result, name) for result in results], axis=-1) for name in ("index", "values", "scores")
    )
    counts, histogram = (
        np.sum([getattr(result, name) for result in results], axis=0) for name in ("counts", "histogram")
    )
    best_scores = np.min([result.best_scores for result in results], axis=0)
    return BlockResult(index, values, scores, counts, best_scores, results[0].edges, histogram)


def _mapping_results(
    nest: Nest, keep: Keep, block: range, edges: np.ndarray, metrics: Any, objectives: tuple[Output, ...]
) -> BlockResult:
    """Return the result of a range of lines from the outputs of all its (outer, inner) index pairs."""
    grid = nest.grid
    rows = np.arange(block.start, block.stop) % grid.table.n_rows
    row_index, mask_row, inner = nest.mappings_of(rows)
    point = (block.start + row_index) // grid.table.n_rows
    design_indices = DesignIndices(
        point * nest.n_mask_rows + mask_row - nest.line_start(block.start), inner, nest.factor_sizes
    )
    reason = metrics.infeasible_reason.select(design_indices)
    scores = _feasible_scores(objectives, design_indices, reason)
    counts = count_on_host(reason, np.isfinite(scores).all(axis=0), grid.spec.study)
    best_scores = _best_scores(nest, block, design_indices.outer * nest.n_inner + inner, scores)
    reduced = counts, best_scores, edges, _histogram(grid, scores, edges)
    index = grid.first_design(block.start) + np.arange(len(mask_row))
    if keep.mode == "feasible":
        is_feasible = reason == 0
        design_indices, index, scores = (
            DesignIndices(design_indices.outer[is_feasible], inner[is_feasible], nest.factor_sizes),
            index[is_feasible],
            scores[:, is_feasible],
        )
    return BlockResult(index, _gather(tree_leaves(metrics), design_indices), scores, *reduced)


def _gather(outputs: Sequence[Output], design_indices: DesignIndices) -> np.ndarray:
    """Return [output, design] values of the designs, float32."""
    values = np.empty((len(outputs), len(design_indices.outer)), np.float32)
    for row, output in zip(values, outputs, strict=True):
        row[:] = output.select(design_indices)
    return values


def _feasible_scores(objectives: tuple[Output, ...], design_indices: DesignIndices, reason: np.ndarray) -> np.ndarray:
    """Return [objective, design] scores, infinite for infeasible designs and values that are no finite number."""
    values = _gather(objectives, design_indices)
    return np.where((reason == 0) & np.isfinite(values), values, np.float32(np.inf))


def _best_scores(nest: Nest, block: range, flat_index: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return [objective, axis value] least scores of a range of lines evaluated in full."""
    first = nest.line_start(block.start)
    n_outer = nest.line_start(block.stop) - first
    all_scores = np.full((len(scores), n_outer * nest.n_inner), np.inf, np.float32)
    all_scores[:, flat_index] = scores
    along_outer, along_inner = outer_and_inner_minima(all_scores.reshape(len(scores), -1, nest.n_inner))
    minima = Minima(nest, len(scores))
    minima.add(first, n_outer, along_inner, (along_outer,))
    return minima.result()


def _histogram(grid: Grid, scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return [objective, bin] numbers of designs of a range of lines evaluated in full."""
    if not edges.size:
        return np.zeros((len(scores), 0), np.int64)
    n_below = count_below_on_host(scores, overviews.thresholds(edges, grid.spec.objectives))
    return overviews.counts(n_below, grid.spec.objectives)


def no_counts(study: Study) -> np.ndarray:
    """Return counts of zero: feasible designs, designs by reason, feasible designs that cannot be ranked."""
    return np.zeros(2 + len(study.reason_bits), np.int64)


# --- winners ----------------------------------------------------------------------------------------------


def _winner_result(engine: SweepEngine, keep: Keep, block: range, edges: np.ndarray) -> BlockResult:
    """Return the result of a block that keeps winners, ascending by index, with all their metrics."""
    nest, objectives = _nest(engine, keep), engine.program.objectives
    length = engine.dispatch_length(nest, CHUNK_SCORES)
    winners = Winners(np.empty(0, np.int64), np.empty((len(objectives), 0), np.float32))
    counts, minima = no_counts(engine.program.study), Minima(nest, len(objectives))
    thresholds = overviews.thresholds(edges, objectives) if edges.size else None
    n_below = np.zeros((len(objectives), engine.grid.spec.histogram), np.int64)
    stop = nest.line_start(block.stop // nest.points_per_line)
    starts = range(nest.line_start(block.start // nest.points_per_line), stop, length)

    def dispatch(first: int) -> Scores:
        return engine.scores(nest, first, length, _pivots(keep, winners), thresholds, stop)

    dispatched = [dispatch(first) for first in starts[:1]]
    for start, next_start in zip(starts, [*starts[1:], None], strict=True):
        chunk_scores = dispatched.pop()
        if next_start is not None:
            dispatched.append(dispatch(next_start))
        counts += np.asarray(chunk_scores.counts)
        minima.add(
            start,
            min(length, stop - start),
            np.asarray(chunk_scores.outer_best),
            [*map(np.asarray, chunk_scores.inner_best)],
        )
        if chunk_scores.below is not None:
            n_below += np.asarray(chunk_scores.below)
        for challengers in _challengers(engine, nest, keep, winners, chunk_scores, start):
            winners = best_of(engine.grid, keep, winners, challengers)
    order = np.argsort(winners.index)
    index = winners.index[order]
    values = np.stack([*map(np.asarray, tree_leaves(engine.designs(index)[0]))]).astype(np.float32)
    histogram = overviews.counts(n_below, objectives)
    return BlockResult(index, values, winners.scores[:, order], counts, minima.result(), edges, histogram)


def _pivots(keep: Keep, winners: Winners) -> np.ndarray:
    """Return [pivot, objective] scores of winners spread over a front, infinite for missing ones; none otherwise."""
    pivots = np.full((_MAX_PIVOTS if keep.mode == "pareto" else 0, len(winners.scores)), np.inf, np.float32)
    if len(pivots) and len(winners.index):
        order = np.argsort(winners.scores[0])
        chosen = order[np.unique(np.linspace(0, len(order) - 1, _MAX_PIVOTS).astype(int))]
        pivots[: len(chosen)] = winners.scores[:, chosen].T
    return pivots


def _challengers(
    engine: SweepEngine, nest: Nest, keep: Keep, winners: Winners, chunk_scores: Scores, start: int
) -> Iterator[Winners]:
    """Yield groups of designs of a chunk that may win, of those whose outer indices the device calls candidates.

    Of a front each group is that of the winners so far and some more, and outer indices spread over it come first:
    their designs rule out most of the others.
    """
    candidates = np.asarray(chunk_scores.candidates)
    outer_best = np.asarray(chunk_scores.outer_best)
    if keep.mode == "top" and len(winners.index) >= keep.count:
        candidates = candidates & (outer_best[0] <= winners.scores[0].max())
    rows = np.flatnonzero(candidates)
    if not len(rows):
        return
    if keep.mode == "best":  # one outer index for each point and mask row, of which the best design
        rows = rows[ties_of_best((start + rows) // nest.n_mask_rows, outer_best[0, rows])]
    if keep.mode != "pareto":
        yield _winners_at(engine, nest, keep, winners, chunk_scores, start, rows)
        return
    rows = rows[np.argsort(outer_best[0, rows], kind="stable")]
    while len(rows):
        rows = rows[~dominated(winners.scores, outer_best[:, rows])]
        if not len(rows):
            return
        batch = np.unique(np.linspace(0, len(rows) - 1, min(_MAX_EXPANDED, len(rows))).astype(int))
        winners = best_of(
            engine.grid, keep, winners, _winners_at(engine, nest, keep, winners, chunk_scores, start, rows[batch])
        )
        yield winners
        rows = np.delete(rows, batch)


def _winners_at(
    engine: SweepEngine, nest: Nest, keep: Keep, winners: Winners, chunk_scores: Scores, start: int, rows: np.ndarray
) -> Winners:
    """Return the designs that may win among those of the outer indices ``rows``, counted from ``start``."""
    scores = engine.inner_scores(nest, chunk_scores, rows)
    flat_index = np.flatnonzero(_may_win(keep, winners, scores.reshape(len(scores), -1)))
    row_index, inner = np.divmod(flat_index, nest.n_inner)
    return Winners(nest.design_index(start + rows[row_index], inner), scores[:, row_index, inner])


def _may_win(keep: Keep, winners: Winners, scores: np.ndarray) -> np.ndarray:
    """Return [design] True where scores [objective, design] can win; ties can: their index may be lower."""
    finite = np.isfinite(scores[0])
    if keep.mode == "pareto":
        finite[finite] = ~dominated(winners.scores, scores[:, finite])
        return finite
    if keep.mode == "best":
        return finite
    bound = winners.scores[0].max(initial=-np.inf) if len(winners.index) >= keep.count else np.inf
    if np.count_nonzero(finite) > keep.count:
        bound = min(bound, np.partition(scores[0, finite], keep.count - 1)[keep.count - 1])
    return finite & (scores[0] <= bound)
