"""Interpreter of the syntax tree of an expression: values, units and violations of its nodes."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import operator
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dse.designs import all_leaves, catalog, leaf_value
from dse.doors import Study
from dse.doors.studies import metric_of_other_study
from dse.doors.study import Lookup
from dse.errors import InputError
from dse.spec.axes import check_read, choices_of, find_leaf, is_leaf
from dse.types import Scalar

if TYPE_CHECKING:
    import jax

#: Value of a node: a truth value or a number.
Truth: TypeAlias = "jax.Array | np.bool_"
Value: TypeAlias = "Scalar | Truth"

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}

#: Largest constant: within the range of single precision.
_LARGEST = 1e38

#: Least violation of a false comparison, for ``a < a``.
_LEAST_EXCESS = 1e-6

#: Syntax of the language.
ALLOWED = "numbers, strings, leaves, metrics, + - * / < <= > >= == != and or not"


@dataclasses.dataclass(frozen=True)
class Reading:
    """Interpreter of the syntax-tree nodes of an expression, with values of names from ``lookup``."""

    study: Study
    lookup: Lookup
    where: str

    def value(self, node: ast.expr) -> Value:
        """Return the value of a node in SI units, number or truth value; InputError for syntax outside the language."""
        if isinstance(node, ast.BoolOp):
            combine = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return functools.reduce(combine, [_truth(self.value(operand)) for operand in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~_truth(self.value(node.operand))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -1.0 * self._number(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._combined(type(node.op), self._number(node.left), self._number(node.right))
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            sides = itertools.pairwise(self.sides(node))
            steps = [_COMPARE[type(op)](a, b) for op, (a, b) in zip(node.ops, sides, strict=True)]
            return functools.reduce(operator.and_, steps)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            return self._constant(node.value)
        dotted = dotted_name(node)
        if dotted is not None:
            return self.lookup(self._full_name(dotted))
        raise InputError(self.where, repr(ast.unparse(node)), ALLOWED, "use only these")

    def dimension(self, node: ast.expr) -> catalog.Dimension | None:
        """Return the dimension of a node, empty without unit, None for a constant, which takes the other operand's."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.dimension(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = self.dimension(node.left), self.dimension(node.right)
            if left is None and right is None:
                return None
            if isinstance(node.op, ast.Mult | ast.Div):
                return catalog.product_dimension(left or {}, right or {}, 1 if isinstance(node.op, ast.Mult) else -1)
            if left is None or right is None:
                return right if left is None else left
            return left if left == right else {}
        dotted = dotted_name(node)
        if dotted is None:
            return {} if is_boolean(node) else None
        name = self._full_name(dotted)
        return catalog.dimension(self.study.units.get(name) or all_leaves()[name]["units"])

    def unit_notes(self, node: ast.Compare) -> Iterator[str]:
        """Yield notes, as texts, on the SI units assumed for bare numbers of a comparison, none for 0."""
        operators = [_SIGNS[type(op)] for op in node.ops]
        for sign, (left, right) in zip(operators, itertools.pairwise((node.left, *node.comparators)), strict=True):
            for number, other in ((left, right), (right, left)):
                nodes = (child for child in ast.walk(number) if isinstance(child, ast.expr))
                is_bare = not any(dotted_name(child) or is_text(child) for child in nodes)
                units = self.dimension(other)
                if is_bare and units and (value := float(self.value(number))):
                    text = f"{_side_text(left)} {sign} {_side_text(right)}"
                    yield f"{text} has no unit: read as {value:g} {catalog.unit_text(units)}"

    def excess(self, node: ast.expr, expected: bool) -> Scalar:
        """Return the violation of ``node == expected`` as a number without unit, 0 where it holds."""
        import jax.numpy as jnp

        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.excess(node.operand, not expected)
        if isinstance(node, ast.BoolOp):
            violations = [self.excess(operand, expected) for operand in node.values]
            return functools.reduce(
                operator.add if isinstance(node.op, ast.And) == expected else jnp.minimum, violations
            )
        is_true = _truth(self.value(node)) == expected
        if not isinstance(node, ast.Compare):
            return jnp.where(is_true, 0.0, 1.0)
        pairs = itertools.pairwise(jnp.asarray(side, jnp.float32) for side in self.sides(node))
        distance = sum(jnp.abs(a - b) / jnp.maximum(jnp.abs(a) + jnp.abs(b), _LEAST_EXCESS) for a, b in pairs)
        return jnp.where(is_true, 0.0, jnp.maximum(distance, _LEAST_EXCESS))

    def _constant(self, value: float) -> float:
        """Return a constant as a float, InputError where it exceeds 1e38."""
        if abs(value) > _LARGEST:
            raise InputError(self.where, "a number above 1e38", "numbers up to 1e38", "check the number")
        return float(value)

    def _number(self, node: ast.expr) -> Scalar:
        """Return the number of an operand of arithmetic, InputError for a truth value."""
        if is_boolean(node):
            raise InputError(
                self.where,
                f"{ast.unparse(node)!r}, which is true or false",
                "numbers in arithmetic",
                "compare the result: 'tp * pp <= 8'",
            )
        value: Any = self.value(node)
        return value

    def _combined(self, operation: type[ast.operator], left: Scalar, right: Scalar) -> Scalar:
        """Return the sum, difference, product or quotient of two numbers, InputError for a constant divisor of 0."""
        if operation is ast.Div and type(right) is float and right == 0.0:
            raise InputError(self.where, "a division by zero", ALLOWED, "divide by another number")
        return _BINARY[operation](left, right)

    def sides(self, node: ast.Compare) -> list[Value]:
        """Return the values of the sides of a comparison, texts read in the unit or choices of the first name."""
        sides = [node.left, *node.comparators]
        names = [name for name in map(dotted_name, sides) if name is not None]
        self._expect_quotes(node, names)
        return [
            self._literal(side.value, names)
            if isinstance(side, ast.Constant) and isinstance(side.value, str | bool)
            else self.value(side)
            for side in sides
        ]

    def _literal(self, value: str | bool, names: list[str]) -> Scalar:
        """Return a text or a truth value that is compared with ``names`` as a number, in SI units."""
        if isinstance(value, str):
            return self._text(value, names)
        path = self._full_name(names[0]) if names else ""
        return leaf_value(path, value, self.where) if path in all_leaves() else self._constant(value)

    def _expect_quotes(self, node: ast.Compare, names: list[str]) -> None:
        """Raise InputError where a side is an unquoted choice of another side's leaf: ``recompute == full``."""
        for leaf, other in itertools.permutations(names, 2):
            if not is_leaf(leaf) or is_leaf(other) or other in self.study.units:
                continue
            if other in choices_of(self._full_name(leaf)):
                quoted_comparison = re.sub(rf"\b{other}\b", repr(other), ast.unparse(node))
                raise InputError(
                    self.where,
                    f"{ast.unparse(node)!r}",
                    f"a choice of {leaf} in quotation marks",
                    f"write {quoted_comparison}",
                )

    def _text(self, text: str, names: list[str]) -> Scalar:
        """Return a text that is compared with ``names`` as a number of the first one, in SI units; else InputError."""
        if not names:
            raise InputError(self.where, repr(text), "a string compared with a leaf or metric", "compare it with one")
        name = self._full_name(names[0])
        if name in self.study.units:
            return catalog.quantity(text, self.study.units[name], self.where)
        return leaf_value(name, text, self.where)

    def _full_name(self, name: str) -> str:
        """Return a metric's name, or the full path of a leaf; InputError for others and for leaves not read."""
        if name in self.study.units:
            return name
        if not is_leaf(name) and (foreign_metric := metric_of_other_study(name, self.study)):
            metric, other = foreign_metric
            quoted = f"{name!r}" if metric == name else f"{name!r}, that is {metric}"
            raise InputError(
                self.where,
                f"{quoted}, a metric of {other.name}",
                f"leaves, and metrics of {self.study.name}",
                "add a section [serving]" if other.name == "serving" else f"leave out the section [{self.study.name}]",
            )
        serves = self.study.name == "serving"
        path = find_leaf(name, self.where, self.study.units, "leaves and metrics", "constraints", serving=serves)
        check_read(path, name, self.where, self.study)
        return path


def is_text(node: ast.expr) -> bool:
    """True for a node that is a constant text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _side_text(node: ast.expr) -> str:
    """Return the text of a side of a comparison, a bare number in up to 6 digits."""
    value = getattr(node, "value", None)
    return f"{value:g}" if isinstance(node, ast.Constant) and isinstance(value, int | float) else ast.unparse(node)


def _truth(value: Value) -> Truth:
    """Return the truth value of a number or truth value: True where it is not 0."""
    if isinstance(value, float | int):
        return np.bool_(value != 0)
    return value if value.dtype == np.bool_ else value != 0


def dotted_name(node: ast.expr) -> str | None:
    """Return ``a.b.c`` of a name or a chain of attributes, None for any other node."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def is_boolean(node: ast.expr) -> bool:
    """True for a comparison, ``and``, ``or`` or ``not``, whose value is a truth value."""
    negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negation or isinstance(node, ast.BoolOp | ast.Compare)
