"""The model as a list of equations, each of them once; :func:`dse.equations.recording.trace` makes it.

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive

#: Primitives that only call the equations inside them.
CALL_PRIMITIVES = ("jit", "pjit")


class Constant(NamedTuple):
    """A value that is an input of an equation, with a key equal for equal values; 0.0 and -0.0 differ."""

    value: Any
    key: Hashable


#: A variable by its number, or a constant.
Atom = int | Constant


class Equation(NamedTuple):
    """One application of a JAX primitive: keyword parameters, input atoms, variable numbers of its outputs."""

    primitive: Primitive
    parameters: dict[str, Any]
    inputs: tuple[Atom, ...]
    outputs: tuple[int, ...]
    has_effect: bool
    key: Hashable  #: of the parameters: equal for equal ones


@dataclasses.dataclass(frozen=True, eq=False)
class Equations:
    """A function as a list of equations; variables are numbers, those of the inputs 0, 1, 2 and so on."""

    n_inputs: int
    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]

    def __call__(self, *inputs: Any) -> list[Any]:
        """Return the list of output values at one value for each input, which may be traced."""
        return self.run(dict(enumerate(inputs)))

    def run(self, values: dict[int, Any]) -> list[Any]:
        """Return the list of output values from the values of variables, which may be traced.

        Args:
            values: variable → value; the values of all variables are added to it.
        """

        def read(atom: Atom) -> Any:
            return atom.value if isinstance(atom, Constant) else values[atom]

        for primitive, parameters, arguments, outputs, *_ in self.equations:
            results = _bind(primitive, map(read, arguments), parameters)
            values.update(zip(outputs, results if primitive.multiple_results else [results], strict=True))
        return [read(atom) for atom in self.outputs]

    def part(self, inputs: Iterable[int], outputs: Sequence[Atom]) -> Equations:
        """Return the equations, with the same count of inputs, that compute outputs from the values of some variables.

        Args:
            inputs: variables whose values are given.
            outputs: variables or constants to compute.
        """
        return Equations(self.n_inputs, _live_equations(self.equations, outputs, frozenset(inputs)), tuple(outputs))


def _bind(primitive: Primitive, inputs: Iterable[Any], parameters: dict[str, Any]) -> Any:
    """Return the result of a primitive on input values: one value, or a list where it has multiple results."""
    bind_parameters = primitive.get_bind_params(parameters)
    functions, keywords = (
        bind_parameters if isinstance(bind_parameters, tuple) else ((), bind_parameters)
    )  # a pair before JAX 0.9
    return primitive.bind(*functions, *inputs, **keywords)


def merged_equations(closed: ClosedJaxpr) -> Equations:
    """Convert a closed jaxpr to equations, calls inlined, equal ones merged and unused ones without effect removed."""
    merger = EquationMerger(len(closed.jaxpr.invars))
    constants = [constant(value, id(value)) for value in closed.consts]
    outputs = merger.add_jaxpr(closed.jaxpr, constants, range(len(closed.jaxpr.invars)))
    return merger.to_equations(outputs)


def _inlined(jaxpr: Jaxpr) -> Equations:
    """Return a jaxpr as equations of its constants and inputs, with calls inlined."""
    from jax.extend.core import Literal

    equations: list[Equation] = []
    n_inputs = n_variables = len(jaxpr.constvars) + len(jaxpr.invars)

    def add_jaxpr(called: Jaxpr, inputs: Sequence[Atom]) -> list[Atom]:
        nonlocal n_variables
        atoms = dict(zip([*called.constvars, *called.invars], inputs, strict=True))

        def read(atom: Any) -> Atom:
            return _literal(atom) if isinstance(atom, Literal) else atoms[atom]

        for equation in called.eqns:
            arguments = tuple(map(read, equation.invars))
            closed = equation.params.get("jaxpr") if equation.primitive.name in CALL_PRIMITIVES else None
            if closed is not None and not closed.consts:
                outputs: Sequence[Atom] = add_jaxpr(closed.jaxpr, arguments)
            else:
                outputs = variables = tuple(range(n_variables, n_variables + len(equation.outvars)))
                n_variables += len(variables)
                signature = arguments, variables, bool(equation.effects), _parameter_key(equation.params)
                equations.append(Equation(equation.primitive, equation.params, *signature))
            atoms.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in called.outvars]

    outputs = add_jaxpr(jaxpr, range(n_inputs))
    return Equations(n_inputs, tuple(equations), tuple(outputs))


class EquationMerger:
    """Collector of the equations of a function of ``n_inputs`` inputs in order, which keeps one of equal ones."""

    def __init__(self, n_inputs: int) -> None:
        self._equations: list[Equation] = []
        self._n_inputs = self._n_variables = n_inputs
        self._outputs_by_key: dict[Hashable, tuple[int, ...]] = {}
        self._inlined_by_jaxpr: dict[Jaxpr, Equations] = {}

    def add_jaxpr(self, jaxpr: Jaxpr, constants: Sequence[Atom], inputs: Sequence[Atom]) -> list[Atom]:
        """Add the equations of a jaxpr at atoms for its constants and inputs, and return the atoms of its outputs."""
        if jaxpr not in self._inlined_by_jaxpr:
            self._inlined_by_jaxpr[jaxpr] = _inlined(jaxpr)
        return self.add_equations(self._inlined_by_jaxpr[jaxpr], [*constants, *inputs])

    def add_equations(self, equations: Equations, inputs: Sequence[Atom]) -> list[Atom]:
        """Add the equations of a function at atoms for its inputs, and return the atoms of its outputs."""
        atoms: dict[int, Atom] = dict(enumerate(inputs))
        for primitive, parameters, operands, outputs, has_effect, key in equations.equations:
            arguments = tuple([atoms[atom] if type(atom) is int else atom for atom in operands])
            added = self.add_equation(primitive, parameters, arguments, len(outputs), has_effect, key)
            for variable, atom in zip(outputs, added, strict=True):
                atoms[variable] = atom
        return [atoms[atom] if type(atom) is int else atom for atom in equations.outputs]

    def add_equation(
        self,
        primitive: Primitive,
        parameters: dict[str, Any],
        inputs: tuple[Atom, ...],
        n_outputs: int,
        has_effect: bool,
        parameter_key: Hashable = None,
    ) -> tuple[Atom, ...]:
        """Add an equation, unless an equal one exists or it converts a constant scalar, and return its output atoms.

        Args:
            primitive: operation of JAX.
            parameters: keyword arguments of the primitive.
            inputs: variables and constants.
            n_outputs: count of outputs.
            has_effect: keep the equation even where there is an equal one.
            parameter_key: :func:`_parameter_key` of the parameters, computed where it is None.
        """
        if primitive.name == "convert_element_type" and type(inputs[0]) is Constant:
            value = np.asarray(inputs[0].value)
            if not value.ndim:
                return (number(value.astype(parameters["new_dtype"])[()]),)
        input_keys = tuple([atom.key if type(atom) is Constant else atom for atom in inputs])
        if parameter_key is None:
            parameter_key = _parameter_key(parameters)
        key = object() if has_effect else (primitive, input_keys, parameter_key)
        variables = self._outputs_by_key.get(key)
        if variables is None:
            start = self._n_variables
            self._n_variables += n_outputs
            self._outputs_by_key[key] = variables = tuple(range(start, self._n_variables))
            self._equations.append(Equation(primitive, parameters, inputs, variables, has_effect, parameter_key))
        return variables

    def to_equations(self, outputs: Sequence[Atom]) -> Equations:
        """Return the collected equations that output atoms depend on or that have an effect, with these outputs."""
        return Equations(self._n_inputs, _live_equations(self._equations, outputs), tuple(outputs))


def constant(value: Any, key: Hashable) -> Constant:
    """Return a constant that equals all constants of the same key.

    Args:
        value: of the constant.
        key: equal for equal constants.
    """
    return Constant(value, ("constant", key))


def number(value: Any) -> Constant:
    """Return a NumPy scalar as a constant, equal to those of the same type and bits."""
    return constant(value, (type(value), value.tobytes()))


def _literal(literal: Any) -> Constant:
    """Return a literal of a jaxpr as a constant: scalars equal by type and bits, arrays by identity alone."""
    value = np.asarray(literal.val, literal.aval.dtype)
    return constant(literal.val, id(literal.val)) if value.ndim else number(value[()])


def _parameter_key(parameters: dict[str, Any]) -> Hashable:
    """Return a key that equal parameters share: sorted items, or the identity where these cannot be hashed."""
    items = tuple(sorted(parameters.items()))
    try:
        hash(items)
    except TypeError:
        return id(parameters)
    return items


def _live_equations(
    equations: Sequence[Equation], outputs: Sequence[Atom], inputs: frozenset[int] = frozenset()
) -> tuple[Equation, ...]:
    """Return the equations, in order, that outputs depend on given the variables ``inputs``, or that have effects."""
    live_variables = {atom for atom in outputs if isinstance(atom, int)} - inputs
    live_equations = []
    for equation in reversed(equations):
        if equation.has_effect or live_variables.intersection(equation.outputs):
            live_variables.update(atom for atom in equation.inputs if isinstance(atom, int) and atom not in inputs)
            live_equations.append(equation)
    return tuple(live_equations[::-1])
