"""Check a certificate: a second, simpler program than the one that proved.

It walks the tree of blocks, which must divide the space without gap or overlap, and bounds again each that is not
divided: by plain ranges, and by lines in double precision along the axes (one value after the other, nothing
deferred). A block that no known design is within the gap of is halved until one is, or until the model itself evaluates
the few designs that are left. The known designs are evaluated by the model. What is shared with the proof is the list
of operations, their ranges in the table of primitives, and what the mapping decides. Which operations have lines is
stated here a second time: a wrong shape in the table cannot pass both.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dse.equations.operations import steps, walk
from dse.equations.primitives import range_function
from dse.errors import InputError
from dse.lab.prove import proof as proofs
from dse.lab.prove.blocks import BlockEvaluator, BlockRanges, single_designs
from dse.lab.prove.branch import SPLIT, BlockTree, IncumbentFront
from dse.optimizers.outcome import ROUNDING
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import CertificateCheck
from dse.sweep.engine.numpy_backend import evaluate_few

_PASS_BLOCKS, _MAX_LISTED = 1024, 64

#: Count of halvings of a block after which the check gives up.
_MAX_HALVINGS = 60

#: Rounding of single precision and of a few operations.
_LINE_ROUNDING = 3e-7


class _CertificateFault(Exception):  # noqa: N818 - what is wrong with a certificate
    pass


def check(task: Problem, file: Path) -> CertificateCheck:
    """Check the certificate in a file against a space and return the verdict.

    Args:
        task: the space and its objectives.
        file: certificate of an earlier proof.

    Returns:
        The verdict, with the fault of the certificate where there is one.

    Raises:
        InputError: for a file that is no certificate, or one of another space or version of dse.
    """
    start_time = time.perf_counter()
    header, node, front = proofs.read(file)
    if header["digest"] != proofs.digest(task.identity):
        remedy = "check it with the specification and the version of dse that it was made with"
        raise InputError(str(file), "a proof of another space or of another version", task.spec.sweep.file, remedy)
    members, n_halved, fault = proofs.evaluators(task), 0, ""
    try:
        _check_front(members, front)
        ranges, member = _tree_ranges(members, node)
        limit = front.objectives - (header["gap"] + ROUNDING) * abs(front.objectives)
        for i, evaluator in enumerate(members if header["gap"] < np.inf else []):
            n_halved += _check_blocks(evaluator, ranges.take((member == i) & (node.kind != SPLIT)), limit)
    except _CertificateFault as error:
        fault = str(error)
    best = task.program.objectives[0].sign * front.objectives[0, 0] if front.objectives.shape == (1, 1) else None
    seconds, counts = time.perf_counter() - start_time, (len(node.kind), n_halved)
    return CertificateCheck(not fault, fault, best, len(front.member), header["gap"], *counts, seconds)


def _check_front(members: list[BlockEvaluator], front: IncumbentFront) -> None:
    """Check that the known designs are in the space, can run, and have the objectives that the certificate states.

    Raises:
        _CertificateFault: for one that is or has not.
    """
    for i in range(len(members)):
        is_of_member, evaluator = front.member == i, members[i]
        position, file_objectives = front.position[is_of_member], front.objectives[is_of_member]
        position = position[:, : len(evaluator.axes)]
        if not ((position >= 0) & (position < evaluator.all_designs.stop)).all():
            raise _CertificateFault("a known design is no design of the space")
        objectives = _model_objectives(evaluator, position)
        if not (abs(objectives - file_objectives) <= ROUNDING * abs(file_objectives)).all():
            raise _CertificateFault(
                f"a known design is not what the model says: {file_objectives[0]} and {objectives[0]} of the first"
            )
    if not np.isin(front.member, range(len(members))).all():
        raise _CertificateFault("a known design is no design of the space")


def _model_objectives(evaluator: BlockEvaluator, position: np.ndarray) -> np.ndarray:
    """Return objectives [design, objective] at positions [design, axis] by the model, infinite where none can run."""
    parts = [np.zeros((0, len(evaluator.staged.objectives)))]
    for start in range(0, len(position), 8192):
        leaves = evaluator.leaves(position[start : start + 8192])
        metrics, objectives = evaluate_few(evaluator.grid.base, leaves, program=evaluator.program)
        parts.append(np.where(metrics.infeasible_reason[:, None] == 0, np.stack(objectives, axis=1), np.inf))
    return np.concatenate(parts)


def _reaches_limit(bound: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return the mask [block] of bounds that are in every objective at or above some limit [design, objective]."""
    reaches = np.zeros(len(bound), bool)
    for objectives in limit:
        reaches |= (bound >= objectives).all(axis=1)
    return reaches


