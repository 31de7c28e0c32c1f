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

from dse.doors.equations import CALLS, Atom, Constant, Equations, Merging, Steps, constant, distinct, number, steps_of

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
    """The equations of a function of pytrees of scalars, and the structure of its output."""
    leaves, structure = jax.tree.flatten(arguments)
    types = jax.jit(lambda *values: values).trace(*leaves).jaxpr.in_avals
    merging = Merging(len(types))
    try:
        with _garbage_waits():
            outputs, result = Recording(merging).outputs(
                lambda *values: function(*jax.tree.unflatten(structure, values)), types
            )
    except CannotRecordError:
        traced = jax.jit(function).trace(*arguments)
        return distinct(traced.jaxpr), jax.tree.structure(traced.out_info)
    return merging.result(outputs), result


class _Part(NamedTuple):
    """A function as recordings of others include it."""

    steps: Steps
    avals: list[Any]  #: types of its outputs
    leaves: list[tuple[int | None, Any]]  #: of its output: a number of these outputs, or None and a value as it is
    structure: Any  #: of its output


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function of pytrees that recordings run once for each kind of scalars; then they include its equations.

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
        return recording.include(_part(function, structure, types, recording.settings), leaves)

    return applied


def _is_scalar_of(recording: Recording, leaf: Any) -> bool:
    return type(leaf) is Recorded and leaf._trace is recording and leaf.scalar is not None


@functools.lru_cache(maxsize=64)
def _part(function: Callable[..., Any], structure: Any, types: tuple[Any, ...], settings: tuple[Any, ...]) -> _Part:
    """A function of scalars of these types, under these settings of JAX; called by a function that is recorded."""
    merging = Merging(len(types))
    recording = Recording(merging)
    found, outputs = recording._leaves(lambda *values: function(*jax.tree.unflatten(structure, values)), types)
    values = [leaf for leaf in found if type(leaf) is Recorded]
    numbers = iter(range(len(values)))
    leaves: list[tuple[int | None, Any]] = [
        (next(numbers), None) if type(leaf) is Recorded else (None, leaf) for leaf in found
    ]
    recording.invalidate()
    steps = steps_of(merging.result([leaf.atom for leaf in values]))
    return _Part(steps, [leaf.aval for leaf in values], leaves, outputs)


