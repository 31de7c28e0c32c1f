"""Scores of chunks and outputs of single designs on the host, whether NumPy or a device has computed them."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dse.doors import Study

if TYPE_CHECKING:
    from jax import Array

#: Arrays of the device, or of the host where NumPy has computed them.
Values: TypeAlias = "Array | np.ndarray"


class Scores(NamedTuple):
    """Scores of a chunk: the smaller the better, infinite for what is infeasible or no mapping.

    Where the factors of the inner product are separable each is a group with scores of its own, and a design is
    feasible where it is feasible in both.
    """

    scores: tuple[Values, ...]  #: by group [its objective, first factor, second factor, outer]
    reasons: tuple[
        Values, ...
    ]  #: by group [first factor, second factor, outer] bits, the feasible bit where there is none
    outer_best: Values  #: [objective, outer] least score along the inner product
    inner_best: tuple[Values, ...]  #: by group [objective, inner index of the group] least score along everything else
    candidates: Values  #: [outer] True where a design may be feasible and no worse than a pivot in every objective
    counts: Values  #: feasible designs, designs by bit of infeasible_reason, feasible designs that have no finite score
    below: Values | None = None  #: [objective, threshold] how many scores are below, where that is asked for


#: By objective: its group, and its index among those of the group.
Owners = tuple[tuple[int, int], ...]


def count_on_host(reason: np.ndarray, ranked: np.ndarray, study: Study) -> np.ndarray:
    """Return the numbers of designs: feasible ones, those with each reason, feasible ones without finite objectives."""
    feasible = reason == 0
    by_reason = (np.count_nonzero(reason & bit) for bit in study.reason_bits.values())
    return np.array([np.count_nonzero(feasible), *by_reason, np.count_nonzero(feasible & ~ranked)], np.int64)


def count_below_on_host(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return [objective, threshold] the number of the scores [objective, design] below each threshold."""
    pairs = zip(np.sort(scores, axis=1), thresholds, strict=True)
    return np.stack([np.searchsorted(row, limits, side="left") for row, limits in pairs])


def expand_groups(chunk_scores: Scores, rows: np.ndarray, owners: Owners, feasible_bit: int) -> np.ndarray:
    """Return [objective, row, inner] scores of some outer indices, for the product of the groups."""
    scores = [_rows(values, rows) for values in chunk_scores.scores]
    if len(scores) == 1:
        return _by_row(scores[0])
    is_feasible = [_rows(values, rows) == feasible_bit for values in chunk_scores.reasons]
    objective_scores = []
    for group, row in owners:
        value = np.broadcast_to(scores[group][row], np.broadcast_shapes(*(feasible.shape for feasible in is_feasible)))
        other_feasible = (feasible for number, feasible in enumerate(is_feasible) if number != group)
        objective_scores.append(np.where(functools.reduce(np.logical_and, other_feasible), value, np.float32(np.inf)))
    return _by_row(np.stack(objective_scores))


def _by_row(scores: np.ndarray) -> np.ndarray:
    """Return [objective, row, inner] from [objective, first factor, second factor, row]."""
    n_objectives, first, second, n_rows = scores.shape
    return np.ascontiguousarray(scores.reshape(n_objectives, first * second, n_rows).transpose(0, 2, 1))


def _rows(values: Values, rows: np.ndarray) -> np.ndarray:
    """Return […, row] the values of some outer indices."""
    if isinstance(values, np.ndarray):
        return values[..., rows]
    from dse.sweep.engine.reductions import device_rows

    return device_rows(values, rows)


@dataclasses.dataclass(frozen=True)
class Output:
    """Values along some of [first factor, second factor, outer], the same along the others."""

    values: Any
    shape: tuple[int, ...]  #: of three axes, 1 where the values are the same along the axis

    def select(self, where: DesignIndices) -> np.ndarray:
        """Return [design] the values of these designs."""
        flat = np.asarray(self.values).reshape(-1)
        return flat[where.flat_index(self.shape)] if len(flat) > 1 else np.broadcast_to(flat, len(where.outer))


class DesignIndices:
    """Designs of a chunk by their [design] indices along its array axes.

    Args:
        outer: outer index less that of the chunk's start.
        inner: inner index.
        factor_sizes: sizes of the first and of the second factor.
    """

    def __init__(self, outer: np.ndarray, inner: np.ndarray, factor_sizes: tuple[int, int]) -> None:
        self.outer = outer
        self._digits = *np.divmod(inner, factor_sizes[1]), outer
        self._flat: dict[tuple[int, ...], np.ndarray] = {}

    def flat_index(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return [design] indices into a flattened array of this shape, three axes of full length or 1."""
        if shape not in self._flat:
            index = np.zeros(len(self.outer), np.int64)
            for size, digit in zip(shape, self._digits, strict=True):
                index = index * size + digit if size > 1 else index
            self._flat[shape] = index
        return self._flat[shape]
