"""What the host needs to know of a chunk of scores: where winners may be, minima, counts.

Programs of their own, because XLA would compute the scores once for every reduction of them. Scores are the smaller
the better, and infinite for what is infeasible or no mapping.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dse.doors.study import Study
from dse.sweep.engine.programs import persistent_jit

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


@persistent_jit("owners", "bits", "feasible_bit")
def summarise(
    scores: tuple[Array, ...], reasons: tuple[Array, ...], pivots: Array, *,
    owners: Owners, bits: tuple[int, ...], feasible_bit: int,
) -> Scores:  # fmt: skip
    """What the host needs to know of a chunk.

    Args:
        scores: by group [its objective, first part, second part, outer].
        reasons: by group [first part, second part, outer] bits, ``feasible_bit`` where there is none, 0 for what is no
            mapping.
        pivots: [pivot, objective] scores of known designs, infinite where there are fewer.
        owners: where each objective is.
        bits: by group the bits that its reasons may have.
        feasible_bit: the bit after those of all reasons.
    """
    fits = [reason == feasible_bit for reason in reasons]
    some = [fit.any(axis=_POSITIONS) for fit in fits]
    own_best = [scores[group][row].min(axis=_POSITIONS) for group, row in owners]
    best = [_where(_but(some, group), least) for (group, _), least in zip(owners, own_best, strict=True)]
    candidates = _candidates(scores, best, some, pivots, owners)
    inner_best = tuple(_inner_best(number, scores, fits, some, own_best, owners) for number in range(len(scores)))
    counts = _counts(reasons, bits, feasible_bit)
    ranked = [jnp.isfinite(own).all(axis=0) if len(own) else fit for own, fit in zip(scores, fits, strict=True)]
    unranked = counts[:1] - _total([_along_outer(each) for each in ranked])
    return Scores(scores, reasons, jnp.stack(best), inner_best, candidates, jnp.concatenate([counts, unranked]))


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
    number: int, scores: Sequence[Array], fits: Sequence[Array], some: Sequence[Array], own_best: Sequence[Array],
    owners: Owners,
) -> Array:  # fmt: skip
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
            return jnp.stack([_total([count, *others]) for count in counts])

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


def _total(factors: Sequence[Array]) -> Array:
    """Designs of all groups together: along the outer index the product of how many of each group there are."""
    return functools.reduce(operator.mul, factors).sum(dtype=jnp.int32)


def _worse(scores: tuple[Array, ...], pivots: Array) -> Array:
    """Whether some pivot is better in the first objective and no worse in the others."""
    worse = jnp.bool_(False)
    for pivot in pivots:
        no_better = [score >= least for score, least in zip(scores[1:], pivot[1:], strict=True)]
        worse = worse | functools.reduce(operator.and_, no_better, scores[0] > pivot[0])
    return worse


def _counts(reasons: Sequence[Array], bits: Sequence[int], feasible_bit: int) -> Array:
    """How many designs have each bit, the feasible first.

    Three bits are spread over a word, ten places apart, so that one sum counts all three. A design has a bit where some
    group has it: of all less those where no group does.
    """
    count = feasible_bit.bit_length()
    found = [jnp.int32(0)] * (-(-count // 3) * 3)
    every = [_along_outer(reason != 0) for reason in reasons] if len(reasons) > 1 else []
    for first in range(0, count, 3):
        present = [mask >> first & 7 for mask in bits]
        having = [
            _unpacked(_spread_bits(reason >> first)) if mask else [jnp.int32(0)] * 3
            for reason, mask in zip(reasons, present, strict=True)
        ]
        for i in (i for i in range(3) if any(mask >> i & 1 for mask in present)):
            own = [group[i] for group in having]
            without = [total - count for total, count in zip(every, own, strict=True)] if every else []
            found[first + i] = _total(every) - _total(without) if every else own[0].sum(dtype=jnp.int32)
    if every:
        found[count - 1] = _total([_along_outer(reason == feasible_bit) for reason in reasons])
    return jnp.stack([found[count - 1], *found[: count - 1]])


def _spread_bits(bits: Array) -> Array:
    """The lowest three bits, ten places apart."""
    return (bits & 7) * (1 | 1 << 9 | 1 << 18) & (1 | 1 << 10 | 1 << 20)


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
