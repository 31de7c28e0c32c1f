"""A function of scalars as a list of operations on NumPy's numbers or arrays, made from its equations."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dse.doors.equations import Equation, Equations
    from dse.types.trees import Structure


class UnknownPrimitiveError(NotImplementedError):
    """Raised for a primitive of JAX that is none of the operations here; its name is the argument."""


#: Name of an operation and what else it needs, positions of its inputs and of its output. Plain: there are many.
Operation = tuple[str, tuple[Any, ...], tuple[int, ...], int]


class Operations(NamedTuple):
    """A function of scalars as a list of operations on a list of values, which begins with inputs and constants."""

    constants: list[Any]
    operations: list[Operation]
    n_values: int
    outputs: list[int]
    structure: Structure  #: of the outputs
    static: Any  #: outputs other than numbers, the same for all inputs
    precision: str  #: of the inputs, float32 or float64
    n_literals: int  #: constants, the first ones, that do not depend on leaves which are folded

    def to_function(self) -> Callable[[Sequence[Any]], tuple[Any, Any, list[Any]]]:
        """Return a function of the leaf values of the inputs → (pytree of numbers, static outputs, empty list)."""
        steps = [
            (numpy_function(name, parameters), inputs, output, dead_values)
            for (name, parameters, inputs, output), dead_values in zip(
                self.operations, self._dead_values(), strict=True
            )
        ]

        def run(leaves: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
            values = self.initial_values(leaves)
            with np.errstate(all="ignore"):
                for function, inputs, output, over in steps:
                    values[output] = function(*[values[i] for i in inputs])
                    for i in over:
                        values[i] = None
            return self.numbers(values), self.static, []

        return run

    def folded(self, leaves: Sequence[Any], open_inputs: Sequence[int], simply: bool = True) -> Operations:
        """Return the operations as a function of the inputs ``open_inputs`` alone, all others fixed at ``leaves``.

        What depends on fixed inputs alone is computed here. ``simply``: of choices by what is known only the case that
        holds is left, and no sum with 0 or product with 0 or 1, half of the rest of a model. Values stay as they are to
        the last bit, of slopes the order of sums changes.
        """
        values, n_initial = self.initial_values(leaves), len(leaves) + len(self.constants)
        constant_values, operations, aliases = (
            set(range(n_initial)).difference(open_inputs),
            list[Operation](),
            dict[int, int](),
        )
        with np.errstate(all="ignore"):
            for name, parameters, operands, output in self.operations:
                inputs = tuple(aliases.get(i, i) for i in operands)
                if constant_values.issuperset(inputs):
                    values[output] = numpy_function(name, parameters)(*[values[i] for i in inputs])
                    constant_values.add(output)
                elif (
                    simply
                    and (position := equal_input(name, [values[i] if i in constant_values else None for i in inputs]))
                    is not None
                ):
                    aliases[output] = inputs[position]
                else:
                    operations.append((name, parameters, inputs, output))
        outputs = [aliases.get(i, i) for i in self.outputs]
        operations = live_operations(operations, outputs)
        constant_ids = sorted(constant_values & {*outputs, *(i for *_, inputs, _ in operations for i in inputs)})
        literals = [i for i in constant_ids if i in range(len(leaves), n_initial) or values[i].dtype.kind != "f"]
        constant_ids = [*literals, *(i for i in constant_ids if i not in literals)]
        computed = [output for *_, output in operations]
        new_ids = {old_id: new_id for new_id, old_id in enumerate([*open_inputs, *constant_ids, *computed])}
        folded_operations = [
            (name, operands, tuple(new_ids[i] for i in inputs), new_ids[out])
            for name, operands, inputs, out in operations
        ]
        constants, outputs = [values[i] for i in constant_ids], [new_ids[i] for i in outputs]
        return Operations(constants, folded_operations, len(new_ids), outputs, *self[4:7], len(literals))

    def initial_values(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the list of values before the first operation: inputs, constants, and None for computed values."""
        values = [*map(np.dtype(self.precision).type, leaves), *self.constants]
        return values + [None] * (self.n_values - len(values))

    def numbers(self, values: Sequence[Any]) -> Any:
        """Return the pytree of outputs from the complete list of values."""
        return self.structure.unflatten([values[i] for i in self.outputs])

    def _dead_values(self) -> list[list[int]]:
        """Return, for each operation, the indices of the values without further use after it.

        Arrays of them would fill the memory.
        """
        live, dead_by_operation = set(self.outputs), []
        for *_, inputs, output in reversed(self.operations):
            dead = {*inputs, output} - live
            live |= dead
            dead_by_operation.append(list(dead))
        return dead_by_operation[::-1]


