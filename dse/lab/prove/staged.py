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

from dse.equations.operations import Operation, Operations, live_operations, steps, walk
from dse.equations.primitives import decision, numpy_function, primitive
from dse.errors import InputError
from dse.sweep import Grid
from dse.sweep.engine.numpy_backend import operations_of
from dse.sweep.engine.point import Program

#: Mappings at once where what they decide is computed.
_BATCH = 8192

#: Numbers that the mapping decides, of all mappings.
_MAX_NUMBERS = 1 << 30

#: Comparison → whether its first operand is the smaller one where it holds.
_IS_FIRST_SMALLER = {"le": True, "lt": True, "ge": False, "gt": False}


@dataclasses.dataclass(frozen=True, eq=False)
class StagedOperations:
    """Operations on numbered values: first the table of mappings, then leaves of hardware, then computed values."""

    constants: dict[int, Any]
    table: dict[int, np.ndarray]  #: value → of each mapping
    leaves: dict[str, int]  #: leaf path → value, of what dimensions and continuous axes move
    operations: tuple[Operation, ...]
    objectives: tuple[int, ...]
    reason: int

    @functools.cached_property
    def limits(self) -> tuple[tuple[int, int], ...]:
        """Pairs of numbers of values of which the first is at most the second in a design that can run."""
        producers = {operation[3]: operation for operation in self.operations}
        return tuple(dict.fromkeys(_limits(self.reason, False, producers, self.constants)))


