"""Values of documents as JSON has them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any


def plain_values(value: Any) -> Any:
    """Return records, arrays, paths and choices as dictionaries, lists, numbers and texts, as JSON has them.

    Floats that are not finite become None; keys become texts.

    >>> from pathlib import Path
    >>> plain_values({1: (math.inf, Path("a.nc"))})
    {'1': [None, 'a.nc']}
    """
    if value is None or (isinstance(value, str | bool | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_values(inner) for inner in value]
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy and JAX
        return plain_values(value.tolist())
    return str(value)
