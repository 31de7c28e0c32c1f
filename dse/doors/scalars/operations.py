"""A function of scalars as a list of operations on NumPy's numbers or arrays, made from its equations."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

if TYPE_CHECKING:
    from dse.doors.equations import Equation, Equations


class UnknownPrimitiveError(NotImplementedError):
    """A primitive of JAX that is none of the operations here; its name is the argument."""


#: Name of an operation and what else it needs, positions of its inputs and of its output. Plain: there are many.
Operation = tuple[str, tuple[Any, ...], tuple[int, ...], int]


class Operations(NamedTuple):
    """A function of scalars as a list of operations on a list of values, which begins with inputs and constants."""

    constants: list[Any]
    operations: list[Operation]
    n_values: int
    outputs: list[int]
    structure: Any  #: of the outputs
    static: Any  #: outputs other than numbers, the same for all inputs
    precision: str  #: of the inputs, float32 or float64
    n_literals: int  #: constants, the first ones, that do not depend on leaves which are folded

    def bound(self) -> Callable[[Sequence[Any]], tuple[Any, Any, list[Any]]]:
        """The function of the leaves of its inputs; gives numbers, what comes with them, and no slopes."""
        steps = [
            (function_of(name, parameters), inputs, output, over)
            for (name, parameters, inputs, output), over in zip(self.operations, self._over(), strict=True)
        ]

        def run(leaves: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
            values = self.begun(leaves)
            with np.errstate(all="ignore"):
                for function, inputs, output, over in steps:
                    values[output] = function(*[values[i] for i in inputs])
                    for i in over:
                        values[i] = None
            return self.numbers(values), self.static, []

        return run

    def folded(self, leaves: Sequence[Any], opened: Sequence[int], simply: bool = True) -> Operations:
        """The function of the inputs ``opened`` alone: what depends on others is computed here, of ``leaves``.

        ``simply``: of choices by what is known only the case that holds is left, and no sum with 0 or product with 0
        or 1, half of the rest of a model. Values stay as they are to the last bit, of slopes the order of sums changes.
        """
        values, n_known = self.begun(leaves), len(leaves) + len(self.constants)
        known, left, same = set(range(n_known)).difference(opened), list[Operation](), dict[int, int]()
        with np.errstate(all="ignore"):
            for name, parameters, given, output in self.operations:
                inputs = tuple(same.get(i, i) for i in given)
                if known.issuperset(inputs):
                    values[output] = function_of(name, parameters)(*[values[i] for i in inputs])
                    known.add(output)
                elif simply and (at := same_as(name, [values[i] if i in known else None for i in inputs])) is not None:
                    same[output] = inputs[at]
                else:
                    left.append((name, parameters, inputs, output))
        outputs = [same.get(i, i) for i in self.outputs]
        left = needed(left, outputs)
        used = sorted(known & {*outputs, *(i for *_, inputs, _ in left for i in inputs)})
        literals = [i for i in used if i in range(len(leaves), n_known) or values[i].dtype.kind != "f"]
        used = [*literals, *(i for i in used if i not in literals)]
        computed = [output for *_, output in left]
        place = {old: new for new, old in enumerate([*opened, *used, *computed])}
        operations = [(name, given, tuple(place[i] for i in inputs), place[out]) for name, given, inputs, out in left]
        constants, outputs = [values[i] for i in used], [place[i] for i in outputs]
        return Operations(constants, operations, len(place), outputs, *self[4:7], len(literals))

    def begun(self, leaves: Sequence[Any]) -> list[Any]:
        """All values before the first operation: inputs, constants, and room for what is computed."""
        known = [*map(np.dtype(self.precision).type, leaves), *self.constants]
        return known + [None] * (self.n_values - len(known))

    def numbers(self, values: Sequence[Any]) -> Any:
        """The outputs among all values."""
        return jax.tree.unflatten(self.structure, [values[i] for i in self.outputs])

    def _over(self) -> list[list[int]]:
        """Of each operation the values that nothing needs after it: arrays of them would fill the memory."""
        met, over = set(self.outputs), []
        for *_, inputs, output in reversed(self.operations):
            ended = {*inputs, output} - met
            met |= ended
            over.append(list(ended))
        return over[::-1]


def same_as(name: str, known: Sequence[Any]) -> int | None:
    """The input that the output of an operation equals, for any numbers in the place of None; None where there is none.

    For finite numbers: ``0 * x`` is 0. What would be no number there is none in the model (``tests/unit/model``).
    """
    if name == "select_n":
        return None if known[0] is None else 1 + int(known[0])
    for i, neutral, deciding in _NEUTRAL.get(name, ()):
        if _is(known[i], neutral):
            return 1 - i
        if _is(known[i], deciding):
            return i
    return None


def _is(value: Any, number: float | None) -> bool:
    """Whether a known value is a number; -1 stands for all bits, of truth values and of whole numbers."""
    if value is None or number is None:
        return False
    return bool(value == (~value.dtype.type(0) if number == -1 else number))


def _either(neutral: float, deciding: float | None = None) -> tuple[tuple[int, float | None, float | None], ...]:
    """Of an operation whose inputs may change places."""
    return (0, neutral, deciding), (1, neutral, deciding)


#: Operation → (input, its value with which the output is the other input, that with which it is this one).
_NEUTRAL: dict[str, tuple[tuple[int, float | None, float | None], ...]] = {
    "add": _either(0.0), "add_any": _either(0.0), "sub": ((1, 0.0, None),), "mul": _either(1.0, 0.0),
    "div": ((0, None, 0.0), (1, 1.0, None)), "max": _either(-np.inf, np.inf), "min": _either(np.inf, -np.inf),
    "and": _either(-1, 0), "or": _either(0, -1),
}  # fmt: skip


def needed(operations: Sequence[Operation], outputs: Sequence[int]) -> list[Operation]:
    """The operations that the outputs depend on, in order."""
    wanted, kept = set(outputs), list[Operation]()
    for operation in reversed(operations):
        if operation[3] in wanted:
            wanted.update(operation[2])
            kept.append(operation)
    return kept[::-1]


# --- from equations to operations --------------------------------------------------------------------------


def lowered(found: Equations, structure: Any, static: Any, precision: str) -> Operations:
    """The equations as operations of this module."""
    constants: dict[Hashable, int] = {}
    values: list[Any] = []

    def position(atom: Any) -> int | tuple[str, int]:
        if isinstance(atom, int):
            return atom
        if atom.key not in constants:
            constants[atom.key] = len(values)
            values.append(np.asarray(atom.value)[()])
        return ("constant", constants[atom.key])

    read = [tuple(map(position, equation.inputs)) for equation in found.equations]
    outputs = [position(atom) for atom in found.outputs]
    n_inputs, shift = found.n_inputs, len(values)

    def placed(at: int | tuple[str, int]) -> int:
        """Inputs, constants, then what is computed."""
        if isinstance(at, tuple):
            return n_inputs + at[1]
        return at if at < n_inputs else at + shift

    operations = [
        (*named(equation), tuple(map(placed, inputs)), placed(equation.outputs[0]))
        for equation, inputs in zip(found.equations, read, strict=True)
    ]
    n_values = max([n_inputs + shift, *(output + 1 for *_, output in operations)])
    return Operations(
        values, operations, n_values, list(map(placed, outputs)), structure, static, precision, len(values)
    )


def named(equation: Equation) -> tuple[str, tuple[Any, ...]]:
    """Name and parameters of an operation, plain values."""
    name, given = equation.primitive.name, equation.parameters
    if name in ("convert_element_type", "bitcast_convert_type"):
        return name, (np.dtype(given["new_dtype"]).name,)
    if name == "integer_pow":
        return name, (int(given["y"]),)
    if name == "round":
        return name, (int(given["rounding_method"]),)
    if name not in PLAIN:
        raise UnknownPrimitiveError(name)
    return name, ()


# --- operations --------------------------------------------------------------------------------------------


def function_of(name: str, parameters: tuple[Any, ...]) -> Callable[..., Any]:
    """What computes an operation."""
    return functools.partial(WITH_PARAMETERS[name], *parameters) if parameters else PLAIN[name]


def _select(which: Any, *cases: Any) -> Any:
    if not which.ndim:
        return cases[int(which)]
    return np.where(which, cases[1], cases[0]) if which.dtype == bool else np.choose(which, cases)


def _divide(a: Any, b: Any) -> Any:
    return np.divide(a, b) if a.dtype.kind == "f" else np.trunc(np.divide(a, b)).astype(a.dtype)


def _clamp(low: Any, value: Any, high: Any) -> Any:
    return np.minimum(np.maximum(value, low), high)


def _convert(dtype: str, value: Any) -> Any:
    """What does not fit into whole numbers becomes the nearest that does, and what is no number 0, as in XLA."""
    if value.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        whole = np.trunc(value.astype(np.float64))
        return np.where(np.isnan(whole), 0.0, np.clip(whole, least, most)).astype(dtype)[()]
    return value.astype(dtype)


def _one_minus_square(value: Any) -> Any:
    """As a product, which keeps the digits of values near one, as in XLA."""
    one = value.dtype.type(1)
    return (one + value) * (one - value)


def _bitcast(dtype: str, value: Any) -> Any:
    return value.view(dtype)


def integer_power(exponent: int, base: Any) -> Any:
    """By squaring, as XLA does."""
    found, power, left = None, base, abs(exponent)
    while left:
        if left & 1:
            found = power if found is None else found * power
        left >>= 1
        power = power * power if left else power
    found = base.dtype.type(1) if found is None else found
    return np.divide(base.dtype.type(1), found) if exponent < 0 else found


def _round(method: int, value: Any) -> Any:
    """Halves to even, or away from zero."""
    return np.rint(value) if method else np.copysign(np.floor(np.abs(value) + value.dtype.type(0.5)), value)


#: Primitive without parameters that matter → what computes it; its slopes are in :mod:`dse.doors.scalars.slopes`. JAX
#: before 0.12 composes ``log2`` and ``one_minus_square`` of others.
PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "add_any": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "neg": operator.neg,
    "max": np.maximum,
    "min": np.minimum,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "pow": np.power,
    "square": np.square,
    "one_minus_square": _one_minus_square,
    "floor": np.floor,
    "ceil": np.ceil,
    "rem": np.fmod,
    "clamp": _clamp,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "is_finite": np.isfinite,
    "select_n": _select,
    "stop_gradient": lambda value: value,
    "copy": lambda value: value,
}

#: Primitive → what computes it from its parameters and its inputs.
WITH_PARAMETERS: dict[str, Callable[..., Any]] = {
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "integer_pow": integer_power,
    "round": _round,
}
