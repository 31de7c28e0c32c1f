"""One design as a program: the model, and the constraints and objectives on top of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.designs import replace
from dse.doors import Study
from dse.equations import Equations, folding
from dse.equations.equation import Constant
from dse.spec import Expression, Objective
from dse.sweep.engine.clock import CompileClock
from dse.types import Design, Scalar
from dse.types.trees import tree_leaves

if TYPE_CHECKING:
    import jax


@dataclasses.dataclass(frozen=True)
class Program:
    """What is compiled for one design: a study, and the constraints and objectives on its metrics."""

    study: Study
    constraints: tuple[Expression, ...] = ()
    objectives: tuple[Objective, ...] = ()
    metrics: tuple[str, ...] | None = None  #: returned metrics; None for all
    neutral_inputs: tuple[
        tuple[int, float], ...
    ] = ()  #: inputs that are neutral for all designs, see :func:`neutral_inputs`
    decided: tuple[folding.DecidedVariable, ...] = ()  #: what else is the same for all designs

    @property
    def is_cacheable(self) -> bool:
        """True for the package's own code, whose digest changes with every change."""
        return self.study.is_builtin

    def __str__(self) -> str:
        """Return everything that the program depends on besides the code."""
        objectives = [(objective.expression.text, objective.sign) for objective in self.objectives]
        constraints = [constraint.text for constraint in self.constraints]
        return str((self.study.name, constraints, objectives, self.metrics, self.neutral_inputs, self.decided))


def evaluate_point(program: Program, base: Design, values: Mapping[str, Scalar]) -> tuple[Any, tuple[Scalar, ...]]:
    """Return the metrics and objectives of one design, objectives negated where they are maximised.

    Args:
        program: what is computed.
        base: the design that has every leaf not in ``values``.
        values: full path → value of leaves, in SI units.

    Returns:
        The study's record of metrics, in which ``feasible`` and ``infeasible_reason`` include the constraints and
        metrics that the program leaves out are None; and one scalar an objective, the smaller the better.
    """
    import jax.numpy as jnp

    from dse.equations import recording

    design, study = replace(base, values), program.study
    metrics = (recording.once(study.evaluate) if program.is_cacheable else study.evaluate)(design)
    lookup = study.lookup(design, metrics)
    reason = jnp.asarray(metrics.infeasible_reason, jnp.int32)
    for constraint in program.constraints:
        reason = reason | jnp.where(constraint(lookup), 0, study.constraint_bit)
    metrics = dataclasses.replace(metrics, feasible=reason == 0, infeasible_reason=reason)
    objectives = tuple(objective.sign * objective.expression(lookup) for objective in program.objectives)
    if program.metrics is not None:
        metrics = _select_metrics(metrics, program.metrics)
    return metrics, objectives


def neutral_inputs(base: Design, columns: Mapping[str, np.ndarray]) -> tuple[tuple[int, float], ...]:
    """Return (index, value) of the inputs of programs that are 0, 1 or infinite for all designs.

    Args:
        base: the design that has every leaf that is not in ``columns``.
        columns: full path → all values that the leaf takes.
    """
    pairs = []
    for position, leaf in enumerate(tree_leaves((base, dict(columns)))):
        values = np.asarray(leaf, np.float32)
        pairs += [(position, value) for value in folding.NEUTRAL if np.all(values == value)]
    return tuple(pairs)


def _select_metrics(metrics: Any, names: Container[str]) -> Any:
    """Return the metrics with these names, None for all others."""
    removed = [field.name for field in dataclasses.fields(metrics) if field.name not in names]
    return dataclasses.replace(metrics, **dict.fromkeys(removed))


@functools.lru_cache(maxsize=64)
def equations_of(program: Program, inputs: jax.tree_util.PyTreeDef) -> tuple[Equations, jax.tree_util.PyTreeDef]:
    """Return the equations of :func:`evaluate_point` and the structure of its outputs, for inputs of this structure.

    Traced once for all programs of a sweep. Operations that known inputs make neutral are left out, decided ones are
    constants.
    """
    import jax

    if program.neutral_inputs or program.decided:
        equations, outputs = equations_of(dataclasses.replace(program, neutral_inputs=(), decided=()), inputs)
        return folding.fold(equations, dict(program.neutral_inputs), program.decided), outputs
    if program.metrics is not None:
        equations, outputs = equations_of(dataclasses.replace(program, metrics=None), inputs)
        metrics, objectives = jax.tree.unflatten(outputs, equations.outputs)
        # a constant JAX would take apart
        atoms, outputs = jax.tree.flatten(
            (_select_metrics(metrics, program.metrics), objectives), is_leaf=lambda value: isinstance(value, Constant)
        )
        return equations.part((), atoms), outputs
    with CompileClock.recording():
        return traced(functools.partial(evaluate_point, program), inputs)


def traced(
    function: Callable[..., Any], inputs: jax.tree_util.PyTreeDef, dtype: Any = np.float32
) -> tuple[Equations, jax.tree_util.PyTreeDef]:
    """Return the equations of a function of scalars, and the structure of its outputs, for inputs of this structure."""
    import jax

    from dse.equations import recording

    scalars = [jax.ShapeDtypeStruct((), dtype)] * inputs.num_leaves
    return recording.trace(function, *jax.tree.unflatten(inputs, scalars))
