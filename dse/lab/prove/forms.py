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

from dse.doors.scalars import intervals
from dse.doors.scalars.intervals import Pair
from dse.doors.scalars.operations import numpy_function

#: Rows of a value; the slopes come behind them.
LOW, HIGH, CENTRE, RADIUS, BULK, SLOPES = range(6)

#: What an operation may be off by, relative to the bulk: its own rounding and the model's.
_ROUNDING = np.float32(3e-7)

_HALF, _ONE, _NONE = np.float32(0.5), np.float32(1.0), np.float32(0.0)


class Form:
    """A real value of many blocks that some axis moves."""

    __slots__ = ("depth", "inverse", "rows")

    def __init__(self, rows: np.ndarray, depth: int, inverse: Value | None = None) -> None:
        self.rows = rows  #: [row, block]
        self.depth = depth  #: operations whose rounding the radius does not hold yet
        self.inverse = inverse  #: of a rate the time that it stands for, where it is known

    @property
    def pair(self) -> Pair:
        """Least and most."""
        return self.rows[LOW], self.rows[HIGH]

    def settled(self) -> Form:
        """The same with its rounding in the radius, in the narrower of its interval and its form."""
        rows = self.rows
        spread = self.spread()
        centre = rows[CENTRE]
        low, high = centre - spread, centre + spread
        known = np.isfinite(spread)
        found = rows.copy()
        np.fmax(rows[LOW], low, out=found[LOW])
        np.fmin(rows[HIGH], high, out=found[HIGH])
        found[RADIUS] += np.float32(self.depth + 2) * _ROUNDING * rows[BULK]
        found[BULK] = abs(centre) + spread
        if not known.all():
            found[:, ~known] = between(rows[LOW][~known], rows[HIGH][~known], len(rows) - SLOPES).rows
        return Form(found, 0, self.inverse)

    def spread(self) -> Any:
        """How far the value may be from its centre."""
        rows = self.rows
        return abs(rows[SLOPES:]).sum(axis=0) + rows[RADIUS] + np.float32(self.depth + 2) * _ROUNDING * rows[BULK]


#: A value of many blocks: an array where it is the same for all designs of a block, a form of a real one that is moved,
#: least and most of a count or truth value that is. Operations tell them apart.
Value = Any


def moved(low: Any, high: Any, symbol: int, n_symbols: int, is_rate: bool) -> Form:
    """A leaf that one axis moves from its low end to its high one, in whatever way, rising or falling.

    Of a rate the position along the axis is that of its inverse, which times are linear in.
    """
    if not is_rate or not (low > 0).all():
        return _along(low, high, symbol, n_symbols)
    inverse = _along(*intervals.operation("div", ())((np.ones_like(low),) * 2, (low, high)), symbol, n_symbols)
    found = _curve(lambda v: _ONE / v, _inverse_at, inverse, (low, high))
    found.inverse = inverse
    return found


def _along(low: Any, high: Any, symbol: int, n_symbols: int) -> Form:
    found = between(low, high, n_symbols)
    found.rows[SLOPES + symbol] = _HALF * high - _HALF * low
    found.rows[RADIUS] = _NONE
    return found


def between(low: Any, high: Any, n_symbols: int) -> Form:
    """What lies between two numbers, of which nothing else is known."""
    rows = np.zeros((SLOPES + n_symbols, len(low)), np.float32)
    rows[LOW], rows[HIGH] = low, high
    rows[CENTRE], rows[RADIUS] = _HALF * low + _HALF * high, _HALF * high - _HALF * low
    rows[BULK] = abs(rows[CENTRE]) + rows[RADIUS]
    return Form(rows, 2)


def pair(x: Value) -> Pair:
    """Least and most of a value."""
    if isinstance(x, Form):
        return x.pair
    return (x[0], x[1]) if isinstance(x, tuple) else (x, x)


