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


def choose(code: Scalar, by_code: Mapping[Code, T]) -> T:
    """Return the value of ``by_code`` (code → value) at a traced integer code, 0 for an unknown one.

    Values are numbers, or records of equal structure, which are chosen part by part.
    """
    chosen_value: T = jax.tree.map(lambda _: 0.0, next(iter(by_code.values())))
    for key, value in by_code.items():
        chosen_value = select(code == float(key), value, chosen_value)
    return chosen_value


def select(condition: Any, yes: T, no: T) -> T:
    """Return ``yes`` where a condition holds, else ``no``, part by part: numbers, or records of equal structure."""
    selected: T = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return selected


def nothing(value: Scalar) -> bool:
    """Return true for the Python number 0, which stands for an absent part; false for every array."""
    return isinstance(value, int | float) and value == 0.0


def plus(*terms: Scalar) -> Scalar:
    """Return the sum of the terms, 0 for none, without an equation for the literal zeros of absent parts."""
    present = [term for term in terms if not nothing(term)]
    return functools.reduce(operator.add, present) if present else 0.0


def times(count: Scalar, value: Scalar) -> Scalar:
    """Return the product, without an equation where either factor is the literal 0 or 1."""
    if nothing(count) or nothing(value):
        return 0.0
    is_one, value_is_one = (isinstance(factor, int | float) and factor == 1.0 for factor in (count, value))
    return value if is_one else count if value_is_one else count * value


def quotient(value: Scalar, count: Scalar) -> Scalar:
    """Return ``value / count``, without an equation where the divisor is the literal 1."""
    return value if isinstance(count, int | float) and count == 1.0 else value / count


def where_on(flag: Scalar, yes: T, no: T) -> T:
    """Return ``yes`` where a flag is above 0, else ``no``, part by part.

    Both are numbers or records of equal structure. A literal flag adds no equation.
    """
    if isinstance(flag, int | float):
        return yes if flag > 0.0 else no
    return select(flag > 0.0, yes, no)


def value_or(value: Scalar | None, otherwise: Scalar) -> Scalar:
    """Return ``value``, or ``otherwise`` where it is None."""
    return otherwise if value is None else value


def min_prefer_first(first: Scalar, second: Scalar) -> Scalar:
    """Return the smaller of two, with the slope of ``first`` alone where both are equal.

    ``minimum`` averages both slopes there. At values that many designs have (the nominal clock, a link with the
    bandwidth of its network), ``first`` is the value that can decrease.
    """
    return jnp.where(first <= second, first, second)


def max_prefer_first(first: Scalar, second: Scalar) -> Scalar:
    """Return the larger of two, with the slope of ``first``, the value that can increase, where both are equal."""
    return jnp.where(first >= second, first, second)


def divides(part: Scalar, dividend: Scalar, extra: int = 0) -> jax.Array:
    """Return true where ``part`` divides ``dividend`` or one of the ``extra`` numbers after it, an even count.

    Whole numbers held in floats, exact below 2^24. The quotient is rounded and multiplied by ``part``, which vectorises
    where a remainder does not.
    """
    middle = dividend + 0.5 * extra if extra else dividend
    nearest_multiple = part * jnp.round(middle / part)
    return abs(nearest_multiple - middle) <= 0.5 * extra if extra else nearest_multiple == dividend


def even_part(number: Scalar) -> Scalar:
    """Return the largest power of two that divides a whole number held in a float, below 2^31: its lowest set bit."""
    if not isinstance(number, jax.Array):
        return float(int(number) & -int(number))
    bits = number.astype(jnp.int32)
    return (bits & -bits).astype(number.dtype)


def power_of_two(value: Scalar) -> Scalar:
    """Return the largest power of two not above a positive number: its floating-point form with a zero fraction."""
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
    """Return ``ceil(value)`` with the slope of ``value`` (straight-through: Bengio et al. 2013).

    The slope of a ceiling is 0 between its steps, as if more stages or narrower shards saved no work.
    """
    return jnp.ceil(value) + (value - jax.lax.stop_gradient(value))


def just_below_reciprocal(piece: Scalar) -> Scalar:
    """Return ``1 / piece`` reduced by four roundings, to count pieces by a product.

    ``ceiling(whole * just_below_reciprocal(piece))`` is ``ceil(whole / piece)`` without a division per ``whole``, exact
    below 2^21: an exact multiple never counts one piece more. It has no slope by ``piece``.
    """
    return jax.lax.stop_gradient(1.0 / piece * (1.0 - 2.0**-21))


def required(part: T | None, path: str) -> T:
    """Return ``part``, an optional part of a record, or raise where it is None.

    Args:
        part: the part, None where the record lacks it.
        path: its path, for the message.

    Raises:
        ValueError: where the record lacks it.
    """
    if part is None:
        raise ValueError(f"this formula needs {path}, which the design does not have")
    return part
