"""Check a certificate: a second, simpler program than the one that proved.

It walks the tree of blocks, which must divide the space without gap or overlap, and bounds again each that is not
divided: by plain intervals, and by lines in double precision along the axes (one value after the other, nothing
deferred). A block that no known design is within the gap of is halved until one is, or until the model itself evaluates
the few designs that are left. The known designs are evaluated by the model. What is shared with the proof is the list
of operations, the plain rules of intervals, and what the mapping decides.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dse.doors.scalars import intervals
from dse.errors import InputError
from dse.lab.prove import proof as proofs
from dse.lab.prove.blocks import Blocks, Ranges, designs
from dse.lab.prove.branch import DIVIDED, Front, Node
from dse.optimizers.outcome import ROUNDING
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import CertificateCheck
from dse.sweep.engine.numpy_backend import evaluate_few

_PASS, _FEW = 1024, 64

#: Halvings of a block after which the check gives up.
_DEEPEST = 60

#: Rounding of single precision and of a few operations.
_UNIT = 3e-7


class _Fault(Exception):  # noqa: N818 - what is wrong with a certificate
    pass


def check(task: Problem, file: Path) -> CertificateCheck:
    """Whether the certificate in a file holds for a space.

    Raises InputError where the file is no certificate, or one of another space or version of dse.
    """
    began = time.perf_counter()
    header, node, front = proofs.read(file)
    if header["digest"] != proofs.digest(task.identity):
        fix = "check it with the specification and the version of dse that it was made with"
        raise InputError(str(file), "a proof of another space or of another version", task.spec.sweep.file, fix)
    members, halved, fault = proofs.members(task), 0, ""
    try:
        _check_front(members, front)
        ranges, member = _walked(members, node)
        limit = front.objectives - (header["gap"] + ROUNDING) * abs(front.objectives)
        for number, one in enumerate(members if header["gap"] < np.inf else []):
            halved += _check_blocks(one, ranges.at((member == number) & (node.kind != DIVIDED)), limit)
    except _Fault as wrong:
        fault = str(wrong)
    best = task.program.objectives[0].sign * front.objectives[0, 0] if front.objectives.shape == (1, 1) else None
    seconds, counts = time.perf_counter() - began, (len(node.kind), halved)
    return CertificateCheck(not fault, fault, best, len(front.member), header["gap"], *counts, seconds)


def _check_front(members: list[Blocks], front: Front) -> None:
    """That the known designs are of the space, can run, and are as good as the certificate says."""
    for number in range(len(members)):
        own, one = front.member == number, members[number]
        position, said = front.position[own][:, : len(one.axes)], front.objectives[own]
        if not ((position >= 0) & (position < one.whole.behind)).all():
            raise _Fault("a known design is no design of the space")
        found = _by_model(one, position)
        if not (abs(found - said) <= ROUNDING * abs(said)).all():
            raise _Fault(f"a known design is not what the model says: {said[0]} and {found[0]} of the first")
    if not np.isin(front.member, range(len(members))).all():
        raise _Fault("a known design is no design of the space")


def _by_model(one: Blocks, position: np.ndarray) -> np.ndarray:
    """Objectives [design, objective] of single designs by the model itself, infinite where they cannot run."""
    parts = [np.zeros((0, len(one.staged.objectives)))]
    for start in range(0, len(position), 8192):
        leaves = one.leaves(position[start : start + 8192])
        metrics, objectives = evaluate_few(one.grid.base, leaves, program=one.program)
        parts.append(np.where(metrics.infeasible_reason[:, None] == 0, np.stack(objectives, axis=1), np.inf))
    return np.concatenate(parts)


def _reached(bound: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Whether bounds [block, objective] are not below some limit [design, objective] in any objective."""
    found = np.zeros(len(bound), bool)
    for one in limit:
        found |= (bound >= one).all(axis=1)
    return found


