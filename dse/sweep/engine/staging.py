"""The model as stages: what each computes of the outer index and the parts of the inner product, once for each.

A stage is a function that XLA merges with no other: it would compute what lies at a lower level again for each position
of a higher one. It is given the values of variables and gives those that later stages need; arrays have the axes of
what the variable depends on, of [first part, second part, outer]: the outer index is the long one, along which
processors compute many values at once, whatever else a value depends on.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.doors.equations import Atom, Constant, Equation, Equations
from dse.sweep.engine.nesting import FIRST, OUTER, SECOND, Inner, Nest
from dse.sweep.engine.point import Program, equations_of

#: The axes of arrays, in their order.
AXES = (FIRST, SECOND, OUTER)

#: The levels of stages, each after those whose values it may need.
_STAGES = (OUTER, OUTER | FIRST, OUTER | SECOND, OUTER | FIRST | SECOND)


@dataclasses.dataclass(frozen=True)
class Moving:
    """A program and how its inputs move: what the stages follow from."""

    program: Program
    structure: jax.tree_util.PyTreeDef  #: of the inputs
    levels: tuple[int, ...]  #: of each input, 0 where it is the same for all designs

    @property
    def can_be_kept(self) -> bool:
        """See :class:`~dse.sweep.engine.point.Program`."""
        return self.program.can_be_kept

    def __str__(self) -> str:
        return f"{self.program} {self.structure} {self.levels}"

    @property
    def equations(self) -> Equations:
        """The equations of the program."""
        return equations_of(self.program, self.structure)[0]

    @functools.cached_property
    def of_variables(self) -> dict[int, int]:
        """The level of each variable."""
        found = dict(enumerate(self.levels))
        for equation in self.equations.equations:
            level = _union(found[i] for i in equation.inputs if isinstance(i, int))
            found |= dict.fromkeys(equation.outputs, level)
        return found

    def level(self, atom: Atom) -> int:
        """The level of a variable; 0 of a constant."""
        return 0 if isinstance(atom, Constant) else self.of_variables[atom]


class Stage(NamedTuple):
    """A function of a level: the variables that it is given and those that it gives."""

    level: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    n_equations: int


class Goals(NamedTuple):
    """What a design is asked for: its reason, as terms to be added, and its objectives."""

    reasons: tuple[Atom, ...]
    objectives: tuple[Atom, ...]


class Group(NamedTuple):
    """Scores that are computed along the same axes: which of the objectives and of the terms of the reason."""

    stage: Stage
    objectives: tuple[int, ...]
    reasons: tuple[int, ...]


class Stages(NamedTuple):
    """Stages in the order in which they are run; and of scores their groups, after them."""

    tables: tuple[Stage, ...]
    groups: tuple[Group, ...] = ()


def moving(program: Program, nest: Nest, structure: jax.tree_util.PyTreeDef, n_base: int) -> Moving:
    """How the inputs (leaves of the base, then of the axes by path) of a program move in a nest."""
    inner = nest.inner
    of_path = dict.fromkeys(nest.grid.columns, OUTER)
    of_path |= {path: FIRST for axis in inner.first for path in nest.axes[axis]}
    of_path |= {path: SECOND for axis in inner.second for path in nest.axes[axis]}
    return Moving(program, structure, (*[0] * n_base, *(of_path[path] for path in sorted(of_path))))


def goals(program: Program, structure: jax.tree_util.PyTreeDef) -> Goals:
    """The terms of the reason and the objectives among the equations of a program."""
    found, outputs = equations_of(program, structure)
    metrics, objectives = jax.tree.unflatten(outputs, found.outputs)
    return Goals(tuple(_terms(found, metrics.infeasible_reason)), tuple(objectives))


def _terms(found: Equations, reason: Atom) -> list[Atom]:
    """Whole numbers of different bits that add up to a reason."""
    made = _made(found)

    def terms(atom: Atom) -> list[Atom]:
        equation = None if isinstance(atom, Constant) else made.get(atom)
        if equation is None or equation.primitive.name not in ("add", "or"):
            return [atom]
        return [term for part in equation.inputs for term in terms(part)]

    return terms(reason)


def _union(bits: Iterable[int]) -> int:
    return functools.reduce(operator.or_, bits, 0)


def _made(found: Equations) -> dict[int, Equation]:
    """Variable → the equation that gives it."""
    return {output: equation for equation in found.equations for output in equation.outputs}


def staged(of: Moving, outputs: Sequence[Atom]) -> Stages:
    """Stages that give all outputs, each at the level of what it depends on."""
    wanted = {atom for atom in outputs if isinstance(atom, int)}
    if _has_effects(of.equations):
        return Stages((_stage(of, _STAGES[-1], _STAGES, wanted),))
    return Stages(_tables(of, _STAGES, wanted))


def staged_scores(of: Moving, wanted: Goals, inner: Inner) -> Stages:
    """Stages up to the scores: one group, or one of each part where the parts stay apart."""
    joined = OUTER | (FIRST if inner.first else 0) | (SECOND if inner.second else 0)
    last = (OUTER | FIRST, OUTER | SECOND) if inner.apart else (joined,)
    at_once = _has_effects(of.equations)
    before = [level for level in _STAGES if all(level != whole and not level & ~whole for whole in last)]
    groups = []
    for number, level in enumerate(last):

        def own(atoms: Sequence[Atom], number: int = number) -> tuple[int, ...]:
            """What is computed in this group: the first that has all axes of it."""
            first = (next(j for j, whole in enumerate(last) if not of.level(atom) & ~whole) for atom in atoms)
            return tuple(i for i, group in enumerate(first) if group == number)

        reasons, objectives = own(wanted.reasons), own(wanted.objectives)
        wanted_here = (*(wanted.reasons[i] for i in reasons), *(wanted.objectives[i] for i in objectives))
        atoms = {atom for atom in wanted_here if isinstance(atom, int)}
        stage = _stage(of, level, _STAGES if at_once else (level,), atoms)
        groups.append(Group(stage, objectives, reasons))
    needed = {i for group in groups for i in group.stage.inputs}
    return Stages(_tables(of, before, needed), tuple(groups))


def _has_effects(equations: Equations) -> bool:
    return any(equation.has_effect for equation in equations.equations)


def _stage(of: Moving, level: int, computed: Sequence[int], outputs: Iterable[int]) -> Stage:
    """A stage that computes for these outputs what is of some levels, and is given the rest."""

    def is_own(variable: int) -> bool:
        return variable >= of.equations.n_inputs and of.of_variables[variable] | OUTER in computed

    outputs = sorted(outputs)
    wanted = {i for i in outputs if is_own(i)}
    inputs, n_equations = set(outputs) - wanted, 0
    for equation in reversed(of.equations.equations):
        if equation.has_effect or wanted.intersection(equation.outputs):
            n_equations += 1
            for atom in equation.inputs:
                if isinstance(atom, int):
                    (wanted if is_own(atom) else inputs).add(atom)
    return Stage(level, tuple(sorted(inputs)), tuple(outputs), n_equations)


def _tables(of: Moving, levels: Sequence[int], wanted: set[int]) -> tuple[Stage, ...]:
    """Stages of these levels that give what is wanted: the last is asked first for what it needs of the others."""
    found = list[Stage]()
    for level in reversed(levels):
        own = {i for i in wanted if i >= of.equations.n_inputs and of.of_variables[i] | OUTER == level}
        if own:
            found.append(_stage(of, level, (level,), own))
            wanted = wanted | set(found[-1].inputs)
    return tuple(found[::-1])


def run(of: Moving, stage: Stage, values: Sequence[Array], outputs: Sequence[Atom]) -> list[Any]:
    """Outputs of a stage, each with the axes of its level.

    Args:
        of: the program.
        stage: its stage.
        values: of the stage's inputs, each with the axes of its level.
        outputs: variables or constants.
    """
    part, given = of.equations.part(stage.inputs, outputs), [of.level(i) for i in stage.inputs]

    def function(*scalars: Any) -> list[Any]:
        return part.run(dict(zip(stage.inputs, scalars, strict=True)))

    made = [of.level(atom) for atom in outputs]
    for axis in reversed(AXES):
        if any(level & axis for level in given):
            along = [[0 if level & axis else None for level in levels] for levels in (given, made)]
            function = jax.vmap(function, tuple(along[0]), along[1])
    return function(*values)


def spread(value: Any, level: int) -> Array:
    """A value with the axes of its level as [first part, second part, outer], of length 1 where it has none."""
    present = [axis for axis, part in enumerate(AXES) if level & part]
    return jnp.expand_dims(jnp.asarray(value), [axis for axis in range(3) if axis not in present])


@dataclasses.dataclass(frozen=True)
class Output:
    """Values along some of [first part, second part, outer]; the same along the others."""

    values: Any
    shape: tuple[int, ...]  #: of three axes, 1 where the values are the same along the axis

    def at(self, where: Where) -> np.ndarray:
        """[design] the values there."""
        flat = np.asarray(self.values).reshape(-1)
        return flat[where.flat(self.shape)] if len(flat) > 1 else np.broadcast_to(flat, len(where.outer))


class Where:
    """Where designs are in a chunk: [design] positions along each axis."""

    def __init__(self, outer: np.ndarray, inner: np.ndarray, parts: tuple[int, int]) -> None:
        self.outer = outer
        self._digits = *np.divmod(inner, parts[1]), outer
        self._flat: dict[tuple[int, ...], np.ndarray] = {}

    def flat(self, shape: tuple[int, ...]) -> np.ndarray:
        """[design] positions in a flat array of this shape."""
        if shape not in self._flat:
            found = np.zeros(len(self.outer), np.int64)
            for size, digit in zip(shape, self._digits, strict=True):
                found = found * size + digit if size > 1 else found
            self._flat[shape] = found
        return self._flat[shape]


class Outputs(NamedTuple):
    """Where the outputs of a program are, stage by stage."""

    places: tuple[tuple[int | None, Any, int], ...]  #: (variable, or None and a constant, its level)
    structure: jax.tree_util.PyTreeDef

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables among them, each once."""
        return tuple(sorted({variable for variable, *_ in self.places if variable is not None}))

    def of(self, values: Mapping[int, Any], shape: tuple[int, int, int]) -> Any:
        """The outputs of a chunk of this shape, by the values of its variables."""
        found = []
        for variable, constant, level in self.places:
            sizes = (size if level & part else 1 for size, part in zip(shape, AXES, strict=True))
            found.append(Output(constant if variable is None else values[variable], tuple(sizes)))
        return jax.tree.unflatten(self.structure, found)


def outputs_of(of: Moving, outputs: Sequence[Atom], structure: jax.tree_util.PyTreeDef) -> Outputs:
    """Where these outputs are."""
    places = [
        (None, np.asarray(atom.value), 0) if isinstance(atom, Constant) else (atom, None, of.level(atom))
        for atom in outputs
    ]
    return Outputs(tuple(places), structure)
