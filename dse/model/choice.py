"""Choices as data, without branches: values by a traced integer code, and tests of whole numbers held in floats."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dse.types import Scalar

#: An integer code, usually of an enumeration.
Code = TypeVar("Code", bound=int)
T = TypeVar("T")


def choose(code: Scalar, by_code: Mapping[Code, Scalar]) -> Scalar:
    """The value of ``by_code`` at a traced integer code, as a chain of selects (0 if unknown)."""
    result: Scalar = 0.0
    for key, value in by_code.items():
        result = jnp.where(code == float(key), value, result)
    return result


def nothing(value: Scalar) -> bool:
    """Whether ``value`` is the literal 0, which stands for an absent part of a design."""
    return isinstance(value, int | float) and value == 0.0


def plus(*terms: Scalar) -> Scalar:
    """Sum of the terms; literal zeros, of absent parts of a design, add no equation."""
    there = [term for term in terms if not nothing(term)]
    return functools.reduce(operator.add, there) if there else 0.0


def times(count: Scalar, value: Scalar) -> Scalar:
    """Product, without an equation where either factor is the literal 0 or 1."""
    if nothing(count) or nothing(value):
        return 0.0
    one, other = (isinstance(factor, int | float) and factor == 1.0 for factor in (count, value))
    return value if one else count if other else count * value


def divided(value: Scalar, count: Scalar) -> Scalar:
    """Quotient, without an equation where the divisor is the literal 1."""
    return value if isinstance(count, int | float) and count == 1.0 else value / count


def where_on(flag: Scalar, yes: T, no: T) -> T:
    """``yes`` where a flag is above 0, else ``no``, by part; without an equation for a literal flag."""
    if isinstance(flag, int | float):
        return yes if flag > 0.0 else no
    found: T = jax.tree.map(lambda a, b: jnp.where(flag > 0.0, a, b), yes, no)
    return found


def given(value: Scalar | None, otherwise: Scalar) -> Scalar:
    """``value``, or ``otherwise`` where the design states none."""
    return otherwise if value is None else value


def min_prefer_first(first: Scalar, second: Scalar) -> Scalar:
    """The smaller of two; where both are equal, with the slope of ``first`` alone.

    ``minimum`` averages both slopes there. At values that many designs have (the nominal clock, a link with the
    bandwidth of its network), ``first`` is the value that can decrease.
    """
    return jnp.where(first <= second, first, second)


def max_prefer_first(first: Scalar, second: Scalar) -> Scalar:
    """The larger of two; where both are equal, with the slope of ``first``, the value that can increase."""
    return jnp.where(first >= second, first, second)


def divides(part: Scalar, whole: Scalar, extra: int = 0) -> jax.Array:
    """Whether ``part`` divides ``whole`` or one of the ``extra`` numbers after it, an even count.

    Whole numbers held in floats, exact below 2^24. The quotient is rounded and multiplied by ``part``, which vectorises
    where a remainder does not.
    """
    middle = whole + 0.5 * extra if extra else whole
    nearest = part * jnp.round(middle / part)
    return abs(nearest - middle) <= 0.5 * extra if extra else nearest == whole


def even_part(whole: Scalar) -> Scalar:
    """The largest power of two that divides a whole number held in a float, below 2^31: its lowest set bit."""
    if not isinstance(whole, jax.Array):
        return float(int(whole) & -int(whole))
    bits = whole.astype(jnp.int32)
    return (bits & -bits).astype(whole.dtype)


def power_of_two(value: Scalar) -> Scalar:
    """The largest power of two up to a positive number: its floating-point form with a zero fraction."""
    if not isinstance(value, jax.Array):
        return math.ldexp(0.5, math.frexp(value)[1])
    bits, exponent = _EXPONENT[value.dtype.itemsize]
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(value, bits) & exponent, value.dtype)


#: Bytes of a float → the integer of its bits, and those of its exponent (IEEE 754).
_EXPONENT: dict[int, tuple[Any, Any]] = {
    4: (jnp.int32, np.int32(0x7F800000)),
    8: (jnp.int64, np.int64(0x7FF0000000000000)),
}


def ceiling(value: Scalar) -> Scalar:
    """``ceil(value)`` with the slope of ``value`` (straight-through: Bengio et al. 2013).

    The slope of a ceiling is 0 between its steps, as if more stages or narrower shards saved no work.
    """
    return jnp.ceil(value) + (value - jax.lax.stop_gradient(value))


def just_below_reciprocal(piece: Scalar) -> Scalar:
    """``1 / piece`` reduced by four roundings, to count pieces by a product.

    ``ceiling(whole * just_below_reciprocal(piece))`` is ``ceil(whole / piece)`` without a division per ``whole``, exact
    below 2^21: an exact multiple never counts one piece more. It has no slope by ``piece``.
    """
    return jax.lax.stop_gradient(1.0 / piece * (1.0 - 2.0**-21))


def required(part: T | None, path: str) -> T:
    """``part``, an optional part of a record; ValueError where the record lacks it."""
    if part is None:
        raise ValueError(f"this formula needs {path}, which the design does not have")
    return part
