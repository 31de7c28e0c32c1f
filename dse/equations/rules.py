"""What primitives do, where neither NumPy nor an expression says it: numbers, slopes and ranges.

Numbers are NumPy's, in the precision of the model. Slopes are those of JAX: where two are equal a maximum gives half to
each. A range is a pair of arrays [block], the least and the most of a value in each of many blocks; of a value that no
block moves both are one array. Operands and results of ranges are in the precision of the model, and every operation is
that of the model: rounding is monotone, so what the model computes at a design of a block, rounding included, lies
within its range.

An end that is no number says that nothing is known: comparisons with it are open, and what is computed with it is
unknown too. So a design whose model divides 0 by 0 on the way is covered.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

#: Slope of the output, the output, all inputs → slope of one input.
Slope = Callable[..., Any]

#: Least and most, arrays alike: [block], or [1] of what is the same for all blocks.
Pair = tuple[Any, Any]

#: Error of what is not rounded to the nearest number, in units of the last place.
UNITS = 4.0

_HALF = np.float32(0.5)


# --- numbers ------------------------------------------------------------------------------------------------


def identity(value: Any) -> Any:
    """Return the value."""
    return value


def select(condition: Any, *cases: Any) -> Any:
    """Return the case of a Boolean (false first) or integer condition, element by element."""
    if not condition.ndim:
        return cases[int(condition)]
    return np.where(condition, cases[1], cases[0]) if condition.dtype == bool else np.choose(condition, cases)


def divide(a: Any, b: Any) -> Any:
    """Return the quotient, truncated towards 0 for integers."""
    return np.divide(a, b) if a.dtype.kind == "f" else np.trunc(np.divide(a, b)).astype(a.dtype)


def clamp(low: Any, value: Any, high: Any) -> Any:
    """Return the value limited to the range from ``low`` to ``high``; ``high`` wins where they cross."""
    return np.minimum(np.maximum(value, low), high)


def convert(dtype: str, value: Any) -> Any:
    """Convert to a data type as XLA does: to integers by truncation, out of range to the nearest, NaN to 0."""
    if value.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
        integer = np.trunc(value.astype(np.float64))
        return np.where(np.isnan(integer), 0.0, np.clip(integer, lowest, highest)).astype(dtype)[()]
    return value.astype(dtype)


def one_minus_square(value: Any) -> Any:
    """Return ``1 - value**2`` as a product, which keeps the digits of values near one, as in XLA."""
    unit = value.dtype.type(1)
    return (unit + value) * (unit - value)


def bitcast(dtype: str, value: Any) -> Any:
    """Return the bits of a value as another data type of the same size."""
    return value.view(dtype)


def integer_power(exponent: int, base: Any) -> Any:
    """Return ``base**exponent`` by squaring, as XLA does, in the data type of the base; 1 for exponent 0."""
    product, power, exponent_bits = None, base, abs(exponent)
    while exponent_bits:
        if exponent_bits & 1:
            product = power if product is None else product * power
        exponent_bits >>= 1
        power = power * power if exponent_bits else power
    product = base.dtype.type(1) if product is None else product
    return np.divide(base.dtype.type(1), product) if exponent < 0 else product


def round_halves(method: int, value: Any) -> Any:
    """Round to integers, halves to even for method 1, else away from zero."""
    return np.rint(value) if method else np.copysign(np.floor(np.abs(value) + value.dtype.type(0.5)), value)


# --- slopes -------------------------------------------------------------------------------------------------


def case_slopes(_: tuple[Any, ...], n_inputs: int) -> list[Slope | None]:
    """Return the slope of each input of a selection: none of the condition, of a case where it is selected."""

    def of_case(i: int) -> Slope:
        return lambda g, _, which, *cases: np.where(which == i, g, np.float32(0.0))

    return [None, *map(of_case, range(n_inputs - 1))]


def integer_power_slopes(parameters: tuple[int], _: int) -> list[Slope | None]:
    """Return the slope of the base of an integer power."""
    (exponent,) = parameters
    factor = np.float32(exponent)
    return [lambda g, _, x: g * (factor * integer_power(exponent - 1, x)) if exponent else np.zeros_like(x)]


def conversion_slopes(parameters: tuple[str], _: int) -> list[Slope | None]:
    """Return the slope of a conversion to a real type, None for other types."""
    return [(lambda g, _, x: g.astype(x.dtype)) if np.dtype(*parameters).kind == "f" else None]


def maximum_slope(g: Any, _: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``x`` of ``max(x, y)``, half of it where both are equal."""
    return g * ((x > y) + (x == y) * _HALF)


