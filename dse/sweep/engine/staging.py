"""The model as stages: each computes the variables of the same array axes, once for each index along these.

A stage is a function that XLA merges with no other: merged, a variable would be computed again along axes on which it
does not depend. It takes the values of variables and returns those that later stages need. Arrays have the axes on
which the variable depends, of [first factor, second factor, outer]: the outer index is the long one, along which
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

from dse.equations import Equations
from dse.equations.equation import Atom, Constant
from dse.sweep.engine.nesting import FIRST, OUTER, SECOND, Inner, Nest
from dse.sweep.engine.point import Program, equations_of
from dse.sweep.engine.scores import Output

#: The axes of arrays, in their order.
AXES = (FIRST, SECOND, OUTER)

#: The array axes of stages, each after those whose values it may need.
_STAGE_AXES = (OUTER, OUTER | FIRST, OUTER | SECOND, OUTER | FIRST | SECOND)


@dataclasses.dataclass(frozen=True)
class StagedProgram:
    """A program with the array axes of its inputs, from which its stages follow."""

    program: Program
    structure: jax.tree_util.PyTreeDef  #: of the inputs
    input_axes: tuple[int, ...]  #: array axes of each input, 0 where it is the same for all designs

    @property
    def is_cacheable(self) -> bool:
        """See :class:`~dse.sweep.engine.point.Program`."""
        return self.program.is_cacheable

    def __str__(self) -> str:
        return f"{self.program} {self.structure} {self.input_axes}"

    @property
    def equations(self) -> Equations:
        """The equations of the program."""
        return equations_of(self.program, self.structure)[0]

    @functools.cached_property
    def axes_by_variable(self) -> dict[int, int]:
        """Variable → its array axes, a sum of OUTER, FIRST and SECOND."""
        axes_by_variable = dict(enumerate(self.input_axes))
        for equation in self.equations.equations:
            input_axes = (axes_by_variable[i] for i in equation.inputs if isinstance(i, int))
            axes = functools.reduce(operator.or_, input_axes, 0)
            axes_by_variable |= dict.fromkeys(equation.outputs, axes)
        return axes_by_variable

    def axes_of(self, atom: Atom) -> int:
        """Return the array axes of a variable, 0 for a constant."""
        return 0 if isinstance(atom, Constant) else self.axes_by_variable[atom]

    @property
    def _has_effects(self) -> bool:
        """True where an equation does more than compute its outputs, such as a callback: then all are one stage."""
        return any(equation.has_effect for equation in self.equations.equations)

    def output_stages(self, outputs: Sequence[Atom]) -> ProgramStages:
        """Return stages that compute all outputs, each along the array axes on which it depends."""
        variables = {atom for atom in outputs if isinstance(atom, int)}
        if self._has_effects:
            return ProgramStages((self._stage(_STAGE_AXES[-1], _STAGE_AXES, variables),))
        return ProgramStages(self._table_stages(_STAGE_AXES, variables))

    def score_stages(self, outputs: ScoreOutputs, inner: Inner) -> ProgramStages:
        """Return stages and groups of scores: one group, or one for each factor where ``inner`` is separable."""
        all_axes = OUTER | (FIRST if inner.first else 0) | (SECOND if inner.second else 0)
        group_axes = (OUTER | FIRST, OUTER | SECOND) if inner.separable else (all_axes,)

        def group_of(atom: Atom) -> int:
            """Return the number of the first group with all array axes of an atom."""
            return next(number for number, axes in enumerate(group_axes) if not self.axes_of(atom) & ~axes)

        groups = []
        for number, axes in enumerate(group_axes):
            reasons, objectives = (tuple(i for i, a in enumerate(atoms) if group_of(a) == number) for atoms in outputs)
            atoms = (*(outputs.reasons[i] for i in reasons), *(outputs.objectives[i] for i in objectives))
            variables = {atom for atom in atoms if isinstance(atom, int)}
            stage = self._stage(axes, _STAGE_AXES if self._has_effects else (axes,), variables)
            groups.append(ScoreGroup(stage, objectives, reasons))
        table_axes = [axes for axes in _STAGE_AXES if all(axes != of and not axes & ~of for of in group_axes)]
        table_outputs = {i for group in groups for i in group.stage.inputs}
        return ProgramStages(self._table_stages(table_axes, table_outputs), tuple(groups))

    def _stage(self, axes: int, computed_axes: Sequence[int], outputs: Iterable[int]) -> ProgramStage:
        """Return a stage with these outputs that computes variables of ``computed_axes`` and takes all others."""

        def is_computed(variable: int) -> bool:
            return not variable < self.equations.n_inputs and self.axes_by_variable[variable] | OUTER in computed_axes

        outputs = sorted(outputs)
        pending = {i for i in outputs if is_computed(i)}
        inputs, n_equations = set(outputs) - pending, 0
        for equation in reversed(self.equations.equations):
            if equation.has_effect or pending.intersection(equation.outputs):
                n_equations += 1
                for atom in equation.inputs:
                    if isinstance(atom, int):
                        (pending if is_computed(atom) else inputs).add(atom)
        return ProgramStage(axes, tuple(sorted(inputs)), tuple(outputs), n_equations)

    def _table_stages(self, axis_sets: Sequence[int], outputs: set[int]) -> tuple[ProgramStage, ...]:
        """Return stages, one for each of ``axis_sets``, whose outputs are these and the inputs of later stages."""
        stages = list[ProgramStage]()
        for axes in reversed(axis_sets):
            computed = (i for i in outputs if i >= self.equations.n_inputs)
            if variables := {i for i in computed if self.axes_by_variable[i] | OUTER == axes}:
                stages.append(self._stage(axes, (axes,), variables))
                outputs = outputs | set(stages[-1].inputs)
        return tuple(stages[::-1])

    def run(self, stage: ProgramStage, values: Sequence[Array], outputs: Sequence[Atom]) -> list[Any]:
        """Return the values of ``outputs`` of a stage, each along its array axes.

        Args:
            stage: a stage of the program.
            values: values of the stage's inputs, each along its array axes.
            outputs: variables or constants that are returned.
        """
        equations = self.equations.part(stage.inputs, outputs)
        axis_sets = [[self.axes_of(atom) for atom in atoms] for atoms in (stage.inputs, outputs)]

        def function(*scalars: Any) -> list[Any]:
            return equations.run(dict(zip(stage.inputs, scalars, strict=True)))

        for axis in reversed(AXES):
            in_axes, out_axes = ([0 if axes & axis else None for axes in of] for of in axis_sets)
            if any(mapped == 0 for mapped in in_axes):
                function = jax.vmap(function, tuple(in_axes), out_axes)
        return function(*values)

    def outputs(self, atoms: Sequence[Atom], structure: jax.tree_util.PyTreeDef) -> Outputs:
        """Return the variables or constants of these outputs, with their array axes."""
        sources = [
            (None, np.asarray(atom.value), 0) if isinstance(atom, Constant) else (atom, None, self.axes_of(atom))
            for atom in atoms
        ]
        return Outputs(tuple(sources), structure)


class ProgramStage(NamedTuple):
    """A function of the program for some array axes: variables that it takes and that it returns."""

    axes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    n_equations: int


class ScoreOutputs(NamedTuple):
    """The variables that score a design: its infeasibility reason as terms, and its objectives."""

    reasons: tuple[Atom, ...]
    objectives: tuple[Atom, ...]


class ScoreGroup(NamedTuple):
    """Scores along the same axes: their stage, and the indices of its objectives and of its terms of the reason."""

    stage: ProgramStage
    objectives: tuple[int, ...]
    reasons: tuple[int, ...]


class ProgramStages(NamedTuple):
    """Stages in the order in which they are run, then the groups of scores."""

    tables: tuple[ProgramStage, ...]
    groups: tuple[ScoreGroup, ...] = ()


def stage_program(program: Program, nest: Nest, structure: jax.tree_util.PyTreeDef, n_base: int) -> StagedProgram:
    """Return a program with the array axes of its inputs in a nest.

    Args:
        program: what is computed of a design.
        nest: the outer and inner axes.
        structure: of the inputs, which are the leaves of the base and then those of the axes by path.
        n_base: number of leaves of the base.
    """
    inner = nest.inner
    axes_by_path = dict.fromkeys(nest.grid.columns, OUTER)
    axes_by_path |= {path: FIRST for axis in inner.first for path in nest.axes[axis]}
    axes_by_path |= {path: SECOND for axis in inner.second for path in nest.axes[axis]}
    return StagedProgram(program, structure, (*[0] * n_base, *(axes_by_path[path] for path in sorted(axes_by_path))))


def score_outputs(program: Program, structure: jax.tree_util.PyTreeDef) -> ScoreOutputs:
    """Return the terms of the infeasibility reason and the objectives of a program, as atoms of its equations.

    Terms are integers whose bits together are the reason's; constraints have one bit between them.
    """
    equations, structure_of_outputs = equations_of(program, structure)
    metrics, objectives = jax.tree.unflatten(structure_of_outputs, equations.outputs)
    equation_by_output = {output: equation for equation in equations.equations for output in equation.outputs}

    def terms(atom: Atom) -> list[Atom]:
        equation = None if isinstance(atom, Constant) else equation_by_output.get(atom)
        if equation is None or equation.primitive.name not in ("add", "or"):
            return [atom]
        return [term for operand in equation.inputs for term in terms(operand)]

    return ScoreOutputs(tuple(terms(metrics.infeasible_reason)), tuple(objectives))


def expand_axes(value: Any, value_axes: int) -> Array:
    """Return a value as [first factor, second factor, outer], of length 1 along array axes that it does not have."""
    present = [axis for axis, bit in enumerate(AXES) if value_axes & bit]
    return jnp.expand_dims(jnp.asarray(value), [axis for axis in range(3) if axis not in present])


class Outputs(NamedTuple):
    """The variables or constants that the outputs of a program are."""

    sources: tuple[tuple[int | None, Any, int], ...]  #: (variable, or None; constant; array axes)
    structure: jax.tree_util.PyTreeDef

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables among the sources, ascending, each once."""
        return tuple(sorted({variable for variable, *_ in self.sources if variable is not None}))

    def from_values(self, values: Mapping[int, Any], shape: tuple[int, int, int]) -> Any:
        """Return the outputs of a chunk, an ``Output`` each in the pytree ``structure``, from variable → values.

        ``shape``: of the chunk, [first factor, second factor, outer].
        """
        outputs = []
        for variable, constant, value_axes in self.sources:
            sizes = (size if value_axes & bit else 1 for size, bit in zip(shape, AXES, strict=True))
            outputs.append(Output(constant if variable is None else values[variable], tuple(sizes)))
        return jax.tree.unflatten(self.structure, outputs)
