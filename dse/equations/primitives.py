"""The table of primitives: a row for each operation of JAX that a model may use, a column for each use of it.

``value`` computes numbers by NumPy, ``slopes`` takes the slope of the output to those of the inputs, ``range`` bounds
the output within ranges of the inputs, ``line`` says of which shape it is where lines bound it
(:mod:`dse.lab.prove.forms`), ``script`` is its expression in JavaScript. What a row leaves out is refused, by name and
use. A new primitive is one row, and ``tests/unit/equations/test_primitives.py`` tests it in all columns.

Rules are in :mod:`dse.equations.rules`; they take parameters of the primitive first, then inputs.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dse.equations import rules
from dse.equations.rules import Pair, Slope

if TYPE_CHECKING:
    from dse.equations.equation import Equation

#: (input position, its value with which the output is the other input, that with which it is this one).
_Neutral = tuple[int, float | None, float | None]

#: What an output equals: (position of an input, None) or (None, a value).
Decision = tuple[int | None, Any]

#: Shapes of operations that are no curves, as lines bound them.
Shape = Literal["sum", "difference", "negative", "product", "quotient", "larger", "smaller", "selection"]


@dataclasses.dataclass(frozen=True)
class CurveShape:
    """A convex or concave function of its first input.

    Args:
        above: lower limit of the input.
        tangent: parameters, slope, further inputs → input at which the function has that slope.
    """

    above: float
    tangent: Callable[..., Any]


class RefusedPrimitiveError(NotImplementedError):
    """Raised for a primitive of JAX that has no row, or no cell of a column.

    Args:
        primitive: its name.
        use: what was asked of it.
    """

    def __init__(self, primitive: str, use: str) -> None:
        super().__init__(f"the table of primitives has no {use} of {primitive!r}")
        self.primitive = primitive


@dataclasses.dataclass(frozen=True)
class Primitive:
    """A row of the table.

    Args:
        value: parameters, inputs → output.
        slopes: slope of each input, None where there is none; or (parameters, count of inputs) → these; empty for
            operations that count, compare, round or hold a value.
        range: parameters, ranges of the inputs → range of the output before rounding.
        rises: True where the output rises, or stays, with every input, so that ends of its range are those of the
            inputs' ranges.
        line: shape of the operation.
        script: kind of the first input → expression of ``x``, ``y``, ``z`` and of parameters in braces. Kinds are ``f``
            numbers, ``i`` whole numbers and ``b`` truth values, which are the numbers 0 and 1 where they have no
            expression of their own.
        parameters: names of those of JAX that decide what is computed.
        rounding: error in units of the last place: 0 for what is not rounded, 1 for what is rounded to the nearest.
        is_integral: True where real results are whole numbers, None where they are if all inputs are, False where not
            even then.
        is_truth: True where results are truth values whatever the inputs are.
        neutral: inputs that decide the output, for finite numbers.
    """

    value: Callable[..., Any]
    slopes: tuple[Slope | None, ...] | Callable[[Any, int], Sequence[Slope | None]] = ()
    range: Callable[..., Pair] | None = None
    rises: bool = False
    line: Shape | CurveShape | None = None
    script: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    rounding: float = 0.0
    is_integral: bool | None = None
    is_truth: bool = False
    neutral: tuple[_Neutral, ...] = ()

    @property
    def is_identity(self) -> bool:
        """True where the output is the input."""
        return self.value is rules.identity


# --- columns ------------------------------------------------------------------------------------------------


def primitive(name: str) -> Primitive:
    """Return the row of a primitive by its name in JAX; RefusedPrimitiveError for a name without one."""
    if name not in PRIMITIVES:
        raise RefusedPrimitiveError(name, "value")
    return PRIMITIVES[name]


def name_and_parameters(equation: Equation) -> tuple[str, tuple[Any, ...]]:
    """Return the name of an equation's primitive and its parameters as plain values.

    Raises:
        RefusedPrimitiveError: for a primitive without a row.
    """
    name, parameters = equation.primitive.name, equation.parameters
    return name, tuple(
        np.dtype(parameters[key]).name if key == "new_dtype" else int(parameters[key])
        for key in primitive(name).parameters
    )


def numpy_function(name: str, parameters: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the NumPy function from input values to the output value of a primitive with its parameters."""
    value = primitive(name).value
    return functools.partial(value, *parameters) if parameters else value


