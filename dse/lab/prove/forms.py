"""Linear forms (affine arithmetic): values of blocks as ``centre + sum of slope x position ± radius``.

Positions along the axes of a block are in [-1, 1]. What depends on an axis in several places keeps that it does: a time
less itself is 0, and where computation hides messages their sum is known to be the longer of the two, all of which
plain intervals forget (de Figueiredo & Stolfi 2004). Each value is in its interval and on its form, whichever is
narrower.

A value is one array [row, block], so that a sum is one call of NumPy. Its bulk is what all parts of it add up to:
rounding, that of the model and that of the form, is at most a few units in the last place of it for each operation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dse.equations import rules
from dse.equations.primitives import CurveShape, Shape, numpy_function, primitive, range_function
from dse.equations.rules import Pair

#: Indices of the rows of a value; ``SLOPES`` is the first of the slopes.
LOW, HIGH, CENTRE, RADIUS, BULK, SLOPES = range(6)

#: Largest error of an operation relative to the bulk: its own rounding and the model's.
_ROUNDING = np.float32(3e-7)

_HALF, _UNIT, _ZERO = np.float32(0.5), np.float32(1.0), np.float32(0.0)


class Form:
    """A real value of many blocks that some axis moves."""

    __slots__ = ("depth", "inverse", "rows")

    def __init__(self, rows: np.ndarray, depth: int, inverse: Value | None = None) -> None:
        self.rows = rows  #: [row, block]
        self.depth = depth  #: operations whose rounding the radius does not hold yet
        self.inverse = inverse  #: of a rate the time that it stands for, where it is known

    @property
    def pair(self) -> Pair:
        """Lowest and highest value [block]."""
        return self.rows[LOW], self.rows[HIGH]

    def settled(self) -> Form:
        """Return the form with its rounding moved into the radius, and the narrower of its interval and its form."""
        rows = self.rows
        spread = self.spread()
        centre = rows[CENTRE]
        low, high = centre - spread, centre + spread
        is_finite = np.isfinite(spread)
        settled_rows = rows.copy()
        np.fmax(rows[LOW], low, out=settled_rows[LOW])
        np.fmin(rows[HIGH], high, out=settled_rows[HIGH])
        settled_rows[RADIUS] += np.float32(self.depth + 2) * _ROUNDING * rows[BULK]
        settled_rows[BULK] = abs(centre) + spread
        if not is_finite.all():
            settled_rows[:, ~is_finite] = interval_form(
                rows[LOW][~is_finite], rows[HIGH][~is_finite], len(rows) - SLOPES
            ).rows
        return Form(settled_rows, 0, self.inverse)

    def spread(self) -> Any:
        """Return how far the value may be from its centre, rounding included [block]."""
        rows = self.rows
        return abs(rows[SLOPES:]).sum(axis=0) + rows[RADIUS] + np.float32(self.depth + 2) * _ROUNDING * rows[BULK]


#: A value of many blocks: an array where it is the same for all designs of a block, a form of a real one that is moved,
#: least and most of a count or truth value that is. Operations tell them apart.
Value = Any


def leaf_form(low: Any, high: Any, symbol: int, n_symbols: int, is_rate: bool) -> Form:
    """Return the form of a leaf that one axis moves between its lowest and highest value.

    The position along the axis of a rate is that of its inverse, which times are linear in.

    Args:
        low: lowest value [block].
        high: highest value [block].
        symbol: index of the axis among the slopes.
        n_symbols: count of slopes.
        is_rate: True for a leaf that operations divide by.
    """
    if not is_rate or not (low > 0).all():
        return _along(low, high, symbol, n_symbols)
    inverse = _along(*rules.quotient_range((np.ones_like(low),) * 2, (low, high)), symbol, n_symbols)
    form = _curve(lambda v: _UNIT / v, _inverse_tangent, inverse, (low, high))
    form.inverse = inverse
    return form


def _along(low: Any, high: Any, symbol: int, n_symbols: int) -> Form:
    """Return the form that is linear along one axis from ``low`` to ``high`` [block]."""
    form = interval_form(low, high, n_symbols)
    form.rows[SLOPES + symbol] = _HALF * high - _HALF * low
    form.rows[RADIUS] = _ZERO
    return form


def interval_form(low: Any, high: Any, n_symbols: int) -> Form:
    """Return the form of a value of which only its lowest and highest value [block] are known."""
    rows = np.zeros((SLOPES + n_symbols, len(low)), np.float32)
    rows[LOW], rows[HIGH] = low, high
    rows[CENTRE], rows[RADIUS] = _HALF * low + _HALF * high, _HALF * high - _HALF * low
    rows[BULK] = abs(rows[CENTRE]) + rows[RADIUS]
    return Form(rows, 2)


def pair(x: Value) -> Pair:
    """Return the lowest and highest value [block] of a form, an interval or an array."""
    if isinstance(x, Form):
        return x.pair
    return (x[0], x[1]) if isinstance(x, tuple) else (x, x)


def operation(name: str, parameters: tuple[Any, ...], n_symbols: int) -> Callable[..., Value]:
    """Return the function of values of blocks → value of an operation: array, form, or (lowest, highest) of a count.

    Args:
        name: operation.
        parameters: what else the operation needs.
        n_symbols: count of slopes of a form.

    Raises:
        RefusedPrimitiveError: for an operation without a range.
    """
    compute, range_rule = numpy_function(name, parameters), range_function(name, parameters)
    line = primitive(name).line
    form_rule = _form_rule(name, parameters, n_symbols)
    inverse_shape = None if isinstance(line, CurveShape) or line is None else _INVERSES.get(line)

    def run(*operands: Value) -> Value:
        if all(isinstance(x, np.ndarray) for x in operands):
            value: np.ndarray = compute(*operands)
            return value
        form = form_rule(*operands) if form_rule and all(map(_is_real, operands[line == "selection" :])) else None
        if form is None:
            ends = range_rule(*map(pair, operands))
            if ends[0].dtype.kind != "f":
                return ends
            form = interval_form(*ends, n_symbols)
        if inverse_shape and any(isinstance(x, Form) and x.inverse is not None for x in operands):
            form.inverse = _combined_inverse(inverse_shape, n_symbols, *operands)
        return form

    return run


def _is_real(x: Value) -> bool:
    """Return whether a value is real: a form, or an array of real numbers."""
    return isinstance(x, Form) or (isinstance(x, np.ndarray) and x.dtype.kind == "f")


def _rows(x: Value, n_symbols: int, count: int) -> np.ndarray:
    """Return the rows [row, block] of a form, or of an array as a form without slopes."""
    if isinstance(x, Form):
        return x.rows
    rows = np.zeros((SLOPES + n_symbols, count), np.float32)
    rows[LOW : CENTRE + 1], rows[BULK] = x, abs(x)
    return rows


def _depth(*operands: Value) -> int:
    """Return the count of operations whose rounding a form of the operands does not hold: the most of them, plus 1."""
    return max(x.depth for x in operands if isinstance(x, Form)) + 1


def _sum(x: Value, y: Value) -> Form:
    """Return ``x + y``, one of which is a form."""
    if isinstance(x, Form) and isinstance(y, Form):
        return Form(x.rows + y.rows, _depth(x, y))
    x, y = (x, y) if isinstance(x, Form) else (y, x)
    rows = x.rows.copy()
    rows[LOW : CENTRE + 1] += y
    rows[BULK] += abs(y)
    return Form(rows, x.depth + 1)


def _negative(x: Form) -> Form:
    """Return ``-x``."""
    rows = -x.rows
    rows[LOW], rows[HIGH], rows[RADIUS], rows[BULK] = -x.rows[HIGH], -x.rows[LOW], x.rows[RADIUS], x.rows[BULK]
    return Form(rows, x.depth)


def difference(x: Value, y: Value) -> Form:
    """Return ``x - y``, one of which is a form, with its rounding in the radius."""
    return _sum(x, _negative(y) if isinstance(y, Form) else -y).settled()


def _product(x: Value, y: Value) -> Form:
    """Return ``x y``, one of which is a form."""
    if isinstance(x, Form) and isinstance(y, Form):
        return _affine_product(x, y)
    x, y = (x, y) if isinstance(x, Form) else (y, x)
    rows = x.rows * y
    is_negative = y < 0
    if is_negative.any():
        rows[RADIUS : BULK + 1] = abs(rows[RADIUS : BULK + 1])
        rows[LOW : HIGH + 1] = np.where(is_negative, rows[[HIGH, LOW]], rows[[LOW, HIGH]])
    return Form(rows, x.depth + 1)


def _affine_product(x: Form, y: Form) -> Form:
    """Return the product of two forms by affine arithmetic: the product of their spreads goes into the radius."""
    x, y = x.settled(), y.settled()
    x_centre, y_centre = x.rows[CENTRE], y.rows[CENTRE]
    rows = x_centre * y.rows + y_centre * x.rows
    rows[LOW], rows[HIGH] = rules.product_range(x.pair, y.pair)
    rows[CENTRE] = x_centre * y_centre
    spread_product = x.spread() * y.spread()
    rows[RADIUS] = abs(x_centre) * y.rows[RADIUS] + abs(y_centre) * x.rows[RADIUS] + spread_product
    rows[BULK] = abs(x_centre) * y.rows[BULK] + abs(y_centre) * x.rows[BULK] + spread_product
    return Form(rows, 3).settled()


def _quotient(x: Value, y: Value) -> Form | None:
    """Return ``x / y``, one of which is a form, None where a form ``y`` may be 0 or less."""
    if not isinstance(y, Form):
        form = _product(x, _UNIT / y)
        form.rows[LOW], form.rows[HIGH] = rules.quotient_range(pair(x), (y, y))
        return Form(form.rows, form.depth + 1)
    ends = rules.quotient_range(pair(x), y.pair)
    inverse = y.inverse
    if inverse is None:
        y = y.settled()
        if not (y.rows[LOW] > 0).all():
            return None
        inverse = _curve(lambda v: _UNIT / v, _inverse_tangent, y, (_UNIT / y.rows[HIGH], _UNIT / y.rows[LOW]))
    form = _product(x, inverse)
    form.rows[LOW], form.rows[HIGH] = ends
    return form


def _inverse_tangent(slope: Any) -> Any:
    """Return the positive argument at which ``1 / v`` has a slope."""
    return np.sqrt(-_UNIT / slope)


def _curve(function: Callable[[Any], Any], tangent: Callable[[Any], Any], x: Form, interval: Pair) -> Form:
    """Return the form of a convex or concave function: a secant, moved half way to the tangent of the same slope.

    Args:
        function: the function.
        tangent: slope → argument at which the function has it.
        x: the operand, settled.
        interval: least and most of the function.
    """
    low, high = x.pair
    ends = function(low), function(high)
    with np.errstate(all="ignore"):
        slope = np.where(high > low, (ends[1] - ends[0]) / (high - low), _ZERO)
        touch = tangent(slope)
    touch = np.where(touch == touch, np.minimum(np.maximum(touch, low), high), low).astype(np.float32)
    pairs = zip((*ends, function(touch)), (low, high, touch), strict=True)
    least, most = rules.hull([end - slope * value for end, value in pairs])
    rows = x.rows * slope
    half = _HALF * (most - least)
    rows[CENTRE] += _HALF * least + _HALF * most
    rows[RADIUS] = abs(rows[RADIUS]) + half
    rows[BULK] = abs(rows[BULK]) + half + abs(ends[0]) + abs(ends[1]) + abs(slope) * (abs(low) + abs(high))
    rows[LOW], rows[HIGH] = interval
    return Form(rows, x.depth + 3).settled()


def _curve_form(name: str, parameters: tuple[Any, ...], curve: CurveShape, x: Value, *operands: Value) -> Form | None:
    """Return the form of a curve of a form, None where the form may be below its limit or another operand is moved."""
    if not isinstance(x, Form) or any(isinstance(y, Form) for y in operands):
        return None
    x = x.settled()
    if not (x.rows[LOW] > curve.above).all():
        return None
    function = numpy_function(name, parameters)
    ends = range_function(name, parameters)(x.pair, *((y, y) for y in operands))
    return _curve(lambda v: function(v, *operands), lambda slope: curve.tangent(*parameters, slope, *operands), x, ends)


def _extreme(x: Value, y: Value, sign: int) -> Form:
    """Return the maximum of two values, or with sign -1 the minimum, as the chord over their difference."""
    if not isinstance(x, Form):
        x, y = y, x
    low, high = _difference_bounds(x, y)
    is_mixed = (low < 0) & (high > 0)
    share = np.where(is_mixed, high / (high - low), low >= 0).astype(np.float32)
    half_width = np.where(is_mixed, -_HALF * share * low, _ZERO)
    x_share = share if sign > 0 else _UNIT - share
    y_share = _UNIT - x_share
    rows = x.rows * x_share
    if isinstance(y, Form):
        rows += y.rows * y_share
    else:
        weighted = y * y_share
        rows[CENTRE] += weighted
        rows[BULK] += abs(weighted)
    (a, b), (c, d), extreme = x.pair, pair(y), np.maximum if sign > 0 else np.minimum
    extreme(a, c, out=rows[LOW])
    extreme(b, d, out=rows[HIGH])
    rows[CENTRE] += half_width if sign > 0 else -half_width
    rows[RADIUS] += half_width
    rows[BULK] += half_width + half_width
    return Form(rows, _depth(x, y) + 3)


def _difference_bounds(x: Value, y: Value) -> Pair:
    """Return the lowest and highest value of ``x - y`` [block]."""
    if not isinstance(x, Form):
        low, high = _difference_bounds(y, x)
        return -high, -low
    (a, b), (c, d) = x.pair, pair(y)
    centre, spread = x.rows[CENTRE], x.rows[RADIUS]
    if isinstance(y, Form):
        slope_sum, bulk = abs(x.rows[SLOPES:] - y.rows[SLOPES:]).sum(axis=0), x.rows[BULK] + y.rows[BULK]
        centre, spread = centre - y.rows[CENTRE], spread + y.rows[RADIUS]
    else:
        slope_sum, bulk, centre = abs(x.rows[SLOPES:]).sum(axis=0), x.rows[BULK] + abs(y), centre - y
    spread = spread + slope_sum + np.float32(_depth(x, y) + 3) * _ROUNDING * bulk
    return np.fmax(a - d, centre - spread), np.fmin(b - c, centre + spread)


def bound_within_limit(x: Form, limit: Form) -> Any:
    """Return a lower bound of ``x`` [block] over designs where ``limit`` is not above 0.

    For any multiplier that is not negative, ``x + multiplier limit`` is not above ``x`` where the limit holds: the best
    of some multipliers is taken.
    """
    rows, limit_rows, best = x.rows, limit.rows, np.float32(-np.inf)
    for symbol in range(SLOPES, len(rows)):
        multiplier = np.fmax(-rows[symbol] / limit_rows[symbol], _ZERO)
        multiplier = np.where(np.isfinite(multiplier), multiplier, _ZERO)
        combined = rows + multiplier * limit_rows
        spread = abs(combined[SLOPES:]).sum(axis=0) + combined[RADIUS] + np.float32(8) * _ROUNDING * combined[BULK]
        best = np.fmax(best, combined[CENTRE] - spread)
    return best


def _selection(n_symbols: int, condition: Value, *cases: Value) -> Form | None:
    """Return the form of the selected case, the middle of both where that is open, None for other than two cases."""
    is_surely, may_be = pair(condition)
    if len(cases) != 2 or is_surely.dtype != bool:
        return None
    count = max(len(is_surely), *(len(pair(x)[0]) for x in cases))
    first, second = (_rows(x, n_symbols, count) for x in cases)
    rows = np.where(is_surely, second, first)
    if may_be is not is_surely and (is_open := may_be & ~is_surely).any():
        a, b = first[:, is_open], second[:, is_open]
        middle = _HALF * (a + b)
        middle[LOW], middle[HIGH] = np.minimum(a[LOW], b[LOW]), np.maximum(a[HIGH], b[HIGH])
        half_distance = _HALF * (abs(a[CENTRE] - b[CENTRE]) + abs(a[SLOPES:] - b[SLOPES:]).sum(axis=0))
        middle[RADIUS] = np.maximum(a[RADIUS], b[RADIUS]) + half_distance
        middle[BULK] = a[BULK] + b[BULK]
        rows[:, is_open] = middle
    return Form(rows, 3 + max(x.depth if isinstance(x, Form) else 0 for x in cases))


#: Shape of an operation → function of values → form (or None).
_SHAPES: dict[Shape, Callable[..., Form | None]] = {
    "sum": _sum,
    "difference": difference,
    "negative": _negative,
    "product": _product,
    "quotient": _quotient,
    "larger": functools.partial(_extreme, sign=1),
    "smaller": functools.partial(_extreme, sign=-1),
}

#: Shapes that give rates of rates, and what they are of their inverses.
_INVERSES: dict[Shape, Shape] = {
    "product": "product",
    "quotient": "quotient",
    "smaller": "larger",
    "larger": "smaller",
    "selection": "selection",
}


def _form_rule(name: str, parameters: tuple[Any, ...], n_symbols: int) -> Callable[..., Form | None] | None:
    """Return the function values → form (or None) of an operation, None for one that has a range alone."""
    line = primitive(name).line
    if isinstance(line, CurveShape):
        return functools.partial(_curve_form, name, parameters, line)
    return None if line is None else _shape_rule(line, n_symbols)


def _shape_rule(shape: Shape, n_symbols: int) -> Callable[..., Form | None]:
    """Return the function values → form (or None) of a shape."""
    return functools.partial(_selection, n_symbols) if shape == "selection" else _SHAPES[shape]


def _combined_inverse(shape: Shape, n_symbols: int, *operands: Value) -> Value | None:
    """Return the inverse of an operation on rates from the inverses of its operands, None where one is unknown."""
    choice = operands[:1] if shape == "selection" else ()
    inverses = [x.inverse if isinstance(x, Form) else _UNIT / x for x in operands[len(choice) :]]
    if any(x is None or not (pair(x)[0] > 0).all() for x in inverses):
        return None
    return _shape_rule(shape, n_symbols)(*choice, *inverses)
