"""Degrees of parallelism: all combinations that divide the sizes they split."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dse import types
from dse.designs.records import N_DEVICES, OF_SERVING, OPTIONAL, PLAIN_EXPERTS, PLAIN_MAPPING
from dse.doors import Study
from dse.errors import InputError
from dse.io import counted
from dse.model import Shape, divisibility
from dse.spec import Axis
from dse.types.paths import leaves

DEGREES = (
    N_DEVICES,
    "mapping.tp",
    "mapping.cp",
    "mapping.pp",
    "mapping.dp",
    "mapping.micro_batch",
    "mapping.virtual_stages",
)
#: Additional degrees of a mixture of experts.
EXPERT_DEGREES = ("mapping.experts.ep", "mapping.experts.etp")
ALL_DEGREES = DEGREES + EXPERT_DEGREES
_LEAVES = (
    *leaves(types.Mapping, "mapping."),
    *(
        leaf
        for path, record in OPTIONAL.items()
        if path.startswith("mapping.") and path not in OF_SERVING
        for leaf in leaves(record, f"{path}.")
    ),
)
OPTIONS = tuple(path for path in _LEAVES if path not in ALL_DEGREES)

#: Option that limits the numbers of chunks and micro-batches.
SCHEDULE = "mapping.schedule"

#: Degrees that divide the number of devices.
_OVER_DEVICES = ("mapping.tp", "mapping.cp", "mapping.pp", "mapping.dp", *EXPERT_DEGREES)

#: Leaf path → one value per row (of degrees) or column (of options).
Columns = dict[str, np.ndarray]


class MappingSpec(NamedTuple):
    """The mapping in a specification, by leaf path."""

    axes: Mapping[str, Axis]  #: swept or fixed parts
    zips: tuple[tuple[Axis, ...], ...]  #: axes that move together
    has_n_devices: bool  #: whether the number of devices is known before the degrees
    study: Study  #: defines which options have no effect at which degrees
    has_experts: bool = False
    splits_hidden: bool = False  #: whether a stack can split along the hidden size where tp does not divide

    @property
    def degrees(self) -> tuple[str, ...]:
        """Paths of the degrees of a mapping."""
        return ALL_DEGREES if self.has_experts else DEGREES

    def axis(self, path: str) -> Axis:
        """Return the axis of a part; by default its neutral value."""
        plain = (PLAIN_MAPPING | PLAIN_EXPERTS).get(path, 0.0)
        return self.axes.get(path) or Axis(name=path.rpartition(".")[2], key=path, where="", values=(plain,))


#: Maximum number of rows, of columns and of pairs in a table of mappings.
_MOST_MAPPINGS = 200_000_000


def check_table_size(what: str, count: int) -> None:
    """Raise InputError with the size of a table of mappings that is too large, before it is built."""
    if count > _MOST_MAPPINGS:
        raise InputError(
            f"axes: {what}",
            f"{count:,} combinations",
            f"at most {_MOST_MAPPINGS:,}",
            "list fewer values for the parts of the mapping",
        )


def divisors(number: int) -> list[int]:
    """Return all divisors of a positive integer, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _fault_reason(path: str, value: int, shape: Shape, parts: MappingSpec) -> str:
    """Return the reason why a degree's value fits a shape with no values of the others; "" if it may fit."""
    devices = shape.n_devices if parts.has_n_devices and N_DEVICES not in parts.axes else 0
    fault = divisibility.fault(_name(path), value, shape.sizes)
    over_devices = path in _OVER_DEVICES and devices % value != 0
    return fault or (f"does not divide {counted(devices, 'device')}" if over_devices else "")


def _name(path: str) -> str:
    """Return the field name at the end of a leaf's path."""
    return path.rpartition(".")[2]