def slope_rules(name: str, parameters: tuple[Any, ...], n_inputs: int) -> Sequence[Slope | None]:
    """Return the slope of each input of a primitive, None for an input without one."""
    slopes = primitive(name).slopes
    return slopes(parameters, n_inputs) if callable(slopes) else slopes or (None,) * n_inputs


def range_function(name: str, parameters: tuple[Any, ...]) -> Callable[..., Pair]:
    """Return the function from ranges of the inputs to the range of the output of a primitive with its parameters.

    What is not rounded to the nearest number is widened by four units in the last place. The function raises
    NotImplementedError for inputs that the rule does not cover.

    Raises:
        RefusedPrimitiveError: for a primitive without a range.
    """
    row, function = primitive(name), numpy_function(name, parameters)
    if not row.rises and row.range is None:
        raise RefusedPrimitiveError(name, "range")
    rule = functools.partial(row.range, *parameters) if row.range else functools.partial(rules.rising, function)

    def run(*operands: Pair) -> Pair:
        if all(low is high for low, high in operands):
            value = function(*(low for low, _ in operands))
            return value, value
        pair = rule(*operands)
        return rules.widened(pair, operands) if row.rounding > 1.0 else pair

    return run


def decision(name: str, parameters: tuple[Any, ...], values: Sequence[Any], simply: bool = True) -> Decision | None:
    """Return what the output of a primitive equals where values of inputs decide it, else None.

    For finite numbers: ``0 * x`` is 0. What would be no number there is none in the model (``tests/unit/model``).

    Args:
        name: primitive.
        parameters: of the primitive.
        values: value of each input, None for an unknown one.
        simply: False where all inputs must have values.
    """
    if all(value is not None for value in values):
        return None, numpy_function(name, parameters)(*values)
    if not simply:
        return None
    if name == "select_n":
        return None if values[0] is None else (1 + int(values[0]), None)
    for i, neutral, deciding in PRIMITIVES[name].neutral:
        if _equals(values[i], neutral):
            return 1 - i, None
        if _equals(values[i], deciding):
            return i, None
    return None


def _equals(value: Any, number: float | None) -> bool:
    """True for a known value that equals a number; -1 stands for all bits of Booleans and integers."""
    if value is None or number is None:
        return False
    return bool(value == (~value.dtype.type(0) if number == -1 else number))


def _commutative(neutral: float, deciding: float | None = None) -> tuple[_Neutral, ...]:
    """Return (input position, neutral value, deciding value) of both inputs, which may change places."""
    return (0, neutral, deciding), (1, neutral, deciding)


def _numbers(script: str) -> dict[str, str]:
    """Return the scripts of an expression that holds for numbers and whole numbers."""
    return {"f": script, "i": script}


def _comparison(value: Callable[..., Any], bounds: Callable[..., Pair], script: str) -> Primitive:
    """Return the row of a comparison of two inputs."""
    return Primitive(value, range=bounds, script=_numbers(script), is_truth=True)


def _rising(value: Callable[..., Any], slope: Slope, script: str, line: CurveShape | None = None) -> Primitive:
    """Return the row of a function of one number that rises with it and is not rounded to the nearest number."""
    return Primitive(value, slopes=(slope,), rises=True, line=line, script={"f": script}, rounding=rules.UNITS)


# --- the table ----------------------------------------------------------------------------------------------

_UNIT = np.float32(1.0)

