"""A function of scalars as a list of operations on numbers, and the walk over it in any domain.

A domain gives a function for each operation: NumPy's numbers, ranges, lines, JAX's values, a browser's program.
:func:`steps` looks these up once, :func:`walk` applies them in order. The gradient goes backwards from one number: as
many operations again as lie on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.equations.primitives import decision, name_and_parameters, numpy_function, slope_rules

if TYPE_CHECKING:
    from dse.equations.equation import Atom, Equations
    from dse.equations.rules import Slope
    from dse.types.trees import Structure

#: Name of an operation and what else it needs, positions of its inputs and of its output. Plain: there are many.
Operation = tuple[str, tuple[Any, ...], tuple[int, ...], int]

#: The function of an operation in a domain, its inputs, its output, and values without further use after it.
Step = tuple[Callable[..., Any], tuple[int, ...], int, Sequence[int]]

#: An operation backwards: its inputs, its output, and (input, slope) of those that have one.
BackwardStep = tuple[tuple[int, ...], int, list[tuple[int, "Slope"]]]


class Operations(NamedTuple):
    """A function of scalars as a list of operations on a list of values, which begins with inputs and constants."""

    constants: list[Any]
    operations: list[Operation]
    n_values: int
    outputs: list[int]
    structure: Structure  #: of the outputs
    static: Any  #: outputs other than numbers, the same for all inputs
    precision: str  #: of the inputs, float32 or float64
    n_literals: int  #: constants, the first ones, that do not depend on leaves which are folded

    def to_function(self, by: Sequence[int] = ()) -> Callable[[Sequence[Any]], tuple[Any, Any, list[Any]]]:
        """Return a function of leaf values → (pytree of numbers, static outputs, slopes of the first number by input).

        Args:
            by: positions of the inputs to differentiate by; the slopes have their order, 0 where there is none.
        """
        numpy_steps = steps(self.operations, numpy_function, None if by else self.outputs)
        backward = backward_steps(self.operations, by, self.outputs[0], slope_rules) if by else []

        def run(leaves: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
            values = self.initial_values(leaves)
            walk(numpy_steps, values)
            numbers = self.structure.unflatten([values[i] for i in self.outputs])
            if not by:
                return numbers, self.static, []
            target, first = self.outputs[0], values[self.outputs[0]]
            slopes = walk_back(backward, values, by, {target: np.ones_like(first)})
            return numbers, self.static, [slopes.get(i, np.zeros_like(first)) for i in by]

        return run

    def folded(self, leaves: Sequence[Any], open_inputs: Sequence[int], simply: bool = True) -> Operations:
        """Return the operations as a function of the inputs ``open_inputs`` alone, all others fixed at ``leaves``.

        What depends on fixed inputs alone is computed here. ``simply``: of choices by what is known only the case that
        holds is left, and no sum with 0 or product with 0 or 1, half of the rest of a model. Values stay as they are to
        the last bit, of slopes the order of sums changes.
        """
        values, n_initial = self.initial_values(leaves), len(leaves) + len(self.constants)
        constants = {i: value for i, value in enumerate(values[:n_initial]) if i not in open_inputs}
        operations, aliases = list[Operation](), dict[int, int]()
        with np.errstate(all="ignore"):
            for name, parameters, operands, output in self.operations:
                inputs = tuple(aliases.get(i, i) for i in operands)
                decided = decision(name, parameters, [constants.get(i) for i in inputs], simply)
                position, value = decided or (None, None)
                if position is not None:
                    aliases[output] = inputs[position]
                elif value is not None:
                    constants[output] = value
                else:
                    operations.append((name, parameters, inputs, output))
        outputs = [aliases.get(i, i) for i in self.outputs]
        operations = live_operations(operations, outputs)
        constant_ids = sorted(constants.keys() & {*outputs, *(i for *_, inputs, _ in operations for i in inputs)})
        literals = [i for i in constant_ids if i in range(len(leaves), n_initial) or constants[i].dtype.kind != "f"]
        constant_ids = [*literals, *(i for i in constant_ids if i not in literals)]
        computed = [output for *_, output in operations]
        new_ids = {old_id: new_id for new_id, old_id in enumerate([*open_inputs, *constant_ids, *computed])}
        return self._replace(
            constants=[constants[i] for i in constant_ids],
            operations=[
                (name, parameters, tuple(new_ids[i] for i in inputs), new_ids[output])
                for name, parameters, inputs, output in operations
            ],
            n_values=len(new_ids),
            outputs=[new_ids[i] for i in outputs],
            n_literals=len(literals),
        )

    def initial_values(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the list of values before the first operation: inputs, constants, and None for computed values."""
        values = [*map(np.dtype(self.precision).type, leaves), *self.constants]
        return values + [None] * (self.n_values - len(values))


# --- the walk -----------------------------------------------------------------------------------------------


