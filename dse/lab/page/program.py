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

from dse.doors.scalars import ScalarFunction
from dse.doors.scalars.operations import Operations, live_operations
from dse.doors.study import Study
from dse.errors import InputError
from dse.types import Design, Scalar
from dse.views.explanation import numbers_of

#: Operations on numbers that the browser has under the same name; of whole numbers those with ``_i`` after it.
_SAME = frozenset({
    "add", "sub", "mul", "div", "max", "min", "neg", "abs", "sign", "sqrt", "exp", "exp2", "log", "log2", "log1p",
    "expm1", "tanh", "pow", "floor", "ceil", "rem", "eq", "ne", "lt", "le", "gt", "ge", "is_finite", "select_n",
})  # fmt: skip
_OF_WHOLE = frozenset({
    "add", "sub", "mul", "div", "max", "min", "neg", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not",
})  # fmt: skip

#: What compares: of any type, it gives truth values.
_COMPARES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_finite"})

#: Operations of truth values → those of numbers 0 and 1.
_OF_TRUTH = {"and": "mul", "or": "max", "xor": "ne", "not": "not"}

#: What equals its input.
_NOTHING = frozenset({"stop_gradient", "copy"})


class Value(NamedTuple):
    """A value of the program: where it is, and how its bits are read."""

    place: int
    kind: str  #: ``f`` for numbers, ``i`` for whole numbers, ``b`` for truth values


