"""How a noun is written: frozen records whose leaves carry symbol, units and a long name."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import jax

T = TypeVar("T")

#: One real number: a Python or NumPy float or a (traced) JAX scalar; an array of them under ``vmap``.
Scalar: TypeAlias = float | jax.Array


def metadata(symbol: str, units: str, text: str, default: Any = dataclasses.MISSING, **extra: Any) -> Any:
    """A dataclass field with what labelled outputs need: symbol, SI units and a long name."""
    about = {"symbol": symbol, "units": units, "long_name": text, **extra}
    return dataclasses.field(default=default, metadata=about)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(metadata, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen keyword-only dataclass whose fields are pytree leaves or records."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    return jax.tree_util.register_dataclass(cls)


def defaults(cls: type) -> dict[str, float]:
    """Leaves of a record class that have a default, which a catalogue file need not state."""
    return {f.name: f.default for f in dataclasses.fields(cls) if f.metadata and f.default is not dataclasses.MISSING}


def field_metadata(cls: type, name: str) -> dict[str, Any]:
    """Symbol, units and long name of field ``name`` of a record class."""
    return dict(next(f.metadata for f in dataclasses.fields(cls) if f.name == name))
