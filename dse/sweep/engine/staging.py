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
_STAGE_AXES = (OUTER, OUTER | FIRST, OUTER | SECOND, OUTER | FIRST | SECOND)


@dataclasses.dataclass(frozen=True)
class StagedProgram:
    """A program and how its inputs move: what the stages follow from."""

    program: Program
    structure: jax.tree_util.PyTreeDef  #: of the inputs
    input_axes: tuple[int, ...]  #: of each input, 0 where it is the same for all designs

    @property
    def can_be_kept(self) -> bool:
        """See :class:`~dse.sweep.engine.point.Program`."""
        return self.program.can_be_kept

    def __str__(self) -> str:
        return f"{self.program} {self.structure} {self.input_axes}"

    @property
    def equations(self) -> Equations:
        """The equations of the program."""
        return equations_of(self.program, self.structure)[0]

    @functools.cached_property
    def axes_by_variable(self) -> dict[int, int]:
        """The level of each variable."""
        axes_by_variable = dict(enumerate(self.input_axes))
        for equation in self.equations.equations:
            axes = _union(axes_by_variable[i] for i in equation.inputs if isinstance(i, int))
            axes_by_variable |= dict.fromkeys(equation.outputs, axes)
        return axes_by_variable

    def axes_of(self, atom: Atom) -> int:
        """The level of a variable; 0 of a constant."""
        return 0 if isinstance(atom, Constant) else self.axes_by_variable[atom]


class Stage(NamedTuple):
    """A function of a level: the variables that it is given and those that it gives."""

    axes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    n_equations: int


class ScoreOutputs(NamedTuple):
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


def stage_program(program: Program, nest: Nest, structure: jax.tree_util.PyTreeDef, n_base: int) -> StagedProgram:
    """How the inputs (leaves of the base, then of the axes by path) of a program move in a nest."""
    inner = nest.inner
    axes_by_path = dict.fromkeys(nest.grid.columns, OUTER)
    axes_by_path |= {path: FIRST for axis in inner.first for path in nest.axes[axis]}
    axes_by_path |= {path: SECOND for axis in inner.second for path in nest.axes[axis]}
    return StagedProgram(program, structure, (*[0] * n_base, *(axes_by_path[path] for path in sorted(axes_by_path))))


def score_outputs(program: Program, structure: jax.tree_util.PyTreeDef) -> ScoreOutputs:
    """The terms of the reason and the objectives among the equations of a program."""
    equations, structure_of_outputs = equations_of(program, structure)
    metrics, objectives = jax.tree.unflatten(structure_of_outputs, equations.outputs)
    return ScoreOutputs(tuple(_terms(equations, metrics.infeasible_reason)), tuple(objectives))


def _terms(equations: Equations, reason: Atom) -> list[Atom]:
    """Whole numbers of different bits that add up to a reason."""
    equation_by_output = _equation_by_output(equations)

    def terms(atom: Atom) -> list[Atom]:
        equation = None if isinstance(atom, Constant) else equation_by_output.get(atom)
        if equation is None or equation.primitive.name not in ("add", "or"):
            return [atom]
        return [term for operand in equation.inputs for term in terms(operand)]

    return terms(reason)


def _union(bits: Iterable[int]) -> int:
    return functools.reduce(operator.or_, bits, 0)


def _equation_by_output(equations: Equations) -> dict[int, Equation]:
    """Variable → the equation that gives it."""
    return {output: equation for equation in equations.equations for output in equation.outputs}


def output_stages(staged_program: StagedProgram, outputs: Sequence[Atom]) -> Stages:
    """Stages that give all outputs, each at the level of what it depends on."""
    variables = {atom for atom in outputs if isinstance(atom, int)}
    if _has_effects(staged_program.equations):
        return Stages((_stage(staged_program, _STAGE_AXES[-1], _STAGE_AXES, variables),))
    return Stages(_table_stages(staged_program, _STAGE_AXES, variables))


def score_stages(staged_program: StagedProgram, outputs: ScoreOutputs, inner: Inner) -> Stages:
    """Stages up to the scores: one group, or one of each part where the parts stay apart."""
    all_axes = OUTER | (FIRST if inner.first else 0) | (SECOND if inner.second else 0)
    group_axes = (OUTER | FIRST, OUTER | SECOND) if inner.separable else (all_axes,)
    is_one_stage = _has_effects(staged_program.equations)
    table_axes = [
        axes
        for axes in _STAGE_AXES
        if all(axes != allowed_axes and not axes & ~allowed_axes for allowed_axes in group_axes)
    ]
    groups = []
    for group_number, axes in enumerate(group_axes):

        def select_group(atoms: Sequence[Atom], number: int = group_number) -> tuple[int, ...]:
            """What is computed in this group: the first that has all axes of it."""
            first_groups = (
                next(j for j, allowed_axes in enumerate(group_axes) if not staged_program.axes_of(atom) & ~allowed_axes)
                for atom in atoms
            )
            return tuple(i for i, group in enumerate(first_groups) if group == number)

        reasons, objectives = select_group(outputs.reasons), select_group(outputs.objectives)
        group_outputs = (*(outputs.reasons[i] for i in reasons), *(outputs.objectives[i] for i in objectives))
        atoms = {atom for atom in group_outputs if isinstance(atom, int)}
        stage = _stage(staged_program, axes, _STAGE_AXES if is_one_stage else (axes,), atoms)
        groups.append(Group(stage, objectives, reasons))
    table_outputs = {i for group in groups for i in group.stage.inputs}
    return Stages(_table_stages(staged_program, table_axes, table_outputs), tuple(groups))


