"""Partial evaluation: the equations of a function some of whose inputs are known.

A feature that a sweep does not touch is a neutral element: a factor 1, a term 0, a choice whose condition is the same
for all designs. Its equations go before anything is compiled. Everything else keeps its order and its operands, so the
results are those of the whole list, to the bit, but for the sign of zeros.

The rules are those of :func:`dse.doors.scalars.operations.same_as`, for finite numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.doors.equations import Atom, Constant, Equation, Equations, Merging, number
from dse.doors.scalars.operations import PLAIN, WITH_PARAMETERS, function_of, named, same_as

#: Values of inputs that make equations neutral. Programs are compiled for which inputs have them, so there are few.
NEUTRAL = (0.0, 1.0, float("inf"))


def folded(whole: Equations, known: Mapping[int, float]) -> Equations:
    """The same function for the inputs that have the values ``known``, by their numbers; they stay inputs."""
    merging = Merging(whole.n_inputs)
    atoms: dict[int, Atom] = {i: i for i in range(whole.n_inputs)}
    atoms |= {i: number(np.float32(value)) for i, value in known.items()}

    def read(atom: Atom) -> Atom:
        return atoms[atom] if isinstance(atom, int) else atom

    for equation in whole.equations:
        inputs = tuple(map(read, equation.inputs))
        found = None if equation.has_effect else _folded(equation, inputs)
        if found is None:
            results: Sequence[Atom] = merging.once(
                equation.primitive, equation.parameters, inputs, len(equation.outputs), equation.has_effect
            )
        else:
            results = (found,)
        atoms.update(zip(equation.outputs, results, strict=True))
    return merging.result(list(map(read, whole.outputs)))


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
