"""The model as a list of equations, each of them once; :func:`dse.doors.recording.trace` makes it.

The model says what it means, so it computes many a value in several places. XLA would find that out too, but only
after JAX has batched and lowered every copy: the 8,400 equations of training are 4,400 distinct ones. With
``jax.make_jaxpr`` and ``jax.extend.core.jaxpr_as_fun`` in the place of this, ``sweeps/megatron_1t_4096_a100.toml``
starts in 1.3 to 1.5 times the processor time with no program kept, with ``jax.jit(…, inline=True)`` in 1.35 times;
both then evaluate as fast.

Equations with an effect (``jax.debug.print``) stay, each of them, in their order; those that call functions
(``custom_jvp``, ``cond``, ``while``) are passed on whole, with the rules they have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive

#: Primitives that only call the equations inside them.
CALLS = ("jit", "pjit")


class Constant(NamedTuple):
    """An input of an equation that is no variable; 0.0 and -0.0 are two."""

    value: Any
    key: Hashable


#: A variable by its number, or a constant.
Atom = int | Constant


class Equation(NamedTuple):
    """One application of a primitive."""

    primitive: Primitive
    parameters: dict[str, Any]
    inputs: tuple[Atom, ...]
    outputs: tuple[int, ...]
    has_effect: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Equations:
    """A function as a list of equations; variables are numbers, those of the inputs 0, 1, 2 and so on."""

    n_inputs: int
    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]

    def __call__(self, *inputs: Any) -> list[Any]:
        """The outputs at these inputs, which may be traced."""
        return self.run(dict(enumerate(inputs)))

    def run(self, values: dict[int, Any]) -> list[Any]:
        """The outputs where these variables have these values, which may be traced; all variables are put there."""

        def read(atom: Atom) -> Any:
            return atom.value if isinstance(atom, Constant) else values[atom]

        for primitive, parameters, arguments, outputs, _ in self.equations:
            found = _bind(primitive, map(read, arguments), parameters)
            values.update(zip(outputs, found if primitive.multiple_results else [found], strict=True))
        return [read(atom) for atom in self.outputs]

    def part(self, inputs: Iterable[int], outputs: Sequence[Atom]) -> Equations:
        """What gives these outputs where these variables are known."""
        return Equations(self.n_inputs, _needed(self.equations, outputs, frozenset(inputs)), tuple(outputs))


def _bind(primitive: Primitive, inputs: Iterable[Any], parameters: dict[str, Any]) -> Any:
    """Apply a primitive with the parameters of an equation, functions that it calls among them."""
    found = primitive.get_bind_params(parameters)
    functions, named = found if isinstance(found, tuple) else ((), found)  # a pair before JAX 0.9
    return primitive.bind(*functions, *inputs, **named)


def distinct(closed: ClosedJaxpr) -> Equations:
    """The same function with called equations in line, equal ones merged and unneeded ones left out."""
    merging = Merging(len(closed.jaxpr.invars))
    constants = [constant(value, id(value)) for value in closed.consts]
    outputs = merging.run(closed.jaxpr, constants, range(len(closed.jaxpr.invars)))
    return merging.result(outputs)


class _Step(NamedTuple):
    """An equation of JAX on a list of values, which its outputs are appended to; inputs by their place in the list."""

    primitive: Primitive
    parameters: dict[str, Any]
    inputs: tuple[Atom, ...]
    n_outputs: int
    has_effect: bool
    key: Hashable  #: of the parameters


class Steps(NamedTuple):
    """A function whose equations others take in (:meth:`Merging.take`): its values in a list, the inputs first."""

    steps: tuple[_Step, ...]
    outputs: tuple[Atom, ...]


def steps_of(found: Equations) -> Steps:
    """Equations as others take them in."""
    place, steps = {at: at for at in range(found.n_inputs)}, []

    def placed(atoms: Iterable[Atom]) -> tuple[Atom, ...]:
        return tuple(place[atom] if isinstance(atom, int) else atom for atom in atoms)

    for primitive, parameters, inputs, outputs, has_effect in found.equations:
        more = len(outputs), has_effect, _hashable(parameters)
        steps.append(_Step(primitive, parameters, placed(inputs), *more))
        place.update(zip(outputs, range(len(place), len(place) + len(outputs)), strict=True))
    return Steps(tuple(steps), placed(found.outputs))


def _in_line(jaxpr: Jaxpr) -> tuple[list[_Step], list[Atom]]:
    """The equations of ``jaxpr`` with called ones in line, and the places of its outputs."""
    steps: list[_Step] = []
    n_values = len(jaxpr.constvars) + len(jaxpr.invars)

    def walked(called: Jaxpr, inputs: Sequence[Atom]) -> list[Atom]:
        nonlocal n_values
        stands = dict(zip([*called.constvars, *called.invars], inputs, strict=True))

        def read(atom: Any) -> Atom:
            return _literal(atom) if isinstance(atom, Literal) else stands[atom]

        for equation in called.eqns:
            arguments = tuple(map(read, equation.invars))
            inner = equation.params.get("jaxpr") if equation.primitive.name in CALLS else None
            if inner is not None and not inner.consts:
                places = walked(inner.jaxpr, arguments)
            else:
                places = [*range(n_values, n_values + len(equation.outvars))]
                n_values += len(places)
                primitive, given, has_effect = equation.primitive, equation.params, bool(equation.effects)
                steps.append(_Step(primitive, given, arguments, len(places), has_effect, _hashable(given)))
            stands.update(zip(equation.outvars, places, strict=True))
        return [read(atom) for atom in called.outvars]

    return steps, walked(jaxpr, range(n_values))


class Merging:
    """Equations in order; of equal ones the first stands for all."""

    def __init__(self, n_inputs: int) -> None:
        self._equations: list[Equation] = []
        self._n_inputs = self._n_variables = n_inputs
        self._first: dict[Hashable, tuple[int, ...]] = {}
        self._steps: dict[Jaxpr, tuple[list[_Step], list[Atom]]] = {}

    def run(self, jaxpr: Jaxpr, constants: Sequence[Atom], inputs: Sequence[Atom]) -> list[Atom]:
        """Take in the equations of ``jaxpr`` at these inputs; gives its outputs."""
        if jaxpr not in self._steps:
            self._steps[jaxpr] = _in_line(jaxpr)
        return self._taken(*self._steps[jaxpr], [*constants, *inputs])

    def take(self, found: Steps, inputs: Sequence[Atom]) -> list[Atom]:
        """Take in the equations of a function at these inputs; gives its outputs."""
        return self._taken(found.steps, found.outputs, [*inputs])

    def _taken(self, steps: Sequence[_Step], outputs: Sequence[Atom], values: list[Atom]) -> list[Atom]:
        for step in steps:
            arguments = tuple([values[at] if type(at) is int else at for at in step.inputs])
            more = step.n_outputs, step.has_effect, step.key
            values.extend(self.once(step.primitive, step.parameters, arguments, *more))
        return [values[at] if type(at) is int else at for at in outputs]

    def once(
        self,
        primitive: Primitive,
        parameters: dict[str, Any],
        inputs: tuple[Atom, ...],
        n_outputs: int,
        has_effect: bool,
        told_apart_by: Hashable = None,
    ) -> tuple[Atom, ...]:
        """Take in an equation, unless there is an equal one or its output is known; gives its outputs.

        ``told_apart_by``: :func:`_hashable` of the parameters, where it is known.
        """
        if primitive.name == "convert_element_type" and type(inputs[0]) is Constant:
            known = np.asarray(inputs[0].value)
            if not known.ndim:
                return (number(known.astype(parameters["new_dtype"])[()]),)
        keys = tuple([atom.key if type(atom) is Constant else atom for atom in inputs])
        if told_apart_by is None:
            told_apart_by = _hashable(parameters)
        key = object() if has_effect else (primitive, keys, told_apart_by)
        found = self._first.get(key)
        if found is None:
            start = self._n_variables
            self._n_variables += n_outputs
            self._first[key] = found = tuple(range(start, self._n_variables))
            self._equations.append(Equation(primitive, parameters, inputs, found, has_effect))
        return found

    def result(self, outputs: Sequence[Atom]) -> Equations:
        """The function that gives these outputs."""
        return Equations(self._n_inputs, _needed(self._equations, outputs), tuple(outputs))


def constant(value: Any, key: Hashable) -> Constant:
    """A constant that is equal to those of the same key."""
    return Constant(value, ("constant", key))


def number(value: Any) -> Constant:
    """A NumPy scalar as a constant."""
    return constant(value, (type(value), value.tobytes()))


def _literal(literal: Any) -> Constant:
    value = np.asarray(literal.val, literal.aval.dtype)
    return constant(literal.val, id(literal.val)) if value.ndim else number(value[()])


def _hashable(parameters: dict[str, Any]) -> Hashable:
    """What makes two equations of a primitive the same; each is its own where that is unknown."""
    items = tuple(sorted(parameters.items()))
    try:
        hash(items)
    except TypeError:
        return id(parameters)
    return items


def _needed(
    equations: Sequence[Equation], outputs: Sequence[Atom], known: frozenset[int] = frozenset()
) -> tuple[Equation, ...]:
    """The equations that the outputs depend on, up to what is known, or that have an effect, in order."""
    wanted = {atom for atom in outputs if isinstance(atom, int)} - known
    kept = []
    for equation in reversed(equations):
        if equation.has_effect or wanted.intersection(equation.outputs):
            wanted.update(atom for atom in equation.inputs if isinstance(atom, int) and atom not in known)
            kept.append(equation)
    return tuple(kept[::-1])
