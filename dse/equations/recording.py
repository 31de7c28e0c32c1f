"""Recording the equations of a function while it runs, each of them once.

``jax.jit(function).trace`` makes an equation of every operation, at some sixty microseconds each, of which two thirds
are merged afterwards: a second for a model. Here equal operations are merged when they are met, and operators of
scalars (``x * y``), choices, maxima and minima are taken from one trace of JAX for each type of their operands: the
same list in a sixth of the time.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.core import Trace, Tracer
from jax.extend import core as extend
from jax.extend.core import ClosedJaxpr, Primitive

from dse.equations.equation import (
    CALL_PRIMITIVES,
    Atom,
    Constant,
    EquationMerger,
    Equations,
    constant,
    merged_equations,
    number,
)

#: A context manager, which was in ``jax.core`` before JAX 0.8.2.
_set_current_trace: Any = vars(extend if hasattr(extend, "set_current_trace") else core)["set_current_trace"]

#: Operators of Python that need no call of JAX.
_OPERATORS = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "lt", "le", "gt", "ge", "eq", "ne", "and", "or",
    "neg", "invert",
)  # fmt: skip

#: Settings of JAX that decide what an operator is.
_SETTINGS = ("jax_enable_x64", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion")


def trace(function: Callable[..., Any], *arguments: Any) -> tuple[Equations, jax.tree_util.PyTreeDef]:
    """Record a function of pytrees of scalars as (equations, tree structure of its output).

    Args:
        function: pure function.
        arguments: pytrees of scalars, or of their shapes and types.

    Returns:
        The equations, and the tree structure of the output.
    """
    leaves, structure = jax.tree.flatten(arguments)
    types = jax.jit(lambda *values: values).trace(*leaves).jaxpr.in_avals
    merger = EquationMerger(len(types))
    try:
        with _garbage_collection_off():
            outputs, output_structure = Recording(merger).outputs(
                lambda *values: function(*jax.tree.unflatten(structure, values)), types
            )
    except CannotRecordError:
        traced = jax.jit(function).trace(*arguments)
        return merged_equations(traced.jaxpr), jax.tree.structure(traced.out_info)
    return merger.to_equations(outputs), output_structure


class _RecordedFunction(NamedTuple):
    """A function that was recorded once and that other recordings include."""

    equations: Equations
    avals: list[Any]  #: types of its outputs
    leaves: list[tuple[int | None, Any]]  #: of its output: a number of these outputs, or None and a value as it is
    structure: Any  #: of its output


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a pure function of pytrees, so that recordings run it once for each kind of scalars and reuse its equations.

    Programs with other objectives or constraints on top of one model so take a tenth of the time of a recording. What
    the function depends on besides its arguments must stay as it is in a process.
    """

    @functools.wraps(function)
    def applied(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        recording = leaves[0]._trace if leaves and type(leaves[0]) is Recorded else None
        if recording is None or not all(_is_scalar_of(recording, leaf) for leaf in leaves):
            return function(*arguments)
        types = tuple(leaf.aval for leaf in leaves)
        return recording.include(_recorded_function(function, structure, types, recording.settings), leaves)

    return applied


def _is_scalar_of(recording: Recording, leaf: Any) -> bool:
    """True for a recorded scalar of this recording."""
    return type(leaf) is Recorded and leaf._trace is recording and leaf.scalar is not None


@functools.lru_cache(maxsize=64)
def _recorded_function(
    function: Callable[..., Any], structure: Any, types: tuple[Any, ...], settings: tuple[Any, ...]
) -> _RecordedFunction:
    """Record a function of pytrees of scalars of the types ``types``, cached by all arguments."""
    merger = EquationMerger(len(types))
    recording = Recording(merger)
    output_leaves, output_structure = recording._leaves(
        lambda *values: function(*jax.tree.unflatten(structure, values)), types
    )
    values = [leaf for leaf in output_leaves if type(leaf) is Recorded]
    value_indices = iter(range(len(values)))
    leaves: list[tuple[int | None, Any]] = [
        (next(value_indices), None) if type(leaf) is Recorded else (None, leaf) for leaf in output_leaves
    ]
    recording.invalidate()
    equations = merger.to_equations([leaf.atom for leaf in values])
    return _RecordedFunction(equations, [leaf.aval for leaf in values], leaves, output_structure)


class CannotRecordError(Exception):
    """Raised for a call with its own rule of differentiation, which JAX alone keeps."""


class Recorded(Tracer):
    """A value of a function that is being recorded; ``aval`` is its type, ``scalar`` tells it from other scalars."""

    __slots__ = ("atom", "aval", "scalar")
    aval: Any

    def __init__(self, trace: Recording, aval: Any, atom: Atom) -> None:
        self._trace, self.aval, self.atom = trace, aval, atom
        key = atom.key if type(atom) is Constant else atom
        self.scalar = None if aval.shape else ((aval.dtype, aval.weak_type), key)


class Recording(Trace):
    """Where JAX sends the operations of a function that is being recorded."""

    def __init__(self, merger: EquationMerger) -> None:
        super().__init__()
        self._merger = merger
        self.settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
        self.outputs_by_key: dict[Hashable, list[Recorded]] = {}  #: what was called → its outputs
        self._numbers: dict[str, Constant] = {}

    def outputs(self, function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[list[Atom], Any]:
        """Return the atoms of the leaves of a function's output, and the output's tree structure; the recording ends.

        Args:
            function: function to record.
            inputs: types of its arguments.

        Raises:
            CannotRecordError: for a function that calls one with its own rule of differentiation.
        """
        with _patched_jax_numpy():
            leaves, structure = self._leaves(function, inputs)
        self.invalidate()
        return [self.atom(leaf) for leaf in leaves], structure

    def _leaves(self, function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return the leaves of a function's output and its tree structure, for arguments of the types ``inputs``."""
        values = [Recorded(self, aval, i) for i, aval in enumerate(inputs)]
        with _set_current_trace(self):
            return jax.tree.flatten(function(*values))

    def include(self, recorded_function: _RecordedFunction, values: Sequence[Recorded]) -> Any:
        """Return the output pytree, at recorded values, of a function that was recorded before."""
        atoms = self._merger.add_equations(recorded_function.equations, [value.atom for value in values])
        recorded = [Recorded(self, aval, atom) for aval, atom in zip(recorded_function.avals, atoms, strict=True)]
        leaves = [leaf if position is None else recorded[position] for position, leaf in recorded_function.leaves]
        return jax.tree.unflatten(recorded_function.structure, leaves)

    def inline(self, called: ClosedJaxpr, values: Sequence[Any]) -> list[Recorded]:
        """Return the output values of a called jaxpr at ``values``; without effects equal values record it once."""
        inputs = tuple(map(self.atom, values))
        key = (called.jaxpr, *[atom.key if type(atom) is Constant else atom for atom in inputs])
        outputs = self.outputs_by_key.get(key)
        if outputs is None:
            outputs = self.run(called, inputs)
            if not called.effects:
                self.outputs_by_key[key] = outputs
        return outputs

    def run(self, called: ClosedJaxpr, inputs: tuple[Atom, ...]) -> list[Recorded]:
        """Add the equations of a called jaxpr at input atoms, and return its output values."""
        outputs = self._merger.add_jaxpr(called.jaxpr, (), inputs)
        return [Recorded(self, aval, atom) for aval, atom in zip(called.out_avals, outputs, strict=True)]

    def process_primitive(self, primitive: Primitive, values: Sequence[Any], parameters: dict[str, Any], /) -> Any:
        """Record an operation and return its output value, a list for multiple results; JAX calls this."""
        called = parameters.get("jaxpr") if primitive.name in CALL_PRIMITIVES else None
        if called is not None and not called.consts:
            return self.inline(called, values)
        avals, effects = primitive.abstract_eval(*map(jax.typeof, values), **parameters)
        avals = avals if primitive.multiple_results else [avals]
        inputs = tuple(map(self.atom, values))
        atoms = self._merger.add_equation(primitive, parameters, inputs, len(avals), bool(effects))
        outputs = [Recorded(self, aval, atom) for aval, atom in zip(avals, atoms, strict=True)]
        return outputs if primitive.multiple_results else outputs[0]

    def stage_value(self, value: Any) -> Recorded:
        """Return a constant as a recorded value; JAX calls this."""
        return Recorded(self, jax.typeof(value), self.atom(value))

    def process_custom_jvp_call(self, *_: Any, **__: Any) -> Any:
        """Raise CannotRecordError; JAX calls this."""
        raise CannotRecordError

    process_custom_vjp_call = process_call = process_custom_jvp_call

    def atom(self, value: Any) -> Atom:
        """Return the variable number or constant that a value stands for; arrays are equal by identity alone."""
        if type(value) is Recorded:
            return value.atom
        if type(value) in (float, int):  # whose text tells -0.0 from 0.0, and whole numbers from others
            text = repr(value)
            if text not in self._numbers:
                self._numbers[text] = number(np.asarray(value, jax.typeof(value).dtype)[()])
            return self._numbers[text]
        return constant(value, id(value)) if np.ndim(value) else number(np.asarray(value, jax.typeof(value).dtype)[()])


#: What tells types of operands apart: the type of a number of Python, data type and weakness of a value.
_Kind = type | tuple[Any, bool]


def _recording_function(name: str, jax_function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that takes equations from a cache for scalars of a recording, and calls JAX for all else."""

    def applied(*values: Any, **keywords: Any) -> Any:
        recording: Recording | None = None
        key_parts: list[Any] = [name]
        for value in values:
            kind = type(value)
            if kind is Recorded and value.scalar and (recording is None or recording is value._trace):
                recording = value._trace
                key_parts += value.scalar
            elif kind is float or kind is int:
                key_parts += kind, value or repr(value)  # 0.0 and -0.0 are two
            else:
                return jax_function(*values, **keywords)
        if recording is None or keywords:
            return jax_function(*values, **keywords)
        key = tuple(key_parts)
        outputs = recording.outputs_by_key.get(key)
        if outputs is None:
            called = _operation_jaxpr(name, key[1::2], recording.settings)
            outputs = recording.outputs_by_key[key] = recording.run(called, tuple(map(recording.atom, values)))
        return outputs[0]

    return applied


@functools.cache
def _operation_jaxpr(name: str, kinds: tuple[_Kind, ...], settings: tuple[Any, ...]) -> ClosedJaxpr:
    """Trace the operation of a name on scalars of the types ``kinds`` to a closed jaxpr, cached by settings of JAX."""
    values = [
        kind(1) if isinstance(kind, type) else jax.ShapeDtypeStruct((), kind[0], weak_type=kind[1]) for kind in kinds
    ]
    return jax.make_jaxpr(_JAX_FUNCTIONS[name])(*values)


#: Functions of ``jax.numpy`` that a model calls hundreds of times.
_FUNCTIONS = ("where", "maximum", "minimum")

#: Operations by name, as JAX has them.
_JAX_FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(jnp, name) for name in _FUNCTIONS} | {
    f"__{name}__": getattr(Tracer, f"__{name}__") for name in _OPERATORS
}
_RECORDING_FUNCTIONS = {name: _recording_function(name, usual) for name, usual in _JAX_FUNCTIONS.items()}

for _name in _OPERATORS:
    setattr(Recorded, f"__{_name}__", _RECORDING_FUNCTIONS[f"__{_name}__"])


@contextlib.contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Turn garbage collection off in the context, because scans of a recording's many values double its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _patched_jax_numpy() -> Iterator[None]:
    """Replace ``where``, ``maximum`` and ``minimum`` of ``jax.numpy`` in the context; values not recorded go to JAX."""
    try:
        for name in _FUNCTIONS:
            setattr(jnp, name, _RECORDING_FUNCTIONS[name])
        yield
    finally:
        for name in _FUNCTIONS:
            setattr(jnp, name, _JAX_FUNCTIONS[name])
