"""What the host needs to know of a chunk of scores: where winners may be, minima, counts.

Programs of their own, because XLA would compute the scores once for every reduction of them. Scores are the smaller
the better, and infinite for what is infeasible or no mapping.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dse.doors.study import Study
from dse.sweep.engine.programs import FAST, persistent_jit

#: Of the device, or of the host where NumPy has computed them.
Values = Array | np.ndarray


class Scores(NamedTuple):
    """Scores of a chunk: the smaller the better, infinite for what is infeasible or no mapping.

    Groups of inner axes that stay apart have scores of their own; a design wins with its score where it is feasible in
    every group.
    """

    scores: tuple[Values, ...]  #: by group [its objective, first part, second part, outer]
    reasons: tuple[Values, ...]  #: by group [first part, second part, outer] bits, the feasible bit where there is none
    outer_best: Values  #: [objective, outer] the least along the inner product
    inner_best: tuple[Values, ...]  #: by group [objective, position] the least along everything else
    candidates: Values  #: [outer] whether a design there may be feasible and no worse than a pivot in every objective
    counts: Values  #: feasible designs, designs by bit of infeasible_reason, feasible designs that have no finite score
    below: Values | None = None  #: [objective, threshold] how many scores are below, where that is asked for


#: By objective: its group, and its number among those of the group.
Owners = tuple[tuple[int, int], ...]


@persistent_jit("owners", "feasible_bit", options=FAST)
def summarise(
    scores: tuple[Array, ...], reasons: tuple[Array, ...], pivots: Array, *, owners: Owners, feasible_bit: int
) -> tuple[Array, tuple[Array, ...], Array, Array]:
    """The members of :class:`Scores` after scores and reasons, which a program that returned them would copy.

    Args:
        scores: by group [its objective, first part, second part, outer].
        reasons: by group [first part, second part, outer] bits, ``feasible_bit`` where there is none, 0 for what is no
            mapping.
        pivots: [pivot, objective] scores of known designs, infinite where there are fewer.
        owners: where each objective is.
        feasible_bit: the bit after those of all reasons.
    """
    fits = [reason == feasible_bit for reason in reasons]
    some = [fit.any(axis=_POSITIONS) for fit in fits]
    own_best = [scores[group][row].min(axis=_POSITIONS) for group, row in owners]
    best = [_where(_but(some, group), least) for (group, _), least in zip(owners, own_best, strict=True)]
    candidates = _candidates(scores, best, some, pivots, owners)
    inner_best = tuple(_inner_best(number, scores, fits, some, own_best, owners) for number in range(len(scores)))
    return jnp.stack(best), inner_best, candidates, _counts(scores, reasons, feasible_bit)


#: Axes of [first part, second part, outer] along which the positions of an outer index lie. Sums and minima of these
#: come first: they are of whole rows, many at once.
_POSITIONS = (0, 1)


def _but(some: Sequence[Array], *groups: int) -> list[Array]:
    """[outer] whether something fits in each of the other groups."""
    return [each for number, each in enumerate(some) if number not in groups]


def _where(conditions: Sequence[Array], value: Array) -> Array:
    """The value […, outer] where all conditions [outer] hold, else infinite."""
    for condition in conditions:
        value = jnp.where(condition.reshape(*[1] * (value.ndim - 1), -1), value, jnp.inf)
    return value


def _inner_best(
    number: int,
    scores: Sequence[Array],
    fits: Sequence[Array],
    some: Sequence[Array],
    own_best: Sequence[Array],
    owners: Owners,
) -> Array:
    """[objective, position] the least scores at each position of a group."""
    found = []
    for (group, row), best in zip(owners, own_best, strict=True):
        if group == number:
            score = _where(_but(some, group), scores[group][row])
        else:
            score = jnp.where(fits[number], _where(_but(some, group, number), best)[None, None], jnp.inf)
        found.append(score.min(axis=2).reshape(-1))
    return jnp.stack(found)


def _candidates(
    scores: Sequence[Array], best: Sequence[Array], some: Sequence[Array], pivots: Array, owners: Owners
) -> Array:
    """[outer] whether some design may be ranked and no worse than a pivot in every objective.

    Objectives of other groups than that with most of them are as good as they get there.
    """
    if not len(pivots):
        return jnp.isfinite(best[0])
    main = max(range(len(scores)), key=lambda number: len(scores[number]))
    values = tuple(
        scores[group][row] if group == main else best[k][None, None] for k, (group, row) in enumerate(owners)
    )
    ranked = functools.reduce(operator.and_, [jnp.isfinite(value) for value in values])
    may_win = (ranked & ~_worse(values, pivots)).any(axis=_POSITIONS)
    return functools.reduce(operator.and_, _but(some, main), may_win)


@persistent_jit("owners", "feasible_bit")
def count_below(
    scores: tuple[Array, ...], reasons: tuple[Array, ...], thresholds: Array, *, owners: Owners, feasible_bit: int
) -> Array:
    """How many scores are below each of ``thresholds`` [objective, threshold].

    No scatter: every score is compared with every threshold.
    """
    n = thresholds.shape[1]
    triples = jnp.pad(thresholds, [(0, 0), (0, -n % 3)]).reshape(len(thresholds), -1, 3)
    fitting = [_along_outer(reason == feasible_bit) for reason in reasons] if len(reasons) > 1 else []
    found = []
    for (group, row), of_objective in zip(owners, triples, strict=True):
        others = _but(fitting, group)

        def of_triple(triple: Array, score: Array = scores[group][row], others: Sequence[Array] = others) -> Array:
            ones = (jnp.where(score < least, 1 << place, 0) for least, place in zip(triple, _PLACES, strict=True))
            counts = _unpacked(functools.reduce(operator.add, ones))
            return jnp.stack([_totals([count, *others]) for count in counts])

        found.append(lax.map(of_triple, of_objective).reshape(-1)[:n])
    return jnp.stack(found)


#: Places in a word at which three counts below 1024 lie side by side.
_PLACES = (0, 10, 20)


def _unpacked(packed: Array) -> list[Array]:
    """By outer index the three sums of words [first part, second part, outer] that hold three counts each.

    The first part is shorter than 1024.
    """
    sums = packed.sum(axis=0, dtype=jnp.int32)
    return [(sums >> place & 1023).sum(axis=0, dtype=jnp.int32) for place in _PLACES]


def _along_outer(flags: Array) -> Array:
    """[outer] how many positions are set."""
    return flags.sum(axis=_POSITIONS, dtype=jnp.int32)


def _totals(factors: Sequence[Array]) -> Array:
    """Designs of all groups together: along the outer index the product of how many of each group there are."""
    return functools.reduce(operator.mul, factors).sum(axis=-1, dtype=jnp.int32)


def _worse(scores: tuple[Array, ...], pivots: Array) -> Array:
    """Whether some pivot is better in the first objective and no worse in the others."""
    worse = jnp.bool_(False)
    for pivot in pivots:
        no_better = [score >= least for score, least in zip(scores[1:], pivot[1:], strict=True)]
        worse = worse | functools.reduce(operator.and_, no_better, scores[0] > pivot[0])
    return worse


def _counts(scores: Sequence[Array], reasons: Sequence[Array], feasible_bit: int) -> Array:
    """How many designs are feasible, have each bit of a reason, are feasible without a finite score.

    A design has a bit where some group has it: of all less those where no group does.
    """
    tallies = []
    for own, reason in zip(scores, reasons, strict=True):
        along = math.prod(reason.shape[:-1]), reason.shape[-1]
        tallies.append(_tallies(own.reshape(len(own), *along), reason.reshape(along), feasible_bit))
    totals = _totals(tallies)
    by_reason, feasible, every, ranked = totals[:-3], totals[-3:-2], totals[-2:-1], totals[-1:]
    if len(tallies) > 1:
        by_reason = every - _totals([tally[-2:-1] - tally[:-3] for tally in tallies])
    return jnp.concatenate([feasible, by_reason, feasible - ranked])


def _tallies(own: Array, reason: Array, feasible_bit: int) -> Array:
    """[bit, outer] how many positions have each bit of a reason, the feasible one last; are mappings; are ranked.

    Words are added along the positions with a sum for each of their bits: seven become three by full adders, as in
    the population count of Harley and Seal. So the words are read once, and few are left of which bits are taken out.

    Args:
        own: [objective, position, outer] scores.
        reason: [position, outer].
        feasible_bit: the bit after those of all reasons.
    """
    count, rows = feasible_bit.bit_length(), len(reason)

    def words(start: Array | int, size: int) -> Array:
        having = lax.dynamic_slice_in_dim(reason, start, size)
        finite = jnp.isfinite(lax.dynamic_slice_in_dim(own, start, size, axis=1)).all(axis=0)
        ranked = finite if len(own) else having == feasible_bit
        return having | jnp.where(having != 0, 1 << count, 0) | jnp.where(ranked, 2 << count, 0)

    def add_seven(number: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b, c, d, e, f, g = words(number * 7, 7)
        (first, two_a), (second, two_b) = _full(a, b, c), _full(d, e, f)
        one, two_c = _full(first, second, g)
        two, four = _full(two_a, two_b, two_c)
        return _added(_added(_added(sums, one, 0), two, 1), four, 2)

    sums = tuple(jnp.zeros(reason.shape[1:], jnp.int32) for _ in range(max(rows.bit_length(), 3)))
    if rows >= 7:
        sums = lax.fori_loop(0, rows // 7, add_seven, sums)
    for row in range(rows - rows % 7, rows):
        sums = _added(sums, words(row, 1)[0], 0)
    bits = jnp.arange(count + 2, dtype=jnp.int32)[:, None]
    return functools.reduce(operator.add, ((each[None] >> bits & 1) << power for power, each in enumerate(sums)))


def _full(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Sum and carry of three words, bit by bit."""
    return a ^ b ^ c, a & b | c & (a ^ b)