#: Name in JAX → row. JAX before 0.12 composes ``log2`` and ``one_minus_square`` of others.
PRIMITIVES: dict[str, Primitive] = {
    "add": Primitive(
        operator.add,
        slopes=(lambda g, *_: g, lambda g, *_: g),
        rises=True,
        line="sum",
        script=_numbers("x + y"),
        rounding=1.0,
        neutral=_commutative(0.0),
    ),
    "sub": Primitive(
        operator.sub,
        slopes=(lambda g, *_: g, lambda g, *_: -g),
        range=rules.difference_range,
        line="difference",
        script=_numbers("x - y"),
        rounding=1.0,
        neutral=((1, 0.0, None),),
    ),
    "mul": Primitive(
        operator.mul,
        slopes=(lambda g, _, x, y: g * y, lambda g, _, x, y: g * x),
        range=rules.product_range,
        line="product",
        script={"f": "x * y", "i": "Math.imul(x, y)"},
        rounding=1.0,
        neutral=_commutative(1.0, 0.0),
    ),
    "div": Primitive(
        rules.divide,
        slopes=(lambda g, _, x, y: g / y, lambda g, out, x, y: -(g / y) * out),
        range=rules.quotient_range,
        line="quotient",
        script=_numbers("x / y"),
        rounding=1.0,
        is_integral=False,
        neutral=((0, None, 0.0), (1, 1.0, None)),
    ),
    "max": Primitive(
        np.maximum,
        slopes=(rules.maximum_slope, lambda g, out, x, y: rules.maximum_slope(g, out, y, x)),
        rises=True,
        line="larger",
        script=_numbers("Math.max(x, y)"),
        neutral=_commutative(-np.inf, np.inf),
    ),
    "min": Primitive(
        np.minimum,
        slopes=(rules.minimum_slope, lambda g, out, x, y: rules.minimum_slope(g, out, y, x)),
        rises=True,
        line="smaller",
        script=_numbers("Math.min(x, y)"),
        neutral=_commutative(np.inf, -np.inf),
    ),
    "neg": Primitive(
        operator.neg, slopes=(lambda g, *_: -g,), range=lambda x: (-x[1], -x[0]), line="negative", script=_numbers("-x")
    ),
    "abs": Primitive(
        np.abs,
        slopes=(lambda g, _, x: np.where(x >= np.float32(0.0), g, -g),),
        range=rules.magnitude_range,
        script={"f": "Math.abs(x)"},
    ),
    "sign": Primitive(np.sign, rises=True, script={"f": "Math.sign(x)"}),
    "sqrt": Primitive(
        np.sqrt,
        slopes=(lambda g, out, x: g * (np.float32(0.5) / out),),
        rises=True,
        line=CurveShape(0.0, lambda slope: np.float32(0.25) / (slope * slope)),
        script={"f": "Math.sqrt(x)"},
        rounding=1.0,
        is_integral=False,
    ),
    "exp": _rising(np.exp, lambda g, out, x: g * out, "Math.exp(x)", CurveShape(-np.inf, np.log)),
    "exp2": _rising(np.exp2, lambda g, out, x: g * (out * rules.ln2(out)), "2 ** x"),
    "log": _rising(np.log, lambda g, _, x: g / x, "Math.log(x)", CurveShape(0.0, lambda slope: _UNIT / slope)),
    "log2": _rising(np.log2, lambda g, _, x: g / (x * rules.ln2(x)), "Math.log2(x)"),
    "log1p": _rising(np.log1p, lambda g, _, x: g / (_UNIT + x), "Math.log1p(x)"),
    "expm1": _rising(np.expm1, lambda g, out, x: g * (out + _UNIT), "Math.expm1(x)"),
    "tanh": _rising(np.tanh, lambda g, out, x: g * (_UNIT - out * out), "Math.tanh(x)"),
    "pow": Primitive(
        np.power,
        slopes=(rules.power_base_slope, rules.power_exponent_slope),
        range=rules.power_range,
        line=CurveShape(0.0, lambda slope, y: np.power(slope / y, _UNIT / (y - _UNIT))),
        script={"f": "x === 1 ? 1 : x ** y"},
        rounding=rules.UNITS,
    ),
    "integer_pow": Primitive(
        rules.integer_power,
        slopes=rules.integer_power_slopes,
        range=rules.integer_power_range,
        line=CurveShape(0.0, rules.integer_power_tangent),
        script={"f": "power(x, {0})"},
        parameters=("y",),
        rounding=1.0,
        is_integral=False,
    ),
    "square": Primitive(
        np.square,
        slopes=(lambda g, _, x: g * (x + x),),
        range=rules.square_range,
        script={"f": "x * x", "i": "Math.imul(x, x)"},
        rounding=1.0,
    ),
    "one_minus_square": Primitive(
        rules.one_minus_square,
        slopes=(lambda g, _, x: -g * (x + x),),
        script={"f": "Math.fround(1 + x) * Math.fround(1 - x)"},
    ),
    "floor": Primitive(np.floor, rises=True, script={"f": "Math.floor(x)"}, is_integral=True),
    "ceil": Primitive(np.ceil, rises=True, script={"f": "Math.ceil(x)"}, is_integral=True),
    "round": Primitive(
        rules.round_halves,
        rises=True,
        script={"f": "{0} ? even(x) : away(x)"},
        parameters=("rounding_method",),
        is_integral=True,
    ),
    "rem": Primitive(np.fmod, slopes=(lambda g, *_: g, lambda g, _, x, y: -g * np.trunc(x / y)), script={"f": "x % y"}),
    "clamp": Primitive(
        rules.clamp,
        slopes=(
            lambda g, _, low, x, high: rules.slope_where(low > x, g),
            lambda g, _, low, x, high: rules.slope_where((x > low) & (x < high), g),
            lambda g, _, low, x, high: rules.slope_where(high < x, g),
        ),
        rises=True,
        script=_numbers("Math.min(Math.max(y, x), z)"),
    ),
    "eq": _comparison(operator.eq, rules.equal_range, "x === y"),
    "ne": _comparison(operator.ne, lambda x, y: rules.not_range(rules.equal_range(x, y)), "x !== y"),
    "lt": _comparison(operator.lt, rules.less_range, "x < y"),
    "le": _comparison(operator.le, rules.at_most_range, "x <= y"),
    "gt": _comparison(operator.gt, lambda x, y: rules.less_range(y, x), "x > y"),
    "ge": _comparison(operator.ge, lambda x, y: rules.at_most_range(y, x), "x >= y"),
    "is_finite": Primitive(np.isfinite, script={"f": "Number.isFinite(x)"}, is_truth=True),
    "and": Primitive(
        np.bitwise_and, range=rules.and_range, script={"b": "x * y", "i": "x & y"}, neutral=_commutative(-1, 0)
    ),
    "or": Primitive(
        np.bitwise_or, range=rules.or_range, script={"b": "Math.max(x, y)", "i": "x | y"}, neutral=_commutative(0, -1)
    ),
    "xor": Primitive(np.bitwise_xor, script={"b": "x !== y", "i": "x ^ y"}),
    "not": Primitive(np.invert, range=rules.not_range, script={"b": "1 - x", "i": "~x"}),
    "select_n": Primitive(
        rules.select, slopes=rules.case_slopes, range=rules.select_range, line="selection", script={"b": "x ? z : y"}
    ),
    "convert_element_type": Primitive(
        rules.convert,
        slopes=rules.conversion_slopes,
        range=rules.convert_range,
        script={"f to i": "whole(x)", "b to i": "x", "i to f": "x", "f to b": "x !== 0", "i to b": "x !== 0"},
        parameters=("new_dtype",),
    ),
    "bitcast_convert_type": Primitive(
        rules.bitcast, range=rules.bitcast_range, parameters=("new_dtype",), is_integral=False
    ),
    "stop_gradient": Primitive(rules.identity, rises=True),
    "copy": Primitive(rules.identity, slopes=(lambda g, *_: g,), rises=True),
}
PRIMITIVES["add_any"] = PRIMITIVES["add"]
