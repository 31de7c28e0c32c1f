"""The model at one design, or at some thousand: its equations by NumPy, one after the other, in some milliseconds.

JAX evaluates one design in seconds: operation by operation most of the time goes into dispatch, and compiling the model
with its gradient takes a quarter of a minute. Here a function of scalars is traced once, and its equations (those of
:mod:`dse.equations`) are run in single precision on NumPy's numbers, or on arrays of them: what XLA computes but for
the last bits of exponentials and logarithms. The list of operations is kept (:mod:`dse.cache`), so that a second
process does not trace either.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from dse import cache
from dse.files import code_digest, files_digest
from dse.types import Design, Metrics, ServingMetrics

if TYPE_CHECKING:
    from dse.equations import Equation, Equations


#: Designs at once: so many that a call of NumPy costs little beside its work, so few that all values stay in the cache.
_BATCH = 8192

#: Name of an operation and what else it needs, positions of its inputs and of its output. Plain: there are many.
Operation = tuple[str, tuple[Any, ...], tuple[int, ...], int]


class Operations(NamedTuple):
    """A function of scalars as a list of operations on a list of values, which begins with inputs and constants."""

    constants: list[Any]
    operations: list[Operation]
    n_values: int
    outputs: list[int]
    structure: Any  #: of the outputs
    static: Any  #: what comes out beside numbers, the same for all inputs

    def bound(self) -> Callable[[Sequence[Any]], tuple[Any, Any]]:
        """The function of the leaves of its inputs; gives numbers and what comes with them."""
        steps = [
            (_function(name, parameters), inputs, output, over)
            for (name, parameters, inputs, output), over in zip(self.operations, self._over(), strict=True)
        ]

        def run(leaves: Sequence[Any]) -> tuple[Any, Any]:
            values = [*map(np.float32, leaves), *self.constants]
            values += [None] * (self.n_values - len(values))
            with np.errstate(all="ignore"):
                for function, inputs, output, over in steps:
                    values[output] = function(*[values[i] for i in inputs])
                    for i in over:
                        values[i] = None
            return jax.tree.unflatten(self.structure, [values[i] for i in self.outputs]), self.static

        return run

    def _over(self) -> list[list[int]]:
        """Of each operation the values that nothing needs after it: arrays of them would fill the memory."""
        met, over = set(self.outputs), []
        for *_, inputs, output in reversed(self.operations):
            ended = {*inputs, output} - met
            met |= ended
            over.append(list(ended))
        return over[::-1]


class ScalarFunction:
    """A pure function of pytrees of scalars that gives (a pytree of scalars, anything else that is the same for all).

    Called with arrays of one length it gives arrays, where a number is the same for all a number.

    Args:
        function: of arguments that are traced.
        made_from: what the function depends on besides the code of the package; None for one that is not kept.
        traced: gives (equations, structure of the outputs, what comes beside) for inputs of a structure, where somebody
            else has them; by default the function is traced.
    """

    def __init__(
        self, function: Callable[..., tuple[Any, Any]], made_from: str | None,
        traced: Callable[[Any], tuple[Equations, Any, Any]] | None = None,
    ) -> None:  # fmt: skip
        self._function, self._made_from, self._trace = function, made_from, traced or self._traced
        self._bound: dict[Hashable, Callable[[Sequence[Any]], tuple[Any, Any]]] = {}

    def __call__(self, *arguments: Any) -> tuple[Any, Any]:
        """The function's value, of NumPy's numbers."""
        leaves, structure = jax.tree.flatten(arguments)
        if structure not in self._bound:
            self._bound[structure] = self._found(structure)
        return self._bound[structure](leaves)

    def over(self, count: int, *arguments: Any) -> Any:
        """The numbers alone, as arrays [count]; leaves of the arguments are such arrays, or one number for all."""
        parts = [self._part(range(at, min(at + _BATCH, count)), arguments) for at in range(0, max(count, 1), _BATCH)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    def _part(self, part: range, arguments: tuple[Any, ...]) -> Any:
        some = jax.tree.map(lambda leaf: leaf[part.start : part.stop] if np.ndim(leaf) else leaf, arguments)
        return jax.tree.map(lambda value: np.broadcast_to(value, len(part)), self(*some)[0])

    def _found(self, structure: Any) -> Callable[[Sequence[Any]], tuple[Any, Any]]:
        try:
            if self._made_from is None:
                return _lowered(*self._trace(structure)).bound()
            made_from = f"operations {_circumstances()} {self._made_from} {structure}"
            return Operations(*cache.value(made_from, lambda: tuple(_lowered(*self._trace(structure))))).bound()
        except NotImplementedError:
            return self._by_jax(structure)

    def _by_jax(self, structure: Any) -> Callable[[Sequence[Any]], tuple[Any, Any]]:
        """The same by JAX: for models of others with operations that are none of ours."""
        found, outputs, static = self._trace(structure)
        of_many = jax.jit(jax.vmap(found))

        def run(leaves: Sequence[Any]) -> tuple[Any, Any]:
            numbers = np.broadcast_arrays(*map(np.float32, leaves))
            values = of_many(*numbers) if numbers and numbers[0].ndim else found(*numbers)
            return jax.tree.unflatten(outputs, values), static

        return run

    def _traced(self, structure: Any) -> tuple[Equations, Any, Any]:
        """Equations, structure of the outputs, what comes beside."""
        from dse import equations

        static: list[Any] = []

        def numbers(*arguments: Any) -> Any:
            found, beside = self._function(*arguments)
            static.append(beside)
            return found

        inputs = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct((), np.float32)] * structure.num_leaves)
        found, outputs = equations.trace(numbers, *inputs)
        return found, outputs, static[0]


@functools.cache
def _circumstances() -> str:
    code = files_digest([Path(__file__), Path(__file__).with_name("explanation.py")], code_digest())
    return f"{code} {jax.__version__} {np.__version__}"


def evaluate(design: Design) -> Metrics:
    """Time, memory, energy and feasibility of one training step of ``design``.

    A pure function of scalars: ``jit``, ``vmap`` and ``grad`` it as you like. Never raises and never
    returns NaN; a design that cannot run has ``feasible = False`` and the bits of its reasons. It is
    :func:`dse.evaluation.evaluate`, whose operations are kept where all leaves are plain numbers.

    Args:
        design: one point of the design space; leaves are plain numbers or traced scalars in SI units.

    Returns:
        Metrics of scalars in SI units (see :class:`dse.types.Metrics`); parts add up to their total.
    """
    if all(isinstance(leaf, int | float | np.number) for leaf in jax.tree.leaves(design)):
        return _evaluate(design)[0]
    return _model(design)[0]


def serve(design: Design) -> ServingMetrics:
    """Latency, throughput, memory and feasibility of serving with ``design``, as :func:`evaluate` tells of training.

    Plain numbers give NumPy scalars of single precision, in milliseconds; anything traced gives JAX's, as
    :func:`dse.serving.serve` does: ``jit``, ``vmap`` and ``grad`` it as you like.

    Args:
        design: one point of the design space, for example ``dse.design("llama-3-70b", "h100", tp=8,
            concurrency=64)``.

    Returns:
        Metrics of scalars in SI units (see :class:`dse.types.ServingMetrics`); parts add up to their total.
    """
    if all(isinstance(leaf, int | float | np.number) for leaf in jax.tree.leaves(design)):
        return _serve(design)[0]
    return _serving_model(design)[0]


def _serving_model(design: Design) -> tuple[ServingMetrics, None]:
    from dse.serving import serve

    return serve(design), None


_serve = ScalarFunction(_serving_model, "serve")


def _model(design: Design) -> tuple[Metrics, None]:
    from dse.evaluation import evaluate

    return evaluate(design), None


_evaluate = ScalarFunction(_model, "evaluate")


# --- from equations to operations --------------------------------------------------------------------------


def _lowered(found: Equations, structure: Any, static: Any) -> Operations:
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
        (*_named(equation), tuple(map(placed, inputs)), placed(equation.outputs[0]))
        for equation, inputs in zip(found.equations, read, strict=True)
    ]
    n_values = max([n_inputs + shift, *(output + 1 for *_, output in operations)])
    return Operations(values, operations, n_values, list(map(placed, outputs)), structure, static)


def _named(equation: Equation) -> tuple[str, tuple[Any, ...]]:
    """Name and parameters of an operation, plain values."""
    name, given = equation.primitive.name, equation.parameters
    if name in ("convert_element_type", "bitcast_convert_type"):
        return name, (np.dtype(given["new_dtype"]).name,)
    if name == "integer_pow":
        return name, (int(given["y"]),)
    if name == "round":
        return name, (int(given["rounding_method"]),)
    if name not in _PLAIN:
        raise NotImplementedError(f"the model uses {name}, which dse.scalars does not know yet")
    return name, ()


# --- operations --------------------------------------------------------------------------------------------


def _function(name: str, parameters: tuple[Any, ...]) -> Callable[..., Any]:
    """What computes an operation."""
    return functools.partial(_WITH_PARAMETERS[name], *parameters) if parameters else _PLAIN[name]


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


def _bitcast(dtype: str, value: Any) -> Any:
    return value.view(dtype)


def _integer_power(exponent: int, base: Any) -> Any:
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


_PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add, "add_any": operator.add, "sub": operator.sub, "mul": operator.mul, "div": _divide,
    "neg": operator.neg, "max": np.maximum, "min": np.minimum, "abs": np.abs, "sign": np.sign, "sqrt": np.sqrt,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "tanh": np.tanh,
    "pow": np.power, "square": np.square, "floor": np.floor, "ceil": np.ceil, "rem": np.fmod, "clamp": _clamp,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "is_finite": np.isfinite,
    "select_n": _select, "stop_gradient": lambda value: value, "copy": lambda value: value,
}  # fmt: skip

_WITH_PARAMETERS: dict[str, Callable[..., Any]] = {
    "convert_element_type": _convert, "bitcast_convert_type": _bitcast, "integer_pow": _integer_power, "round": _round,
}  # fmt: skip