def _limits(
    value: int, is_true: bool, producers: Mapping[int, Operation], constants: Mapping[int, Any]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of value numbers (lower, upper) that hold where a value is ``is_true``, of a reason where it is 0."""
    name, _, inputs, _ = producers.get(value, ("", (), (), 0))
    if name in ("or", "add", "and") and is_true == (name == "and"):  # reasons are added too
        for lower in inputs:
            yield from _limits(lower, is_true, producers, constants)
    elif name == "not":
        yield from _limits(inputs[0], not is_true, producers, constants)
    elif name == "convert_element_type":
        yield from _limits(inputs[0], is_true, producers, constants)
    elif name == "select_n" and all(np.ndim(constants.get(i, np.zeros(1))) == 0 for i in inputs[1:]):
        if_false, if_true = (bool(constants[i]) for i in inputs[1:])
        if if_false != if_true:
            yield from _limits(inputs[0], if_true == is_true, producers, constants)
    elif name in ("le", "lt", "ge", "gt"):
        lower, upper = inputs if (name in ("le", "lt")) == is_true else inputs[::-1]
        yield lower, upper


def stage_operations(
    program: Program, grid: Grid, dimension_paths: Sequence[str], mappings: dict[str, np.ndarray]
) -> StagedOperations:
    """Split the operations of a grid's objectives and reasons at what mappings decide, and return them with its table.

    Args:
        program: what is computed.
        grid: of designs of one structure.
        dimension_paths: leaf paths that dimensions and continuous axes set.
        mappings: leaf path → value of each mapping.
    """
    values = {path: np.float32(0.0) for path in (*dimension_paths, *mappings)}
    operations = operations_of(program, grid.base, values)
    leaves = jax.tree.leaves((grid.base, values))
    first = len(leaves) - len(values)
    open_leaves = {path: first + i for i, path in enumerate(sorted(values))}
    folded = _objective_operations(operations).folded(leaves, list(open_leaves.values()))
    input_ids = {path: i for i, path in enumerate(open_leaves)}
    return _split_operations(*_simplify(folded), input_ids, mappings, dimension_paths)


def _objective_operations(operations: Operations) -> Operations:
    """Return the operations that objectives and reasons depend on; outputs: the objectives, then the reason."""
    metrics, objectives = jax.tree.unflatten(operations.structure, operations.outputs)
    outputs = [*objectives, metrics.infeasible_reason]
    return operations._replace(operations=live_operations(operations.operations, outputs), outputs=outputs)


def _simplify(operations: Operations) -> tuple[dict[int, Any], list[Operation], list[int]]:
    """Return constants by number, operations and numbers of outputs: the same values, with narrower intervals.

    A value less itself is 0 (ceilings with the slope of what is rounded). A case of a selection that is chosen where it
    is the smaller of two values is their minimum: so a selection of the smaller one is a minimum too.
    """
    n_inputs = operations.n_values - len(operations.constants) - len(operations.operations)
    constants = dict(enumerate(operations.constants, n_inputs))
    producers: dict[int, Operation] = {}
    first_ids: dict[Any, int] = {}
    aliases = {i: first_ids.setdefault((value.dtype, value.tobytes()), i) for i, value in constants.items()}
    for name, parameters, inputs, output in operations.operations:
        inputs = tuple(aliases.get(i, i) for i in inputs)
        decided = decision(name, parameters, [constants.get(i) for i in inputs])
        position, value = decided or (0 if primitive(name).is_identity else None, None)
        if position is not None:
            aliases[output] = inputs[position]
        elif value is not None:
            constants[output] = value
        elif name == "sub" and inputs[0] == inputs[1]:
            constants[output] = np.float32(0.0)
        else:
            comparison, cases = producers.get(inputs[0]), inputs[1:]
            if (
                name == "select_n"
                and comparison
                and comparison[0] in _IS_FIRST_SMALLER
                and _bounds_selection(cases, comparison[2], constants)
            ):
                inputs = (
                    inputs[0],
                    *(_selection_case(i, comparison, bool(which), producers) for which, i in enumerate(cases)),
                )
            if name == "select_n" and inputs[1] == inputs[2]:
                aliases[output] = inputs[1]
            else:
                producers[output] = name, parameters, inputs, output
    outputs = [aliases.get(i, i) for i in operations.outputs]
    return constants, live_operations(list(producers.values()), outputs), outputs


def _bounds_selection(cases: tuple[int, ...], operands: tuple[int, ...], constants: Mapping[int, Any]) -> bool:
    """Return whether a selection is the extreme of the compared values, or one of these is a positive constant."""
    return {*cases} == {*operands} or any(np.all(constants.get(i, 0.0) > 0.0) for i in operands)


def _selection_case(case: int, comparison: Operation, is_true: bool, producers: dict[int, Operation]) -> int:
    """Return the number of a selection's case, or of the extreme of both operands, added, where it is one of them."""
    name, _, operands, _ = comparison
    if case not in operands:
        return case
    is_smaller = (_IS_FIRST_SMALLER[name] == is_true) == (case == operands[0])
    extreme = "min" if is_smaller else "max", (), operands
    existing = next((output for output, operation in producers.items() if operation[:3] == extreme), None)
    # A number below all of values, and not the same twice.
    output = -2 - len(producers) if existing is None else existing
    producers[output] = (*extreme, output)
    return output


def _split_operations(
    constants: dict[int, Any],
    operations: list[Operation],
    outputs: list[int],
    input_ids: dict[str, int],
    mappings: dict[str, np.ndarray],
    dimension_paths: Sequence[str],
) -> StagedOperations:
    """Split the operations at what mappings decide, and compute the first part for every mapping."""
    mapping_values = {input_ids[path] for path in mappings} | constants.keys()
    table_operations, later_operations = list[Operation](), list[Operation]()
    for operation in operations:
        is_first = mapping_values.issuperset(operation[2])
        (table_operations if is_first else later_operations).append(operation)
        if is_first:
            mapping_values.add(operation[3])
    used_values = {*outputs, *(i for operation in later_operations for i in operation[2])}
    table_ids = sorted(used_values & mapping_values - constants.keys())
    count = len(next(iter(mappings.values())))
    if count * len(table_ids) > _MAX_NUMBERS:
        limit = f"some {_MAX_NUMBERS // max(1, len(table_ids)):,} mappings in memory"
        raise InputError("--prove", f"{count:,} mappings", limit, "list fewer values for the parts of the mapping")
    table = _table_values(
        table_operations, constants, {input_ids[path]: column for path, column in mappings.items()}, table_ids
    )
    constant_columns = {i: column[0] for i, column in table.items() if (column == column[0]).all()}
    return StagedOperations(
        {i: value for i, value in constants.items() if i in used_values} | constant_columns,
        {i: column for i, column in table.items() if i not in constant_columns},
        {path: input_ids[path] for path in dimension_paths},
        tuple(later_operations),
        tuple(outputs[:-1]),
        outputs[-1],
    )


def _table_values(
    operations: list[Operation], constants: dict[int, Any], columns: dict[int, np.ndarray], table_ids: list[int]
) -> dict[int, np.ndarray]:
    """Return number of a value → its values [mapping], for ``table_ids``."""
    count = len(next(iter(columns.values())))
    table_steps, parts = steps(operations, numpy_function), []
    for start in range(0, count, _BATCH):
        values = constants | {i: column[start : start + _BATCH].astype(np.float32) for i, column in columns.items()}
        walk(table_steps, values)
        parts.append({i: np.broadcast_to(values[i], min(_BATCH, count - start)) for i in table_ids})
    return {i: np.concatenate([part[i] for part in parts]) for i in table_ids}