def operation(name: str, given: tuple[Any, ...], n_symbols: int) -> Callable[..., Value]:
    """What computes the value of an operation from those of its operands; KeyError for one without a rule.

    Args:
        name: of the operation.
        given: its parameters.
        n_symbols: slopes of a form.
    """
    at, plain, line = numpy_function(name, given), intervals.operation(name, given), _line_of(name, given, n_symbols)

    def run(*operands: Value) -> Value:
        if all(isinstance(x, np.ndarray) for x in operands):
            value: np.ndarray = at(*operands)
            return value
        found = line(*operands) if line and all(map(_is_real, operands[name == "select_n" :])) else None
        if found is None:
            ends = plain(*map(pair, operands))
            if ends[0].dtype.kind != "f":
                return ends
            found = between(*ends, n_symbols)
        if name in _INVERSES and any(isinstance(x, Form) and x.inverse is not None for x in operands):
            found.inverse = _by_inverses(_INVERSES[name], n_symbols, *operands)
        return found

    return run


def _is_real(x: Value) -> bool:
    return isinstance(x, Form) or (isinstance(x, np.ndarray) and x.dtype.kind == "f")


def _rows(x: Value, n_symbols: int, count: int) -> np.ndarray:
    """Rows of a value, of one that is not moved too."""
    if isinstance(x, Form):
        return x.rows
    rows = np.zeros((SLOPES + n_symbols, count), np.float32)
    rows[LOW : CENTRE + 1], rows[BULK] = x, abs(x)
    return rows


def _depth(*operands: Value) -> int:
    return max(x.depth for x in operands if isinstance(x, Form)) + 1


def _sum(x: Value, y: Value) -> Form:
    if isinstance(x, Form) and isinstance(y, Form):
        return Form(x.rows + y.rows, _depth(x, y))
    x, y = (x, y) if isinstance(x, Form) else (y, x)
    rows = x.rows.copy()
    rows[LOW : CENTRE + 1] += y
    rows[BULK] += abs(y)
    return Form(rows, x.depth + 1)


def _negative(x: Form) -> Form:
    rows = -x.rows
    rows[LOW], rows[HIGH], rows[RADIUS], rows[BULK] = -x.rows[HIGH], -x.rows[LOW], x.rows[RADIUS], x.rows[BULK]
    return Form(rows, x.depth)


def difference(x: Value, y: Value) -> Form:
    """The first less the second, one of which is a form."""
    return _sum(x, _negative(y) if isinstance(y, Form) else -y).settled()


def _product(x: Value, y: Value) -> Form:
    if isinstance(x, Form) and isinstance(y, Form):
        return _product_of_two(x, y)
    x, y = (x, y) if isinstance(x, Form) else (y, x)
    rows = x.rows * y
    falls = y < 0
    if falls.any():
        rows[RADIUS : BULK + 1] = abs(rows[RADIUS : BULK + 1])
        rows[LOW], rows[HIGH] = np.where(falls, rows[HIGH], rows[LOW]), np.where(falls, rows[LOW], rows[HIGH])
    return Form(rows, x.depth + 1)


def _product_of_two(x: Form, y: Form) -> Form:
    x, y = x.settled(), y.settled()
    one, other = x.rows[CENTRE], y.rows[CENTRE]
    rows = one * y.rows + other * x.rows
    rows[LOW], rows[HIGH] = intervals.operation("mul", ())(x.pair, y.pair)
    rows[CENTRE] = one * other
    away = x.spread() * y.spread()
    rows[RADIUS] = abs(one) * y.rows[RADIUS] + abs(other) * x.rows[RADIUS] + away
    rows[BULK] = abs(one) * y.rows[BULK] + abs(other) * x.rows[BULK] + away
    return Form(rows, 3).settled()


def _quotient(x: Value, y: Value) -> Form | None:
    if not isinstance(y, Form):
        found = _product(x, _ONE / y)
        found.rows[LOW], found.rows[HIGH] = intervals.operation("div", ())(pair(x), (y, y))
        return Form(found.rows, found.depth + 1)
    ends = intervals.operation("div", ())(pair(x), y.pair)
    inverse = y.inverse
    if inverse is None:
        y = y.settled()
        if not (y.rows[LOW] > 0).all():
            return None
        inverse = _curve(lambda v: _ONE / v, _inverse_at, y, (_ONE / y.rows[HIGH], _ONE / y.rows[LOW]))
    found = _product(x, inverse)
    found.rows[LOW], found.rows[HIGH] = ends
    return found


