"""References within a configuration: ``${a.b}``, ``${.b}``, ``${multiply:4, ${.b}}``, ``${NAME:-8}``, ``$(NAME)``.

The forms are those of OmegaConf (a path from the root, or from the table with leading dots; a function by its name),
of Primus (``${NAME:8}``, a variable of the environment with its default) and of Kubernetes. A reference that the
file does not explain stays as it is, and is an open value. Nothing is executed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from dse.tools.shell import whole_number
from dse.tools.words import value_text

#: An innermost reference.
_REFERENCE = re.compile(r"\$\{([^${}]*)\}|\$\((\w+)\)")

#: Maximum number of replacements within a document, of characters of a value, and of references behind one another.
_MAX_STEPS, _MAX_CHARACTERS, _MAX_CHAIN = 5_000, 10_000, 8

#: Function of a configuration → its value of numbers; those of OmegaConf's users that tools register.
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "multiply": math.prod,
    "mul": math.prod,
    "add": sum,
    "sum": sum,
    "subtract": lambda v: v[0] - v[1],
    "divide": lambda v: v[0] / v[1],
    "div": lambda v: v[0] / v[1],
    "int_div": lambda v: v[0] // v[1],
    "max": max,
    "min": min,
}


def resolved(document: Any, variables: Mapping[str, str]) -> Any:
    """Return a document with its references replaced by what the file says.

    Args:
        document: tables, lists and values, as parsed.
        variables: name → value of the environment that the file states.

    Returns:
        The document, open references as they are.

    >>> resolved({"a": {"n": 4, "m": "${multiply:2, ${.n}}"}, "b": "${a.m}"}, {})
    {'a': {'n': 4, 'm': 8}, 'b': 8}
    """
    resolver = _Resolver(document, variables)

    def value_at(node: Any, path: _Path) -> Any:
        if isinstance(node, dict):
            return {key: value_at(inner, (*path, key)) for key, inner in node.items()}
        if isinstance(node, list):
            return [value_at(inner, (*path, i)) for i, inner in enumerate(node)]
        return resolver.replaced(node, path, ()) if isinstance(node, str) and "$" in node else node

    return value_at(document, ())


_Path = tuple[str | int, ...]


class _Resolver:
    """Replaces the references of a document."""

    def __init__(self, document: Any, variables: Mapping[str, str]) -> None:
        self.document, self.variables, self.steps = document, variables, 0

    def replaced(self, text: str, path: _Path, chain: tuple[_Path, ...]) -> Any:
        """Return a text with references replaced, a value of its type where it is one reference alone.

        Args:
            text: the value.
            path: its place in the document.
            chain: places whose values refer to it.
        """
        position = 0
        while (match := _REFERENCE.search(text, position)) and len(text) <= _MAX_CHARACTERS:
            self.steps += 1
            if self.steps > _MAX_STEPS:
                return text
            value = self.variables.get(match[2]) if match[2] else self.referenced(match[1], path, chain)
            if value is None or isinstance(value, dict | list):
                position = match.end()
            elif match[0] == text and not isinstance(value, str):
                return value
            else:
                text = text[: match.start()] + value_text(value) + text[match.end() :]
                is_open = isinstance(value, str) and "$" in value
                position = match.start() + len(value) if is_open else 0  # an outer reference may be explained now
        return text

    def referenced(self, inner: str, path: _Path, chain: tuple[_Path, ...]) -> Any:
        """Return the value of the text within ``${…}``, None for one that the file does not explain."""
        name, colon, rest = inner.partition(":")
        name = name.strip()
        if colon:
            if name in _FUNCTIONS:
                return _computed(name, rest)
            if name in ("oc.env", "env", "oc.decode"):
                variable, comma, default = rest.partition(",")
                return self.variables.get(variable.strip(), _number(default) if comma else None)
            is_name = re.fullmatch(r"\w+", name)
            return (self.variables.get(name) or _number(rest.lstrip("-="))) if is_name else None
        if (number := whole_number(name)) is not None:
            return number
        if name in self.variables:
            return self.variables[name]
        dots = len(name) - len(name.lstrip("."))
        place: _Path = (*(path[: len(path) - dots] if dots else ()), *filter(None, name.split(".")))
        node = _value_at(self.document, place)
        if not isinstance(node, str) or "$" not in node:
            return node
        is_circle = place == path or place in chain or len(chain) >= _MAX_CHAIN
        return None if is_circle else self.replaced(node, place, (*chain, path))


def _value_at(node: Any, place: _Path) -> Any:
    """Return the value at a place of a document, None where there is none."""
    for key in place:
        if isinstance(node, list) and str(key).isdigit() and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, dict) and key in node:
            node = node[key]
        else:
            return None
    return node


def _computed(name: str, rest: str) -> float | None:
    """Return the value of a function of numbers, None for others."""
    try:
        value = _FUNCTIONS[name]([float(part) for part in rest.split(",")])
    except (ValueError, ArithmeticError, IndexError):
        return None
    return int(value) if math.isfinite(value) and value == int(value) else value


def _number(text: str) -> Any:
    """Return the whole number that a text is, else the text without its quotes."""
    text = text.strip().strip("\"'")
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