def equal_input(name: str, values: Sequence[Any]) -> int | None:
    """Return the position of the input that an operation's output equals, None where there is none.

    For finite numbers: ``0 * x`` is 0. What would be no number there is none in the model (``tests/unit/model``).

    Args:
        name: operation.
        values: known value of each input, None for an unknown one.
    """
    if name == "select_n":
        return None if values[0] is None else 1 + int(values[0])
    for i, neutral, deciding in _NEUTRAL.get(name, ()):
        if _equals(values[i], neutral):
            return 1 - i
        if _equals(values[i], deciding):
            return i
    return None


def _equals(value: Any, number: float | None) -> bool:
    """True for a known value that equals a number; -1 stands for all bits of Booleans and integers."""
    if value is None or number is None:
        return False
    return bool(value == (~value.dtype.type(0) if number == -1 else number))


def _commutative(neutral: float, deciding: float | None = None) -> tuple[tuple[int, float | None, float | None], ...]:
    """Return (input position, neutral value, deciding value) of both inputs, which may change places."""
    return (0, neutral, deciding), (1, neutral, deciding)


#: Operation → (input, its value with which the output is the other input, that with which it is this one).
_NEUTRAL: dict[str, tuple[tuple[int, float | None, float | None], ...]] = {
    "add": _commutative(0.0), "add_any": _commutative(0.0), "sub": ((1, 0.0, None),), "mul": _commutative(1.0, 0.0),
    "div": ((0, None, 0.0), (1, 1.0, None)), "max": _commutative(-np.inf, np.inf), "min": _commutative(np.inf, -np.inf),
    "and": _commutative(-1, 0), "or": _commutative(0, -1),
}  # fmt: skip


def live_operations(operations: Sequence[Operation], outputs: Sequence[int]) -> list[Operation]:
    """Return the operations that the output values depend on, in order.

    Args:
        operations: all operations, in order.
        outputs: indices of the values to keep.
    """
    live_values, live = set(outputs), list[Operation]()
    for operation in reversed(operations):
        if operation[3] in live_values:
            live_values.update(operation[2])
            live.append(operation)
    return live[::-1]


# --- from equations to operations --------------------------------------------------------------------------


def lower_equations(equations: Equations, structure: Structure, static: Any, precision: str) -> Operations:
    """Convert the equations of a recorded function to operations on NumPy's numbers.

    Args:
        equations: recorded function of scalars.
        structure: tree structure of its outputs.
        static: outputs other than numbers.
        precision: of the inputs, ``float32`` or ``float64``.

    Raises:
        UnknownPrimitiveError: for a primitive that is none of the operations here.
    """
    constants: dict[Hashable, int] = {}
    values: list[Any] = []

    def position(atom: Any) -> int | tuple[str, int]:
        if isinstance(atom, int):
            return atom
        if atom.key not in constants:
            constants[atom.key] = len(values)
            values.append(np.asarray(atom.value)[()])
        return ("constant", constants[atom.key])

    equation_inputs = [tuple(map(position, equation.inputs)) for equation in equations.equations]
    outputs = [position(atom) for atom in equations.outputs]
    n_inputs, shift = equations.n_inputs, len(values)

    def value_id(position: int | tuple[str, int]) -> int:
        """Return the index in the list of inputs, constants and computed values."""
        if isinstance(position, tuple):
            return n_inputs + position[1]
        return position if position < n_inputs else position + shift

    operations = [
        (*name_and_parameters(equation), tuple(map(value_id, inputs)), value_id(equation.outputs[0]))
        for equation, inputs in zip(equations.equations, equation_inputs, strict=True)
    ]
    n_values = max([n_inputs + shift, *(output + 1 for *_, output in operations)])
    return Operations(
        values, operations, n_values, list(map(value_id, outputs)), structure, static, precision, len(values)
    )


