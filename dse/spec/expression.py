"""The small language of constraints and objectives: arithmetic, comparisons, and, or, not.

Names are leaves of a design (any unique dotted ending) and metrics; a text beside a
leaf or metric is read in its units or as a name of its enumeration::

    peak_memory < 0.9 * memory.capacity and tp <= 8
    recompute == 'full' or peak_memory <= '70 GiB'

A text is parsed into Python's syntax tree and only the nodes listed here are accepted
and interpreted; nothing is ever evaluated by Python.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import operator
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from dse.designs import catalog
from dse.designs.leaves import known_leaves, leaf_value
from dse.doors.studies import of_another
from dse.doors.study import Lookup, Study
from dse.errors import InputError
from dse.spec.axes import check_read, choices_of, find_leaf, is_leaf
from dse.types import Scalar

#: Value of a node: a truth value or a number.
Truth: TypeAlias = jax.Array | np.bool_
Value: TypeAlias = Scalar | Truth

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
#: Limits of an expression: characters, and levels of nesting (below the limit of Python's stack).
_LONGEST, _DEEPEST = 4_000, 100
_SPLIT = "split it into several constraints: all of them must hold"

#: An unquoted number with a unit after a comparison.
_BARE = re.compile(r"([<>=]=?\s*)(\d[\d.eE+]*\s*[A-Za-zµ%][\w/%]*)")

#: A single equals sign in place of ``==``.
_ASSIGNMENT = re.compile(r"(?<![<>=!])=(?!=)")

#: Largest constant: within the range of single precision.
_LARGEST = 1e38

_ALLOWED = "numbers, strings, leaves, metrics, + - * / < <= > >= == != and or not"


@dataclasses.dataclass(frozen=True)
class Expression:
    """A checked expression: its text, and the full names of the leaves and metrics it reads."""

    text: str
    names: tuple[str, ...]
    study: Study
    where: str = dataclasses.field(default="expression", compare=False)

    @property
    def is_comparison(self) -> bool:
        """Whether the value is a truth value, not a number."""
        return _is_boolean(_tree(self.text))

    @property
    def bound(self) -> tuple[str, bool] | None:
        """Name and direction (True: upper) of a comparison of one name with a constant; otherwise None.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("0.5 <= mfu", "constraints", TRAINING).bound
        ('mfu', False)
        """
        tree = _tree(self.text)
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or len(self.names) != 1:
            return None
        upper = isinstance(tree.ops[0], ast.Lt | ast.LtE)
        if not upper and not isinstance(tree.ops[0], ast.Gt | ast.GtE):
            return None
        sides = (tree.left, tree.comparators[0])
        place = [i for i, side in enumerate(sides) if _dotted(side) is not None]
        if len(place) != 1 or not isinstance(sides[1 - place[0]], ast.Constant):
            return None
        return self.names[0], upper == (place[0] == 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on numbers without units that are compared with quantities.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("tp <= 8 and step_time <= 30", "constraints", TRAINING).notes
        ('step_time <= 30 has no unit: read as 30 s',)
        """
        reading, tree = _Reading(self.study, lambda _: 1.0, self.where), _tree(self.text)
        comparisons = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
        return tuple(note for node in comparisons for note in reading.unit_notes(node))

    @property
    def units(self) -> str:
        """SI units of the value; "1" for dimensionless values and for sums of different units.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("cost_per_run / goodput_fraction", "objective", TRAINING).units
        'USD'
        """
        return catalog.written(_Reading(self.study, lambda _: 1.0, self.where).dimension(_tree(self.text)) or {})

    @property
    def written(self) -> str:
        """Units in tables and messages; a single metric is written with what it counts.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("tokens_per_second", "objective", TRAINING).written
        'tokens/s'
        """
        return self.study.written.get(self.text.strip(), self.units)

    def __call__(self, lookup: Lookup) -> Value:
        """Value with ``lookup(name)`` for leaves and metrics: scalars, arrays or tracers."""
        return _Reading(self.study, lookup, self.where).value(_tree(self.text))

    def excess(self, lookup: Lookup) -> Scalar:
        """Violation of a comparison: 0 where it holds, positive where it does not.

        ``a <= b`` gives (a - b) / (|a| + |b|), at most 1; ``and`` adds, ``or`` takes the minimum.
        """
        return _Reading(self.study, lookup, self.where).excess(_tree(self.text), wanted=True)