def _tree_ranges(members: list[BlockEvaluator], node: BlockTree) -> tuple[BlockRanges, np.ndarray]:
    """Return the ranges of every block and the index of its structure [block].

    Raises:
        _CertificateFault: for a tree that does not cover the space exactly.
    """
    count, n_axes = len(node.kind), max(len(evaluator.axes) for evaluator in members)
    first, stop = np.zeros((count, n_axes), np.int64), np.zeros((count, n_axes), np.int64)
    member = np.full(count, -1)
    for number, evaluator in enumerate(members):
        member[number], stop[number, : len(evaluator.axes)] = number, [axis.size for axis in evaluator.axes]
    for number, (kind, axis, parts, child) in enumerate(zip(*(column.tolist() for column in node), strict=True)):
        if member[number] < 0:
            raise _CertificateFault(f"block {number} is part of none")
        if kind != SPLIT:
            continue
        low, size = first[number, axis], stop[number, axis] - first[number, axis]
        if not number < child <= count - parts or not 0 < parts <= size or (member[child : child + parts] >= 0).any():
            raise _CertificateFault(f"block {number} is divided into what is no part of it alone")
        member[child : child + parts] = member[number]
        first[child : child + parts], stop[child : child + parts] = first[number], stop[number]
        borders = low + size * np.arange(parts + 1) // parts
        first[child : child + parts, axis], stop[child : child + parts, axis] = borders[:-1], borders[1:]
    return BlockRanges(first, stop), member


def _check_blocks(evaluator: BlockEvaluator, ranges: BlockRanges, limit: np.ndarray) -> int:
    """Check that all designs of blocks that can run reach some limit, and return the count of halved blocks.

    Raises:
        _CertificateFault: for a better design, and for blocks without such a bound after all halvings.
    """
    n_axes, n_halved = len(evaluator.axes), 0
    pending = BlockRanges(ranges.first[:, :n_axes], ranges.stop[:, :n_axes])
    for _ in range(_MAX_HALVINGS):
        if not len(pending.first):
            return n_halved
        unproven = [
            _unproven_blocks(evaluator, pending, start, limit) for start in range(0, len(pending.first), _PASS_BLOCKS)
        ]
        indices, axis = (np.concatenate(arrays) for arrays in zip(*unproven, strict=True))
        pending = pending.take(indices)
        if not evaluator.is_continuous:
            is_small = np.prod((pending.stop - pending.first).astype(float), axis=1) <= _MAX_LISTED
            positions = single_designs(pending.take(is_small))[0].first
            if not _reaches_limit(_model_objectives(evaluator, positions), limit).all():
                raise _CertificateFault("a design that can run is better than the certificate says")
            pending, axis = pending.take(~is_small), axis[~is_small]
        n_halved += len(axis)
        pending = _halves(pending, axis)
    raise _CertificateFault(
        f"{len(pending.first):,} blocks have no such bound, the first from {pending.first[0]} to {pending.stop[0]}"
    )