def steps(
    operations: Sequence[Operation],
    domain: Callable[[str, tuple[Any, ...]], Callable[..., Any]],
    outputs: Sequence[int] | None = None,
) -> list[Step]:
    """Return the operations with their functions in a domain.

    Args:
        operations: list to walk over.
        domain: name and parameters of an operation → function of its inputs' values.
        outputs: values that are needed after the walk; others are dropped after their last use, as arrays of them
            would fill the memory. By default all stay.

    Raises:
        RefusedPrimitiveError: for an operation that the domain does not have.
    """
    live, result = set(outputs or ()), list[Step]()
    for name, parameters, inputs, output in reversed(operations):
        dead_values = () if outputs is None else {*inputs, output} - live
        live.update(dead_values)
        result.append((domain(name, parameters), inputs, output, tuple(dead_values)))
    return result[::-1]


def walk(steps: Iterable[Step], values: list[Any] | MutableMapping[int, Any]) -> None:
    """Compute the outputs of steps, in order, from the values of inputs and constants, and add them to ``values``."""
    with np.errstate(all="ignore"):
        for function, inputs, output, dead_values in steps:
            values[output] = function(*[values[i] for i in inputs])
            for i in dead_values:
                values[i] = None


def backward_steps(
    operations: Sequence[Operation],
    by: Sequence[int],
    target: int,
    domain: Callable[[str, tuple[Any, ...], int], Sequence[Slope | None]],
) -> list[BackwardStep]:
    """Return the backward steps between inputs ``by`` and the differentiated value, last operation first.

    Args:
        operations: list to differentiate.
        by: positions of inputs.
        target: index of the differentiated value.
        domain: name, parameters and count of inputs → the slope of each input, None where it has none.
    """
    varying, slopes_by_operation = set(by), list[list[tuple[int, "Slope"]]]()
    for name, parameters, inputs, output in operations:
        pairs = zip(inputs, domain(name, parameters, len(inputs)), strict=True)
        slopes_by_operation.append([(i, slope) for i, slope in pairs if slope is not None and i in varying])
        if slopes_by_operation[-1]:
            varying.add(output)
    contributing, backward = {target}, list[BackwardStep]()
    for (_, _, inputs, output), slopes in zip(operations[::-1], slopes_by_operation[::-1], strict=True):
        if output in contributing and slopes:
            contributing |= {i for i, _ in slopes}
            backward.append((inputs, output, slopes))
    return backward


def walk_back(steps: Iterable[BackwardStep], values: Any, by: Container[int], slopes: dict[int, Any]) -> dict[int, Any]:
    """Return value → slope of the differentiated value, those of inputs ``by`` among them; others may be dropped.

    Args:
        steps: last operation first, from :func:`backward_steps`.
        values: of all operations.
        by: positions of inputs.
        slopes: slope of the differentiated value by itself; grows.
    """
    with np.errstate(all="ignore"):
        for inputs, output, rules in steps:
            slope = slopes.get(output) if output in by else slopes.pop(output, None)
            if slope is None:
                continue
            operands = [values[i] for i in inputs]
            for i, rule in rules:
                term = rule(slope, values[output], *operands)
                slopes[i] = slopes[i] + term if i in slopes else term
    return slopes


def live_operations(operations: Sequence[Operation], outputs: Sequence[int]) -> list[Operation]:
    """Return the operations that the output values depend on, in order.

    Args:
        operations: all operations, in order.
        outputs: indices of the values to keep.
    """
    live_values, live = set(outputs), list[Operation]()
    for operation in reversed(operations):
        if operation[3] in live_values:
            live_values.update(operation[2])
            live.append(operation)
    return live[::-1]


# --- from equations to operations --------------------------------------------------------------------------


def lower_equations(equations: Equations, structure: Structure, static: Any, precision: str) -> Operations:
    """Convert the equations of a recorded function to operations on NumPy's numbers.

    Args:
        equations: recorded function of scalars.
        structure: tree structure of its outputs.
        static: outputs other than numbers.
        precision: of the inputs, ``float32`` or ``float64``.

    Raises:
        RefusedPrimitiveError: for a primitive that the table does not have.
    """
    atoms = [*(atom for equation in equations.equations for atom in equation.inputs), *equations.outputs]
    constants = {atom.key: np.asarray(atom.value)[()] for atom in atoms if not isinstance(atom, int)}
    n_inputs = equations.n_inputs
    number_by_key = {key: n_inputs + i for i, key in enumerate(constants)}

    def value_id(atom: Atom) -> int:
        """Return the index in the list of inputs, constants and computed values."""
        if not isinstance(atom, int):
            return number_by_key[atom.key]
        return atom if atom < n_inputs else atom + len(constants)

    operations = [
        (*name_and_parameters(equation), tuple(map(value_id, equation.inputs)), value_id(equation.outputs[0]))
        for equation in equations.equations
    ]
    n_values = max([n_inputs + len(constants), *(output + 1 for *_, output in operations)])
    outputs = list(map(value_id, equations.outputs))
    return Operations(
        [*constants.values()], operations, n_values, outputs, structure, static, precision, len(constants)
    )