class CannotRecordError(Exception):
    """A call with its own rule of differentiation, which JAX alone keeps."""


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

    def __init__(self, merging: Merging) -> None:
        super().__init__()
        self._merging = merging
        self.settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
        self.met: dict[Hashable, list[Recorded]] = {}  #: what was called → its outputs
        self._numbers: dict[str, Constant] = {}

    def outputs(self, function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[list[Atom], Any]:
        """Atoms of the outputs of a function of values of these types, and the structure of the outputs.

        Raises:
            CannotRecordError: for a function that calls one with its own rule of differentiation.
        """
        with _functions_without_jax():
            leaves, structure = self._leaves(function, inputs)
        self.invalidate()
        return [self.atom(leaf) for leaf in leaves], structure

    def _leaves(self, function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[list[Any], Any]:
        """Leaves of the output of a function of values of these types, and its structure."""
        values = [Recorded(self, aval, place) for place, aval in enumerate(inputs)]
        with _set_current_trace(self):
            return jax.tree.flatten(function(*values))

    def include(self, part: _Part, values: Sequence[Recorded]) -> Any:
        """The output of a function that was recorded before, at these values."""
        atoms = self._merging.take(part.steps, [value.atom for value in values])
        recorded = [Recorded(self, aval, atom) for aval, atom in zip(part.avals, atoms, strict=True)]
        leaves = [leaf if at is None else recorded[at] for at, leaf in part.leaves]
        return jax.tree.unflatten(part.structure, leaves)

    def inline(self, called: ClosedJaxpr, values: Sequence[Any]) -> list[Recorded]:
        """The outputs of called equations at these values."""
        inputs = tuple(map(self.atom, values))
        key = (called.jaxpr, *[atom.key if type(atom) is Constant else atom for atom in inputs])
        found = self.met.get(key)
        if found is None:
            found = self.run(called, inputs)
            if not called.effects:
                self.met[key] = found
        return found

    def run(self, called: ClosedJaxpr, inputs: tuple[Atom, ...]) -> list[Recorded]:
        """The outputs of called equations at these atoms, which have not been met."""
        outputs = self._merging.run(called.jaxpr, (), inputs)
        return [Recorded(self, aval, atom) for aval, atom in zip(called.out_avals, outputs, strict=True)]

    def process_primitive(self, primitive: Primitive, values: Sequence[Any], parameters: dict[str, Any], /) -> Any:
        """Record an operation; JAX calls this."""
        called = parameters.get("jaxpr") if primitive.name in CALLS else None
        if called is not None and not called.consts:
            return self.inline(called, values)
        avals, effects = primitive.abstract_eval(*map(jax.typeof, values), **parameters)
        avals = avals if primitive.multiple_results else [avals]
        inputs = tuple(map(self.atom, values))
        atoms = self._merging.once(primitive, parameters, inputs, len(avals), bool(effects))
        found = [Recorded(self, aval, atom) for aval, atom in zip(avals, atoms, strict=True)]
        return found if primitive.multiple_results else found[0]

    def stage_value(self, value: Any) -> Recorded:
        """A constant as a value of the function; JAX calls this."""
        return Recorded(self, jax.typeof(value), self.atom(value))

    def process_custom_jvp_call(self, *_: Any, **__: Any) -> Any:
        """Refuse; JAX calls this."""
        raise CannotRecordError

    process_custom_vjp_call = process_call = process_custom_jvp_call

    def atom(self, value: Any) -> Atom:
        """The variable or constant that a value is."""
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


def _without_jax(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    """An operation on scalars by equations that are kept, on anything else by JAX."""

    def applied(*values: Any, **named: Any) -> Any:
        recording: Recording | None = None
        told_apart: list[Any] = [name]
        for value in values:
            kind = type(value)
            if kind is Recorded and value.scalar and (recording is None or recording is value._trace):
                recording = value._trace
                told_apart += value.scalar
            elif kind is float or kind is int:
                told_apart += kind, value or repr(value)  # 0.0 and -0.0 are two
            else:
                return usual(*values, **named)
        if recording is None or named:
            return usual(*values, **named)
        key = tuple(told_apart)
        found = recording.met.get(key)
        if found is None:
            called = _of_operation(name, key[1::2], recording.settings)
            found = recording.met[key] = recording.run(called, tuple(map(recording.atom, values)))
        return found[0]

    return applied


@functools.cache
def _of_operation(name: str, kinds: tuple[_Kind, ...], settings: tuple[Any, ...]) -> ClosedJaxpr:
    """The equations of an operation on scalars of these types, under these settings of JAX."""
    values = [
        kind(1) if isinstance(kind, type) else jax.ShapeDtypeStruct((), kind[0], weak_type=kind[1]) for kind in kinds
    ]
    return jax.make_jaxpr(_USUAL[name])(*values)


#: Functions of ``jax.numpy`` that a model calls hundreds of times.
_FUNCTIONS = ("where", "maximum", "minimum")

#: Operations by name, as JAX has them.
_USUAL: dict[str, Callable[..., Any]] = {name: getattr(jnp, name) for name in _FUNCTIONS} | {
    f"__{name}__": getattr(Tracer, f"__{name}__") for name in _OPERATORS
}
_WITHOUT_JAX = {name: _without_jax(name, usual) for name, usual in _USUAL.items()}

for _name in _OPERATORS:
    setattr(Recorded, f"__{_name}__", _WITHOUT_JAX[f"__{_name}__"])


@contextlib.contextmanager
def _garbage_waits() -> Iterator[None]:
    """A recording makes a hundred thousand values that stay: looking through them for garbage takes as long again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _functions_without_jax() -> Iterator[None]:
    """While a function is recorded; for values that are not recorded, as those of other threads, nothing changes."""
    try:
        for name in _FUNCTIONS:
            setattr(jnp, name, _WITHOUT_JAX[name])
        yield
    finally:
        for name in _FUNCTIONS:
            setattr(jnp, name, _USUAL[name])
