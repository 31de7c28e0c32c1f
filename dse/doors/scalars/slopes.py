"""The gradient of a list of operations, backwards from one number: as many operations again as lie on its way.

The rules are those of JAX, whose programs with gradients compile for a quarter of a minute: where two are equal a
maximum gives half to each, and what counts, compares or rounds has no slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dse.doors.scalars.operations import Operations, integer_power, numpy_function

#: Slope of the output, the output, all inputs → slope of one input.
Rule = Callable[..., Any]

#: An operation backwards: its inputs, its output, and (input, rule) of those that have a slope.
BackwardStep = tuple[tuple[int, ...], int, list[tuple[int, Rule]]]

_HALF = np.float32(0.5)


def gradient(operations: Operations, by: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, Any, list[Any]]]:
    """Return a function of leaf values → (pytree of numbers, static outputs, slopes of the first number by input).

    Args:
        operations: the operations; the first of their outputs is what is differentiated.
        by: positions of the inputs to differentiate by; the slopes have their order, 0 where there is none.
    """
    forward = [
        (numpy_function(name, parameters), inputs, output) for name, parameters, inputs, output in operations.operations
    ]
    target = operations.outputs[0]
    backward = backward_steps(operations, by, target, _rules)

    def run(leaves: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        values = operations.initial_values(leaves)
        with np.errstate(all="ignore"):
            for function, inputs, output in forward:
                values[output] = function(*[values[i] for i in inputs])
            slopes: dict[int, Any] = {target: np.ones_like(values[target])}
            for inputs, output, rules in backward:
                slope = slopes.get(output) if output in by else slopes.pop(output, None)
                if slope is None:
                    continue
                operands = [values[i] for i in inputs]
                for i, rule in rules:
                    slope_term = rule(slope, values[output], *operands)
                    slopes[i] = slopes[i] + slope_term if i in slopes else slope_term
        none = np.zeros_like(values[target])
        return operations.numbers(values), operations.static, [slopes.get(i, none) for i in by]

    return run


def backward_steps(
    operations: Operations,
    by: Sequence[int],
    target: int,
    rules_of_operation: Callable[[str, tuple[Any, ...], int], Sequence[Rule | None]],
) -> list[BackwardStep]:
    """Return the backward steps between inputs ``by`` and the differentiated value, last operation first.

    Args:
        operations: list to differentiate.
        by: positions of inputs.
        target: index of the differentiated value.
        rules_of_operation: name, parameters and count of inputs → the rule of each input, None where it has no slope.
    """
    varying, rules_of = set(by), list[list[tuple[int, Rule]]]()
    for name, parameters, inputs, output in operations.operations:
        pairs = zip(inputs, rules_of_operation(name, parameters, len(inputs)), strict=True)
        rules_of.append([(i, rule) for i, rule in pairs if rule is not None and i in varying])
        if rules_of[-1]:
            varying.add(output)
    contributing, backward = {target}, list[BackwardStep]()
    for (_, _, inputs, output), rules in zip(operations.operations[::-1], rules_of[::-1], strict=True):
        if output in contributing and rules:
            contributing |= {i for i, _ in rules}
            backward.append((inputs, output, rules))
    return backward


def _rules(name: str, parameters: tuple[Any, ...], n_inputs: int) -> Sequence[Rule | None]:
    """Return the slope rule of each input of an operation, None for an input without a slope."""
    if name == "select_n":
        return [None, *(_case_rule(i) for i in range(n_inputs - 1))]
    if name == "integer_pow":
        return [_power_rule(*parameters)]
    if name == "convert_element_type":
        return [lambda g, _, x: g.astype(x.dtype)] if np.dtype(*parameters).kind == "f" else [None]
    return (None,) * n_inputs if name in FLAT else RULES[name]


def _case_rule(i: int) -> Rule:
    """Return the slope rule of the case of index ``i`` of a selection."""
    return lambda g, _, which, *cases: np.where(which == i, g, np.float32(0.0))


def _power_rule(exponent: int) -> Rule:
    """Return the slope rule of the base of an integer power."""
    factor = np.float32(exponent)
    return lambda g, _, x: g * (factor * integer_power(exponent - 1, x)) if exponent else np.zeros_like(x)


def _maximum_slope(g: Any, _: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``x`` of ``max(x, y)``, half of it where both are equal."""
    return g * ((x > y) + (x == y) * _HALF)


