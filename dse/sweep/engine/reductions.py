"""Reductions of a chunk of scores for the host: outer indices that may hold winners, minima, counts.

Programs of their own, because XLA would compute the scores once for every reduction of them. Scores are the smaller
the better, and infinite for what is infeasible or no mapping.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dse.sweep.engine.programs import FAST, persistent_jit
from dse.sweep.engine.scores import Owners


@persistent_jit("owners", "feasible_bit", options=FAST)
def summarise(
    scores: tuple[Array, ...], reasons: tuple[Array, ...], pivots: Array, *, owners: Owners, feasible_bit: int
) -> tuple[Array, tuple[Array, ...], Array, Array]:
    """Return the fields of :class:`Scores` from ``outer_best`` to ``counts``.

    Args:
        scores: by group [its objective, first factor, second factor, outer].
        reasons: by group [first factor, second factor, outer] bits, ``feasible_bit`` where there is none, 0 for
            what is no mapping.
        pivots: [pivot, objective] scores of known designs, infinite where there are fewer.
        owners: by objective its group, and its index among those of the group.
        feasible_bit: the bit after those of all reasons.
    """
    is_feasible = [reason == feasible_bit for reason in reasons]
    any_feasible = [fit.any(axis=_INNER_AXES) for fit in is_feasible]
    group_best = [scores[group][row].min(axis=_INNER_AXES) for group, row in owners]
    best = [
        _infinite_unless(_other_groups(any_feasible, group), least)
        for (group, _), least in zip(owners, group_best, strict=True)
    ]

    def inner_best(number: int) -> Array:
        """Return [objective, inner index of group ``number``] the least scores along everything else."""
        minima = []
        for (group, row), least in zip(owners, group_best, strict=True):
            if group == number:
                score = _infinite_unless(_other_groups(any_feasible, group), scores[group][row])
            else:
                others_best = _infinite_unless(_other_groups(any_feasible, group, number), least)
                score = jnp.where(is_feasible[number], others_best[None, None], jnp.inf)
            minima.append(score.min(axis=2).reshape(-1))
        return jnp.stack(minima)

    candidates = _candidates(scores, best, any_feasible, pivots, owners)
    inner_bests = tuple(inner_best(number) for number in range(len(scores)))
    return jnp.stack(best), inner_bests, candidates, _counts(scores, reasons, feasible_bit)


#: The inner axes of [first factor, second factor, outer]. Sums and minima along these come first: they are of whole
#: rows, many at once.
_INNER_AXES = (0, 1)


def _other_groups(flags: Sequence[Array], *groups: int) -> list[Array]:
    """Return the flags of all groups but those of these numbers."""
    return [flag for number, flag in enumerate(flags) if number not in groups]


def _infinite_unless(conditions: Sequence[Array], value: Array) -> Array:
    """Return the value […, outer] where all conditions [outer] hold, else infinity."""
    for condition in conditions:
        value = jnp.where(condition.reshape(*[1] * (value.ndim - 1), -1), value, jnp.inf)
    return value


def _candidates(
    scores: Sequence[Array], best: Sequence[Array], any_feasible: Sequence[Array], pivots: Array, owners: Owners
) -> Array:
    """Return [outer] True where some design may be ranked and no worse than a pivot in every objective.

    Objectives outside the group with most objectives count with their minimum.
    """
    if not len(pivots):
        return jnp.isfinite(best[0])
    main = max(range(len(scores)), key=lambda number: len(scores[number]))
    values = tuple(
        scores[group][row] if group == main else best[k][None, None] for k, (group, row) in enumerate(owners)
    )
    ranked = functools.reduce(operator.and_, [jnp.isfinite(value) for value in values])
    may_win = (ranked & ~_worse(values, pivots)).any(axis=_INNER_AXES)
    return functools.reduce(operator.and_, _other_groups(any_feasible, main), may_win)


@persistent_jit("owners", "feasible_bit")
def count_below(
    scores: tuple[Array, ...], reasons: tuple[Array, ...], thresholds: Array, *, owners: Owners, feasible_bit: int
) -> Array:
    """Return [objective, threshold] the number of scores below each of ``thresholds``.

    No scatter: every score is compared with every threshold.
    """
    n = thresholds.shape[1]
    triples = jnp.pad(thresholds, [(0, 0), (0, -n % 3)]).reshape(len(thresholds), -1, 3)
    n_feasible = (
        [(r == feasible_bit).sum(axis=_INNER_AXES, dtype=jnp.int32) for r in reasons] if len(reasons) > 1 else []
    )
    counts_by_objective = []
    for (group, row), of_objective in zip(owners, triples, strict=True):
        other_counts = _other_groups(n_feasible, group)

        def of_triple(
            triple: Array, score: Array = scores[group][row], other_counts: Sequence[Array] = other_counts
        ) -> Array:
            ones = (
                jnp.where(score < threshold, 1 << offset, 0)
                for threshold, offset in zip(triple, _BIT_OFFSETS, strict=True)
            )
            counts = _unpacked(functools.reduce(operator.add, ones))
            return jnp.stack([_totals([count, *other_counts]) for count in counts])

        counts_by_objective.append(lax.map(of_triple, of_objective).reshape(-1)[:n])
    return jnp.stack(counts_by_objective)


#: Bit offsets in a word of three counts below 1024.
_BIT_OFFSETS = (0, 10, 20)


def _unpacked(packed: Array) -> list[Array]:
    """Return three [outer] sums of words [first factor, second factor, outer] that hold three counts each.

    The first factor is shorter than 1024.
    """
    sums = packed.sum(axis=0, dtype=jnp.int32)
    return [(sums >> offset & 1023).sum(axis=0, dtype=jnp.int32) for offset in _BIT_OFFSETS]


def _totals(factors: Sequence[Array]) -> Array:
    """Return the number of designs: the sum over outer indices of the product of the counts of the groups."""
    return functools.reduce(operator.mul, factors).sum(axis=-1, dtype=jnp.int32)


def _worse(scores: tuple[Array, ...], pivots: Array) -> Array:
    """Return True, by design, where some pivot is better in the first objective and no worse in the others."""
    worse = jnp.bool_(False)
    for pivot in pivots:
        no_better = [score >= least for score, least in zip(scores[1:], pivot[1:], strict=True)]
        worse = worse | functools.reduce(operator.and_, no_better, scores[0] > pivot[0])
    return worse


def _counts(scores: Sequence[Array], reasons: Sequence[Array], feasible_bit: int) -> Array:
    """Return the numbers of designs: feasible ones, those with each reason, feasible ones without finite score.

    A design has a bit where some group has it: all designs less those where no group has it.
    """
    tallies = []
    for group_scores, reason in zip(scores, reasons, strict=True):
        along = math.prod(reason.shape[:-1]), reason.shape[-1]
        tallies.append(_tallies(group_scores.reshape(len(group_scores), *along), reason.reshape(along), feasible_bit))
    totals = _totals(tallies)
    by_reason, feasible, n_mappings, ranked = totals[:-3], totals[-3:-2], totals[-2:-1], totals[-1:]
    if len(tallies) > 1:
        by_reason = n_mappings - _totals([tally[-2:-1] - tally[:-3] for tally in tallies])
    return jnp.concatenate([feasible, by_reason, feasible - ranked])


def _tallies(scores: Array, reason: Array, feasible_bit: int) -> Array:
    """Return [count, outer] numbers of inner indices: with each bit (reasons, feasible), mappings, ranked.

    Words are added along the inner indices with a sum for each of their bits: seven become three by full adders, as in
    the population count of Harley and Seal. So the words are read once, and few are left of which bits are taken out.

    Args:
        scores: [objective, inner index, outer].
        reason: [inner index, outer].
        feasible_bit: the bit after those of all reasons.
    """
    count, rows = feasible_bit.bit_length(), len(reason)

    def words(start: Array | int, size: int) -> Array:
        bits = lax.dynamic_slice_in_dim(reason, start, size)
        finite = jnp.isfinite(lax.dynamic_slice_in_dim(scores, start, size, axis=1)).all(axis=0)
        ranked = finite if len(scores) else bits == feasible_bit
        return bits | jnp.where(bits != 0, 1 << count, 0) | jnp.where(ranked, 2 << count, 0)

    def add_seven(number: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b, c, d, e, f, g = words(number * 7, 7)
        (first, twos_a), (second, twos_b) = _full(a, b, c), _full(d, e, f)
        ones, twos_c = _full(first, second, g)
        twos, fours = _full(twos_a, twos_b, twos_c)
        return _add_word(_add_word(_add_word(sums, ones, 0), twos, 1), fours, 2)

    sums = tuple(jnp.zeros(reason.shape[1:], jnp.int32) for _ in range(max(rows.bit_length(), 3)))
    if rows >= 7:
        sums = lax.fori_loop(0, rows // 7, add_seven, sums)
    for row in range(rows - rows % 7, rows):
        sums = _add_word(sums, words(row, 1)[0], 0)
    bits = jnp.arange(count + 2, dtype=jnp.int32)[:, None]
    return functools.reduce(operator.add, ((word[None] >> bits & 1) << power for power, word in enumerate(sums)))


def _full(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return (sum, carry) of three words, bit by bit: a full adder."""
    return a ^ b ^ c, a & b | c & (a ^ b)


def _add_word(sums: tuple[Array, ...], word: Array, power: int) -> tuple[Array, ...]:
    """Return the bit planes ``sums``, one for each power of two, with 2^power times a word added bit by bit."""
    updated = list(sums)
    for i in range(power, len(updated)):
        updated[i], word = updated[i] ^ word, updated[i] & word
    return tuple(updated)


# --- on the host ------------------------------------------------------------------------------------------


def device_rows(values: Array, rows: np.ndarray) -> np.ndarray:
    """Return […, row] the values of some outer indices, the only ones copied from a device other than the host."""
    if jax.default_backend() == "cpu":
        return np.asarray(values)[..., rows]
    return np.asarray(gathered(values, padded_rows(rows)))[..., : len(rows)]


def padded_rows(rows: np.ndarray) -> np.ndarray:
    """Return the rows, int32, with the last repeated up to a power of two, so that few programs gather all."""
    extra = (1 << (len(rows) - 1).bit_length()) - len(rows)
    return np.pad(rows, (0, extra), mode="edge").astype(np.int32)


@persistent_jit()
def gathered(values: Array, rows: Array) -> Array:
    """Return […, row] the values [… , outer] of the outer indices ``rows``."""
    return jnp.take(values, rows, axis=-1, mode="clip")