def _has_effects(equations: Equations) -> bool:
    return any(equation.has_effect for equation in equations.equations)


def _stage(staged_program: StagedProgram, axes: int, computed_axes: Sequence[int], outputs: Iterable[int]) -> Stage:
    """A stage that computes for these outputs what is of some levels, and is given the rest."""

    def is_computed(variable: int) -> bool:
        return (
            variable >= staged_program.equations.n_inputs
            and staged_program.axes_by_variable[variable] | OUTER in computed_axes
        )

    outputs = sorted(outputs)
    pending = {i for i in outputs if is_computed(i)}
    inputs, n_equations = set(outputs) - pending, 0
    for equation in reversed(staged_program.equations.equations):
        if equation.has_effect or pending.intersection(equation.outputs):
            n_equations += 1
            for atom in equation.inputs:
                if isinstance(atom, int):
                    (pending if is_computed(atom) else inputs).add(atom)
    return Stage(axes, tuple(sorted(inputs)), tuple(outputs), n_equations)


def _table_stages(staged_program: StagedProgram, axis_sets: Sequence[int], outputs: set[int]) -> tuple[Stage, ...]:
    """Stages of these levels that give what is wanted: the last is asked first for what it needs of the others."""
    stages = list[Stage]()
    for axes in reversed(axis_sets):
        variables = {
            i
            for i in outputs
            if i >= staged_program.equations.n_inputs and staged_program.axes_by_variable[i] | OUTER == axes
        }
        if variables:
            stages.append(_stage(staged_program, axes, (axes,), variables))
            outputs = outputs | set(stages[-1].inputs)
    return tuple(stages[::-1])


def run_stage(
    staged_program: StagedProgram, stage: Stage, values: Sequence[Array], outputs: Sequence[Atom]
) -> list[Any]:
    """Outputs of a stage, each with the axes of its level.

    Args:
        staged_program: the program.
        stage: its stage.
        values: of the stage's inputs, each with the axes of its level.
        outputs: variables or constants.
    """
    equations, input_axes = (
        staged_program.equations.part(stage.inputs, outputs),
        [staged_program.axes_of(i) for i in stage.inputs],
    )

    def function(*scalars: Any) -> list[Any]:
        return equations.run(dict(zip(stage.inputs, scalars, strict=True)))

    output_axes = [staged_program.axes_of(atom) for atom in outputs]
    for axis in reversed(AXES):
        if any(value_axes & axis for value_axes in input_axes):
            vmap_axes = [
                [0 if value_axes & axis else None for value_axes in axis_sets]
                for axis_sets in (input_axes, output_axes)
            ]
            function = jax.vmap(function, tuple(vmap_axes[0]), vmap_axes[1])
    return function(*values)


def expand_axes(value: Any, value_axes: int) -> Array:
    """A value with the axes of its level as [first part, second part, outer], of length 1 where it has none."""
    present = [axis for axis, bit in enumerate(AXES) if value_axes & bit]
    return jnp.expand_dims(jnp.asarray(value), [axis for axis in range(3) if axis not in present])


@dataclasses.dataclass(frozen=True)
class Output:
    """Values along some of [first part, second part, outer]; the same along the others."""

    values: Any
    shape: tuple[int, ...]  #: of three axes, 1 where the values are the same along the axis

    def select(self, where: DesignIndices) -> np.ndarray:
        """[design] the values there."""
        flat = np.asarray(self.values).reshape(-1)
        return flat[where.flat_index(self.shape)] if len(flat) > 1 else np.broadcast_to(flat, len(where.outer))


class DesignIndices:
    """Where designs are in a chunk: [design] positions along each axis."""

    def __init__(self, outer: np.ndarray, inner: np.ndarray, factor_sizes: tuple[int, int]) -> None:
        self.outer = outer
        self._digits = *np.divmod(inner, factor_sizes[1]), outer
        self._flat: dict[tuple[int, ...], np.ndarray] = {}

    def flat_index(self, shape: tuple[int, ...]) -> np.ndarray:
        """[design] positions in a flat array of this shape."""
        if shape not in self._flat:
            index = np.zeros(len(self.outer), np.int64)
            for size, digit in zip(shape, self._digits, strict=True):
                index = index * size + digit if size > 1 else index
            self._flat[shape] = index
        return self._flat[shape]


class Outputs(NamedTuple):
    """Where the outputs of a program are, stage by stage."""

    sources: tuple[tuple[int | None, Any, int], ...]  #: (variable, or None and a constant, its level)
    structure: jax.tree_util.PyTreeDef

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables among them, each once."""
        return tuple(sorted({variable for variable, *_ in self.sources if variable is not None}))

    def from_values(self, values: Mapping[int, Any], shape: tuple[int, int, int]) -> Any:
        """The outputs of a chunk of this shape, by the values of its variables."""
        outputs = []
        for variable, constant, value_axes in self.sources:
            sizes = (size if value_axes & bit else 1 for size, bit in zip(shape, AXES, strict=True))
            outputs.append(Output(constant if variable is None else values[variable], tuple(sizes)))
        return jax.tree.unflatten(self.structure, outputs)


def output_sources(
    staged_program: StagedProgram, outputs: Sequence[Atom], structure: jax.tree_util.PyTreeDef
) -> Outputs:
    """Where these outputs are."""
    sources = [
        (None, np.asarray(atom.value), 0) if isinstance(atom, Constant) else (atom, None, staged_program.axes_of(atom))
        for atom in outputs
    ]
    return Outputs(tuple(sources), structure)
