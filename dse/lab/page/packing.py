"""Columns as bytes, so that a page with 50,000 designs takes a few megabytes.

Numbers are in single precision and split into byte planes, which deflate better; positions take one, two or four
bytes. A column of equal values is one number.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np


class Packer:
    """Collects columns; ``columns`` describes them in order, ``text`` has their bytes."""

    def __init__(self) -> None:
        self.columns: list[dict[str, Any]] = []
        self._pieces: list[bytes] = []

    def add(self, values: np.ndarray, **about: Any) -> int:
        """Add a column with its description; returns its number."""
        piece = {} if _is_same(values) else _planes(values)
        if piece:
            self._pieces.append(piece.pop("bytes"))
        else:
            piece = {"type": "same", "value": _finite(values[0])}
        self.columns.append({**about, **piece})
        return len(self.columns) - 1

    @property
    def text(self) -> str:
        """All columns, deflated, in base 64."""
        return base64.b64encode(zlib.compress(b"".join(self._pieces), 6)).decode("ascii")


def _planes(values: np.ndarray) -> dict[str, Any]:
    """A column's type and bytes."""
    if values.dtype.kind == "f":
        return {"type": "f4", "bytes": values.astype("<f4").view(np.uint8).reshape(-1, 4).T.tobytes()}
    kind = next(kind for kind in ("u1", "u2", "u4") if values.max() <= np.iinfo(kind).max)
    return {"type": kind, "bytes": values.astype(f"<{kind}").tobytes()}


def _is_same(values: np.ndarray) -> bool:
    first = values[0]
    return bool((values == first).all()) or (values.dtype.kind == "f" and bool(np.isnan(values).all()))


def _finite(value: Any) -> float | None:
    """A number for JSON; None if it is not finite."""
    return float(value) if math.isfinite(value) else None
