"""A study's figures at one structure of designs as a list of operations that a browser runs.

The list is that of :mod:`dse.doors.scalars`, which NumPy runs for ``dse.evaluate``: the browser runs the same
operations on the same single precision, so that both give the same figures but for the last bits of powers,
exponentials and logarithms. All leaves are inputs; fixed are the records that a design has, and its catalogue names.

``assets/machine.js`` says what each operation does. Truth values are numbers 0 and 1, whole numbers are stored as their
bits; changes of type that keep the bits, and what equals its input, are no operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from dse.doors import ScalarFunction, Study
from dse.doors.scalars.operations import Operations, live_operations
from dse.errors import InputError
from dse.types import Design, Scalar
from dse.views.explanation import design_numbers

#: Operations on numbers that the browser has under the same name; of whole numbers those with ``_i`` after it.
_FLOAT_OPERATIONS = frozenset({
    "add", "sub", "mul", "div", "max", "min", "neg", "abs", "sign", "sqrt", "exp", "exp2", "log", "log2", "log1p",
    "expm1", "tanh", "pow", "floor", "ceil", "rem", "eq", "ne", "lt", "le", "gt", "ge", "is_finite", "select_n",
})  # fmt: skip
_INTEGER_OPERATIONS = frozenset({
    "add", "sub", "mul", "div", "max", "min", "neg", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not",
})  # fmt: skip

#: Comparisons, which give Booleans for any type.
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_finite"})

#: Operation on Booleans → that on numbers 0 and 1.
_BOOLEAN_OPERATIONS = {"and": "mul", "or": "max", "xor": "ne", "not": "not"}

#: Operations whose output equals the input.
_IDENTITIES = frozenset({"stop_gradient", "copy"})


class Value(NamedTuple):
    """A value of the program: where it is, and how its bits are read."""

    place: int
    kind: str  #: ``f`` for numbers, ``i`` for whole numbers, ``b`` for truth values


class PageProgram:
    """Operations as they are written for the browser; inputs, constants and results are numbered in this order."""

    def __init__(self, operations: Operations, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.constants: list[tuple[str, float]] = []
        self.operations: list[tuple[str, tuple[int, ...]]] = []
        self._values = {i: Value(i, "f") for i in range(n_inputs)}
        for i, constant in enumerate(operations.constants):
            self._values[n_inputs + i] = self._constant(constant)
        # Places of results follow those of all constants, so what lowering needs is among these beforehand.
        self._one, self._zero = (self._constant(np.float32(value)) for value in (1.0, 0.0))
        for name, parameters, inputs, output in live_operations(operations.operations, operations.outputs):
            self._values[output] = self._lowered(name, parameters, [self._values[i] for i in inputs])
        self.outputs = [self._values[i].place for i in operations.outputs]
        self.kinds = [self._values[i].kind for i in operations.outputs]

    def as_dict(self) -> dict[str, Any]:
        """Return the program for JSON: names of operations, and of each, flat, indices of its name and three inputs."""
        names = sorted({name for name, _ in self.operations})
        name_index = {name: i for i, name in enumerate(names)}
        flat = [[name_index[name], *inputs, *[-1] * (3 - len(inputs))] for name, inputs in self.operations]
        return {
            "inputs": self.n_inputs,
            "constants": [[kind, _json_number(value)] for kind, value in self.constants],
            "names": names,
            "operations": [number for operation in flat for number in operation],
            "outputs": self.outputs,
            "whole": [i for i, kind in enumerate(self.kinds) if kind == "i"],
        }

    def _constant(self, value: Any) -> Value:
        """Add a constant and return it as a value."""
        kind = {"f": "f", "i": "i", "u": "i", "b": "b"}[np.asarray(value).dtype.kind]
        self.constants.append((kind, float(value)))
        return Value(self.n_inputs + len(self.constants) - 1, kind)

    def _add(self, name: str, kind: str, *inputs: Value) -> Value:
        """Add an operation of the browser and return its result, of a kind."""
        self.operations.append((name, tuple(value.place for value in inputs)))
        return Value(self.n_inputs + len(self.constants) + len(self.operations) - 1, kind)

    def _lowered(self, name: str, parameters: tuple[Any, ...], inputs: list[Value]) -> Value:
        """Add an operation as operations of the browser and return its value."""
        first = inputs[0]
        if name in _IDENTITIES:
            return first
        if name == "bitcast_convert_type":
            return first._replace(kind=np.dtype(parameters[0]).kind)
        if name == "convert_element_type":
            return self._converted(first, np.dtype(parameters[0]).kind)
        if name == "integer_pow" and first.kind == "f":
            return self._power(first, parameters[0])
        if name == "round":
            return self._add("round" if parameters[0] else "round_away", "f", first)
        if name == "square":
            return self._add("mul", first.kind, first, first)
        if name == "one_minus_square":
            unit = self._one
            return self._add("mul", "f", self._add("add", "f", unit, first), self._add("sub", "f", unit, first))
        if name == "clamp":
            return self._add("min", "f", self._add("max", "f", inputs[1], first), inputs[2])
        if name == "select_n":
            return self._selected(first, inputs[1:])
        return self._plain("add" if name == "add_any" else name, inputs)

    def _plain(self, name: str, inputs: list[Value]) -> Value:
        """Add an operation that the browser has for the kind of its inputs, else raise InputError; return its value."""
        kind = inputs[0].kind
        result_kind = "b" if name in _COMPARISONS else kind
        if kind == "b" and name in _BOOLEAN_OPERATIONS:
            return self._add(_BOOLEAN_OPERATIONS[name], "b", *inputs)
        if kind == "i" and name in _INTEGER_OPERATIONS:
            return self._add(f"{name}_i", result_kind, *inputs)
        if name in _FLOAT_OPERATIONS and kind != "i":
            return self._add(name, result_kind, *inputs)
        raise _unknown(name)

    def _selected(self, condition: Value, cases: list[Value]) -> Value:
        """Add a choice between two cases by a truth value, else raise InputError, and return its value."""
        if condition.kind != "b" or len(cases) != 2:
            raise _unknown("a choice between more than two cases")
        return self._add("select_n", cases[0].kind, condition, *cases)

    def _converted(self, value: Value, kind: str) -> Value:
        """Return a value as another kind, by an operation where its bits change."""
        kind = "i" if kind == "u" else kind
        if value.kind == kind or (value.kind, kind) == ("b", "f"):
            return value._replace(kind=kind)
        if kind == "b":
            return self._add(
                "ne_i" if value.kind == "i" else "ne", "b", value, self._zero
            )  # bits of 0 and 0.0 are the same
        return self._add("to_whole" if kind == "i" else "to_number", kind, value)

    def _power(self, base: Value, exponent: int) -> Value:
        """Add a power by squaring, as :func:`dse.doors.scalars.operations.integer_power`, and return its value."""
        product, power, exponent_bits = None, base, abs(exponent)
        while exponent_bits:
            if exponent_bits & 1:
                product = power if product is None else self._add("mul", "f", product, power)
            exponent_bits >>= 1
            power = self._add("mul", "f", power, power) if exponent_bits else power
        product = self._one if product is None else product
        return self._add("div", "f", self._one, product) if exponent < 0 else product


def _json_number(value: float) -> Any:
    """Return a number for JSON, as text (``nan``, ``inf``) where it is not finite."""
    return value if np.isfinite(value) else str(value)


def _unknown(what: str) -> InputError:
    """Return the error for what pages cannot compute."""
    return InputError(
        "page", f"a model with {what}, which pages cannot compute", "the package's own models", "use dse evaluate"
    )


# --- what is computed -------------------------------------------------------------------------------------


def _figures(study: Study, design: Design) -> tuple[dict[str, Any], Any]:
    """Return all figures of one design for a page, and the names of its operators."""
    (_, numbers), operator_names = design_numbers(study, study.objective, {}, design)
    metrics = study.evaluate(design)
    bounds = study.bounds(design)._asdict() if study.bounds else {}
    shortfalls: dict[str, Scalar] = {
        reason.name: degree for reason, degree in study.shortfalls(design, metrics).items()
    }
    return {
        "metrics": numbers.metrics,
        "capacity": numbers.capacity,
        "bounds": dict(bounds),
        "over": shortfalls,
        "layer": numbers.layer,
        "operators": [kernels._asdict() for kernels in numbers.kernels],
        "phases": numbers.phases,
    }, operator_names


class LiveModel(NamedTuple):
    """A study's figures of designs of one structure."""

    program: PageProgram
    paths: list[str]  #: of the leaves that are its inputs, in order
    read: frozenset[str]  #: those that figures depend on
    outputs: Any  #: pytree of the positions of figures among the outputs
    operators: list[tuple[str, str]]  #: section and name


def model_of(study: Study, design: Design) -> LiveModel:
    """Return the program of the figures of designs that have the records of ``design``, with its inputs and outputs.

    Raises:
        InputError: for a model with operations that are none of a page's.
    """
    cache_key = f"page {study.name}" if study.is_builtin else None
    operations = ScalarFunction(lambda traced: _figures(study, traced), cache_key).operations(design)
    if operations is None:
        raise _unknown("operations of its own")
    paths = [jax.tree_util.keystr(key).lstrip(".") for key, _ in jax.tree_util.tree_leaves_with_path(design)]
    program = PageProgram(operations, len(paths))
    used_values = {place for _, inputs in program.operations for place in inputs} | {*program.outputs}
    outputs = jax.tree.unflatten(operations.structure, range(len(program.outputs)))
    read = frozenset(path for i, path in enumerate(paths) if i in used_values)
    return LiveModel(program, paths, read, outputs, [(section, name) for section, name, _ in operations.static])