def _fitting_values(path: str, shape: Shape, parts: MappingSpec) -> list[int]:
    """Return all values of a degree that may fit a shape, ascending, up to its axis' limit."""
    rule = next(divisibility.rules_of(_name(path), Shape._fields))
    possible = {d for extra in range(rule.extra + 1) for d in divisors(shape.sizes[rule.dividend] + extra)}
    if shape.sizes.get(rule.unless):
        possible |= set(range(1, shape.sizes[rule.dividend] + rule.extra + 1))
    most = parts.axis(path).most
    return [d for d in sorted(possible) if d <= most and not _fault_reason(path, d, shape, parts)]


def check_listed(axis: Axis, parts: MappingSpec, shapes: list[Shape]) -> None:
    """Raise InputError for a degree that is listed but is no integer or fits no shape."""
    if axis.rule and axis.key == N_DEVICES:
        raise InputError(axis.where, repr(axis.rule), "a list or a range", "write { from = 8, to = 4096, factor = 2 }")
    for value in axis.values if axis.where else ():
        if value != int(value) or value < 1:
            raise InputError(axis.where, f"{value:g}", "whole numbers, 1 or more", "degrees count devices or sequences")
        faults = [_fault_reason(axis.key, int(value), shape, parts) for shape in shapes]
        if axis.explicit and all(faults):
            fits = sorted({d for shape in shapes for d in _fitting_values(axis.key, shape, parts)})
            allowed = " ".join(map(str, fits[:32])) + (" …" if len(fits) > 32 else "")
            raise InputError(axis.where, f"{value:g}, which {faults[0]}", allowed, f'or write {axis.name} = "divisors"')


def _named_candidates(path: str, parts: MappingSpec, shape: Shape, removed: Counter[str]) -> tuple[str, np.ndarray]:
    """Return (path of a degree, its values that may fit a shape).

    ``removed``, reason → number, counts the other listed values.
    """
    axis = parts.axis(path)
    if axis.rule:
        fits = _fitting_values(path, shape, parts)
        return path, np.array([d for d in fits if axis.rule == "divisors" or d & (d - 1) == 0], np.int64)
    valid = []
    for value in map(int, axis.values):
        fault = _fault_reason(path, value, shape, parts)
        if fault:
            removed[f"{axis.name} = {value} {fault}"] += 1
        else:
            valid.append(value)
    return path, np.array(valid, np.int64)


def _cross(columns: Columns, path: str, values: np.ndarray) -> Columns:
    """Return the columns of every row with every value of ``path``; InputError above the maximum size of a table."""
    length = len(next(iter(columns.values()))) if columns else 1
    check_table_size(f"degrees up to {_name(path)}", length * len(values))
    crossed = {name: np.repeat(column, len(values)) for name, column in columns.items()}
    return {**crossed, path: np.tile(values, length)}


def _select_rows(columns: Columns, valid: np.ndarray, reason: str, removed: Counter[str]) -> Columns:
    """Return the columns of the valid rows; ``removed`` counts the other rows under ``reason``."""
    removed[reason] += int(np.count_nonzero(~valid))
    return {name: column[valid] for name, column in columns.items()}


def degree_rows(parts: MappingSpec, shape: Shape, removed: Counter[str]) -> Columns:
    """Return path → [row] of the valid combinations of degrees for one shape; ``removed`` counts others by reason."""
    columns: Columns = {}
    for path in ("mapping.tp", "mapping.cp", "mapping.pp"):
        columns = _cross(columns, *_named_candidates(path, parts, shape, removed))
    columns = _with_devices(columns, parts, shape, removed)
    columns = _apply_divisibility(columns, "mapping.dp", shape, removed)
    for path in ("mapping.micro_batch", "mapping.virtual_stages"):
        columns = _cross(columns, *_named_candidates(path, parts, shape, removed))
        columns = _apply_divisibility(columns, path, shape, removed)
    if SCHEDULE not in parts.axes:  # a swept schedule is an option: checked with the columns
        reason = "virtual stages need pp > 1 and micro-batches that pp divides"
        columns = _select_rows(columns, _interleaves(columns, shape), reason, removed)
    if parts.has_experts:
        columns = _with_experts(columns, parts, shape, removed)
    for axes in parts.zips:
        if all(axis.key in ALL_DEGREES for axis in axes):
            valid = matches_zip([columns[axis.key] for axis in axes], axes)
            columns = _select_rows(columns, valid, "not a zipped combination", removed)
    return columns