def _added(sums: tuple[Array, ...], word: Array, power: int) -> tuple[Array, ...]:
    """Sums, that of a power of two each, with 2^power times a word added to them, bit by bit."""
    found = list(sums)
    for i in range(power, len(found)):
        found[i], word = found[i] ^ word, found[i] & word
    return tuple(found)


# --- on the host ------------------------------------------------------------------------------------------


def counted(reason: np.ndarray, ranked: np.ndarray, study: Study) -> np.ndarray:
    """Feasible designs, designs by reason, feasible designs an objective of which is no finite number."""
    feasible = reason == 0
    by_reason = (np.count_nonzero(reason & bit) for bit in study.reason_bits.values())
    return np.array([np.count_nonzero(feasible), *by_reason, np.count_nonzero(feasible & ~ranked)], np.int64)


def below(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """[objective, threshold] how many of the scores [objective, design] are below."""
    pairs = zip(np.sort(scores, axis=1), thresholds, strict=True)
    return np.stack([np.searchsorted(row, limits, side="left") for row, limits in pairs])


def expanded(found: Scores, rows: np.ndarray, owners: Owners, feasible_bit: int) -> np.ndarray:
    """[objective, row, inner] scores at some outer indices, the groups' product written out."""
    scores = [_rows(each, rows) for each in found.scores]
    if len(scores) == 1:
        return _by_row(scores[0])
    fits = [_rows(each, rows) == feasible_bit for each in found.reasons]
    made = []
    for group, row in owners:
        value = np.broadcast_to(scores[group][row], np.broadcast_shapes(*(fit.shape for fit in fits)))
        others = (fit for number, fit in enumerate(fits) if number != group)
        made.append(np.where(functools.reduce(np.logical_and, others), value, np.float32(np.inf)))
    return _by_row(np.stack(made))


def _by_row(scores: np.ndarray) -> np.ndarray:
    """[objective, row, inner] of [objective, first part, second part, row]."""
    n_objectives, first, second, n_rows = scores.shape
    return np.ascontiguousarray(scores.reshape(n_objectives, first * second, n_rows).transpose(0, 2, 1))


def _rows(values: Values, rows: np.ndarray) -> np.ndarray:
    """[…, row] some outer indices; those alone are copied from a device that is not the host."""
    if isinstance(values, np.ndarray) or jax.default_backend() == "cpu":
        return np.asarray(values)[..., rows]
    return np.asarray(gathered(values, padded_rows(rows)))[..., : len(rows)]


def padded_rows(rows: np.ndarray) -> np.ndarray:
    """Row numbers repeated up to a power of two, so that few programs gather all."""
    extra = (1 << (len(rows) - 1).bit_length()) - len(rows)
    return np.pad(rows, (0, extra), mode="edge").astype(np.int32)


@persistent_jit()
def gathered(values: Array, rows: Array) -> Array:
    """Some outer indices of […, outer]."""
    return jnp.take(values, rows, axis=-1, mode="clip")