def _inverse_at(slope: Any) -> Any:
    return np.sqrt(-_ONE / slope)


def _curve(at: Callable[[Any], Any], tangent: Callable[[Any], Any], x: Form, found: Pair) -> Form:
    """A function that is convex or concave over the interval: a secant, moved between it and the tangent of its slope.

    Args:
        at: the function.
        tangent: slope → where the function has it.
        x: the operand, settled.
        found: least and most of the function.
    """
    low, high = x.pair
    ends = at(low), at(high)
    with np.errstate(all="ignore"):
        slope = np.where(high > low, (ends[1] - ends[0]) / (high - low), _NONE)
        touch = tangent(slope)
    touch = np.where(touch == touch, np.minimum(np.maximum(touch, low), high), low).astype(np.float32)
    pairs = zip((*ends, at(touch)), (low, high, touch), strict=True)
    least, most = intervals.hull([end - slope * value for end, value in pairs])
    rows = x.rows * slope
    half = _HALF * (most - least)
    rows[CENTRE] += _HALF * least + _HALF * most
    rows[RADIUS] = abs(rows[RADIUS]) + half
    rows[BULK] = abs(rows[BULK]) + half + abs(ends[0]) + abs(ends[1]) + abs(slope) * (abs(low) + abs(high))
    rows[LOW], rows[HIGH] = found
    return Form(rows, x.depth + 3).settled()


def _curved(
    name: str, given: tuple[Any, ...], tangent: Callable[[Any], Any], x: Form, above: float, *others: Any
) -> Form | None:
    """A curve, where all of the operand is above a number."""
    x = x.settled()
    if not (x.rows[LOW] > above).all():
        return None
    at = numpy_function(name, given)
    found = intervals.operation(name, given)(x.pair, *((y, y) for y in others))
    return _curve(lambda v: at(v, *others), tangent, x, found)


def _extreme(x: Value, y: Value, sign: int) -> Form:
    """The larger of two, or with sign -1 the smaller: between both by the line over their difference."""
    if not isinstance(x, Form):
        x, y = y, x
    low, high = _gap(x, y)
    mixed = (low < 0) & (high > 0)
    share = np.where(mixed, high / (high - low), low >= 0).astype(np.float32)
    off = np.where(mixed, -_HALF * share * low, _NONE)
    of_x = share if sign > 0 else _ONE - share
    of_y = _ONE - of_x
    rows = x.rows * of_x
    if isinstance(y, Form):
        rows += y.rows * of_y
    else:
        part = y * of_y
        rows[CENTRE] += part
        rows[BULK] += abs(part)
    (a, b), (c, d), extreme = x.pair, pair(y), np.maximum if sign > 0 else np.minimum
    extreme(a, c, out=rows[LOW])
    extreme(b, d, out=rows[HIGH])
    rows[CENTRE] += off if sign > 0 else -off
    rows[RADIUS] += off
    rows[BULK] += off + off
    return Form(rows, _depth(x, y) + 3)


def _gap(x: Value, y: Value) -> Pair:
    """What the first is above the second."""
    if not isinstance(x, Form):
        low, high = _gap(y, x)
        return -high, -low
    (a, b), (c, d) = x.pair, pair(y)
    centre, spread = x.rows[CENTRE], x.rows[RADIUS]
    if isinstance(y, Form):
        away, bulk = abs(x.rows[SLOPES:] - y.rows[SLOPES:]).sum(axis=0), x.rows[BULK] + y.rows[BULK]
        centre, spread = centre - y.rows[CENTRE], spread + y.rows[RADIUS]
    else:
        away, bulk, centre = abs(x.rows[SLOPES:]).sum(axis=0), x.rows[BULK] + abs(y), centre - y
    spread = spread + away + np.float32(_depth(x, y) + 3) * _ROUNDING * bulk
    return np.fmax(a - d, centre - spread), np.fmin(b - c, centre + spread)


