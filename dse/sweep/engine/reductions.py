"""What the host needs to know of a chunk of scores: where winners may be, minima, counts.

Programs of their own, because XLA would compute the scores once for every reduction of them. Scores are the smaller
the better, and infinite for what is infeasible or no mapping.
"""

from __future__ import annotations

import functools
import operator
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
    """Scores of a chunk: the smaller the better, infinite for what is infeasible or no mapping."""

    scores: Values  #: [objective, outer, inner]
    outer_best: Values  #: [objective, outer] the least along the inner product
    inner_best: Values  #: [objective, inner] the least along the outer indices
    candidates: Values  #: [outer] whether some design there is feasible and not worse than a pivot in every objective
    counts: Values  #: feasible designs, designs by bit of infeasible_reason, feasible designs that have no finite score
    below: Values | None = None  #: [objective, threshold] how many scores are below, where that is asked for


@persistent_jit("feasible_bit")
def summarise(scores: Array, reasons: Array, pivots: Array, *, feasible_bit: int) -> Scores:
    """What the host needs to know of a chunk.

    Args:
        scores: [objective, outer, inner].
        reasons: [outer, inner] bits, ``feasible_bit`` where there is none, 0 for what is no mapping.
        pivots: [pivot, objective] scores of known designs, infinite where there are fewer.
        feasible_bit: the bit after those of all reasons.
    """
    outer_best, ranked = scores.min(axis=2), jnp.isfinite(scores).all(axis=0)
    candidates = (ranked & ~_worse(tuple(scores), pivots)).any(axis=1) if len(pivots) else jnp.isfinite(outer_best[0])
    inner_best = _few_rows(scores).min(axis=2).min(axis=1)
    counts = _count(reasons, feasible_bit)
    unranked = counts[:1] - _few_rows(ranked).sum(axis=1, dtype=jnp.int32).sum()
    return Scores(scores, outer_best, inner_best, candidates, jnp.concatenate([counts, unranked]))


def _few_rows(values: Array) -> Array:
    """[…, outer, inner] as […, group, row, inner]: processors reduce a few long rows by their whole width.

    No group is spread over devices.
    """
    *leading, n_outer, n_inner = values.shape
    share = n_outer // len(jax.local_devices())
    rows = max(rows for rows in range(1, 65) if share % rows == 0)
    return values.reshape(*leading, n_outer // rows, rows, n_inner)


@persistent_jit()
def count_below(scores: Array, thresholds: Array) -> Array:
    """How many of the scores [objective, outer, inner] are below each of ``thresholds`` [objective, threshold].

    No scatter: every score is compared with every threshold. Exact for inner products below 1024.
    """
    n = thresholds.shape[1]
    triples = jnp.pad(thresholds, [(0, 0), (0, -n % 3)]).reshape(len(thresholds), -1, 3)

    def of_objective(pair: tuple[Array, Array]) -> Array:
        scores, triples = pair

        def of_triple(triple: Array) -> Array:
            ones = (jnp.where(scores < least, 1 << place, 0) for least, place in zip(triple, _PLACES, strict=True))
            return _unpacked(functools.reduce(operator.add, ones).sum(axis=1, dtype=jnp.int32))

        return lax.map(of_triple, triples).reshape(-1)[:n]

    return jnp.stack([of_objective(pair) for pair in zip(scores, triples, strict=True)])


#: Places in a word at which three counts below 1024 lie side by side.
_PLACES = (0, 10, 20)


def _unpacked(sums: Array) -> Array:
    """The three totals of words that hold three counts each."""
    return jnp.stack([(sums >> place & 1023).sum(dtype=jnp.int32) for place in _PLACES])


def _worse(scores: tuple[Array, ...], pivots: Array) -> Array:
    """Whether some pivot is better in the first objective and no worse in the others."""
    worse = jnp.bool_(False)
    for pivot in pivots:
        no_better = [score >= least for score, least in zip(scores[1:], pivot[1:], strict=True)]
        worse = worse | functools.reduce(operator.and_, no_better, scores[0] > pivot[0])
    return worse


def _count(reasons: Array, feasible_bit: int) -> Array:
    """How many designs have each bit, the feasible first.

    Three bits are spread over a word, ten places apart, so that one sum along a few rows counts all three.
    """
    spread, ones = 1 | 1 << 9 | 1 << 18, 1 | 1 << 10 | 1 << 20
    grouped, counts = _few_rows(reasons), []
    for first in range(0, feasible_bit.bit_length(), 3):
        counts.append(_unpacked((((grouped >> first & 7) * spread) & ones).sum(axis=1, dtype=jnp.int32)))
    return jnp.roll(jnp.concatenate(counts)[: feasible_bit.bit_length()], 1)


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
