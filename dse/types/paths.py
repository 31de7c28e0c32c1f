"""Leaves of records by path: their metadata, and records built from values by path.

A path is dotted (``memory.bandwidth`` in an accelerator, ``system.accelerator.memory.bandwidth`` in a design). Optional
records (``kernels.steps``) are built where a value of theirs is given.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

T = TypeVar("T")


class _Field(NamedTuple):
    """A field of a record: a leaf, or a record (class ``record``), which may be ``optional``."""

    name: str
    record: type | None
    optional: bool
    metadata: dict[str, Any]


@functools.cache
def _fields(cls: type[Any]) -> tuple[_Field, ...]:
    """Return name, record class, optionality and metadata of every field of a record class, in order."""
    hints = get_type_hints(cls)
    fields = []
    for field in dataclasses.fields(cls):
        kinds = get_args(hints[field.name]) or (hints[field.name],)
        record = next((kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)
        default = {} if field.default is dataclasses.MISSING else {"default": field.default}
        fields.append(_Field(field.name, record, record is not None and len(kinds) > 1, {**field.metadata, **default}))
    return tuple(fields)


def leaves(cls: type, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Return path → metadata of every leaf of a class, in order, without those of optional records.

    Metadata are those of :func:`dse.types.metadata`, and ``default`` where there is one.

    Args:
        cls: a record class.
        prefix: text before every path.
    """
    metadata_by_path: dict[str, dict[str, Any]] = {}
    for field in _fields(cls):
        if field.record is None:
            metadata_by_path[prefix + field.name] = field.metadata
        elif not field.optional:
            metadata_by_path |= leaves(field.record, f"{prefix}{field.name}.")
    return metadata_by_path


def build(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return a record of a class from path → value; leaves with a default and optional records may be left out.

    Args:
        cls: a record class, such as :class:`dse.types.Design`.
        values: path → value; numbers, arrays or traced values in SI units.

    Raises:
        TypeError: for a path that the class does not have, and for a leaf without value and default.
        KeyError: for a path below a leaf.

    >>> from dse.types import Network
    >>> build(Network, dict.fromkeys(leaves(Network), 1.0) | {"latency": 5e-6}).latency
    5e-06
    """
    by_field: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        head, _, subpath = path.partition(".")
        by_field.setdefault(head, {})[subpath] = value
    arguments: dict[str, Any] = {}
    kind: Any = cls  # hashable class, for the cache
    for field in _fields(kind):
        inner = by_field.pop(field.name, None)
        if field.record is not None and (inner is not None or not field.optional):
            arguments[field.name] = build(field.record, inner or {})
        elif inner is not None:
            arguments[field.name] = inner[""]
    return cls(**arguments, **by_field)
