"""YAML of files: documents, read without building objects and up to a number of values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from dse.errors import InputError
from dse.io import install_extra

#: Maximum number of values in a file; the anchors of YAML may repeat a part any number of times.
MAX_VALUES = 20_000


def yaml_module() -> Any:
    """Return the module that reads and writes YAML; InputError where it is not installed."""
    try:
        import yaml
    except ImportError:
        raise InputError(
            "a file of YAML",
            "no package PyYAML, which reads and writes it",
            "an installation with the extra recipes",
            install_extra("recipes"),
        ) from None
    return yaml


def yaml_documents(text: str, strict: bool = False) -> list[Any]:
    """Return the documents of a YAML text, empty for one that is no YAML.

    Args:
        text: of the file.
        strict: whether a text that is no YAML is an error.

    Raises:
        InputError: for too many merged values, without the package that reads YAML, and for no YAML where ``strict``.
    """
    yaml, steps = yaml_module(), itertools.count()

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc, name-defined, unused-ignore]
        """Counts the keys that ``<<`` merges: each level of a few may have those of all before several times."""

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            for _ in node.value:
                _count_value(steps)

    try:
        return list(yaml.load_all(text, Loader))
    except yaml.YAMLError as error:
        if strict:
            got = " ".join(str(error).split())
            raise InputError("a file of YAML", got[:200], "valid YAML", "correct the file") from None
        return []


def _count_value(steps: Iterator[int]) -> None:
    """Count one value; InputError for a file of too many."""
    if next(steps) > MAX_VALUES:
        raise InputError("arguments", "a file of too many values", f"at most {MAX_VALUES:,}", "give one recipe")
