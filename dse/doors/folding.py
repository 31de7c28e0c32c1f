"""Partial evaluation: the equations of a function some of whose inputs are known.

A feature that a sweep does not touch is a neutral element: a factor 1, a term 0, a choice whose condition is the same
for all designs. Its equations go before anything is compiled. Everything else keeps its order and its operands, so the
results are those of the whole list, to the bit, but for the sign of zeros.

The rules are those of :func:`dse.doors.scalars.operations.same_as`, for finite numbers.

A sweep also has ranges: what its leaves lie between decides further choices (:mod:`dse.doors.ranges`). These, too, are
told a program one by one, so that sweeps which decide the same share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.doors.equations import Atom, Constant, Equation, Equations, Merging, number
from dse.doors.ranges import Decision, Ranges
from dse.doors.scalars.operations import PLAIN, WITH_PARAMETERS, function_of, named, same_as

#: Values of inputs that make equations neutral. Programs are compiled for which inputs have them, so there are few.
NEUTRAL = (0.0, 1.0, float("inf"))


#: (variable, position of the input of its equation that it equals or None, else the constant that it is).
Decided = tuple[int, int | None, float | None]

#: Equations between which ranges that are needed no more are let go.
_BETWEEN = 100


def folded(whole: Equations, known: Mapping[int, float], decided: Iterable[Decided] = ()) -> Equations:
    """The same function for the inputs that have the values ``known``, by their numbers; they stay inputs.

    ``decided`` is what is known of its other variables (:func:`decisions`).
    """
    by_variable = {variable: (position, value) for variable, position, value in decided}
    return _walked(whole, known, lambda equation, _: by_variable.get(equation.outputs[0]))


def decisions(whole: Equations, known: Mapping[int, float], ranges: Ranges) -> tuple[Decided, ...]:
    """What the ranges of the inputs decide, for :func:`folded` of designs within them."""
    found: list[Decided] = []

    def decide(equation: Equation, inputs: tuple[Atom, ...]) -> Decision | None:
        decision = ranges.decision(equation, inputs)
        if decision is not None:
            found.append((equation.outputs[0], *decision))
        return decision

    _walked(whole, known, decide, ranges)
    return tuple(found)


def _walked(
    whole: Equations,
    known: Mapping[int, float],
    decide: Callable[[Equation, tuple[Atom, ...]], Decision | None],
    ranges: Ranges | None = None,
) -> Equations:
    """The function folded by ``known`` and by what ``decide`` tells; ranges are told of the equations that stay."""
    merging = Merging(whole.n_inputs)
    atoms: dict[int, Atom] = {i: i for i in range(whole.n_inputs)}
    atoms |= {i: number(np.float32(value)) for i, value in known.items()}
    last = {atom: at for at, one in enumerate(whole.equations) for atom in one.inputs if isinstance(atom, int)}
    last |= dict.fromkeys((atom for atom in whole.outputs if isinstance(atom, int)), len(whole.equations))

    def read(atom: Atom) -> Atom:
        return atoms[atom] if isinstance(atom, int) else atom

    for at, equation in enumerate(whole.equations):
        inputs, found = tuple(map(read, equation.inputs)), None
        if not equation.has_effect:
            found = _folded(equation, inputs)
            if found is None and (decision := decide(equation, inputs)) is not None:
                position, value = decision
                found = _constant(value) if position is None else inputs[position]
        if found is None:
            results: Sequence[Atom] = merging.once(
                equation.primitive, equation.parameters, inputs, len(equation.outputs), equation.has_effect
            )
            if ranges:
                ranges.follow(results)
        else:
            results = (found,)
        atoms.update(zip(equation.outputs, results, strict=True))
        if ranges and at % _BETWEEN == 0:
            atoms = {atom: stands for atom, stands in atoms.items() if last.get(atom, -1) > at}
            ranges.forget(set(atoms.values()))
    return merging.result(list(map(read, whole.outputs)))


def _constant(value: float | None) -> Constant:
    return number(np.bool_(value) if isinstance(value, bool) else np.float32(value))


def _folded(equation: Equation, inputs: tuple[Atom, ...]) -> Atom | None:
    """What the equation gives, where that is a constant or one of its inputs."""
    name = equation.primitive.name
    values = [_value(atom) for atom in inputs]
    if None not in values and (name in PLAIN or name in WITH_PARAMETERS):
        with np.errstate(all="ignore"):
            return number(np.asarray(function_of(*named(equation))(*values))[()])
    at = same_as(name, values)
    if at is not None:
        return inputs[at]
    if name == "div" and values[1] is not None and values[1] == np.inf:
        return number(values[1].dtype.type(0))
    cases = inputs[1:] if name == "select_n" else inputs if name in ("and", "or", "max", "min") else ()
    return cases[0] if cases and all(_same(case, cases[0]) for case in cases) else None


def _same(a: Atom, b: Atom) -> bool:
    return a == b if isinstance(a, int) or isinstance(b, int) else a.key == b.key


def _value(atom: Atom) -> Any:
    """The value of a constant scalar, in its own precision; None for anything else."""
    if not isinstance(atom, Constant) or np.ndim(atom.value):
        return None
    return np.asarray(atom.value, getattr(atom.value, "dtype", None))[()]