def least_within(x: Form, held: Form) -> Any:
    """A bound of a value where another is not above 0, by the best of some multipliers of that limit.

    For any multiplier that is not negative, ``x + multiplier held`` is not above ``x`` where the limit holds.
    """
    rows, limit, best = x.rows, held.rows, np.float32(-np.inf)
    for symbol in range(SLOPES, len(rows)):
        multiplier = np.fmax(-rows[symbol] / limit[symbol], _NONE)
        multiplier = np.where(np.isfinite(multiplier), multiplier, _NONE)
        both = rows + multiplier * limit
        away = abs(both[SLOPES:]).sum(axis=0) + both[RADIUS] + np.float32(8) * _ROUNDING * both[BULK]
        best = np.fmax(best, both[CENTRE] - away)
    return best


def _chosen(n_symbols: int, which: Value, *cases: Value) -> Form | None:
    """The form of the case that is chosen; where that is open one through the middle of both."""
    surely, maybe = pair(which)
    if len(cases) != 2 or surely.dtype != bool:
        return None
    count = max(len(surely), *(len(pair(x)[0]) for x in cases))
    first, second = (_rows(x, n_symbols, count) for x in cases)
    rows = np.where(surely, second, first)
    if maybe is not surely and (opened := maybe & ~surely).any():
        a, b = first[:, opened], second[:, opened]
        middle = _HALF * (a + b)
        middle[LOW], middle[HIGH] = np.minimum(a[LOW], b[LOW]), np.maximum(a[HIGH], b[HIGH])
        apart = _HALF * (abs(a[CENTRE] - b[CENTRE]) + abs(a[SLOPES:] - b[SLOPES:]).sum(axis=0))
        middle[RADIUS] = np.maximum(a[RADIUS], b[RADIUS]) + apart
        middle[BULK] = a[BULK] + b[BULK]
        rows[:, opened] = middle
    return Form(rows, 3 + max(x.depth if isinstance(x, Form) else 0 for x in cases))


def _power(x: Value, y: Value) -> Form | None:
    if not isinstance(x, Form) or not isinstance(y, np.ndarray):
        return None
    return _curved("pow", (), lambda slope: np.power(slope / y, _ONE / (y - _ONE)), x, 0.0, y)


def _whole_power(given: tuple[int], x: Form) -> Form | None:
    if given[0] in (0, 1):
        return None
    n = np.float32(given[0])
    return _curved("integer_pow", given, lambda slope: np.power(slope / n, _ONE / (n - _ONE)), x, 0.0)


#: Functions that bend one way: what they are above, and where they have a slope.
_CURVES: dict[str, tuple[float, Callable[[Any], Any]]] = {
    "sqrt": (0.0, lambda slope: np.float32(0.25) / (slope * slope)),
    "exp": (-np.inf, np.log),
    "log": (0.0, lambda slope: _ONE / slope),
}


def _line_of(name: str, given: tuple[Any, ...], n_symbols: int) -> Callable[..., Form | None] | None:
    """What computes the form of an operation; None for one that has an interval alone."""
    if name in _CURVES:
        above, tangent = _CURVES[name]
        return lambda x: _curved(name, given, tangent, x, above)
    if name == "integer_pow":
        return lambda x: _whole_power(given, x)
    return functools.partial(_chosen, n_symbols) if name == "select_n" else _LINES.get(name)


_LINES: dict[str, Callable[..., Form | None]] = {
    "add": _sum,
    "add_any": _sum,
    "sub": difference,
    "mul": _product,
    "div": _quotient,
    "max": functools.partial(_extreme, sign=1),
    "min": functools.partial(_extreme, sign=-1),
    "neg": _negative,
    "pow": _power,
}

#: Operations that give rates of rates, and what they are of their inverses.
_INVERSES = {"mul": "mul", "div": "div", "min": "max", "max": "min", "select_n": "select_n"}


def _by_inverses(name: str, n_symbols: int, *operands: Value) -> Value | None:
    """The inverse of what an operation gives, of the inverses of its operands."""
    choice = operands[:1] if name == "select_n" else ()
    rates = operands[len(choice) :]
    inverses = [x.inverse if isinstance(x, Form) else _ONE / x for x in rates]
    if any(x is None or not (pair(x)[0] > 0).all() for x in inverses):
        return None
    line = _line_of(name, (), n_symbols)
    return line(*choice, *inverses) if line else None
