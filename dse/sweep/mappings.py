"""The table of mappings of a sweep: every valid one, each distinct one once.

A mapping is a row of *degrees* (tp, pp, cp, dp, micro_batch, virtual_stages and, when it is
swept, n_devices), which must divide what they split, with a column of *options* (recompute,
ZeRO stage, overlaps …). Options form a full rectangle, so that they can be the inner product
of a sweep; which (row, column) pairs are valid and distinct is a mask over that rectangle.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from dse import types
from dse.design import PLAIN_MAPPING
from dse.errors import InputError
from dse.sweep.axis_values import Axis
from dse.sweep.expression import Expression
from dse.types import SequenceParallel

N_DEVICES = "system.n_devices"
DEGREES = (
    N_DEVICES, "mapping.tp", "mapping.cp", "mapping.pp", "mapping.dp", "mapping.micro_batch", "mapping.virtual_stages"
)  # fmt: skip
OPTIONS = tuple(
    path for path in (f"mapping.{field.name}" for field in dataclasses.fields(types.Mapping)) if path not in DEGREES
)

#: Option → whether it changes nothing at these degrees; its plain value 0 then stands for all of them.
_IDLE: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
    "mapping.sequence_parallel": lambda d: d["mapping.tp"] == 1,
    "mapping.overlap_tp": lambda d: d["mapping.tp"] == 1,
    "mapping.zero_stage": lambda d: d["mapping.dp"] * d["mapping.cp"] == 1,  # states are split over dp x cp
    "mapping.overlap_dp": lambda d: d["mapping.dp"] * d["mapping.cp"] == 1,
    "mapping.placement": lambda d: (d["mapping.dp"] == 1) | (d["mapping.pp"] == 1),
}


class Shape(NamedTuple):
    """What the degrees must divide; ``n_devices`` is 0 when it follows from them."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    ffn_hidden: int
    seq_len: int
    global_batch: int
    n_devices: int


#: Leaves behind the fields of Shape.
SHAPE_PATHS = (*(f"workload.{name}" for name in Shape._fields[:-1]), N_DEVICES)


@dataclasses.dataclass(frozen=True)
class MappingTable:
    """The mappings of a sweep."""

    degrees: dict[str, np.ndarray]  #: leaf path → value of each row
    options: dict[str, np.ndarray]  #: leaf path → value of each column
    distinct: np.ndarray  #: [row, column] whether the pair is a mapping of the sweep

    @property
    def n_rows(self) -> int:
        """Rows of degrees."""
        return self.distinct.shape[0]

    @property
    def n_columns(self) -> int:
        """Columns of options."""
        return self.distinct.shape[1]

    @property
    def n_mappings(self) -> int:
        """Mappings: pairs that count."""
        return int(np.count_nonzero(self.distinct))


class Parts(NamedTuple):
    """What a specification says of the mapping, by leaf path."""

    axes: Mapping[str, Axis]  #: swept or fixed parts
    zips: tuple[tuple[Axis, ...], ...]  #: those that move together
    n_devices_given: bool  #: whether the number of devices is known before the degrees

    def axis(self, path: str) -> Axis:
        """The axis of a part; one that is not mentioned has its plain value."""
        plain = float(PLAIN_MAPPING[path.removeprefix("mapping.")]) if path != N_DEVICES else 0.0
        return self.axes.get(path) or Axis(name=path.rpartition(".")[2], key=path, where="", values=(plain,))


def build(parts: Parts, shapes: Iterable[Shape], constraints: tuple[Expression, ...], where: str) -> MappingTable:
    """The mappings that are valid for at least one of ``shapes``.

    ``constraints`` may read parts of the mapping only. A listed degree that fits no shape, and a table
    that ends up empty, are InputErrors.
    """
    shapes = list(shapes)
    for path in DEGREES:
        _check_listed(parts.axis(path), parts, shapes)
    options = option_columns(parts)
    removed: Counter[str] = Counter()
    rows, masks = [], []
    for shape in shapes:
        found = degree_rows(parts, shape, removed)
        rows.append(np.stack([found[path] for path in DEGREES], axis=1))
        masks.append(_mask(found, options, parts, shape, constraints, removed))
    unique, inverse = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
    distinct = np.zeros((len(unique), len(next(iter(options.values())))), bool)
    np.logical_or.at(distinct, inverse.reshape(-1), np.concatenate(masks))
    if not distinct.any():
        raise _nothing_left(removed, where)
    used = distinct.any(axis=1)
    degrees = dict(zip(DEGREES, unique[used].T, strict=True))
    if parts.n_devices_given and N_DEVICES not in parts.axes:
        del degrees[N_DEVICES]  # it is a value of the design, the same for all rows of a point
    return MappingTable(degrees, options, distinct[used])