def _with_devices(columns: Columns, parts: MappingSpec, shape: Shape, removed: Counter[str]) -> Columns:
    """Return the columns with ``dp`` and ``n_devices``, listed or derived; ``removed`` counts what does not fit."""

    def model_parallel() -> np.ndarray:
        return columns["mapping.tp"] * columns["mapping.cp"] * columns["mapping.pp"]

    if N_DEVICES in parts.axes:
        columns = _cross(columns, N_DEVICES, np.array(parts.axes[N_DEVICES].values, np.int64))
    elif parts.has_n_devices:
        columns = _cross(columns, N_DEVICES, np.array([shape.n_devices], np.int64))
    if "mapping.dp" not in parts.axes:
        valid = columns[N_DEVICES] % model_parallel() == 0
        columns = _select_rows(columns, valid, "tp x cp x pp does not divide the number of devices", removed)
        return {**columns, "mapping.dp": columns[N_DEVICES] // model_parallel()}
    columns = _cross(columns, *_named_candidates("mapping.dp", parts, shape, removed))
    total = model_parallel() * columns["mapping.dp"]
    if N_DEVICES not in columns:
        return {**columns, N_DEVICES: total}
    valid = total == columns[N_DEVICES]
    return _select_rows(columns, valid, "tp x cp x pp x dp is not the number of devices", removed)


def _with_experts(columns: Columns, parts: MappingSpec, shape: Shape, removed: Counter[str]) -> Columns:
    """Return the columns with the degrees of experts, whose groups are subsets of the devices of a stage."""
    members = np.ones_like(columns["mapping.tp"])
    for path in EXPERT_DEGREES:
        columns = _cross({**columns, "members": members}, *_named_candidates(path, parts, shape, removed))
        members = columns.pop("members") * columns[path]
        stage = columns["mapping.tp"] * columns["mapping.cp"] * columns["mapping.dp"]
        valid = divisibility.expert_members_fit({"ep": members, "etp": 1, "dp_replicate": 1, "stage_devices": stage})
        columns = _select_rows(columns, valid, "ep x etp does not divide tp x cp x dp", removed)
        members = members[valid]
    return columns


def _apply_divisibility(columns: Columns, path: str, shape: Shape, removed: Counter[str]) -> Columns:
    """Return the columns of the rows whose degrees so far, ``path`` included, divide the sizes they split."""
    degrees = {_name(degree_path): column for degree_path, column in columns.items()}
    for rule in divisibility.rules_of(_name(path), Shape._fields):
        applicable = rule._replace(degrees=tuple(name for name in rule.degrees if name in degrees))
        valid = applicable.is_satisfied({**shape.sizes, **degrees}, divisibility.remainder_is_zero)
        size = shape.sizes[rule.dividend]
        reason = f"{' x '.join(applicable.degrees)} does not divide {size} {rule.what.partition(' of ')[0]}"
        columns = _select_rows(columns, valid, reason, removed)
    return columns


def _interleaves(columns: Columns, shape: Shape) -> np.ndarray:
    """Return [row] True for one chunk per stage, or for pp > 1 that divides the number of micro-batches."""
    degrees = {_name(path): column for path, column in columns.items()}
    n_micro_batches = shape.global_batch // (degrees["dp"] * degrees["micro_batch"])
    return divisibility.interleaves(degrees | {"n_micro_batches": n_micro_batches})


def matches_zip(columns: list[np.ndarray], axes: tuple[Axis, ...]) -> np.ndarray:
    """Return [row] True where the values of all columns are at one position of the zipped axes."""
    valid = np.zeros(columns[0].shape, bool)
    for values in zip(*(axis.values for axis in axes), strict=True):
        valid |= np.all([column == value for column, value in zip(columns, values, strict=True)], axis=0)
    return valid