class Program:
    """Operations as they are written for the browser; inputs, constants and results are numbered in this order."""

    def __init__(self, found: Operations, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.constants: list[tuple[str, float]] = []
        self.operations: list[tuple[str, tuple[int, ...]]] = []
        self._values = {i: Value(i, "f") for i in range(n_inputs)}
        for i, constant in enumerate(found.constants):
            self._values[n_inputs + i] = self._constant(constant)
        # Places of results follow those of all constants, so what lowering needs is among these beforehand.
        self._one, self._zero = (self._constant(np.float32(value)) for value in (1.0, 0.0))
        for name, parameters, inputs, output in live_operations(found.operations, found.outputs):
            self._values[output] = self._lowered(name, parameters, [self._values[i] for i in inputs])
        self.outputs = [self._values[i].place for i in found.outputs]
        self.kinds = [self._values[i].kind for i in found.outputs]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: names of operations, and of each its place among these and those of its inputs."""
        names = sorted({name for name, _ in self.operations})
        place = {name: i for i, name in enumerate(names)}
        flat = [[place[name], *inputs, *[-1] * (3 - len(inputs))] for name, inputs in self.operations]
        return {
            "inputs": self.n_inputs,
            "constants": [[kind, _written(value)] for kind, value in self.constants],
            "names": names,
            "operations": [number for one in flat for number in one],
            "outputs": self.outputs,
            "whole": [i for i, kind in enumerate(self.kinds) if kind == "i"],
        }

    def _constant(self, value: Any) -> Value:
        kind = {"f": "f", "i": "i", "u": "i", "b": "b"}[np.asarray(value).dtype.kind]
        self.constants.append((kind, float(value)))
        return Value(self.n_inputs + len(self.constants) - 1, kind)

    def _add(self, name: str, kind: str, *inputs: Value) -> Value:
        self.operations.append((name, tuple(value.place for value in inputs)))
        return Value(self.n_inputs + len(self.constants) + len(self.operations) - 1, kind)

    def _lowered(self, name: str, parameters: tuple[Any, ...], inputs: list[Value]) -> Value:
        """An operation as those of the browser."""
        first = inputs[0]
        if name in _NOTHING:
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
            one = self._one
            return self._add("mul", "f", self._add("add", "f", one, first), self._add("sub", "f", one, first))
        if name == "clamp":
            return self._add("min", "f", self._add("max", "f", inputs[1], first), inputs[2])
        if name == "select_n":
            return self._selected(first, inputs[1:])
        return self._plain("add" if name == "add_any" else name, inputs)

    def _plain(self, name: str, inputs: list[Value]) -> Value:
        kind = inputs[0].kind
        result = "b" if name in _COMPARES else kind
        if kind == "b" and name in _OF_TRUTH:
            return self._add(_OF_TRUTH[name], "b", *inputs)
        if kind == "i" and name in _OF_WHOLE:
            return self._add(f"{name}_i", result, *inputs)
        if name in _SAME and kind != "i":
            return self._add(name, result, *inputs)
        raise _unknown(name)

    def _selected(self, which: Value, cases: list[Value]) -> Value:
        if which.kind != "b" or len(cases) != 2:
            raise _unknown("a choice between more than two cases")
        return self._add("select_n", cases[0].kind, which, *cases)

    def _converted(self, value: Value, kind: str) -> Value:
        kind = "i" if kind == "u" else kind
        if value.kind == kind or (value.kind, kind) == ("b", "f"):
            return value._replace(kind=kind)
        if kind == "b":
            return self._add(
                "ne_i" if value.kind == "i" else "ne", "b", value, self._zero
            )  # bits of 0 and 0.0 are the same
        return self._add("to_whole" if kind == "i" else "to_number", kind, value)

    def _power(self, base: Value, exponent: int) -> Value:
        """By squaring, as :func:`dse.doors.scalars.operations.integer_power`."""
        found, power, left = None, base, abs(exponent)
        while left:
            if left & 1:
                found = power if found is None else self._add("mul", "f", found, power)
            left >>= 1
            power = self._add("mul", "f", power, power) if left else power
        found = self._one if found is None else found
        return self._add("div", "f", self._one, found) if exponent < 0 else found


def _written(value: float) -> Any:
    """A number in JSON; what is not finite as text."""
    return value if np.isfinite(value) else str(value)


def _unknown(what: str) -> InputError:
    return InputError(
        "page", f"a model with {what}, which pages cannot compute", "the package's own models", "use dse evaluate"
    )


# --- what is computed -------------------------------------------------------------------------------------


def _figures(study: Study, stated: Design) -> tuple[dict[str, Any], Any]:
    """All figures of one design as a page shows them, and the names of its operators."""
    (_, numbers), named = numbers_of(study, study.objective, {}, stated)
    metrics = study.evaluate(stated)
    bounds = study.bounds(stated)._asdict() if study.bounds else {}
    over: dict[str, Scalar] = {reason.name: degree for reason, degree in study.shortfalls(stated, metrics).items()}
    return {
        "metrics": numbers.metrics,
        "capacity": numbers.capacity,
        "bounds": dict(bounds),
        "over": over,
        "layer": numbers.layer,
        "operators": [kernels._asdict() for kernels in numbers.kernels],
        "phases": numbers.phases,
    }, named


class LiveModel(NamedTuple):
    """A study's figures of designs of one structure."""

    program: Program
    paths: list[str]  #: of the leaves that are its inputs, in order
    read: frozenset[str]  #: those that figures depend on
    outputs: Any  #: pytree of the positions of figures among the outputs
    operators: list[tuple[str, str]]  #: section and name


def model_of(study: Study, design: Design) -> LiveModel:
    """The figures of designs that have the records of ``design``.

    Raises:
        InputError: for a model with operations that are none of a page's.
    """
    made_from = f"page {study.name}" if study.is_own else None
    found = ScalarFunction(lambda stated: _figures(study, stated), made_from).operations(design)
    if found is None:
        raise _unknown("operations of its own")
    paths = [jax.tree_util.keystr(key).lstrip(".") for key, _ in jax.tree_util.tree_leaves_with_path(design)]
    program = Program(found, len(paths))
    used = {place for _, inputs in program.operations for place in inputs} | {*program.outputs}
    outputs = jax.tree.unflatten(found.structure, range(len(program.outputs)))
    read = frozenset(path for i, path in enumerate(paths) if i in used)
    return LiveModel(program, paths, read, outputs, [(section, name) for section, name, _ in found.static])