def name_and_parameters(equation: Equation) -> tuple[str, tuple[Any, ...]]:
    """Return an equation's operation by name, and its parameters as plain values; UnknownPrimitiveError for others."""
    name, parameters = equation.primitive.name, equation.parameters
    if name in ("convert_element_type", "bitcast_convert_type"):
        return name, (np.dtype(parameters["new_dtype"]).name,)
    if name == "integer_pow":
        return name, (int(parameters["y"]),)
    if name == "round":
        return name, (int(parameters["rounding_method"]),)
    if name not in PLAIN:
        raise UnknownPrimitiveError(name)
    return name, ()


# --- operations --------------------------------------------------------------------------------------------


def numpy_function(name: str, parameters: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the NumPy function from input values to the output value of an operation; KeyError for unknown ones.

    Args:
        name: operation.
        parameters: what else it needs.
    """
    return functools.partial(WITH_PARAMETERS[name], *parameters) if parameters else PLAIN[name]


def _select(condition: Any, *cases: Any) -> Any:
    """Return the case of a Boolean (false first) or integer condition, element by element."""
    if not condition.ndim:
        return cases[int(condition)]
    return np.where(condition, cases[1], cases[0]) if condition.dtype == bool else np.choose(condition, cases)


def _divide(a: Any, b: Any) -> Any:
    """Return the quotient, truncated towards 0 for integers."""
    return np.divide(a, b) if a.dtype.kind == "f" else np.trunc(np.divide(a, b)).astype(a.dtype)


def _clamp(low: Any, value: Any, high: Any) -> Any:
    """Return the value limited to the range from ``low`` to ``high``; ``high`` wins where they cross."""
    return np.minimum(np.maximum(value, low), high)


def _convert(dtype: str, value: Any) -> Any:
    """Convert to a data type as XLA does: to integers by truncation, out of range to the nearest, NaN to 0."""
    if value.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
        integer = np.trunc(value.astype(np.float64))
        return np.where(np.isnan(integer), 0.0, np.clip(integer, lowest, highest)).astype(dtype)[()]
    return value.astype(dtype)


def _one_minus_square(value: Any) -> Any:
    """Return ``1 - value**2`` as a product, which keeps the digits of values near one, as in XLA."""
    unit = value.dtype.type(1)
    return (unit + value) * (unit - value)


def _bitcast(dtype: str, value: Any) -> Any:
    """Return the bits of a value as another data type of the same size."""
    return value.view(dtype)


def integer_power(exponent: int, base: Any) -> Any:
    """Return ``base**exponent`` by squaring, as XLA does, in the data type of the base; 1 for exponent 0.

    Args:
        exponent: an integer, which may be negative.
        base: NumPy number or array.
    """
    product, power, exponent_bits = None, base, abs(exponent)
    while exponent_bits:
        if exponent_bits & 1:
            product = power if product is None else product * power
        exponent_bits >>= 1
        power = power * power if exponent_bits else power
    product = base.dtype.type(1) if product is None else product
    return np.divide(base.dtype.type(1), product) if exponent < 0 else product


def _round(method: int, value: Any) -> Any:
    """Round to integers, halves to even for method 1, else away from zero."""
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
