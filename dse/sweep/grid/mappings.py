"""The table of mappings of a sweep: all valid mappings, each once.

A mapping is a row of *degrees* (tp, pp, cp, dp, micro_batch, virtual_stages and, if swept, n_devices), which must
divide the sizes they split, with a column of *options* (recompute, ZeRO stage, overlaps …). Options form a full
rectangle, so that they can be the inner product of a sweep; a mask [row, column] marks valid and distinct pairs.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dse.doors import Study
from dse.doors.study import IdleRule
from dse.errors import InputError
from dse.model import Shape, divisibility, schedules
from dse.spec import Expression
from dse.sweep.grid.degrees import (
    DEGREES,
    N_DEVICES,
    OPTIONS,
    SCHEDULE,
    Columns,
    MappingSpec,
    check_listed,
    check_table_size,
    degree_rows,
    matches_zip,
)
from dse.types import Recompute, Schedule

#: Effective values of an option.
Counts = Callable[[np.ndarray], np.ndarray]

#: Number of workload shapes that are tried for the reason why a degree is in no mapping.
_MAX_SHAPES_TRIED = 16

#: Start of the reasons that are constraints.
_CONSTRAINT_PREFIX = "constraint "

#: Reads values of a part of the mapping.
Lookup = Callable[[str], Any]

#: Mask of valid mappings; depends on each column alone.
Rule = Callable[[Lookup], Any]


@dataclasses.dataclass(frozen=True)
class MappingTable:
    """The mappings of a sweep."""

    degrees: dict[str, np.ndarray]  #: leaf path → [row] value
    options: dict[str, np.ndarray]  #: leaf path → [column] value
    distinct: np.ndarray  #: [row, column] whether the pair is a mapping of the sweep
    missing: tuple[tuple[str, str], ...] = ()  #: (listed values of a degree that no mapping has, reason)

    @property
    def n_rows(self) -> int:
        """Number of rows of degrees."""
        return self.distinct.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns of options."""
        return self.distinct.shape[1]

    @functools.cached_property
    def n_mappings(self) -> int:
        """Number of mappings: pairs in ``distinct``."""
        return int(np.count_nonzero(self.distinct))


def build(parts: MappingSpec, shapes: Iterable[Shape], constraints: tuple[Expression, ...], where: str) -> MappingTable:
    """Return the table of the mappings that are valid for at least one of ``shapes``.

    ``constraints`` read only parts of the mapping.

    Raises:
        InputError: for a listed degree that fits no shape, and for an empty table.
    """
    shapes = list(shapes)
    for path in parts.degrees:
        check_listed(parts.axis(path), parts, shapes)
    options = option_columns(parts)
    removed: Counter[str] = Counter()
    rows, masks = [], []
    for shape in shapes:
        shape_rows, mask = of_shape(parts, shape, options, constraints, removed)
        rows.append(shape_rows)
        masks.append(mask)
    unique, inverse = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
    check_table_size("degrees x options", len(unique) * len(next(iter(options.values()))))
    distinct = np.zeros((len(unique), len(next(iter(options.values())))), bool)
    ends = np.cumsum([len(shape_rows) for shape_rows in rows])
    for row_numbers, mask in zip(np.split(inverse.reshape(-1), ends[:-1]), masks, strict=True):
        # Rows of one shape are distinct.
        distinct[row_numbers] = distinct[row_numbers] | mask if len(masks) > 1 else mask
    if not distinct.any():
        raise _empty_table(removed, where)
    _check_schedules(parts, options, distinct)
    is_used = distinct.any(axis=1)
    degrees = dict(zip(parts.degrees, unique[is_used].T, strict=True))
    missing = _missing(parts, shapes, options, constraints, degrees)
    if parts.has_n_devices and N_DEVICES not in parts.axes:
        del degrees[N_DEVICES]  # a value of the design: the same in all rows of a point
    return MappingTable(degrees, options, distinct[is_used], missing)


def _missing(
    parts: MappingSpec, shapes: Iterable[Shape], options: Columns, constraints: tuple[Expression, ...], degrees: Columns
) -> tuple[tuple[str, str], ...]:
    """Return (axis and values, reason) of listed degrees that no mapping has, but for those a constraint removes."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for path, axis in parts.axes.items():
        for value in axis.values if path in degrees and axis.explicit and axis.where else ():
            if not np.any(degrees[path] == value):
                removed: Counter[str] = Counter()
                single_value = parts._replace(axes={**parts.axes, path: dataclasses.replace(axis, values=(value,))})
                for shape in itertools.islice(shapes, _MAX_SHAPES_TRIED):
                    of_shape(single_value, shape, options, constraints, removed)
                reason = max(removed, key=lambda reason: removed[reason])
                by_reason.setdefault((axis.name, reason), []).append(f"{value:g}")
    return tuple(
        (f"{name} {', '.join(values)}", reason)
        for (name, reason), values in by_reason.items()
        if not reason.startswith(_CONSTRAINT_PREFIX)
    )


def of_shape(
    parts: MappingSpec, shape: Shape, options: Columns, constraints: tuple[Expression, ...], removed: Counter[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return ([row, degree] as ``parts.degrees``, mask [row, column]) of a shape.

    ``removed``, reason → number, counts invalid rows, and pairs of rows and columns.
    """
    degrees = degree_rows(parts, shape, removed)
    check_table_size("degrees x options", len(degrees[DEGREES[0]]) * len(next(iter(options.values()))))
    rows = np.stack([degrees[path] for path in parts.degrees], axis=1)
    return rows, _mask(degrees, options, parts, shape, constraints, removed)


