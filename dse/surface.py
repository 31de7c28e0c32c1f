"""Public names of a package, imported when they are first used."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from pathlib import Path
from typing import Any


@functools.cache
def modules_by_name(package: str) -> dict[str, str]:
    """Return name → full name of the module that a package imports it from under ``if TYPE_CHECKING:``.

    The package lists its public names there once, for type checkers; this reads the same lines.

    Args:
        package: full name of a package that is imported.

    >>> modules_by_name("dse.sweep")["open_results"]
    'dse.sweep.results.files'
    """
    tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
    blocks = (block for block in tree.body if isinstance(block, ast.If))
    imports = (line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom))
    return {alias.asname or alias.name: str(line.module) for line in imports for alias in line.names}


def attribute(package: str, name: str) -> Any:
    """Import a public name of a package, keep it there and return it: the ``__getattr__`` of the package.

    A room whose modules take seconds to import costs nothing until one of its names is used.

    Args:
        package: full name of the package.
        name: public name.

    Returns:
        The function, class or constant, or a public module of the package.

    Raises:
        AttributeError: if the package has no such public name.
    """
    module = modules_by_name(package).get(name)
    if module is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    source = importlib.import_module(f"{package}.{name}" if module == package else module)
    value = source if module == package else getattr(source, name)
    setattr(sys.modules[package], name, value)
    return value
