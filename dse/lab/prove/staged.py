"""The objectives of a grid's designs as two lists of operations: what the mapping alone decides, and the rest.

What the mapping decides is computed once of every mapping, exactly. Blocks of several mappings then have the hull of
exact numbers, and intervals are computed of what hardware moves alone: no ceiling of a degree is ever open.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dse.doors.scalars.operations import Operation, Operations, equal_input, live_operations, numpy_function
from dse.errors import InputError
from dse.sweep.engine.numpy_backend import operations_of
from dse.sweep.engine.point import Program
from dse.sweep.grid.grid import Grid

#: Mappings at once where what they decide is computed.
_BATCH = 8192

#: Numbers that the mapping decides, of all mappings.
_MOST_NUMBERS = 1 << 30

#: Comparison → whether its first operand is the smaller one where it holds.
_LESS = {"le": True, "lt": True, "ge": False, "gt": False}


@dataclasses.dataclass(frozen=True, eq=False)
class Staged:
    """Operations on values by number: first those of the table, then leaves of hardware, then what is computed."""

    constants: dict[int, Any]
    table: dict[int, np.ndarray]  #: value → of each mapping
    leaves: dict[str, int]  #: leaf path → value, of what dimensions and continuous axes move
    operations: tuple[Operation, ...]
    objectives: tuple[int, ...]
    reason: int

    @functools.cached_property
    def limits(self) -> tuple[tuple[int, int], ...]:
        """Pairs of values of which the first is not above the second in a design that can run."""
        made = {operation[3]: operation for operation in self.operations}
        return tuple(dict.fromkeys(_limits(self.reason, False, made, self.constants)))


def _limits(
    value: int, is_true: bool, made: Mapping[int, Operation], constants: Mapping[int, Any]
) -> Iterator[tuple[int, int]]:
    """Limits that hold where a value is what it is in designs that can run: reasons none, truth values ``is_true``."""
    name, _, inputs, _ = made.get(value, ("", (), (), 0))
    if name in ("or", "add", "and") and is_true == (name == "and"):  # reasons are added too
        for one in inputs:
            yield from _limits(one, is_true, made, constants)
    elif name == "not":
        yield from _limits(inputs[0], not is_true, made, constants)
    elif name == "convert_element_type":
        yield from _limits(inputs[0], is_true, made, constants)
    elif name == "select_n" and all(np.ndim(constants.get(i, np.zeros(1))) == 0 for i in inputs[1:]):
        no, yes = (bool(constants[i]) for i in inputs[1:])
        if no != yes:
            yield from _limits(inputs[0], yes == is_true, made, constants)
    elif name in ("le", "lt", "ge", "gt"):
        one, other = inputs if (name in ("le", "lt")) == is_true else inputs[::-1]
        yield one, other


def staged(program: Program, grid: Grid, moving: Sequence[str], mappings: dict[str, np.ndarray]) -> Staged:
    """The objectives and the reasons of a grid's designs.

    Args:
        program: what is computed.
        grid: of designs of one structure.
        moving: leaf paths that dimensions and continuous axes set.
        mappings: leaf path → value of each mapping.
    """
    values = {path: np.float32(0.0) for path in (*moving, *mappings)}
    found = operations_of(program, grid.base, values)
    leaves = jax.tree.leaves((grid.base, values))
    first = len(leaves) - len(values)
    opened = {path: first + i for i, path in enumerate(sorted(values))}
    folded = _wanted(found).folded(leaves, list(opened.values()))
    place = {path: i for i, path in enumerate(opened)}
    return _staged(*_simplified(folded), place, mappings, moving)


def _wanted(found: Operations) -> Operations:
    """The objectives and the reasons alone."""
    metrics, objectives = jax.tree.unflatten(found.structure, found.outputs)
    outputs = [*objectives, metrics.infeasible_reason]
    return found._replace(operations=live_operations(found.operations, outputs), outputs=outputs)


def _simplified(found: Operations) -> tuple[dict[int, Any], list[Operation], list[int]]:
    """Constants, operations and outputs that give the same numbers, by operations whose intervals are narrower.

    A value less itself is 0 (ceilings with the slope of what is rounded). A case of a selection that is chosen where it
    is the smaller of two values is their minimum: so a selection of the smaller one is a minimum too.
    """
    n_inputs = found.n_values - len(found.constants) - len(found.operations)
    constants = dict(enumerate(found.constants, n_inputs))
    made: dict[int, Operation] = {}
    first: dict[Any, int] = {}
    stands = {i: first.setdefault((value.dtype, value.tobytes()), i) for i, value in constants.items()}
    for name, given, inputs, output in found.operations:
        inputs = tuple(stands.get(i, i) for i in inputs)
        known = equal_input(name, [constants.get(i) for i in inputs])
        if known is not None:
            stands[output] = inputs[known]
        elif name in ("stop_gradient", "copy"):
            stands[output] = inputs[0]
        elif name == "sub" and inputs[0] == inputs[1]:
            constants[output] = np.float32(0.0)
        elif all(i in constants for i in inputs):
            constants[output] = numpy_function(name, given)(*(constants[i] for i in inputs))
        else:
            compared, cases = made.get(inputs[0]), inputs[1:]
            if name == "select_n" and compared and compared[0] in _LESS and _narrows(cases, compared[2], constants):
                inputs = (inputs[0], *(_case(i, compared, bool(which), made) for which, i in enumerate(cases)))
            if name == "select_n" and inputs[1] == inputs[2]:
                stands[output] = inputs[1]
            else:
                made[output] = name, given, inputs, output
    outputs = [stands.get(i, i) for i in found.outputs]
    return constants, live_operations(list(made.values()), outputs), outputs


def _narrows(cases: tuple[int, ...], operands: tuple[int, ...], constants: Mapping[int, Any]) -> bool:
    """Whether extremes of the compared values bound a selection: it is one itself, or a value is held to a number."""
    return {*cases} == {*operands} or any(np.all(constants.get(i, 0.0) > 0.0) for i in operands)


def _case(case: int, compared: Operation, holds: bool, made: dict[int, Operation]) -> int:
    """A case of a selection by whether a comparison holds; of a compared value the extreme of both."""
    name, _, operands, _ = compared
    if case not in operands:
        return case
    is_smaller = (_LESS[name] == holds) == (case == operands[0])
    operation = "min" if is_smaller else "max", (), operands
    known = next((output for output, one in made.items() if one[:3] == operation), None)
    output = -2 - len(made) if known is None else known  # below all numbers of values, and not the same twice
    made[output] = (*operation, output)
    return output


def _staged(
    constants: dict[int, Any],
    operations: list[Operation],
    outputs: list[int],
    place: dict[str, int],
    mappings: dict[str, np.ndarray],
    moving: Sequence[str],
) -> Staged:
    """The operations cut in two, and the first part computed of every mapping."""
    of_mapping = {place[path] for path in mappings} | constants.keys()
    first, rest = list[Operation](), list[Operation]()
    for operation in operations:
        is_first = of_mapping.issuperset(operation[2])
        (first if is_first else rest).append(operation)
        if is_first:
            of_mapping.add(operation[3])
    wanted = {*outputs, *(i for operation in rest for i in operation[2])}
    kept = sorted(wanted & of_mapping - constants.keys())
    count = len(next(iter(mappings.values())))
    if count * len(kept) > _MOST_NUMBERS:
        most = f"some {_MOST_NUMBERS // max(1, len(kept)):,} mappings in memory"
        raise InputError("--prove", f"{count:,} mappings", most, "list fewer values for the parts of the mapping")
    table = _computed(first, constants, {place[path]: column for path, column in mappings.items()}, kept)
    same = {i: column[0] for i, column in table.items() if (column == column[0]).all()}
    return Staged(
        {i: value for i, value in constants.items() if i in wanted} | same,
        {i: column for i, column in table.items() if i not in same},
        {path: place[path] for path in moving},
        tuple(rest),
        tuple(outputs[:-1]),
        outputs[-1],
    )


def _computed(
    operations: list[Operation], constants: dict[int, Any], columns: dict[int, np.ndarray], kept: list[int]
) -> dict[int, np.ndarray]:
    """Values of every mapping by number."""
    count = len(next(iter(columns.values())))
    steps = [(numpy_function(name, given), inputs, output) for name, given, inputs, output in operations]
    parts = []
    for at in range(0, count, _BATCH):
        values = constants | {i: column[at : at + _BATCH].astype(np.float32) for i, column in columns.items()}
        with np.errstate(all="ignore"):
            for function, inputs, output in steps:
                values[output] = function(*[values[i] for i in inputs])
        parts.append({i: np.broadcast_to(values[i], min(_BATCH, count - at)) for i in kept})
    return {i: np.concatenate([part[i] for part in parts]) for i in kept}
