"""Records as tables in notebooks, and as short texts elsewhere: every leaf with its value, unit and meaning."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator
from typing import Any

from dse.io.markup import STYLE, table
from dse.io.quantities import setting

#: Parts of a record that a text shows at most.
_SHOWN = 12


def leaf_rows(record: Any, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield (name, value as text, SI unit, meaning) of the leaves of a record, nested ones with their path.

    Leaves that are None are left out.

    Args:
        record: of :mod:`dse.types`.
        prefix: path of the record, with a dot at its end.
    """
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaf_rows(value, f"{prefix}{field.name}.")
        elif value is not None:
            units = field.metadata.get("units", "1")
            yield f"{prefix}{field.name}", _text(value, field.metadata), units, field.metadata.get("long_name", "")


def _text(value: Any, metadata: Any) -> str:
    """Format a leaf: a choice by name, a number with its unit, an array by its shape, others as Python does."""
    if getattr(value, "ndim", 0):
        return f"{tuple(value.shape)}"
    try:
        number = float(value)
    except (TypeError, ValueError):  # a tracer
        return str(value)
    if "enum" in metadata and number == int(number):
        return str(metadata["enum"](int(number)).name)
    return setting(number, metadata.get("units", "1")) if abs(number) < float("inf") else f"{number:g}"


def record_html(record: Any) -> str:
    """Return a record as an HTML table of its leaves.

    Args:
        record: of :mod:`dse.types`.
    """
    rows = [[html.escape(cell) for cell in (name, text, meaning)] for name, text, _, meaning in leaf_rows(record)]
    body = table([type(record).__name__, "value", "meaning"], rows, [True, False, True])
    return f'<div class="dse"><style>{STYLE}</style>{body}</div>'


def record_text(record: Any) -> str:
    """Return a record in one line: its class, and name and value of its first leaves but parts.

    Args:
        record: of :mod:`dse.types`.
    """
    rows = list(leaf_rows(record))
    totals = [row for i, row in enumerate(rows) if not any(row[0].startswith(f"{other[0]}_") for other in rows[:i])]
    texts = [f"{name}={text}" for name, text, _, _ in totals[:_SHOWN]]
    more = [f"… {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return f"{type(record).__name__}({', '.join([*texts, *more])})"