def _minimum_slope(g: Any, _: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``x`` of ``min(x, y)``, half of it where both are equal."""
    return g * ((x < y) + (x == y) * _HALF)


def _power_base_slope(g: Any, _: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``x`` of ``x**y``."""
    unit, zero = np.float32(1.0), np.float32(0.0)
    return g * np.where(y == zero, zero, y * np.power(x, np.where(y == zero, unit, y - unit)))


def _power_exponent_slope(g: Any, out: Any, x: Any, y: Any) -> Any:
    """Return the slope by ``y`` of ``x**y``, 0 for a base of 0."""
    return g * np.log(np.where(x == np.float32(0.0), np.float32(1.0), x)) * out


def _ln2(x: Any) -> Any:
    """Return the logarithm of two in the precision of ``x``."""
    return x.dtype.type(math.log(2.0))


def _clamp_slope(g: Any, _: Any, low: Any, x: Any, high: Any) -> Any:
    """Return the slope by ``x`` of a clamp: ``g`` strictly within the range, 0 elsewhere."""
    return np.where((x > low) & (x < high), g, np.float32(0.0))


#: Operations that count, compare or round, or hold a value: without a slope by any input.
FLAT = frozenset({
    "sign", "floor", "ceil", "round", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "is_finite",
    "bitcast_convert_type", "stop_gradient",
})  # fmt: skip

#: Primitive → the rule of each input.
RULES: dict[str, tuple[Rule | None, ...]] = {
    "add": (lambda g, *_: g, lambda g, *_: g),
    "add_any": (lambda g, *_: g, lambda g, *_: g),
    "sub": (lambda g, *_: g, lambda g, *_: -g),
    "mul": (lambda g, _, x, y: g * y, lambda g, _, x, y: g * x),
    "div": (lambda g, _, x, y: g / y, lambda g, out, x, y: -(g / y) * out),
    "neg": (lambda g, *_: -g,),
    "max": (_maximum_slope, lambda g, out, x, y: _maximum_slope(g, out, y, x)),
    "min": (_minimum_slope, lambda g, out, x, y: _minimum_slope(g, out, y, x)),
    "abs": (lambda g, _, x: np.where(x >= np.float32(0.0), g, -g),),
    "sqrt": (lambda g, out, x: g * (_HALF / out),),
    "exp": (lambda g, out, x: g * out,),
    "exp2": (lambda g, out, x: g * (out * _ln2(out)),),
    "log": (lambda g, _, x: g / x,),
    "log2": (lambda g, _, x: g / (x * _ln2(x)),),
    "log1p": (lambda g, _, x: g / (np.float32(1.0) + x),),
    "expm1": (lambda g, out, x: g * (out + np.float32(1.0)),),
    "tanh": (lambda g, out, x: g * (np.float32(1.0) - out * out),),
    "pow": (_power_base_slope, _power_exponent_slope),
    "square": (lambda g, _, x: g * (x + x),),
    "one_minus_square": (lambda g, _, x: -g * (x + x),),
    "rem": (lambda g, *_: g, lambda g, _, x, y: -g * np.trunc(x / y)),
    "clamp": (
        lambda g, _, low, x, high: np.where(low > x, g, np.float32(0.0)),
        _clamp_slope,
        lambda g, _, low, x, high: np.where(high < x, g, np.float32(0.0)),
    ),
    "copy": (lambda g, *_: g,),
}
