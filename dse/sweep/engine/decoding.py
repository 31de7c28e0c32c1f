"""Outer indices to designs: their mixed-radix digits, and the values of leaves in tables."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

#: Rows of a table up to which all of them are compared with: processors do that for many designs at once, but fetch
#: one value at a time.
FEW_ROWS = 8


def decode(start: Array, radices: Array, count: int) -> list[Array]:
    """Return the mixed-radix digits of the indices ``start + 0 … start + count - 1``.

    Args:
        start: digits of the first index, decoded on the host, so that the index itself may exceed 2^31.
        radices: size of each digit, below 2^30.
        count: number of indices, at most :data:`~dse.sweep.engine.nesting.LONGEST_CHUNK`.

    Returns:
        By digit, the most significant first, [index] int32. Past the last index the digits begin again at 0.
    """
    carry = jnp.arange(count, dtype=jnp.int32)
    digits: list[Array] = []
    for position in reversed(range(radices.shape[0])):
        carry, digit = _divide(start[position] + carry, radices[position])
        digits.append(digit)
    return digits[::-1]


def _divide(total: Array, radix: Array) -> tuple[Array, Array]:
    """Return quotient and remainder of int32 arrays, of which no quotient exceeds ``LONGEST_CHUNK``.

    Processors divide many floats at once but no integers: the float quotient is off by one at most, which the
    remainder tells.
    """
    quotient = jnp.floor(total.astype(jnp.float32) * (1.0 / radix.astype(jnp.float32))).astype(jnp.int32)
    remainder = total - quotient * radix
    correction = (remainder >= radix).astype(jnp.int32) - (remainder < 0).astype(jnp.int32)
    return quotient + correction, remainder - correction * radix


def values_at(tables: tuple[dict[str, Array], ...], digits: Sequence[Array]) -> dict[str, Array]:
    """Return leaf path → [outer] values, from the table and the [outer] digits of each outer axis."""
    pairs = zip(tables, digits, strict=True)
    return {path: _take_rows(column, index) for table, index in pairs for path, column in table.items()}


def _take_rows(column: Array, index: Array) -> Array:
    """Return [index] values of a column of a table at these row numbers."""
    if len(column) > FEW_ROWS:
        return column.at[index].get(mode="promise_in_bounds")
    values = jnp.broadcast_to(column[0], index.shape)
    for row_number in range(1, len(column)):
        values = jnp.where(index == row_number, column[row_number], values)
    return values
