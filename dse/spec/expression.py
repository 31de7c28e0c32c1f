"""The small language of constraints and objectives: arithmetic, comparisons, and, or, not.

Names are leaves of a design (any unique dotted ending) and metrics; a text beside a
leaf or metric is read in its units or as a name of its enumeration::

    peak_memory < 0.9 * memory.capacity and tp <= 8
    recompute == "full" or peak_memory <= "70 GiB"

A text is parsed into Python's syntax tree and only the nodes listed here are accepted
and interpreted; nothing is ever evaluated by Python.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import re
from typing import Any

import numpy as np

from dse.designs import catalog
from dse.doors import Study
from dse.doors.study import Lookup
from dse.errors import InputError
from dse.spec.reading import ALLOWED, Reading, Value, dotted_name, is_boolean, is_text
from dse.types import Scalar

#: Limits of an expression: characters, and levels of nesting (below the limit of Python's stack).
_LONGEST, _DEEPEST = 4_000, 100
_SPLIT = "split it into several constraints: all of them must hold"

#: An unquoted number with a unit after a comparison.
_BARE = re.compile(r"([<>=]=?\s*)(\d[\d.eE+]*\s*[A-Za-zµ%][\w/%]*)")

#: A single equals sign in place of ``==``.
_ASSIGNMENT = re.compile(r"(?<![<>=!])=(?!=)")


@dataclasses.dataclass(frozen=True)
class Expression:
    """A checked expression: its text, and the full names of the leaves and metrics it reads."""

    text: str
    names: tuple[str, ...]
    study: Study
    where: str = dataclasses.field(default="expression", compare=False)

    @property
    def is_comparison(self) -> bool:
        """True for an expression whose value is a truth value, False for a number."""
        return is_boolean(_tree(self.text))

    @property
    def bound(self) -> tuple[str, bool] | None:
        """(Name, True for an upper bound or False for a lower) of a comparison of one name with a constant, else None.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("0.5 <= mfu", "constraints", TRAINING).bound
        ('mfu', False)
        """
        tree = _tree(self.text)
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or len(self.names) != 1:
            return None
        is_upper = isinstance(tree.ops[0], ast.Lt | ast.LtE)
        if not is_upper and not isinstance(tree.ops[0], ast.Gt | ast.GtE):
            return None
        sides = (tree.left, tree.comparators[0])
        name_sides = [i for i, side in enumerate(sides) if dotted_name(side) is not None]
        if len(name_sides) != 1 or not isinstance(sides[1 - name_sides[0]], ast.Constant):
            return None
        return self.names[0], is_upper == (name_sides[0] == 0)

    @property
    def constant(self) -> float:
        """Constant that the name of a :attr:`bound` is compared with, in SI units; AssertionError without a bound.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("step_time <= '2 ms'", "constraints", TRAINING).constant
        0.002
        """
        tree = _tree(self.text)
        assert isinstance(tree, ast.Compare) and self.bound is not None
        sides = Reading(self.study, lambda _: math.nan, self.where).sides(tree)
        return next(float(side) for side in sides if not math.isnan(float(side)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes, as texts, on numbers without units that are compared with quantities.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("tp <= 8 and step_time <= 30", "constraints", TRAINING).notes
        ('step_time <= 30 has no unit: read as 30 s',)
        """
        reading, tree = Reading(self.study, lambda _: 1.0, self.where), _tree(self.text)
        comparisons = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
        return tuple(note for node in comparisons for note in reading.unit_notes(node))

    @property
    def units(self) -> str:
        """SI units of the value as text; "1" for dimensionless values and for sums of different units.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("cost_per_run / goodput_fraction", "objective", TRAINING).units
        'USD'
        """
        if (metric := self.text.strip()) in self.study.units:  # Hz, where others have s-1
            return self.study.units[metric]
        return catalog.unit_text(Reading(self.study, lambda _: 1.0, self.where).dimension(_tree(self.text)) or {})

    @property
    def display_units(self) -> str:
        """Units in tables and messages, as text; a single metric is written with what it counts.

        >>> from dse.doors.study_training import TRAINING
        >>> parse("tokens_per_second", "objective", TRAINING).display_units
        'tokens/s'
        """
        return self.study.display_units.get(self.text.strip(), self.units)

    def __call__(self, lookup: Lookup) -> Value:
        """Return the value, number or truth value, with ``lookup(name)`` for names: scalars, arrays or tracers."""
        return Reading(self.study, lookup, self.where).value(_tree(self.text))

    def excess(self, lookup: Lookup) -> Scalar:
        """Return the violation of an expression, a number without unit, 0 where it holds.

        ``a <= b`` gives (a - b) / (|a| + |b|), at most 1; ``and`` adds, ``or`` takes the minimum; 1 for a number of 0.
        """
        return Reading(self.study, lookup, self.where).excess(_tree(self.text), expected=True)