@functools.lru_cache(maxsize=256)
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def parse(text: Any, where: str, study: Study) -> Expression:
    """The checked expression of a text.

    Args:
        text: the user's text.
        where: its place, for errors.
        study: its metrics are valid names besides the leaves of a design.

    Raises:
        InputError: for unknown names and for syntax outside the language.

    >>> from dse.doors.study_training import TRAINING
    >>> small = parse("tp <= 8 and peak_memory < '80 GB'", "constraints", TRAINING)
    >>> small.names
    ('mapping.tp', 'peak_memory')
    >>> bool(small({"mapping.tp": 4.0, "peak_memory": 9e10}.get))
    False
    """
    if not isinstance(text, str):
        raise InputError(where, repr(text), "a string such as 'tp <= 8'", "put the expression in quotes")
    if len(text) > _LONGEST:
        raise InputError(where, repr(text), f"at most {_LONGEST:,} characters", _SPLIT)
    try:
        tree = _tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.args[0] if error.args else "nested too deep"
        raise InputError(where, repr(text), _ALLOWED, _mended(text, reason)) from None
    if _is_deeper(tree, _DEEPEST):
        raise InputError(where, repr(text), f"at most {_DEEPEST} levels of nesting", _SPLIT)
    names: dict[str, None] = {}

    def note(name: str) -> float:
        names[name] = None
        return np.float64(1.0)

    _Reading(study, note, where).value(tree)  # walks every node: nothing is short-circuited
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            _check_shares(node, study, where)
            _check_alike(node, study, where)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            _check_sum(node, study, where)
    return Expression(text, tuple(names), study, where)


def _mended(text: str, reason: str) -> str:
    """Suggested correction of a text with syntax of another language."""
    if bare := _BARE.search(text):
        return f"write a number with its unit as a string: {bare[1]}{bare[2]!r}"
    for sign, ours in (("&&", "and"), ("||", "or")):
        if sign in text:
            return f"write {ours} for {sign}"
    if _ASSIGNMENT.search(text):
        return f"write {_ASSIGNMENT.sub('==', text)}"
    return f"this is not an expression: {reason}"


def written_units(text: str, study: Study) -> str:
    """Units in tables of an objective given as text."""
    return parse(text, "objective", study).written


def _check_sum(node: ast.BinOp, study: Study, where: str) -> None:
    """Check that added terms have the same units; a bare number takes those of the other term."""
    reading = _Reading(study, lambda _: 1.0, where)
    left, right = (reading.dimension(side) for side in (node.left, node.right))
    weighted = any(isinstance(one, ast.Constant) for one in ast.walk(node))
    if left is not None and right is not None and left != right and not weighted:
        added = " and ".join(catalog.written(side) if side else "plain numbers" for side in (left, right))
        raise InputError(
            where, f"{ast.unparse(node)!r}, which adds {added}", "sums of like things",
            "give one of them a factor that says what it is worth, such as 1e-9 *",
        )  # fmt: skip


def _check_alike(node: ast.Compare, study: Study, where: str) -> None:
    """Check that compared terms have the same units; a bare number takes those of the other term."""
    reading = _Reading(study, lambda _: 1.0, where)
    for pair in itertools.pairwise((node.left, *node.comparators)):
        left, right = (None if _is_text(side) else reading.dimension(side) for side in pair)
        weighted = any(isinstance(one, ast.Constant) for side in pair for one in ast.walk(side))
        if left is not None and right is not None and left != right and not weighted:
            compared = " with ".join(catalog.written(side) if side else "a plain number" for side in (left, right))
            raise InputError(
                where, f"{ast.unparse(node)!r}, which compares {compared}", "comparisons of like things",
                "compare it with a number and its unit, or with a metric of the same unit",
            )  # fmt: skip