def minimum_slope(g: Any, _: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``x`` of ``min(x, y)``, half of it where both are equal."""
    return g * ((x < y) + (x == y) * _HALF)


def power_base_slope(g: Any, _: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``x`` of ``x**y``."""
    unit, zero = np.float32(1.0), np.float32(0.0)
    return g * np.where(y == zero, zero, y * np.power(x, np.where(y == zero, unit, y - unit)))


def power_exponent_slope(g: Any, out: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``y`` of ``x**y``, 0 for a base of 0."""
    return g * np.log(np.where(x == np.float32(0.0), np.float32(1.0), x)) * out


def ln2(x: Any) -> Any:
    """Return the logarithm of two in the precision of ``x``."""
    return x.dtype.type(math.log(2.0))


def slope_where(condition: Any, g: Any) -> Any:
    """Return the slope where a condition holds, 0 elsewhere."""
    return np.where(condition, g, np.float32(0.0))


# --- ranges -------------------------------------------------------------------------------------------------


def rising(function: Callable[..., Any], *operands: Pair) -> Pair:
    """Return the range of an operation that rises, or stays, with every operand."""
    return function(*(low for low, _ in operands)), function(*(high for _, high in operands))


def widened(pair: Pair, operands: tuple[Pair, ...]) -> Pair:
    """Return a range with ends moved outwards by four units in the last place, unless all operands are single."""
    low, high = pair
    is_single = functools.reduce(np.logical_and, (a == b for a, b in operands))
    relative_step = np.float32(UNITS) * np.finfo(low.dtype).eps
    return np.where(is_single, low, low - relative_step * abs(low)), np.where(
        is_single, high, high + relative_step * abs(high)
    )


def hull(values: list[Any]) -> Pair:
    """Return the range from the least to the greatest of arrays [block], NaN where one of them is NaN."""
    return functools.reduce(np.minimum, values), functools.reduce(np.maximum, values)


def contains(x: Pair, number: float = 0.0) -> Any:
    """Return a mask [block], true where a range may contain ``number`` or is unknown."""
    return ~((x[0] > number) | (x[1] < number))


def convert_range(name: str, x: Pair) -> Pair:
    """Return the range after a conversion to a data type; unknown ends give the whole range of integers."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return not_range(equal_range(x, (x[0].dtype.type(0),) * 2))
    low, high = convert(name, x[0]), convert(name, x[1])
    if dtype.kind in "iu" and x[0].dtype.kind == "f":
        unknown, ends = np.isnan(x[0]) | np.isnan(x[1]), np.iinfo(dtype)
        return np.where(unknown, ends.min, low).astype(dtype), np.where(unknown, ends.max, high).astype(dtype)
    return low, high


def difference_range(x: Pair, y: Pair) -> Pair:
    """Return the range of a difference."""
    return x[0] - y[1], x[1] - y[0]


def product_range(x: Pair, y: Pair) -> Pair:
    """Return the range of a product, NaN where that of any two ends is NaN."""
    if (x[0] >= 0).all() and (y[0] >= 0).all():
        return x[0] * y[0], x[1] * y[1]
    return hull([x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]])


def quotient_range(x: Pair, y: Pair) -> Pair:
    """Return the range of a quotient, NaN where the divisor may be 0; NotImplementedError for integers."""
    if x[0].dtype.kind != "f":
        raise NotImplementedError("a quotient of whole numbers of several values")
    if (x[0] >= 0).all() and (y[0] > 0).all():
        return x[0] / y[1], x[1] / y[0]
    low, high = hull([x[0] / y[0], x[0] / y[1], x[1] / y[0], x[1] / y[1]])
    unknown = contains(y) & ~((y[0] == 0) & (x[0] > 0))
    return np.where(unknown, np.nan, low).astype(low.dtype), np.where(unknown, np.nan, high).astype(low.dtype)


def magnitude_range(x: Pair) -> Pair:
    """Return the range of the absolute value."""
    low, high = abs(x[0]), abs(x[1])
    has_none = contains(x) & (low == low) & (high == high)
    return np.where(has_none, low.dtype.type(0), np.minimum(low, high)), np.maximum(low, high)


def square_range(x: Pair) -> Pair:
    """Return the range of the square."""
    low, high = magnitude_range(x)
    return low * low, high * high


def integer_power_range(exponent: int, x: Pair) -> Pair:
    """Return the range of an integer power, NaN where a negative exponent meets a base that may be 0."""
    base = magnitude_range(x) if exponent % 2 == 0 else x
    if exponent >= 0:
        low, high = (np.broadcast_to(integer_power(exponent, end), end.shape) for end in base)
        return low, high
    unknown = contains(base)
    low, high = (np.where(unknown, np.nan, integer_power(exponent, end)).astype(end.dtype) for end in base[::-1])
    return low, high


def integer_power_tangent(exponent: int, slope: Any) -> Any:
    """Return the positive base at which an integer power has a slope."""
    n, unit = np.float32(exponent), np.float32(1.0)
    return np.power(slope / n, unit / (n - unit))


def power_range(x: Pair, y: Pair) -> Pair:
    """Return the range of a real power."""
    return hull([np.power(a, b) for a in x for b in y])


def less_range(x: Pair, y: Pair) -> Pair:
    """Return the range of ``x < y`` as Booleans: (surely, possibly)."""
    return x[1] < y[0], ~(x[0] >= y[1])


def at_most_range(x: Pair, y: Pair) -> Pair:
    """Return the range of ``x <= y`` as Booleans: (surely, possibly)."""
    return x[1] <= y[0], ~(x[0] > y[1])


def equal_range(x: Pair, y: Pair) -> Pair:
    """Return the range of ``x == y`` as Booleans: (surely, possibly)."""
    return (x[0] == x[1]) & (y[0] == y[1]) & (x[0] == y[0]), ~((x[1] < y[0]) | (x[0] > y[1]))


def not_range(x: Pair) -> Pair:
    """Return the range of the negation of Booleans, or of the inverted bits of integers."""
    return ~x[1], ~x[0]


def and_range(x: Pair, y: Pair) -> Pair:
    """Return the range of a bitwise and: of Booleans, or of integers at least 0 with a mask that clears low bits.

    Such a mask keeps the order of the integers; NotImplementedError for any other.
    """
    if x[0].dtype == bool:
        return x[0] & y[0], x[1] & y[1]
    for value, mask in ((x, y), (y, x)):
        if mask[0] is mask[1] and (value[0] >= 0).all() and np.all(_clears_low_bits(mask[0])):
            return value[0] & mask[0], value[1] & mask[0]
    raise NotImplementedError("bits of whole numbers of several values by another mask")


def _clears_low_bits(mask: Any) -> Any:
    """Return a mask, true where the bits that an integer mask clears are the lowest ones alone."""
    max_integer = np.iinfo(mask.dtype).max
    cleared_bits = max_integer & ~mask
    return (cleared_bits & (cleared_bits + 1)) == 0


def or_range(x: Pair, y: Pair) -> Pair:
    """Return the range of a bitwise or: for integers that are not negative from the larger one to the sum."""
    if x[0].dtype == bool:
        return x[0] | y[0], x[1] | y[1]
    is_single = (x[0] == x[1]) & (y[0] == y[1])
    exact = x[0] | y[0]
    return np.where(is_single, exact, np.maximum(x[0], y[0])), np.where(is_single, exact, x[1] + y[1])


def bitcast_range(dtype: str, x: Pair) -> Pair:
    """Return the range of a float's bits as integers, in the order of the numbers from 0 on.

    NotImplementedError where a number is negative.
    """
    if not (x[0] >= 0).all():
        raise NotImplementedError("bits of negative numbers of several values")
    return bitcast(dtype, x[0]), bitcast(dtype, x[1])


def select_range(condition: Pair, *cases: Pair) -> Pair:
    """Return the range of the case that a Boolean or an index selects, the hull of all cases where it is open."""
    if condition[0] is condition[1]:
        return select(condition[0], *(case[0] for case in cases)), select(condition[0], *(case[1] for case in cases))
    if condition[0].dtype != bool:
        return hull([end for case in cases for end in case])
    if_false, if_true = cases
    is_surely, may_be = condition
    low, high = np.where(is_surely, if_true[0], if_false[0]), np.where(is_surely, if_true[1], if_false[1])
    is_open = may_be & ~is_surely
    if not is_open.any():
        return low, high
    open_low, open_high = hull([if_false[0], if_true[0]])[0], hull([if_false[1], if_true[1]])[1]
    return np.where(is_open, open_low, low), np.where(is_open, open_high, high)