def _unproven_blocks(
    evaluator: BlockEvaluator, ranges: BlockRanges, start: int, limit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices of blocks of a pass that may have a design below all limits, and the axis to halve along."""
    low, cannot_run, axis = _LineBounds(evaluator).bounds(ranges.take(slice(start, start + _PASS_BLOCKS)))
    indices = np.flatnonzero(~cannot_run & ~_reaches_limit(low, limit))
    return start + indices, axis[indices]


def _halves(ranges: BlockRanges, axis: np.ndarray) -> BlockRanges:
    """Return the lower halves of blocks along an axis of each [block], then the upper ones."""
    rows = np.arange(len(axis))
    middle = (ranges.first[rows, axis] + ranges.stop[rows, axis]) // 2
    lower, upper = ranges.stop.copy(), ranges.first.copy()
    lower[rows, axis] = upper[rows, axis] = middle
    return BlockRanges(np.concatenate([ranges.first, upper]), np.concatenate([lower, ranges.stop]))


# --- lines ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Line:
    """A real value: between two ends, and within ``radius`` of ``middle + slopes . position``, positions in [-1, 1]."""

    low: Any
    high: Any
    middle: Any
    slopes: Any  #: [axis, block]
    radius: Any
    inverse: Any = None  #: of a rate

    def __post_init__(self) -> None:
        """Add rounding to the radius and narrow the ends by the line; one that is not finite becomes its ends."""
        reach = abs(self.slopes).sum(axis=0) + self.radius
        self.radius = self.radius + _LINE_ROUNDING * (abs(self.middle) + reach)
        reach = reach + _LINE_ROUNDING * (abs(self.middle) + reach)
        is_finite = np.isfinite(reach)
        self.low = np.where(is_finite, np.fmax(self.low, self.middle - reach), self.low)
        self.high = np.where(is_finite, np.fmin(self.high, self.middle + reach), self.high)
        half, middle = (0.5 * self.high.astype(float) + sign * 0.5 * self.low for sign in (-1.0, 1.0))
        self.middle = np.where(is_finite, self.middle, middle)
        self.radius = np.where(is_finite, self.radius, half + _LINE_ROUNDING * abs(middle))
        self.slopes = np.where(is_finite, self.slopes, 0.0)

    @property
    def pair(self) -> tuple[Any, Any]:
        """The ends in single precision, rounded outwards."""
        return _outward_float32(self.low, -np.inf), _outward_float32(self.high, np.inf)


def _outward_float32(end: Any, direction: float) -> Any:
    """Round a number of double precision to single precision towards ``direction``, -inf or inf."""
    rounded = np.float32(end)
    is_inward = rounded > end if direction < 0 else rounded < end
    return np.where(is_inward, np.nextafter(rounded, np.float32(direction)), rounded)


class _LineBounds:
    """Bounds blocks by lines, one operation after the other."""

    def __init__(self, evaluator: BlockEvaluator) -> None:
        self._evaluator, self._axes = evaluator, [*evaluator.axis_of]

    @np.errstate(all="ignore")
    def bounds(self, ranges: BlockRanges) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return lower bounds [block, objective], the mask of blocks that cannot run, and the axis to halve [block]."""
        count, staged = len(ranges.first), self._evaluator.staged
        values: dict[int, Any] = {i: np.full(count, value) for i, value in staged.constants.items()}
        for i, (low, high) in self._evaluator.ends(ranges):
            is_exact = low is high or low.dtype.kind != "f"
            values[i] = low if low is high else (low, high) if is_exact else self._leaf(i, low, high)
        walk(steps(staged.operations, lambda *operation: functools.partial(self._evaluate_line, *operation)), values)
        objectives, reason = [values[i] for i in staged.objectives], values[staged.reason]
        low = np.stack([np.broadcast_to(_ends(objective)[0], count) for objective in objectives], axis=1)
        axis = self._widest(ranges, objectives)
        return np.where(np.isnan(low), -np.inf, low), np.broadcast_to(_ends(reason)[0] != 0, count), axis

    def _widest(self, ranges: BlockRanges, objectives: list[Any]) -> np.ndarray:
        """Return the axis to halve along [block]: mappings and names first, then what moves the objectives most."""
        size = ranges.stop - ranges.first
        share = 0.05 * size / self._evaluator.all_designs.stop + 10.0 * self._evaluator.is_listed
        for value in (objective for objective in objectives if isinstance(objective, _Line)):
            total = np.maximum(abs(value.slopes).sum(axis=0) + value.radius, 1e-30)
            for row, i in enumerate(self._axes):
                share[:, self._evaluator.axis_of[i]] += np.nan_to_num(abs(value.slopes[row]) / total)
        return np.where(size > 1, share, -1.0).argmax(axis=1)

    def _leaf(self, i: int, low: Any, high: Any) -> _Line:
        """Return the line of a leaf, by its number, between its ends [block]; of a rate linear in its inverse."""
        a, b = low.astype(float), high.astype(float)
        if i not in self._axes:
            return _interval_line(low, high, len(self._axes))
        if i not in self._evaluator.rates or not (low > 0).all():
            return self._along(i, a, b)
        inverse = self._along(i, 1.0 / a, 1.0 / b)
        return dataclasses.replace(_inverse(inverse, low, high), inverse=inverse)

    def _along(self, i: int, start: Any, end: Any) -> _Line:
        """Return the line along the axis of a leaf, by its number, from ``start`` to ``end`` [block]."""
        slopes = np.zeros((len(self._axes), len(start)))
        slopes[self._axes.index(i)] = 0.5 * (end - start)
        return _Line(np.minimum(start, end), np.maximum(start, end), 0.5 * (start + end), slopes, np.zeros(len(start)))

    def _evaluate_line(self, name: str, parameters: tuple[Any, ...], *operands: Any) -> Any:
        """Return the value of an operation: an array where it is exact, ends of a count or truth value, else a line."""
        interval = range_function(name, parameters)(*map(_ends, operands))
        if interval[0] is interval[1]:
            return interval[0]
        if interval[0].dtype.kind != "f":
            return interval
        lines = [self._line(x) for x in operands]
        rule = _RULES.get(name)
        line = rule(interval, *lines) if rule and all(isinstance(x, _Line) for x in lines) else None
        if name == "select_n":
            line = _selection(interval, operands[0], *lines[1:])
        return line or _interval_line(*interval, len(self._axes))

    def _line(self, x: Any) -> Any:
        """Return an array of real numbers as a line without slopes; anything else comes back as it is."""
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            value = x.astype(float)
            line = _Line(x, x, value, np.zeros((len(self._axes), len(x))), np.zeros(len(x)))
            line.inverse = 1.0 / value
            return line
        return x


def _ends(x: Any) -> tuple[Any, Any]:
    """Return the lowest and highest value [block] of a line, an interval or an array."""
    return x.pair if isinstance(x, _Line) else x if isinstance(x, tuple) else (x, x)


def _interval_line(low: Any, high: Any, n_axes: int) -> _Line:
    """Return the line of a value of which only its ends [block] are known."""
    return _Line(low, high, np.full(len(low), np.nan), np.zeros((n_axes, len(low))), np.zeros(len(low)))


def _linear_combination(
    interval: Any, a: Any, x: _Line, b: Any, y: _Line, extra_radius: Any = 0.0, offset: Any = 0.0
) -> _Line:
    """Return the line ``a x + b y + offset`` within the ends ``interval``, its radius wider by ``extra_radius``."""
    radius = abs(a) * x.radius + abs(b) * y.radius + extra_radius
    return _Line(interval[0], interval[1], a * x.middle + b * y.middle + offset, a * x.slopes + b * y.slopes, radius)


def _product(interval: Any, x: _Line, y: _Line) -> _Line:
    """Return the line of ``x y`` within the ends ``interval`` (affine arithmetic)."""
    reaches = [abs(line.slopes).sum(axis=0) + line.radius for line in (x, y)]
    product = _linear_combination(interval, y.middle, x, x.middle, y, reaches[0] * reaches[1], -x.middle * y.middle)
    product.inverse = _combined_inverse(_product, x, y)
    return product


def _combined_inverse(rule: Callable[..., _Line], x: _Line, y: _Line) -> _Line | None:
    """Return the line of the inverse of an operation on two rates from their inverses, None where one is unknown."""
    if not isinstance(x.inverse, _Line) and not isinstance(y.inverse, _Line):
        return None
    lines = [
        _number_line(v.inverse, x.slopes.shape) if isinstance(v.inverse, np.ndarray) else v.inverse for v in (x, y)
    ]
    if any(line is None or not (line.low > 0).all() for line in lines):
        return None
    x_inverse, y_inverse = lines
    interval = x_inverse.low * y_inverse.low, x_inverse.high * y_inverse.high
    if rule is not _product:
        extreme = np.maximum if rule is _maximum else np.minimum
        interval = extreme(x_inverse.low, y_inverse.low), extreme(x_inverse.high, y_inverse.high)
    return rule(interval, x_inverse, y_inverse)


def _number_line(value: Any, shape: tuple[int, ...]) -> _Line:
    """Return numbers [block] as a line without slopes, of the shape [axis, block] of slopes."""
    return _Line(value, value, value, np.zeros(shape), np.zeros(shape[1]))


def _quotient(interval: Any, x: _Line, y: _Line) -> _Line | None:
    """Return the line of ``x / y`` within the ends ``interval``, None where ``y`` may be 0 or less."""
    inverse = y.inverse
    if isinstance(inverse, np.ndarray):
        return _linear_combination(interval, inverse, x, 0.0, x)
    if inverse is None:
        if not (y.low > 0).all():
            return None
        inverse = _inverse(y, 1.0 / y.high, 1.0 / y.low)
    return _product(interval, x, inverse)


def _inverse(x: _Line, low: Any, high: Any) -> _Line:
    """Return the line of ``1 / x`` of positive values within ends: a chord, moved half way to the curve."""
    chord = -1.0 / (x.low * x.high)
    deepest = 2.0 * np.sqrt(-chord)  # of 1 / v - chord v, where both have one slope
    ends = 1.0 / x.low - chord * x.low
    return _linear_combination(
        (low, high), chord, x, 0.0, x, 0.5 * (ends - deepest) + _LINE_ROUNDING * ends, 0.5 * (ends + deepest)
    )


def _maximum(interval: Any, x: _Line, y: _Line) -> _Line:
    """Return the line of the larger value within the ends ``interval``."""
    line = _extreme(interval, x, y, larger=True)
    line.inverse = _combined_inverse(_minimum, x, y)
    return line


def _minimum(interval: Any, x: _Line, y: _Line) -> _Line:
    """Return the line of the smaller value within the ends ``interval``."""
    line = _extreme(interval, x, y, larger=False)
    line.inverse = _combined_inverse(_maximum, x, y)
    return line


def _extreme(interval: Any, x: _Line, y: _Line, larger: bool) -> _Line:
    """Return the line of the larger or smaller value within the ends ``interval``: a chord over their difference."""
    difference = _linear_combination((x.low - y.high, x.high - y.low), 1.0, x, -1.0, y)
    is_mixed = (difference.low < 0) & (difference.high > 0)
    share = np.where(is_mixed, difference.high / (difference.high - difference.low), difference.low >= 0)
    half_width = np.where(is_mixed, -0.5 * share * difference.low, 0.0)
    x_share = share if larger else 1.0 - share
    return _linear_combination(
        interval, x_share, x, 1.0 - x_share, y, half_width, half_width if larger else -half_width
    )


def _selection(interval: Any, condition: Any, if_false: Any, if_true: Any) -> _Line | None:
    """Return the line of the selected case, the middle of both where the condition is open; None without two lines."""
    is_surely, may_be = _ends(condition)
    if is_surely.dtype != bool or not isinstance(if_false, _Line) or not isinstance(if_true, _Line):
        return None
    half_distance = 0.5 * (abs(if_false.middle - if_true.middle) + abs(if_false.slopes - if_true.slopes).sum(axis=0))

    def case(false_case: Any, true_case: Any, open_case: Any) -> Any:
        return np.where(is_surely, true_case, np.where(may_be, open_case, false_case))

    radius = case(if_false.radius, if_true.radius, np.maximum(if_false.radius, if_true.radius) + half_distance)
    middle = case(if_false.middle, if_true.middle, 0.5 * (if_false.middle + if_true.middle))
    slopes = case(if_false.slopes, if_true.slopes, 0.5 * (if_false.slopes + if_true.slopes))
    return _Line(interval[0], interval[1], middle, slopes, radius)


#: Operations that have lines; all others have plain intervals.
_RULES: dict[str, Callable[..., _Line | None]] = {
    "add": lambda interval, x, y: _linear_combination(interval, 1.0, x, 1.0, y),
    "add_any": lambda interval, x, y: _linear_combination(interval, 1.0, x, 1.0, y),
    "sub": lambda interval, x, y: _linear_combination(interval, 1.0, x, -1.0, y),
    "neg": lambda interval, x: _linear_combination(interval, -1.0, x, 0.0, x),
    "mul": _product,
    "div": _quotient,
    "max": _maximum,
    "min": _minimum,
}