def option_columns(parts: MappingSpec) -> Columns:
    """Return path → [column] of the product of the swept options in their listed order, the first axis slowest.

    An option with one value is no column: all that depends on it would become part of the inner product. If no option
    is left, one is a single column with its value.
    """
    axes = [axis for path, axis in parts.axes.items() if path in OPTIONS and len(axis.values) != 1]
    for axis in axes:
        if axis.rule:
            raise InputError(axis.where, repr(axis.rule), "a list of values", f"list the values of {axis.name}")
    if not axes:
        path = "mapping.placement"
        return {path: np.array(parts.axis(path).values)}
    check_table_size("options of the mapping", math.prod(len(axis.values) for axis in axes))
    table = np.array(list(itertools.product(*(axis.values for axis in axes))))
    columns = {axis.key: table[:, i] for i, axis in enumerate(axes)}
    for zipped in parts.zips:
        if all(axis.key in OPTIONS for axis in zipped):
            valid = matches_zip([columns[axis.key] for axis in zipped], zipped)
            columns = {path: column[valid] for path, column in columns.items()}
    return columns


def _mask(
    degrees: Columns,
    options: Columns,
    parts: MappingSpec,
    shape: Shape,
    constraints: tuple[Expression, ...],
    removed: Counter[str],
) -> np.ndarray:
    """Return [row, column] True where a pair is valid for a shape, meets the constraints and represents its equals."""
    mask = distinct_pairs(degrees, options, parts.study)
    rules: list[tuple[Rule, str]] = [
        (
            functools.partial(_shards_divide, parts.has_experts),
            "dp_replicate does not divide dp, or no state is sharded that could be replicated",
        ),
        (_recomputes_a_share, "recompute_share changes nothing without full recompute"),
        *((expression, f"{_CONSTRAINT_PREFIX}{expression.text!r}") for expression in constraints),
    ]
    if not parts.splits_hidden:  # otherwise the model decides which designs cannot run
        reason = f"tp x cp does not divide {shape.seq_len} tokens (sequence parallelism)"
        rules.insert(0, (functools.partial(_sequence_splits, shape), reason))
    if SCHEDULE in parts.axes:
        reason = "the schedule needs other chunks, pp or micro-batches (zb-v and dualpipev: virtual_stages = 2; these "
        rules.insert(0, (functools.partial(_schedule_runs, shape), f"{reason}and dualpipe: 2 pp micro-batches)"))
    n_before = int(np.count_nonzero(mask))
    for rule, reason in rules:
        mask &= _evaluate_rule(rule, degrees, options, parts)
        n_after = int(np.count_nonzero(mask))
        removed[reason] += n_before - n_after
        n_before = n_after
    return mask


def _evaluate_rule(rule: Rule, degrees: Columns, options: Columns, parts: MappingSpec) -> Any:
    """Return True where a rule holds, in an array that broadcasts to [row, column]; True alone if it always does.

    It is evaluated once for columns that are equal in the options it reads.
    """

    def lookup(path: str) -> Any:
        if path in degrees:
            return degrees[path][:, None]
        return columns[path][None, :] if path in columns else np.array(parts.axis(path).values)

    def noting(path: str) -> Any:
        read.add(path)
        return lookup(path)

    read: set[str] = set()
    columns: Columns = {path: column[:1] for path, column in options.items()}
    rule(noting)
    swept = [path for path in options if path in read]
    if not swept:
        return rule(lookup)
    _, first, inverse = np.unique(
        np.stack([options[path] for path in swept], axis=1), axis=0, return_index=True, return_inverse=True
    )
    columns = {path: options[path][first] for path in swept}
    rule_mask = np.broadcast_to(rule(lookup), (len(next(iter(degrees.values()))), len(first)))
    return True if rule_mask.all() else np.take(rule_mask, inverse.reshape(-1), axis=1)


