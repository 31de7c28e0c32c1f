"""Registration of records as JAX pytrees, apart from the records: when JAX is imported, before or after them.

Designs are evaluated by NumPy without JAX, whose import takes longer than the answer. A record is therefore a plain
dataclass; where a process imports JAX, whoever does it, all records become pytrees at that moment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: All records.
RECORDS = set[type]()

#: Records to register once JAX is imported.
_waiting: list[type] = []


def register(cls: type) -> None:
    """Register a dataclass as a pytree of all its fields, at once where JAX is imported and else with its import.

    Args:
        cls: class of a record.
    """
    RECORDS.add(cls)
    _waiting.append(cls)
    if "jax" in sys.modules:
        _register_waiting()
    elif not any(isinstance(finder, _JaxImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _JaxImport())


def _register_waiting() -> None:
    """Register the records that wait, once another thread that imports JAX at present has done so."""
    import jax

    while _waiting:
        jax.tree_util.register_dataclass(_waiting.pop())


class _JaxImport(MetaPathFinder):
    """A finder of modules that finds none itself, but has the records registered when JAX has been imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return JAX's spec of the other finders, whose module is executed and records then registered; else None."""
        if name != "jax":
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        spec = next((spec for finder in finders if (spec := finder.find_spec(name, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            loader.exec_module = execute
            sys.meta_path.remove(self)
            _register_waiting()

        loader.exec_module = execute_and_register
        return spec
