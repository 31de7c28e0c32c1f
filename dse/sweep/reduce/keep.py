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

import jax
import numpy as np

from dse.doors.study import Study
from dse.spec.output import Keep
from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SCORES, SweepEngine
from dse.sweep.engine.nesting import Nest
from dse.sweep.engine.reductions import Scores, count_below_on_host, count_on_host
from dse.sweep.engine.staging import DesignIndices, Output
from dse.sweep.grid.grid import Grid
from dse.sweep.reduce import overview as overviews
from dse.sweep.reduce.overview import Minima, both_ways, minima_in
from dse.sweep.reduce.winners import Winners, best_of, dominated, ties_of_best

#: Chunks of a block when scores alone are looked at.
_CHUNKS_A_BLOCK = 16

#: Designs of the front that the device holds others against.
_PIVOTS = 32

#: Outer indices that are looked into at once for designs of a front.
_LOOKED_INTO = 64


class Part(NamedTuple):
    """What is kept of a block, ascending by index."""

    index: np.ndarray  # type: ignore[assignment]  #: [design] int64; not the method of tuples
    values: np.ndarray  #: [metric of ``spec.metrics``, design] float32; reasons, below 2^24, are exact
    scores: np.ndarray  #: [objective, design] float32, the smaller the better, infinite when infeasible
    counts: np.ndarray  #: int64: feasible designs, designs by :attr:`~dse.doors.study.Study.reason_bits`, unranked ones
    least: np.ndarray  #: [objective, position] float32: the block's least scores, see :func:`overview.axes_of`
    edges: np.ndarray  #: [objective, bins + 1] float32: the same for all blocks; no columns without a histogram
    histogram: np.ndarray  #: [objective, bin] int64: feasible designs of the block


def blocks(engine: SweepEngine, keep: Keep) -> list[range]:
    """The outer indices of a sweep as contiguous blocks of whole lines; one design is in one block only.

    Of several structures the outer indices of each come after those of the one before it.
    """
    found, first = list[range](), 0
    for one in engine.each:
        nest = _nest(one, keep)
        step = one.lines(nest, CHUNK_FULL) if _in_full(keep) else one.lines(nest, CHUNK_SCORES) * _CHUNKS_A_BLOCK
        total, step = first + one.grid.n_outer, step * nest.points_per_line
        found += [range(start, min(start + step, total)) for start in range(first, total, step)]
        first = total
    return found