def _check_shares(node: ast.Compare, study: Study, where: str) -> None:
    """Check that a share (a metric with an upper bound) is compared with a possible value."""
    for pair in itertools.pairwise((node.left, *node.comparators)):
        for name, number in (pair, pair[::-1]):
            metric, value = _dotted(name) or "", getattr(number, "value", None)
            high = study.most.get(metric, math.inf)
            if isinstance(value, int | float) and (value > high or value == high > 1.0):
                fix = f"write {value / 100.0:g} for {value:g} %" if 2.0 < value <= 100.0 else "write 0.9 for 90 %"
                raise InputError(where, f"{ast.unparse(node)!r}", f"a share of 0 to 1: {metric} is no per cent", fix)


@dataclasses.dataclass(frozen=True)
class _Reading:
    """Interpreter of the nodes of an expression."""

    study: Study
    lookup: Lookup
    where: str

    def value(self, node: ast.expr) -> Value:
        """Value of a node, operands first."""
        if isinstance(node, ast.BoolOp):
            combine = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return functools.reduce(combine, [_true(self.value(operand)) for operand in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~_true(self.value(node.operand))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -1.0 * self._number(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._combined(type(node.op), self._number(node.left), self._number(node.right))
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            sides = itertools.pairwise(self._sides(node))
            steps = [_COMPARE[type(op)](a, b) for op, (a, b) in zip(node.ops, sides, strict=True)]
            return functools.reduce(operator.and_, steps)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            return self._constant(node.value)
        dotted = _dotted(node)
        if dotted is not None:
            return self.lookup(self._full_name(dotted))
        raise InputError(self.where, repr(ast.unparse(node)), _ALLOWED, "use only these")

    def dimension(self, node: ast.expr) -> catalog.Dimension | None:
        """Dimension of a node; None for a constant, which takes that of the other operand."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.dimension(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = self.dimension(node.left), self.dimension(node.right)
            if left is None and right is None:
                return None
            if isinstance(node.op, ast.Mult | ast.Div):
                return catalog.combined(left or {}, right or {}, 1 if isinstance(node.op, ast.Mult) else -1)
            if left is None or right is None:
                return right if left is None else left
            return left if left == right else {}
        dotted = _dotted(node)
        if dotted is None:
            return {} if _is_boolean(node) else None
        name = self._full_name(dotted)
        return catalog.dimension(self.study.units.get(name) or known_leaves()[name]["units"])

    def unit_notes(self, node: ast.Compare) -> Iterator[str]:
        """Notes on the units assumed for bare numbers of a comparison; none for 0."""
        operators = [_SIGNS[type(op)] for op in node.ops]
        for sign, (left, right) in zip(operators, itertools.pairwise((node.left, *node.comparators)), strict=True):
            for number, other in ((left, right), (right, left)):
                plain = not any(_dotted(one) or _is_text(one) for one in ast.walk(number) if isinstance(one, ast.expr))
                units = self.dimension(other)
                if plain and units and (value := float(self.value(number))):
                    shown = f"{_shown(left)} {sign} {_shown(right)}"
                    yield f"{shown} has no unit: read as {value:g} {catalog.written(units)}"

    def excess(self, node: ast.expr, wanted: bool) -> Scalar:
        """Violation of ``node == wanted``; 0 where it holds."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.excess(node.operand, not wanted)
        if isinstance(node, ast.BoolOp):
            parts = [self.excess(operand, wanted) for operand in node.values]
            return functools.reduce(operator.add if isinstance(node.op, ast.And) == wanted else jnp.minimum, parts)
        holds = _true(self.value(node)) == wanted
        if not isinstance(node, ast.Compare):
            return jnp.where(holds, 0.0, 1.0)
        pairs = itertools.pairwise(jnp.asarray(side, jnp.float32) for side in self._sides(node))
        far = sum(jnp.abs(a - b) / jnp.maximum(jnp.abs(a) + jnp.abs(b), _LEAST_EXCESS) for a, b in pairs)
        return jnp.where(holds, 0.0, jnp.maximum(far, _LEAST_EXCESS))

    def _constant(self, value: float) -> float:
        """A number; InputError outside the range of single precision."""
        if abs(value) > _LARGEST:
            raise InputError(self.where, "a number above 1e38", "numbers up to 1e38", "check the number")
        return float(value)

    def _number(self, node: ast.expr) -> Scalar:
        """Value of an operand of arithmetic."""
        if _is_boolean(node):
            raise InputError(
                self.where, f"{ast.unparse(node)!r}, which is true or false", "numbers in arithmetic",
                "compare the result: 'tp * pp <= 8'",
            )  # fmt: skip
        value: Any = self.value(node)
        return value

    def _combined(self, how: type[ast.operator], left: Scalar, right: Scalar) -> Scalar:
        """Sum, difference, product or quotient of two numbers."""
        if how is ast.Div and type(right) is float and right == 0.0:
            raise InputError(self.where, "a division by zero", _ALLOWED, "divide by another number")
        return _BINARY[how](left, right)

    def _sides(self, node: ast.Compare) -> list[Value]:
        """Sides of a comparison; a text takes the units or the enumeration of the other side's name."""
        sides = [node.left, *node.comparators]
        named = [name for name in map(_dotted, sides) if name is not None]
        self._expect_quotes(node, named)
        return [
            self._said(side.value, named) if isinstance(side, ast.Constant) and isinstance(side.value, str | bool)
            else self.value(side)
            for side in sides
        ]  # fmt: skip

    def _said(self, value: str | bool, named: list[str]) -> Scalar:
        """A text or a truth value that is compared with these names, as a number."""
        if isinstance(value, str):
            return self._text(value, named)
        path = self._full_name(named[0]) if named else ""
        return leaf_value(path, value, self.where) if path in known_leaves() else self._constant(value)

    def _expect_quotes(self, node: ast.Compare, named: list[str]) -> None:
        """InputError for an unquoted choice: ``recompute == full``."""
        for leaf, other in itertools.permutations(named, 2):
            if not is_leaf(leaf) or is_leaf(other) or other in self.study.units:
                continue
            if other in choices_of(self._full_name(leaf)):
                right = re.sub(rf"\b{other}\b", repr(other), ast.unparse(node))
                raise InputError(
                    self.where, f"{ast.unparse(node)!r}", f"a choice of {leaf} in quotation marks", f"write {right}"
                )

    def _text(self, text: str, named: list[str]) -> Scalar:
        """A text that is compared with these names, as a number."""
        if not named:
            raise InputError(self.where, repr(text), "a string compared with a leaf or metric", "compare it with one")
        name = self._full_name(named[0])
        if name in self.study.units:
            return catalog.quantity(text, self.study.units[name], self.where)
        return leaf_value(name, text, self.where)

    def _full_name(self, name: str) -> str:
        """A metric's name, or the full path of a leaf."""
        if name in self.study.units:
            return name
        if not is_leaf(name) and (found := of_another(name, self.study)):
            metric, other = found
            shown = f"{name!r}" if metric == name else f"{name!r}, that is {metric}"
            raise InputError(
                self.where, f"{shown}, a metric of {other.name}", f"leaves, and metrics of {self.study.name}",
                "add a section [serving]" if other.name == "serving" else f"leave out the section [{self.study.name}]",
            )  # fmt: skip
        serves = self.study.name == "serving"
        path = find_leaf(name, self.where, self.study.units, "leaves and metrics", "constraints", serving=serves)
        check_read(path, name, self.where, self.study)
        return path


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _shown(node: ast.expr) -> str:
    """Text of a side of a comparison, with numbers in few digits."""
    value = getattr(node, "value", None)
    return f"{value:g}" if isinstance(node, ast.Constant) and isinstance(value, int | float) else ast.unparse(node)


#: Least violation of a false comparison, for ``a < a``.
_LEAST_EXCESS = 1e-6


def _true(value: Value) -> Truth:
    """Truth value of a number: whether it is not 0."""
    if isinstance(value, float | int):
        return np.bool_(value != 0)
    return value if value.dtype == np.bool_ else value != 0


def _dotted(node: ast.expr) -> str | None:
    """``a.b.c`` of a chain of attributes, otherwise None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def _is_deeper(tree: ast.expr, levels: int) -> bool:
    """Whether nodes are nested deeper than ``levels``."""
    nodes: list[ast.AST] = [tree]
    for _ in range(levels):
        nodes = [child for node in nodes for child in ast.iter_child_nodes(node)]
    return bool(nodes)


def _is_boolean(node: ast.expr) -> bool:
    negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negation or isinstance(node, ast.BoolOp | ast.Compare)