def _walked(members: list[Blocks], node: Node) -> tuple[Ranges, np.ndarray]:
    """The ranges of every block, and its structure; a fault where the tree does not cover the space exactly."""
    count, n_axes = len(node.kind), max(len(one.axes) for one in members)
    first, behind = np.zeros((count, n_axes), np.int64), np.zeros((count, n_axes), np.int64)
    member = np.full(count, -1)
    for number, one in enumerate(members):
        member[number], behind[number, : len(one.axes)] = number, [axis.size for axis in one.axes]
    for number, (kind, axis, parts, child) in enumerate(zip(*(column.tolist() for column in node), strict=True)):
        if member[number] < 0:
            raise _Fault(f"block {number} is part of none")
        if kind != DIVIDED:
            continue
        low, size = first[number, axis], behind[number, axis] - first[number, axis]
        if not number < child <= count - parts or not 0 < parts <= size or (member[child : child + parts] >= 0).any():
            raise _Fault(f"block {number} is divided into what is no part of it alone")
        member[child : child + parts] = member[number]
        first[child : child + parts], behind[child : child + parts] = first[number], behind[number]
        borders = low + size * np.arange(parts + 1) // parts
        first[child : child + parts, axis], behind[child : child + parts, axis] = borders[:-1], borders[1:]
    return Ranges(first, behind), member


def _check_blocks(one: Blocks, ranges: Ranges, limit: np.ndarray) -> int:
    """That all designs of these blocks that can run reach some limit; how many blocks had to be halved."""
    n_axes, halved = len(one.axes), 0
    left = Ranges(ranges.first[:, :n_axes], ranges.behind[:, :n_axes])
    for _ in range(_DEEPEST):
        if not len(left.first):
            return halved
        found = [_unproven(one, left, start, limit) for start in range(0, len(left.first), _PASS)]
        places, axis = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        left = left.at(places)
        if not one.is_continuous:
            few = np.prod((left.behind - left.first).astype(float), axis=1) <= _FEW
            every = designs(left.at(few))[0].first
            if not _reached(_by_model(one, every), limit).all():
                raise _Fault("a design that can run is better than the certificate says")
            left, axis = left.at(~few), axis[~few]
        halved += len(axis)
        left = _halves(left, axis)
    raise _Fault(f"{len(left.first):,} blocks have no such bound, the first from {left.first[0]} to {left.behind[0]}")