def share(engine: SweepEngine, keep: Keep, number: int, of: int) -> range:
    """The outer indices of share ``number``, from 1: as equal numbers of designs as whole lines allow.

    While there are lines enough, no share is empty.
    """
    whole, reached = _Lines(engine, keep), 0
    for i in range(1, number + 1):
        first, ideal = reached, whole.nearest(engine.grid.n_designs * i // of)
        reached = min(max(ideal, first + 1), min(whole.count, i + max(whole.count - of, 0)))
    return range(whole.outer(first), whole.outer(reached))


def most_shares(engine: SweepEngine, keep: Keep) -> int:
    """Chunks of a sweep: a share that is shorter than one takes as long as one."""
    nests = [(one, _nest(one, keep)) for one in engine.each]
    return sum(-(-n.n_lines // one.lines(n, CHUNK_FULL if _in_full(keep) else CHUNK_SCORES)) for one, n in nests)


def designs_in(engine: SweepEngine, keep: Keep, block: range) -> int:
    """Designs of a block."""
    return _designs_before(engine, keep, block.stop) - _designs_before(engine, keep, block.start)


def _designs_before(engine: SweepEngine, keep: Keep, outer: int) -> int:
    """Designs before an outer index, at which a line begins: the rows of its lines, at each of their points."""
    found = 0
    for one in engine.each:
        points, own = _nest(one, keep).points_per_line, min(outer, one.grid.n_outer)
        found, outer = found + one.grid.first_design(own // points) * points, outer - own
    return found


class _Lines:
    """The lines of a sweep, those of each structure after those of the one before it."""

    def __init__(self, engine: SweepEngine, keep: Keep) -> None:
        self._engine, self._keep = engine, keep
        self._nests = [_nest(one, keep) for one in engine.each]
        self.count = sum(nest.n_lines for nest in self._nests)

    def outer(self, line: int) -> int:
        """The outer index at which a line begins."""
        found = 0
        for nest in self._nests:
            own = min(line, nest.n_lines)
            found, line = found + own * nest.points_per_line, line - own
        return found

    def nearest(self, designs: int) -> int:
        """The threshold below which there is about a given number of designs."""
        after = bisect.bisect_left(range(self.count), designs, key=self._designs)
        around = [line for line in (after - 1, after) if line >= 0]
        return min(around, key=lambda line: abs(self._designs(line) - designs))

    def _designs(self, line: int) -> int:
        return _designs_before(self._engine, self._keep, self.outer(line))


def _nest(engine: SweepEngine, keep: Keep) -> Nest:
    return engine.full_nest if _in_full(keep) else engine.score_nest(by_point=keep.mode == "best")


def _in_full(keep: Keep) -> bool:
    return keep.mode in ("all", "feasible")


def parts(engine: SweepEngine, keep: Keep, wanted: list[range]) -> Iterator[Part]:
    """What is kept of each block, in order; the device works on the next one meanwhile."""
    bins, n_objectives = engine.grid.spec.histogram, len(engine.program.objectives)
    edges = overviews.edges(engine, bins) if bins and wanted else np.empty((n_objectives, 0), np.float32)
    first = 0
    for number, one in enumerate(engine.each):
        own = [block for block in wanted if first <= block.start < first + one.grid.n_outer]
        if own:
            found = _parts(one, keep, [range(block.start - first, block.stop - first) for block in own], edges)
            yield from (_of_whole(engine.grid, number, part) for part in found)
        first += one.grid.n_outer


def _of_whole(whole: Grid, number: int, part: Part) -> Part:
    """A part of the designs of one structure as one of all designs; as it is where they have one structure."""
    if not whole.members:
        return part
    member = whole.members[number]
    return part._replace(index=member.index_in(whole, part.index), least=minima_in(whole, member, part.least))


def _parts(engine: SweepEngine, keep: Keep, wanted: list[range], edges: np.ndarray) -> Iterator[Part]:
    """:func:`parts` of designs of one structure."""
    if not _in_full(keep):
        yield from (_winning(engine, keep, block, edges) for block in wanted)
        return
    rows = engine.dispatch_lines(engine.full_nest, CHUNK_FULL)
    pieces = [piece for block in wanted for piece in _pieces(block, rows)]
    ends, done = {block.stop for block in wanted}, list[Part]()
    ahead = None
    for this, following in zip(pieces, [*pieces[1:], None], strict=True):
        found = ahead or engine.full(this.start, rows)
        ahead = engine.full(following.start, rows) if following else None
        done.append(_selected(engine.full_nest, keep, this, edges, *found))
        if this.stop in ends:
            yield _joined(done)
            done = []


def _pieces(block: range, length: int) -> list[range]:
    """A block in pieces of this number of indices: one where it is a chunk."""
    return [range(start, min(start + length, block.stop)) for start in range(block.start, block.stop, length)]


def _joined(pieces: list[Part]) -> Part:
    """The part of a block from those of its pieces."""
    if len(pieces) == 1:
        return pieces[0]
    index, values, scores = (
        np.concatenate([getattr(piece, name) for piece in pieces], axis=-1) for name in ("index", "values", "scores")
    )
    counts, histogram = (np.sum([getattr(piece, name) for piece in pieces], axis=0) for name in ("counts", "histogram"))
    least = np.min([piece.least for piece in pieces], axis=0)
    return Part(index, values, scores, counts, least, pieces[0].edges, histogram)


def _selected(
    nest: Nest, keep: Keep, block: range, edges: np.ndarray, metrics: Any, objectives: tuple[Output, ...]
) -> Part:
    """The mappings among the computed rectangle in the order of their index, or only the feasible ones."""
    grid = nest.grid
    rows = np.arange(block.start, block.stop) % grid.table.n_rows
    at, place, inner = nest.mappings_of(rows)
    point = (block.start + at) // grid.table.n_rows
    where = DesignIndices(point * nest.n_mask_rows + place - nest.line_start(block.start), inner, nest.factor_sizes)
    reason = metrics.infeasible_reason.select(where)
    scores = _scored(objectives, where, reason)
    counts = count_on_host(reason, np.isfinite(scores).all(axis=0), grid.spec.study)
    least = _least(nest, block, where.outer * nest.n_inner + inner, scores)
    reduced = counts, least, edges, _histogram(grid, scores, edges)
    index = grid.first_design(block.start) + np.arange(len(place))
    if keep.mode == "feasible":
        fits = reason == 0
        where, index, scores = (
            DesignIndices(where.outer[fits], inner[fits], nest.factor_sizes),
            index[fits],
            scores[:, fits],
        )
    return Part(index, _gathered(jax.tree.leaves(metrics), where), scores, *reduced)


def _gathered(outputs: Sequence[Output], where: DesignIndices) -> np.ndarray:
    """[output, design] the values there, as float32."""
    values = np.empty((len(outputs), len(where.outer)), np.float32)
    for row, output in zip(values, outputs, strict=True):
        row[:] = output.select(where)
    return values


def _scored(objectives: tuple[Output, ...], where: DesignIndices, reason: np.ndarray) -> np.ndarray:
    """[objective, design] scores, infinite for what is infeasible or no number."""
    values = _gathered(objectives, where)
    return np.where((reason == 0) & np.isfinite(values), values, np.float32(np.inf))


def _least(nest: Nest, block: range, place: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Least scores of a block computed in full."""
    first = nest.line_start(block.start)
    n_outer = nest.line_start(block.stop) - first
    whole = np.full((len(scores), n_outer * nest.n_inner), np.inf, np.float32)
    whole[:, place] = scores
    along_outer, along_inner = both_ways(whole.reshape(len(scores), -1, nest.n_inner))
    minima = Minima(nest, len(scores))
    minima.add(first, n_outer, along_inner, (along_outer,))
    return minima.result()


def _histogram(grid: Grid, scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Designs by bin of a block computed in full."""
    if not edges.size:
        return np.zeros((len(scores), 0), np.int64)
    fewer = count_below_on_host(scores, overviews.thresholds(edges, grid.spec.objectives))
    return overviews.counts(fewer, grid.spec.objectives)


def no_counts(study: Study) -> np.ndarray:
    """Counts of no designs: feasible ones, by reason, feasible ones that cannot be ranked."""
    return np.zeros(2 + len(study.reason_bits), np.int64)


# --- winners ----------------------------------------------------------------------------------------------


def _winning(engine: SweepEngine, keep: Keep, block: range, edges: np.ndarray) -> Part:
    """The winners of a block, evaluated in full."""
    nest, objectives = _nest(engine, keep), engine.program.objectives
    length = engine.dispatch_length(nest, CHUNK_SCORES)
    winners = Winners(np.empty(0, np.int64), np.empty((len(objectives), 0), np.float32))
    counts, minima = no_counts(engine.program.study), Minima(nest, len(objectives))
    thresholds = overviews.thresholds(edges, objectives) if edges.size else None
    fewer = np.zeros((len(objectives), engine.grid.spec.histogram), np.int64)
    stop = nest.line_start(block.stop // nest.points_per_line)
    starts = range(nest.line_start(block.start // nest.points_per_line), stop, length)

    def dispatch(first: int) -> Scores:
        return engine.scores(nest, first, length, _pivots(keep, winners), thresholds, stop)

    ahead = [dispatch(first) for first in starts[:1]]
    for this, following in zip(starts, [*starts[1:], None], strict=True):
        found = ahead.pop()
        if following is not None:
            ahead.append(dispatch(following))
        counts += np.asarray(found.counts)
        minima.add(this, min(length, stop - this), np.asarray(found.outer_best), [*map(np.asarray, found.inner_best)])
        if found.below is not None:
            fewer += np.asarray(found.below)
        for challengers in _challengers(engine, nest, keep, winners, found, this):
            winners = best_of(engine.grid, keep, winners, challengers)
    order = np.argsort(winners.index)
    index = winners.index[order]
    values = np.stack([*map(np.asarray, jax.tree.leaves(engine.designs(index)[0]))]).astype(np.float32)
    histogram = overviews.counts(fewer, objectives)
    return Part(index, values, winners.scores[:, order], counts, minima.result(), edges, histogram)


def _pivots(keep: Keep, winners: Winners) -> np.ndarray:
    """[pivot, objective] some designs of the front, spread over it; infinite where there are fewer, none for others."""
    pivots = np.full((_PIVOTS if keep.mode == "pareto" else 0, len(winners.scores)), np.inf, np.float32)
    if len(pivots) and len(winners.index):
        order = np.argsort(winners.scores[0])
        chosen = order[np.unique(np.linspace(0, len(order) - 1, _PIVOTS).astype(int))]
        pivots[: len(chosen)] = winners.scores[:, chosen].T
    return pivots


def _challengers(
    engine: SweepEngine, nest: Nest, keep: Keep, winners: Winners, found: Scores, start: int
) -> Iterator[Winners]:
    """The designs of a chunk that may win: only outer indices that the device calls candidates are looked into.

    Of a front those are looked into first that are spread over it: what they find rules out most of the others.
    """
    candidates = np.asarray(found.candidates)
    least = np.asarray(found.outer_best)
    if keep.mode == "top" and len(winners.index) >= keep.count:
        candidates = candidates & (least[0] <= winners.scores[0].max())
    row = np.flatnonzero(candidates)
    if not len(row):
        return
    if keep.mode == "best":  # one outer index a point and place, and of that the best design
        row = row[ties_of_best((start + row) // nest.n_mask_rows, least[0, row])]
    if keep.mode != "pareto":
        yield _looked_into(engine, nest, keep, winners, found, start, row)
        return
    row = row[np.argsort(least[0, row], kind="stable")]
    while len(row):
        row = row[~dominated(winners.scores, least[:, row])]
        if not len(row):
            return
        now = np.unique(np.linspace(0, len(row) - 1, min(_LOOKED_INTO, len(row))).astype(int))
        winners = best_of(engine.grid, keep, winners, _looked_into(engine, nest, keep, winners, found, start, row[now]))
        yield winners
        row = np.delete(row, now)


def _looked_into(
    engine: SweepEngine, nest: Nest, keep: Keep, winners: Winners, found: Scores, start: int, row: np.ndarray
) -> Winners:
    """The designs of some outer indices of a chunk that may win."""
    scores = engine.inner_scores(nest, found, row)
    place = np.flatnonzero(_may_win(keep, winners, scores.reshape(len(scores), -1)))
    at, inner = np.divmod(place, nest.n_inner)
    return Winners(nest.design_index(start + row[at], inner), scores[:, at, inner])


def _may_win(keep: Keep, winners: Winners, scores: np.ndarray) -> np.ndarray:
    """Which of the scores [objective, design] can win; ties can, because their index may be lower."""
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