# --- degrees ----------------------------------------------------------------------------------------------


def divisors(number: int) -> list[int]:
    """All divisors of a positive whole number, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _faults(path: str, value: int, shape: Shape, parts: Parts) -> str:
    """Why a degree can never fit a shape whatever the others are; "" when it may."""
    gqa_fits = shape.n_kv_heads % value == 0 or value % shape.n_kv_heads == 0
    devices = shape.n_devices if parts.n_devices_given and N_DEVICES not in parts.axes else 0
    wanted = {
        "mapping.tp": [(shape.n_heads, "heads"), (shape.ffn_hidden, "feed-forward columns"), (devices, "devices")],
        "mapping.cp": [(shape.seq_len, "tokens of a sequence"), (devices, "devices")],
        "mapping.pp": [(shape.n_layers, "layers"), (devices, "devices")],
        "mapping.dp": [(shape.global_batch, "sequences of a global batch"), (devices, "devices")],
        "mapping.micro_batch": [(shape.global_batch, "sequences of a global batch")],
        "mapping.virtual_stages": [(shape.n_layers, "layers")],
    }
    for whole, what in wanted.get(path, []):
        if whole % value:
            return f"does not divide {whole} {what}"
    if path == "mapping.tp" and not gqa_fits:
        return f"neither divides nor is a multiple of {shape.n_kv_heads} key/value heads"
    return ""


def _possible(path: str, shape: Shape, parts: Parts) -> list[int]:
    """Every value of a degree that may fit a shape."""
    whole = {
        "mapping.tp": shape.n_heads, "mapping.cp": shape.seq_len, "mapping.pp": shape.n_layers,
        "mapping.dp": shape.global_batch, "mapping.micro_batch": shape.global_batch,
        "mapping.virtual_stages": shape.n_layers,
    }[path]  # fmt: skip
    return [d for d in divisors(whole) if not _faults(path, d, shape, parts)]


def _check_listed(axis: Axis, parts: Parts, shapes: list[Shape]) -> None:
    """Degrees are whole numbers, and each one written out fits at least one shape."""
    if axis.rule and axis.key == N_DEVICES:
        raise InputError(axis.where, repr(axis.rule), "a list or a range", "write { from = 8, to = 4096, factor = 2 }")
    for value in axis.values if axis.where else ():
        if value != int(value) or value < 1:
            raise InputError(axis.where, f"{value:g}", "whole numbers, 1 or more", "degrees count devices or sequences")
        faults = [_faults(axis.key, int(value), shape, parts) for shape in shapes]
        if axis.explicit and all(faults):
            fits = sorted({d for shape in shapes for d in _possible(axis.key, shape, parts)})
            shown = " ".join(map(str, fits[:32])) + (" …" if len(fits) > 32 else "")
            raise InputError(axis.where, f"{value:g}, which {faults[0]}", shown, f'or write {axis.name} = "divisors"')


def _named_candidates(path: str, parts: Parts, shape: Shape, removed: Counter[str]) -> tuple[str, np.ndarray]:
    """A degree and its values that may fit a shape; those that cannot are counted in ``removed``."""
    axis = parts.axis(path)
    if axis.rule:
        fits = _possible(path, shape, parts)
        return path, np.array([d for d in fits if axis.rule == "divisors" or d & (d - 1) == 0], np.int64)
    kept = []
    for value in map(int, axis.values):
        fault = _faults(path, value, shape, parts)
        if fault:
            removed[f"{axis.name} = {value} {fault}"] += 1
        else:
            kept.append(value)
    return path, np.array(kept, np.int64)


Columns = dict[str, np.ndarray]


def _cross(columns: Columns, path: str, values: np.ndarray) -> Columns:
    """Every row with every value."""
    length = len(next(iter(columns.values()))) if columns else 1
    crossed = {name: np.repeat(column, len(values)) for name, column in columns.items()}
    return {**crossed, path: np.tile(values, length)}


def _where(columns: Columns, valid: np.ndarray, reason: str, removed: Counter[str]) -> Columns:
    """The valid rows; the others are counted under ``reason``."""
    removed[reason] += int(np.count_nonzero(~valid))
    return {name: column[valid] for name, column in columns.items()}


def degree_rows(parts: Parts, shape: Shape, removed: Counter[str]) -> Columns:
    """The valid combinations of degrees for one shape; what goes is counted in ``removed`` by reason."""
    columns: Columns = {}
    for path in ("mapping.tp", "mapping.cp", "mapping.pp"):
        columns = _cross(columns, *_named_candidates(path, parts, shape, removed))
    columns = _with_devices(columns, parts, shape, removed)
    batch, layers = shape.global_batch, shape.n_layers
    valid = batch % columns["mapping.dp"] == 0
    columns = _where(columns, valid, f"dp does not divide {batch} sequences", removed)
    columns = _cross(columns, *_named_candidates("mapping.micro_batch", parts, shape, removed))
    valid = batch % (columns["mapping.dp"] * columns["mapping.micro_batch"]) == 0
    columns = _where(columns, valid, f"dp x micro_batch does not divide {batch} sequences", removed)
    columns = _cross(columns, *_named_candidates("mapping.virtual_stages", parts, shape, removed))
    valid = layers % (columns["mapping.pp"] * columns["mapping.virtual_stages"]) == 0
    columns = _where(columns, valid, f"pp x virtual_stages does not divide {layers} layers", removed)
    reason = "virtual stages need pp > 1 and micro-batches that pp divides"
    columns = _where(columns, _interleaves(columns, batch), reason, removed)
    for axes in parts.zips:
        if all(axis.key in DEGREES for axis in axes):
            valid = _together([columns[axis.key] for axis in axes], axes)
            columns = _where(columns, valid, "not a zipped combination", removed)
    return columns


def _with_devices(columns: Columns, parts: Parts, shape: Shape, removed: Counter[str]) -> Columns:
    """The rows with ``dp`` and ``n_devices``: given, or each from the other."""

    def model_parallel() -> np.ndarray:
        return columns["mapping.tp"] * columns["mapping.cp"] * columns["mapping.pp"]

    if N_DEVICES in parts.axes:
        columns = _cross(columns, N_DEVICES, np.array(parts.axes[N_DEVICES].values, np.int64))
    elif parts.n_devices_given:
        columns = _cross(columns, N_DEVICES, np.array([shape.n_devices], np.int64))
    if "mapping.dp" not in parts.axes:
        valid = columns[N_DEVICES] % model_parallel() == 0
        columns = _where(columns, valid, "tp x cp x pp does not divide the number of devices", removed)
        return {**columns, "mapping.dp": columns[N_DEVICES] // model_parallel()}
    columns = _cross(columns, *_named_candidates("mapping.dp", parts, shape, removed))
    total = model_parallel() * columns["mapping.dp"]
    if N_DEVICES not in columns:
        return {**columns, N_DEVICES: total}
    valid = total == columns[N_DEVICES]
    return _where(columns, valid, "tp x cp x pp x dp is not the number of devices", removed)


def _interleaves(columns: Columns, batch: int) -> np.ndarray:
    """Which rows have one chunk a stage, or a schedule that interleaves several."""
    n_micro_batches = batch // (columns["mapping.dp"] * columns["mapping.micro_batch"])
    pp = columns["mapping.pp"]
    return (columns["mapping.virtual_stages"] == 1) | ((pp > 1) & (n_micro_batches % pp == 0))


def _together(columns: list[np.ndarray], axes: tuple[Axis, ...]) -> np.ndarray:
    """Which rows have values that stand side by side in zipped axes."""
    valid = np.zeros(columns[0].shape, bool)
    for values in zip(*(axis.values for axis in axes), strict=True):
        valid |= np.all([column == value for column, value in zip(columns, values, strict=True)], axis=0)
    return valid


# --- options ----------------------------------------------------------------------------------------------


def option_columns(parts: Parts) -> Columns:
    """The full product of the swept options in their listed order, the first axis slowest.

    An option with one value is no column (it would make everything that reads it an inner product);
    when no option is left, one stands alone with its value.
    """
    axes = [axis for path, axis in parts.axes.items() if path in OPTIONS and len(axis.values) != 1]
    for axis in axes:
        if axis.rule:
            raise InputError(axis.where, repr(axis.rule), "a list of values", f"list the values of {axis.name}")
    if not axes:
        path = "mapping.overlap_dp"
        return {path: np.array(parts.axis(path).values)}
    table = np.array(list(itertools.product(*(axis.values for axis in axes))))
    columns = {axis.key: table[:, i] for i, axis in enumerate(axes)}
    for zipped in parts.zips:
        if all(axis.key in OPTIONS for axis in zipped):
            valid = _together([columns[axis.key] for axis in zipped], zipped)
            columns = {path: column[valid] for path, column in columns.items()}
    return columns


def _mask(
    degrees: Columns, options: Columns, parts: Parts, shape: Shape, constraints: tuple[Expression, ...],
    removed: Counter[str],
) -> np.ndarray:  # fmt: skip
    """[row, column] whether the pair is valid for a shape, meets the constraints and is the one of its kind."""
    mask = distinct_pairs(degrees, options)

    def lookup(path: str) -> np.ndarray:
        if path in degrees:
            return degrees[path][:, None]
        return options[path][None, :] if path in options else np.array(parts.axis(path).values)

    ring = degrees["mapping.tp"] * degrees["mapping.cp"]
    split = (shape.seq_len % ring == 0)[:, None] | (lookup("mapping.sequence_parallel") == 0)
    rules = [(split, f"tp x cp does not divide {shape.seq_len} tokens (sequence parallelism)")]
    rules += [(expression(lookup), f"constraint {expression.text!r}") for expression in constraints]
    mask &= ~_cut_of_nothing(degrees, options, lookup("mapping.sequence_parallel"))
    for valid, reason in rules:
        kept = mask & valid
        removed[reason] += int(np.count_nonzero(mask)) - int(np.count_nonzero(kept))
        mask = kept
    return mask


def _cut_of_nothing(degrees: Columns, options: Columns, sequence_parallel: np.ndarray) -> np.ndarray:
    """[row, column] where the sequence is split at the borders of stages only, and there is one stage.

    That is no sequence parallelism: it stands for itself only where the sweep does not have that too.
    """
    at_cuts = sequence_parallel == SequenceParallel.at_cuts
    swept = np.any(options.get("mapping.sequence_parallel", np.ones(1)) == 0)
    return swept & at_cuts & (degrees["mapping.pp"] == 1)[:, None]


def distinct_pairs(degrees: Columns, options: Columns) -> np.ndarray:
    """[row, column] mask with each distinct mapping once.

    Where options change nothing (``_IDLE``) the columns that differ in them alone are one mapping; the
    one with most of them at 0 stands for all, the first listed of equals.
    """
    idle_axes = [path for path in options if path in _IDLE]
    n_rows, n_columns = len(degrees["mapping.tp"]), len(next(iter(options.values())))
    mask = np.ones((n_rows, n_columns), bool)
    idle = [np.broadcast_to(_IDLE[path](degrees), n_rows) for path in idle_axes]
    for pattern in itertools.product([False, True], repeat=len(idle_axes)):
        rows = np.all([axis == wanted for axis, wanted in zip(idle, pattern, strict=True)], axis=0)
        mask[rows] = _representatives(options, dict(zip(idle_axes, pattern, strict=True)))
    return mask


def _representatives(options: Columns, idle: dict[str, bool]) -> np.ndarray:
    """Which columns stand for themselves and all those that differ in idle options only."""
    count = len(next(iter(options.values())))
    effective = np.stack([np.zeros(count) if idle.get(path) else column for path, column in options.items()], axis=1)
    away = np.stack([(column != 0) & bool(idle.get(path)) for path, column in options.items()]).sum(axis=0)
    order = np.lexsort((np.arange(count), away))
    _, first = np.unique(effective[order], axis=0, return_index=True)
    mask = np.zeros(count, bool)
    mask[order[first]] = True
    return mask


def _nothing_left(removed: Counter[str], where: str) -> InputError:
    counts = [f"{count:,} x {reason}" for reason, count in removed.most_common() if count > 0]
    got = "no valid mapping; removed: " + ("; ".join(counts[:8]) or "nothing, the axes are empty")
    return InputError(where, got, "one valid mapping or more", "widen the axes or change what they must divide")