def _sequence_splits(shape: Shape, lookup: Lookup) -> np.ndarray:
    """Return [row, column] True where tp and cp divide the sequence as sequence parallelism requires."""
    values = {name: lookup(f"mapping.{name}") for name in ("tp", "cp", "sequence_parallel")} | shape._asdict()
    return divisibility.splits_sequence(values)


def _schedule_runs(shape: Shape, lookup: Lookup) -> Any:
    """Return [row, column] True where the schedule can run these numbers of chunks and micro-batches."""
    values = {name: lookup(f"mapping.{name}") for name in ("schedule", "pp", "virtual_stages")}
    of_rank = lookup("mapping.dp") * lookup("mapping.micro_batch")
    return divisibility.schedule_runs(values | {"n_micro_batches": shape.global_batch // of_rank})


def _check_schedules(parts: MappingSpec, options: Columns, distinct: np.ndarray) -> None:
    """Raise InputError for a listed schedule that no mapping has."""
    axis = parts.axis(SCHEDULE)
    has_mapping = np.asarray(distinct.any(axis=0))
    for code, label in zip(axis.values, axis.labels, strict=True) if SCHEDULE in options else ():
        if not has_mapping[options[SCHEDULE] == code].any():
            chunks = schedules.CHUNKS.get(Schedule(int(code)))
            fix = f"add virtual_stages = [1, {chunks:g}]" if chunks == 2.0 else "list other degrees"
            raise InputError(axis.where, f"{label}, which no mapping can run", "schedules that one can", fix)


def _shards_divide(has_experts: bool, lookup: Lookup) -> Any:
    """Return [row, column] True where dp_replicate divides dp and the devices with the same experts.

    Above 1 it needs a ZeRO stage: without one nothing is sharded.
    """
    copies = lookup("mapping.dp_replicate")
    divide = divisibility.shards_divide({"dp": lookup("mapping.dp"), "dp_replicate": copies})
    if has_experts:
        stage = lookup("mapping.tp") * lookup("mapping.cp") * lookup("mapping.dp")
        groups = {name: lookup(f"mapping.experts.{name}") for name in ("ep", "etp")}
        divide = divide & divisibility.expert_members_fit({**groups, "dp_replicate": copies, "stage_devices": stage})
    return divide & ((copies == 1) | (lookup("mapping.zero_stage") > 0))


def _recomputes_a_share(lookup: Lookup) -> Any:
    """Return [row, column] True for full recompute, of any share; for other recompute with the largest share."""
    share = lookup("mapping.recompute_share")
    return (lookup("mapping.recompute") == float(Recompute.full)) | (share == np.max(share))


def distinct_pairs(degrees: Columns, options: Columns, study: Study) -> np.ndarray:
    """Return [row, column] True where a column represents those that are equal in effect in its row.

    Columns are equal where they differ only in options without effect (:attr:`dse.doors.study.Study.idle_options`) or
    with the same effect (:attr:`dse.doors.study.Study.same_options`). The one with most of its effective options set
    represents its equals, the first of them in a tie.
    """
    n_rows, n_columns = len(degrees["mapping.tp"]), len(next(iter(options.values())))
    rules: list[tuple[str, IdleRule, Counts]]
    rules = [(same.path, same.where, same.counts) for same in study.same_options if same.path in options]
    rules += [(path, where, np.zeros_like) for path, where in study.idle_options.items() if path in options]
    conditions = [np.broadcast_to(where(degrees), n_rows) for _, where, _ in rules]
    mask = np.ones((n_rows, n_columns), bool)
    for pattern in itertools.product([False, True], repeat=len(rules)):
        rows = np.all([condition == expected for condition, expected in zip(conditions, pattern, strict=True)], axis=0)
        if np.any(rows):
            counts = {path: count for (path, _, count), active in zip(rules, pattern, strict=True) if active}
            mask[rows] = _representatives(options, counts)
    return mask


def _representatives(options: Columns, counts: Mapping[str, Counts]) -> np.ndarray:
    """Return [column] True where the column represents all those that are equal in effective values."""
    columns = np.stack(list(options.values()), axis=1)
    effective = np.stack([counts.get(path, np.asarray)(column) for path, column in options.items()], axis=1)
    n_changed = np.count_nonzero(columns != effective, axis=1)
    order = np.lexsort((np.arange(len(columns)), n_changed))
    _, first = np.unique(effective[order], axis=0, return_index=True)
    mask = np.zeros(len(columns), bool)
    mask[order[first]] = True
    return mask


def _empty_table(removed: Counter[str], where: str) -> InputError:
    """Return the error for no mapping at all, with the numbers removed by reason."""
    counts = [f"{count:,} x {reason}" for reason, count in removed.most_common() if count > 0]
    got = "no valid mapping; removed: " + ("; ".join(counts[:8]) or "nothing, the axes are empty")
    return InputError(where, got, "one valid mapping or more", "widen the axes or change what they must divide")
