"""Trees of records, tuples, dictionaries and None as JAX has them, flattened and built without JAX.

Leaves come in the order of ``jax.tree``: fields of records in theirs, dictionaries by sorted keys.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dse.types import pytrees

if TYPE_CHECKING:
    import jax

#: A node of a structure: its class, names of fields or keys, and children, None for a leaf.
_Node = tuple[type, tuple[Any, ...], tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Structure:
    """Structure of a tree without its leaves: plain classes and names, which may be hashed, compared and pickled."""

    node: _Node | None
    num_leaves: int

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Return the tree of this structure with these leaves, in their order."""
        return _build(self.node, iter(leaves))

    def to_jax(self) -> jax.tree_util.PyTreeDef:
        """Return the same structure as JAX has it."""
        import jax

        return jax.tree.structure(self.unflatten([0.0] * self.num_leaves))


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree, in order, and its structure.

    Args:
        tree: record, tuple, list, dictionary or None of trees; anything else is a leaf.
    """
    values: list[Any] = []
    node = _flatten(tree, values)
    return values, Structure(node, len(values))


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree, in order."""
    return flatten(tree)[0]


def tree_structure(tree: Any) -> Structure:
    """Return the structure of a tree."""
    return flatten(tree)[1]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return the tree of the function's value at each leaf, and at the same leaf of other trees of its structure."""
    first, shape = flatten(tree)
    return shape.unflatten([*map(function, first, *map(tree_leaves, others))])


def from_jax(structure: jax.tree_util.PyTreeDef) -> Structure:
    """Return the structure that JAX has as a ``PyTreeDef``."""
    return flatten(structure.unflatten(range(structure.num_leaves)))[1]


#: Classes whose values are leaves, as far as they were seen.
_leaf_classes: set[type] = {float, int}


@functools.cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a record or of a tuple with names, None for other classes."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    return tuple(field.name for field in dataclasses.fields(kind)) if kind in pytrees.RECORDS else None


def _flatten(tree: Any, values: list[Any]) -> _Node | None:
    """Append the leaves of a tree to a list, and return its node."""
    kind: Any = type(tree)
    if kind in _leaf_classes:
        values.append(tree)
        return None
    names = _names(kind)
    if names is not None:
        return kind, names, _children([getattr(tree, name) for name in names], values)
    if tree is None:
        return kind, (), ()
    if kind is tuple or kind is list:
        return kind, (), _children(tree, values)
    if kind is dict:
        keys = tuple(sorted(tree))
        return kind, keys, _children([tree[key] for key in keys], values)
    _leaf_classes.add(kind)
    values.append(tree)
    return None


def _children(trees: Sequence[Any], values: list[Any]) -> tuple[_Node | None, ...]:
    """Append the leaves of trees to a list, and return the node of each; most of a record's are leaves."""
    nodes: list[_Node | None] = []
    for tree in trees:
        if type(tree) in _leaf_classes:
            values.append(tree)
            nodes.append(None)
        else:
            nodes.append(_flatten(tree, values))
    return tuple(nodes)


def _build(node: _Node | None, leaves: Iterator[Any]) -> Any:
    """Return the tree of a node with the next leaves."""
    if node is None:
        return next(leaves)
    kind, names, children = node
    values = [next(leaves) if child is None else _build(child, leaves) for child in children]
    if kind is dict:
        return dict(zip(names, values, strict=True))
    if kind is tuple or kind is list:
        return kind(values)
    if kind is type(None):
        return None
    return kind(**dict(zip(names, values, strict=True)))