@functools.lru_cache(maxsize=256)
def _tree(text: str) -> ast.expr:
    """Return the syntax tree of an expression's text, cached; SyntaxError or ValueError for a text that is none."""
    return ast.parse(text, mode="eval").body


def parse(text: Any, where: str, study: Study) -> Expression:
    """Return the checked expression of a text in the language of constraints and objectives.

    Args:
        text: the user's text.
        where: its place, for errors.
        study: its metrics are valid names besides the leaves of a design.

    Raises:
        InputError: for unknown names, syntax outside the language, other types than text, and units that do not match.

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
        raise InputError(where, repr(text), ALLOWED, _correction(text, reason)) from None
    if _is_deeper(tree, _DEEPEST):
        raise InputError(where, repr(text), f"at most {_DEEPEST} levels of nesting", _SPLIT)
    names: dict[str, None] = {}

    def note(name: str) -> float:
        names[name] = None
        return np.float64(1.0)

    Reading(study, note, where).value(tree)  # walks every node: nothing is short-circuited
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            _check_shares(node, study, where)
            _check_units(node, "compares", (node.left, *node.comparators), study, where)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            _check_units(node, "adds", (node.left, node.right), study, where)
    return Expression(text, tuple(names), study, where)


def _correction(text: str, reason: str) -> str:
    """Return a suggested correction, as text, of an expression that does not parse for ``reason``."""
    if bare := _BARE.search(text):
        return f"write a number with its unit as a string: {bare[1]}{bare[2]!r}"
    for sign, ours in (("&&", "and"), ("||", "or")):
        if sign in text:
            return f"write {ours} for {sign}"
    if _ASSIGNMENT.search(text):
        return f"write {_ASSIGNMENT.sub('==', text)}"
    return f"this is not an expression: {reason}"


def written_units(text: str, study: Study) -> str:
    """Return the units in tables, as text, of an objective given as text; InputError where it is no expression.

    Args:
        text: an expression of leaves and metrics.
        study: its metrics.
    """
    return parse(text, "objective", study).display_units


#: What an expression does to its sides → (word between their units, a side without unit, what is allowed, usual fix).
_UNLIKE = {
    "adds": (
        "and",
        "plain numbers",
        "sums of like things",
        "give one of them a factor that says what it is worth, such as 1e-9 *",
    ),
    "compares": (
        "with",
        "a plain number",
        "comparisons of like things",
        "compare it with a number and its unit, or with a metric of the same unit",
    ),
}


def _check_units(node: ast.expr, verb: str, sides: tuple[ast.expr, ...], study: Study, where: str) -> None:
    """Raise InputError for sides of different units, unless a number or text stands somewhere in them.

    ``verb`` is what the node does to them, a key of ``_UNLIKE``.
    """
    reading = Reading(study, lambda _: 1.0, where)
    word, plain, allowed, fix = _UNLIKE[verb]
    for pair in itertools.pairwise(sides):
        left, right = (None if is_text(side) else reading.dimension(side) for side in pair)
        has_constant = any(isinstance(child, ast.Constant) for side in pair for child in ast.walk(side))
        if left is not None and right is not None and left != right and not has_constant:
            units = f" {word} ".join(catalog.unit_text(side) if side else plain for side in (left, right))
            raise InputError(where, f"{ast.unparse(node)!r}, which {verb} {units}", allowed, fix)


def _check_shares(node: ast.Compare, study: Study, where: str) -> None:
    """Raise InputError where a metric with an upper bound is compared with a number above it, or equal above 1."""
    for pair in itertools.pairwise((node.left, *node.comparators)):
        for name_node, number_node in (pair, pair[::-1]):
            metric, value = dotted_name(name_node) or "", getattr(number_node, "value", None)
            high = study.upper_bounds.get(metric, math.inf)
            if isinstance(value, int | float) and (value > high or value == high > 1.0):
                fix = f"write {value / 100.0:g} for {value:g} %" if 2.0 < value <= 100.0 else "write 0.9 for 90 %"
                raise InputError(where, f"{ast.unparse(node)!r}", f"a share of 0 to 1: {metric} is no per cent", fix)


def _is_deeper(tree: ast.expr, levels: int) -> bool:
    """True where nodes of a syntax tree are nested deeper than ``levels`` below its root."""
    nodes: list[ast.AST] = [tree]
    for _ in range(levels):
        nodes = [child for node in nodes for child in ast.iter_child_nodes(node)]
    return bool(nodes)
