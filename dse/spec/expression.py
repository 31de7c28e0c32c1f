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
import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from dse import catalog
from dse.design import leaf_value
from dse.errors import InputError
from dse.spec.axes import find_leaf
from dse.types import Metrics, Scalar
from dse.types.metrics import ENERGY

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ALLOWED = "numbers, texts, leaves, metrics, + - * / < <= > >= == != and or not"

#: Reads the value of a metric or of a leaf by its full name.
Lookup = Callable[[str], Scalar]


@dataclasses.dataclass(frozen=True)
class Expression:
    """A checked expression: its text, and the full names of the leaves and metrics it reads."""

    text: str
    names: tuple[str, ...]
    where: str = dataclasses.field(default="expression", compare=False)

    @property
    def is_comparison(self) -> bool:
        """Whether the value is true or false, rather than a number."""
        return _is_boolean(_tree(self.text))

    def __call__(self, lookup: Lookup) -> Scalar:
        """The value, with ``lookup(name)`` for leaves and metrics: scalars, arrays or tracers alike."""
        return _value(_tree(self.text), lookup, self.where)

    def excess(self, lookup: Lookup) -> Scalar:
        """By how much a comparison is missed: 0 where it holds, above 0 where it does not.

        ``a <= b`` is missed by (a - b) / (|a| + |b|), at most 1; ``and`` adds, ``or`` takes the least.
        """
        return _excess(_tree(self.text), lookup, self.where, wanted=True)


@functools.lru_cache(maxsize=256)
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@functools.cache
def metric_units() -> dict[str, str]:
    """Units of every metric by name."""
    return {f.name: f.metadata["units"] for f in dataclasses.fields(Metrics)}


@functools.cache
def energy_metrics() -> frozenset[str]:
    """Names of the metrics of energy and power."""
    return frozenset(f.name for f in dataclasses.fields(Metrics) if f.metadata.get("group") == ENERGY)


def parse(text: Any, where: str) -> Expression:
    """The expression of ``text``; unknown names and anything outside the language are InputErrors."""
    if not isinstance(text, str):
        raise InputError(where, repr(text), "a text such as 'tp <= 8'", "put the expression in quotes")
    try:
        tree = _tree(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(where, repr(text), _ALLOWED, f"this is no expression: {error.args[0]}") from None
    names: dict[str, None] = {}

    def note(name: str) -> np.ndarray:
        names[name] = None
        return np.ones(())

    try:
        _value(tree, note, where)  # walks every node: nothing is short-circuited
    except ZeroDivisionError:
        raise InputError(where, repr(text), _ALLOWED, "it divides by zero") from None
    return Expression(text, tuple(names), where)


def full_name(name: str, where: str) -> str:
    """A metric's name as it is, or the full path of the leaf meant."""
    if name in metric_units():
        return name
    return find_leaf(name, where, metric_units(), "leaves and metrics")


def _value(node: ast.expr, lookup: Lookup, where: str) -> Scalar:
    """The value of one node, operands first."""
    if isinstance(node, ast.BoolOp):
        combine = operator.and_ if isinstance(node.op, ast.And) else operator.or_
        return functools.reduce(combine, [_true(_value(v, lookup, where)) for v in node.values])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~_true(_value(node.operand, lookup, where))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, lookup, where)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, lookup, where), _value(node.right, lookup, where))
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        return _comparison(node, lookup, where)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return float(node.value)
    dotted = _dotted(node)
    if dotted is not None:
        return lookup(full_name(dotted, where))
    raise InputError(where, repr(ast.unparse(node)), _ALLOWED, "write it with these")


def _true(value: Scalar) -> Scalar:
    """Whether a number is not 0; truth values are as they are."""
    if jnp.result_type(value) == np.bool_:
        return value
    return np.bool_(value != 0) if isinstance(value, float) else value != 0


def _comparison(node: ast.Compare, lookup: Lookup, where: str) -> Scalar:
    sides = [node.left, *node.comparators]
    values = [_side(side, sides, lookup, where) for side in sides]
    steps = [_COMPARE[type(op)](values[i], values[i + 1]) for i, op in enumerate(node.ops)]
    return functools.reduce(operator.and_, steps)


#: A comparison that fails by nothing (``a < a``) is still missed by this.
_LEAST_EXCESS = 1e-6


def _excess(node: ast.expr, lookup: Lookup, where: str, wanted: bool) -> Scalar:
    """By how much a node fails to be ``wanted``."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _excess(node.operand, lookup, where, not wanted)
    if isinstance(node, ast.BoolOp):
        parts = [_excess(value, lookup, where, wanted) for value in node.values]
        return functools.reduce(operator.add if isinstance(node.op, ast.And) == wanted else jnp.minimum, parts)
    holds = _true(_value(node, lookup, where)) == wanted
    if not isinstance(node, ast.Compare):
        return jnp.where(holds, 0.0, 1.0)
    sides = [node.left, *node.comparators]
    values = [jnp.asarray(_side(side, sides, lookup, where), jnp.float32) for side in sides]
    pairs = itertools.pairwise(values)
    far = sum(jnp.abs(a - b) / jnp.maximum(jnp.abs(a) + jnp.abs(b), _LEAST_EXCESS) for a, b in pairs)
    return jnp.where(holds, 0.0, jnp.maximum(far, _LEAST_EXCESS))


def _side(side: ast.expr, sides: list[ast.expr], lookup: Lookup, where: str) -> Scalar:
    """One side of a comparison; a text takes the units or the enumeration of the name it is compared with."""
    if not (isinstance(side, ast.Constant) and isinstance(side.value, str)):
        return _value(side, lookup, where)
    named = [name for name in map(_dotted, sides) if name is not None]
    if not named:
        raise InputError(where, repr(side.value), "a text beside a leaf or metric", "compare a name with it")
    path = full_name(named[0], where)
    if path in metric_units():
        return catalog.quantity(side.value, metric_units()[path], where)
    return leaf_value(path, side.value, where)


def _dotted(node: ast.expr) -> str | None:
    """``a.b.c`` of a chain of attributes, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def _is_boolean(node: ast.expr) -> bool:
    negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negation or isinstance(node, ast.BoolOp | ast.Compare)