def _unproven(one: Blocks, ranges: Ranges, start: int, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which blocks of a pass may have a design below all limits, and the axis to halve them along."""
    low, cannot_run, axis = _Lines(one).bounds(ranges.at(slice(start, start + _PASS)))
    which = np.flatnonzero(~cannot_run & ~_reached(low, limit))
    return start + which, axis[which]


def _halves(ranges: Ranges, axis: np.ndarray) -> Ranges:
    """Blocks in halves along an axis of each."""
    rows = np.arange(len(axis))
    middle = (ranges.first[rows, axis] + ranges.behind[rows, axis]) // 2
    lower, upper = ranges.behind.copy(), ranges.first.copy()
    lower[rows, axis] = upper[rows, axis] = middle
    return Ranges(np.concatenate([ranges.first, upper]), np.concatenate([lower, ranges.behind]))


# --- lines ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Line:
    """A real value: between two ends, and within ``rest`` of ``middle + slopes . position``, positions in [-1, 1]."""

    low: Any
    high: Any
    middle: Any
    slopes: Any  #: [axis, block]
    rest: Any
    inverse: Any = None  #: of a rate

    def __post_init__(self) -> None:
        reach = abs(self.slopes).sum(axis=0) + self.rest
        self.rest = self.rest + _UNIT * (abs(self.middle) + reach)
        reach = reach + _UNIT * (abs(self.middle) + reach)
        known = np.isfinite(reach)
        self.low = np.where(known, np.fmax(self.low, self.middle - reach), self.low)
        self.high = np.where(known, np.fmin(self.high, self.middle + reach), self.high)
        half, middle = (0.5 * self.high.astype(float) + sign * 0.5 * self.low for sign in (-1.0, 1.0))
        self.middle = np.where(known, self.middle, middle)
        self.rest = np.where(known, self.rest, half + _UNIT * abs(middle))
        self.slopes = np.where(known, self.slopes, 0.0)

    @property
    def pair(self) -> tuple[Any, Any]:
        """The ends in single precision, outwards."""
        return _single(self.low, -np.inf), _single(self.high, np.inf)


def _single(end: Any, way: float) -> Any:
    """A number of double precision in single precision, not moved inwards."""
    found = np.float32(end)
    inwards = found > end if way < 0 else found < end
    return np.where(inwards, np.nextafter(found, np.float32(way)), found)


class _Lines:
    """The bounds of blocks by lines, one operation after the other."""

    def __init__(self, one: Blocks) -> None:
        self._one, self._axes = one, [*one.axis_of]

    @np.errstate(all="ignore")
    def bounds(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Least objectives of blocks, whether it is sure that no design can run, and what axis moves them most."""
        count, staged = len(ranges.first), self._one.staged
        values: dict[int, Any] = {i: np.full(count, value) for i, value in staged.constants.items()}
        for i, (low, high) in self._one.ends(ranges):
            known = low is high or low.dtype.kind != "f"
            values[i] = low if low is high else (low, high) if known else self._leaf(i, low, high)
        for name, given, inputs, output in staged.operations:
            values[output] = self._computed(name, given, *[values[i] for i in inputs])
        objectives, reason = [values[i] for i in staged.objectives], values[staged.reason]
        low = np.stack([np.broadcast_to(_ends(one)[0], count) for one in objectives], axis=1)
        axis = self._widest(ranges, objectives)
        return np.where(np.isnan(low), -np.inf, low), np.broadcast_to(_ends(reason)[0] != 0, count), axis

    def _widest(self, ranges: Ranges, objectives: list[Any]) -> np.ndarray:
        """The axis to halve blocks along: mappings and names first, then what moves the objectives most."""
        size = ranges.behind - ranges.first
        share = 0.05 * size / self._one.whole.behind + 10.0 * self._one.is_listed
        for value in (one for one in objectives if isinstance(one, _Line)):
            total = np.maximum(abs(value.slopes).sum(axis=0) + value.rest, 1e-30)
            for row, i in enumerate(self._axes):
                share[:, self._one.axis_of[i]] += np.nan_to_num(abs(value.slopes[row]) / total)
        return np.where(size > 1, share, -1.0).argmax(axis=1)

    def _leaf(self, i: int, low: Any, high: Any) -> _Line:
        a, b = low.astype(float), high.astype(float)
        if i not in self._axes:
            return _between(low, high, len(self._axes))
        if i not in self._one.rates or not (low > 0).all():
            return self._along(i, a, b)
        inverse = self._along(i, 1.0 / a, 1.0 / b)
        return dataclasses.replace(_inverse(inverse, low, high), inverse=inverse)

    def _along(self, i: int, start: Any, end: Any) -> _Line:
        slopes = np.zeros((len(self._axes), len(start)))
        slopes[self._axes.index(i)] = 0.5 * (end - start)
        return _Line(np.minimum(start, end), np.maximum(start, end), 0.5 * (start + end), slopes, np.zeros(len(start)))

    def _computed(self, name: str, given: tuple[Any, ...], *operands: Any) -> Any:
        found = intervals.operation(name, given)(*map(_ends, operands))
        if found[0] is found[1]:
            return found[0]
        if found[0].dtype.kind != "f":
            return found
        lines = [self._line(x) for x in operands]
        rule = _RULES.get(name)
        made = rule(found, *lines) if rule and all(isinstance(x, _Line) for x in lines) else None
        if name == "select_n":
            made = _chosen(found, operands[0], *lines[1:])
        return made or _between(*found, len(self._axes))

    def _line(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            value = x.astype(float)
            line = _Line(x, x, value, np.zeros((len(self._axes), len(x))), np.zeros(len(x)))
            line.inverse = 1.0 / value
            return line
        return x


def _ends(x: Any) -> tuple[Any, Any]:
    return x.pair if isinstance(x, _Line) else x if isinstance(x, tuple) else (x, x)


def _between(low: Any, high: Any, n_axes: int) -> _Line:
    return _Line(low, high, np.full(len(low), np.nan), np.zeros((n_axes, len(low))), np.zeros(len(low)))


def _mixed(found: Any, a: Any, x: _Line, b: Any, y: _Line, more: Any = 0.0, moved: Any = 0.0) -> _Line:
    """``a x + b y + moved``, give or take ``more``."""
    rest = abs(a) * x.rest + abs(b) * y.rest + more
    return _Line(found[0], found[1], a * x.middle + b * y.middle + moved, a * x.slopes + b * y.slopes, rest)


def _product(found: Any, x: _Line, y: _Line) -> _Line:
    reach = [abs(line.slopes).sum(axis=0) + line.rest for line in (x, y)]
    made = _mixed(found, y.middle, x, x.middle, y, reach[0] * reach[1], -x.middle * y.middle)
    made.inverse = _of_rates(_product, x, y)
    return made


def _of_rates(rule: Callable[..., _Line], x: _Line, y: _Line) -> _Line | None:
    """The inverse of what two rates give; of a plain number its inverse is a number."""
    if not isinstance(x.inverse, _Line) and not isinstance(y.inverse, _Line):
        return None
    lines = [_number(v.inverse, x.slopes.shape) if isinstance(v.inverse, np.ndarray) else v.inverse for v in (x, y)]
    if any(line is None or not (line.low > 0).all() for line in lines):
        return None
    one, other = lines
    found = one.low * other.low, one.high * other.high
    if rule is not _product:
        extreme = np.maximum if rule is _larger else np.minimum
        found = extreme(one.low, other.low), extreme(one.high, other.high)
    return rule(found, one, other)


def _number(value: Any, shape: tuple[int, ...]) -> _Line:
    return _Line(value, value, value, np.zeros(shape), np.zeros(shape[1]))


def _quotient(found: Any, x: _Line, y: _Line) -> _Line | None:
    inverse = y.inverse
    if isinstance(inverse, np.ndarray):
        return _mixed(found, inverse, x, 0.0, x)
    if inverse is None:
        if not (y.low > 0).all():
            return None
        inverse = _inverse(y, 1.0 / y.high, 1.0 / y.low)
    return _product(found, x, inverse)


def _inverse(x: _Line, low: Any, high: Any) -> _Line:
    """``1 / x`` of positive values: a chord, moved half way to the curve."""
    chord = -1.0 / (x.low * x.high)
    deepest = 2.0 * np.sqrt(-chord)  # of 1 / v - chord v, where both have one slope
    ends = 1.0 / x.low - chord * x.low
    return _mixed((low, high), chord, x, 0.0, x, 0.5 * (ends - deepest) + _UNIT * ends, 0.5 * (ends + deepest))


def _larger(found: Any, x: _Line, y: _Line) -> _Line:
    made = _extreme(found, x, y, larger=True)
    made.inverse = _of_rates(_smaller, x, y)
    return made


def _smaller(found: Any, x: _Line, y: _Line) -> _Line:
    made = _extreme(found, x, y, larger=False)
    made.inverse = _of_rates(_larger, x, y)
    return made


def _extreme(found: Any, x: _Line, y: _Line, larger: bool) -> _Line:
    apart = _mixed((x.low - y.high, x.high - y.low), 1.0, x, -1.0, y)
    mixed = (apart.low < 0) & (apart.high > 0)
    share = np.where(mixed, apart.high / (apart.high - apart.low), apart.low >= 0)
    off = np.where(mixed, -0.5 * share * apart.low, 0.0)
    of_x = share if larger else 1.0 - share
    return _mixed(found, of_x, x, 1.0 - of_x, y, off, off if larger else -off)


def _chosen(found: Any, which: Any, no: Any, yes: Any) -> _Line | None:
    surely, maybe = _ends(which)
    if surely.dtype != bool or not isinstance(no, _Line) or not isinstance(yes, _Line):
        return None
    apart = 0.5 * (abs(no.middle - yes.middle) + abs(no.slopes - yes.slopes).sum(axis=0))

    def of(one: Any, other: Any, both: Any) -> Any:
        return np.where(surely, other, np.where(maybe, both, one))

    rest = of(no.rest, yes.rest, np.maximum(no.rest, yes.rest) + apart)
    middle = of(no.middle, yes.middle, 0.5 * (no.middle + yes.middle))
    return _Line(found[0], found[1], middle, of(no.slopes, yes.slopes, 0.5 * (no.slopes + yes.slopes)), rest)


#: Operations that have lines; all others have plain intervals.
_RULES: dict[str, Callable[..., _Line | None]] = {
    "add": lambda found, x, y: _mixed(found, 1.0, x, 1.0, y),
    "add_any": lambda found, x, y: _mixed(found, 1.0, x, 1.0, y),
    "sub": lambda found, x, y: _mixed(found, 1.0, x, -1.0, y),
    "neg": lambda found, x: _mixed(found, -1.0, x, 0.0, x),
    "mul": _product,
    "div": _quotient,
    "max": _larger,
    "min": _smaller,
}
