"""Which designs of a block are kept: all, the feasible, the best, the top, the Pareto front.

A block is a range of outer indices; what is kept of it depends on nothing else. Blocks kept in
full are one chunk; the other modes look at scores chunk by chunk, holding O(chunk) memory: the device
tells which outer indices may hold a winner, the host looks into those alone, exactly, and
evaluates in full only the designs that win. Of equals the lowest index wins, whatever the order.
Counts by reason, minima by axis and histograms are of all designs, in every mode.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.doors import Study
from dse.errors import InputError
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


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return designs of several results, along the last axis, one after the other."""
    return np.concatenate(arrays, axis=-1)


def _added(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sums of numbers of designs."""
    total: np.ndarray = np.sum(arrays, axis=0)
    return total


def _equal_edges(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the edges of bins that all results have; InputError where they differ."""
    if any(not np.array_equal(array, arrays[0]) for array in arrays):
        raise InputError(
            "output.histogram",
            "parts whose bins have different edges",
            "parts computed on processors of one kind",
            "run the sweep again on one machine, or without a histogram",
        )
    return arrays[0]


#: Field of a result → the function that merges it from those of blocks or chunks, in order.
_MERGES: dict[str, Callable[[Sequence[np.ndarray]], np.ndarray]] = {
    **dict.fromkeys(("index", "values", "scores"), _joined),
    "counts": _added,
    "best_scores": np.minimum.reduce,
    "edges": _equal_edges,
    "histogram": _added,
}


def merge_results(results: Sequence[BlockResult]) -> BlockResult:
    """Return the result of a block or a sweep from those of its chunks or blocks, in order."""
    if len(results) == 1:
        return results[0]
    return BlockResult(**{name: merge([getattr(r, name) for r in results]) for name, merge in _MERGES.items()})


class _Structure(NamedTuple):
    """The designs of one structure within a sweep, which follow those of the structure before it."""

    engine: SweepEngine
    nest: Nest  #: in which lines are counted: of all outputs, or else of scores
    first: int  #: outer index of the grid at which they begin


def _structures(engine: SweepEngine, keep: Keep) -> list[_Structure]:
    """Return the structures of a sweep in their order."""
    structures, first = list[_Structure](), 0
    for member_engine in engine.structure_engines:
        is_full = _evaluates_all(keep)
        nest = member_engine.full_nest if is_full else member_engine.score_nest(by_point=keep.mode == "best")
        structures.append(_Structure(member_engine, nest, first))
        first += member_engine.grid.n_outer
    return structures


def _evaluates_all(keep: Keep) -> bool:
    """Return True where all metrics of every design are computed: ``all`` and ``feasible``."""
    return keep.mode in ("all", "feasible")


def _chunk(keep: Keep) -> int:
    """Return the number of designs of a chunk."""
    return CHUNK_FULL if _evaluates_all(keep) else CHUNK_SCORES


def block_ranges(engine: SweepEngine, keep: Keep) -> list[range]:
    """Return the blocks of a sweep, whole lines each, as ranges of the grid's outer indices.

    Args:
        engine: of the sweep.
        keep: which designs are kept.

    Returns:
        Contiguous ranges of the grid's outer indices; those of each structure follow those of the one before it.
    """
    blocks = list[range]()
    n_chunks = 1 if _evaluates_all(keep) else _CHUNKS_PER_BLOCK
    for member_engine, nest, first in _structures(engine, keep):
        step = member_engine.lines(nest, _chunk(keep)) * n_chunks * nest.points_per_line
        stop = first + member_engine.grid.n_outer
        blocks += [range(start, min(start + step, stop)) for start in range(first, stop, step)]
    return blocks


def share_range(engine: SweepEngine, keep: Keep, number: int, n_shares: int) -> range:
    """Return the range of the grid's outer indices of share ``number``, from 1, of ``n_shares``.

    Shares have numbers of designs as equal as whole lines allow; none is empty while there are enough lines.
    """
    structures, stop = _structures(engine, keep), 0
    n_lines = sum(nest.n_lines for _, nest, _ in structures)

    def outer(line: int) -> int:
        """Return the outer index of the grid at which a line of the sweep begins."""
        start = 0
        for _, nest, _ in structures:
            local_line = min(line, nest.n_lines)
            start, line = start + local_line * nest.points_per_line, line - local_line
        return start

    def designs_before(line: int) -> int:
        return _designs_before(structures, outer(line))

    for i in range(1, number + 1):
        first, target = stop, engine.grid.n_designs * i // n_shares
        next_line = bisect.bisect_left(range(n_lines), target, key=designs_before)
        distances = {line: abs(designs_before(line) - target) for line in range(max(next_line - 1, 0), next_line + 1)}
        nearest = min(distances, key=distances.__getitem__)
        stop = min(max(nearest, first + 1), min(n_lines, i + max(n_lines - n_shares, 0)))
    return range(outer(first), outer(stop))


def count_chunks(engine: SweepEngine, keep: Keep) -> int:
    """Return the number of chunks of a sweep; a share that is shorter than a chunk takes as long as one."""
    return sum(
        -(-nest.n_lines // member_engine.lines(nest, _chunk(keep)))
        for member_engine, nest, _ in _structures(engine, keep)
    )


def designs_in(engine: SweepEngine, keep: Keep, block: range) -> int:
    """Return the number of designs of a block."""
    structures = _structures(engine, keep)
    return _designs_before(structures, block.stop) - _designs_before(structures, block.start)


def _designs_before(structures: list[_Structure], outer: int) -> int:
    """Return the number of designs before an outer index of the grid at which a line begins."""
    count = 0
    for engine, nest, first in structures:
        rows = min(max(outer - first, 0), engine.grid.n_outer)
        count += engine.grid.first_design(rows // nest.points_per_line) * nest.points_per_line
    return count


def block_results(engine: SweepEngine, keep: Keep, block_ranges: list[range]) -> Iterator[BlockResult]:
    """Yield the result of each block, ascending, while the device works on the next one."""
    bins, n_objectives = engine.grid.spec.histogram, len(engine.program.objectives)
    edges = overviews.edges(engine, bins) if bins and block_ranges else np.empty((n_objectives, 0), np.float32)
    for number, (member_engine, nest, first) in enumerate(_structures(engine, keep)):
        stop = first + member_engine.grid.n_outer
        blocks = [
            range(block.start - first, block.stop - first) for block in block_ranges if first <= block.start < stop
        ]
        results = (_full_results if _evaluates_all(keep) else _winner_results)(member_engine, nest, keep, blocks, edges)
        yield from (_to_sweep(engine.grid, number, result) for result in results)


def _to_sweep(sweep_grid: Grid, number: int, result: BlockResult) -> BlockResult:
    """Return the result of a block of one structure with indices and minima of the sweep of all structures."""
    if not sweep_grid.members:
        return result
    member = sweep_grid.members[number]
    return result._replace(
        index=member.index_in(sweep_grid, result.index),
        best_scores=to_sweep_minima(sweep_grid, member, result.best_scores),
    )


def _full_results(
    engine: SweepEngine, nest: Nest, keep: Keep, blocks: list[range], edges: np.ndarray
) -> Iterator[BlockResult]:
    """Yield the results of blocks of one structure all of whose metrics are computed."""
    length = engine.lines(nest, CHUNK_FULL, dispatched=True)
    starts = ((block, start) for block in blocks for start in range(block.start, block.stop, length))
    chunks = [range(start, min(start + length, block.stop)) for block, start in starts]
    ends, chunk_results = {block.stop for block in blocks}, list[BlockResult]()
    dispatched = None
    for chunk, next_chunk in itertools.zip_longest(chunks, chunks[1:]):
        outputs = dispatched or engine.full(chunk.start, length)
        dispatched = engine.full(next_chunk.start, length) if next_chunk else None
        chunk_results.append(_mapping_results(nest, keep, chunk, edges, *outputs))
        if chunk.stop in ends:
            yield merge_results(chunk_results)
            chunk_results = []


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
    values = _gather(objectives, design_indices)
    scores = np.where((reason == 0) & np.isfinite(values), values, np.float32(np.inf))
    is_ranked = np.asarray(np.isfinite(scores).all(axis=0))
    counts = count_on_host(reason, is_ranked, grid.spec.study)
    best_scores = _best_scores(nest, block, design_indices.outer * nest.n_inner + inner, scores)
    reduced = counts, best_scores, edges, _histogram(grid, scores, edges)
    index = grid.first_design(block.start) + np.arange(len(mask_row))
    if keep.mode == "feasible":
        is_feasible = reason == 0
        design_indices = DesignIndices(design_indices.outer[is_feasible], inner[is_feasible], nest.factor_sizes)
        index, scores = index[is_feasible], scores[:, is_feasible]
    return BlockResult(index, _gather(tree_leaves(metrics), design_indices), scores, *reduced)


def _gather(outputs: Sequence[Output], design_indices: DesignIndices) -> np.ndarray:
    """Return [output, design] values of the designs, float32."""
    values = np.empty((len(outputs), len(design_indices.outer)), np.float32)
    for row, output in zip(values, outputs, strict=True):
        row[:] = output.select(design_indices)
    return values


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


def _winner_results(
    engine: SweepEngine, nest: Nest, keep: Keep, blocks: list[range], edges: np.ndarray
) -> Iterator[BlockResult]:
    """Yield the results of blocks of one structure of which winners are kept."""
    yield from (_winner_result(engine, nest, keep, block, edges) for block in blocks)


def _winner_result(engine: SweepEngine, nest: Nest, keep: Keep, block: range, edges: np.ndarray) -> BlockResult:
    """Return the result of a block that keeps winners, ascending by index, with all their metrics."""
    objectives = engine.program.objectives
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
        inner_best = [*map(np.asarray, chunk_scores.inner_best)]
        minima.add(start, min(length, stop - start), np.asarray(chunk_scores.outer_best), inner_best)
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

    def winners_at(rows: np.ndarray) -> Winners:
        """Return the designs that may win among those of the outer indices ``rows``, counted from ``start``."""
        scores = engine.inner_scores(nest, chunk_scores, rows)
        flat_index = np.flatnonzero(_may_win(keep, winners, scores.reshape(len(scores), -1)))
        row_index, inner = np.divmod(flat_index, nest.n_inner)
        return Winners(nest.design_index(start + rows[row_index], inner), scores[:, row_index, inner])

    candidates = np.asarray(chunk_scores.candidates)
    outer_best = np.asarray(chunk_scores.outer_best)
    if keep.mode == "top" and len(winners.index) >= keep.count:
        candidates = candidates & (outer_best[0] <= winners.scores[0].max())
    rows = np.flatnonzero(candidates)
    if keep.mode == "best":  # one outer index for each point and mask row, of which the best design
        rows = rows[ties_of_best((start + rows) // nest.n_mask_rows, outer_best[0, rows])]
    if keep.mode != "pareto":
        if len(rows):
            yield winners_at(rows)
        return
    rows = rows[np.argsort(outer_best[0, rows], kind="stable")]
    while len(rows := rows[~dominated(winners.scores, outer_best[:, rows])]):
        batch = np.unique(np.linspace(0, len(rows) - 1, min(_MAX_EXPANDED, len(rows))).astype(int))
        winners = best_of(engine.grid, keep, winners, winners_at(rows[batch]))
        yield winners
        rows = np.delete(rows, batch)


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
