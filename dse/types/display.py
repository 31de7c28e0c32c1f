"""Records as tables in notebooks, and as short texts elsewhere: every leaf with its value, unit and meaning."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator
from typing import Any

#: Leaves of a record that a text shows at most.
_SHOWN = 12


def leaf_rows(record: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (name, value with its SI unit, meaning) of the leaves of a record, nested ones with their path.

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
            yield f"{prefix}{field.name}", _text(value, field.metadata), field.metadata.get("long_name", "")


def _text(value: Any, metadata: Any) -> str:
    """Format a leaf: a choice by name, a number with its SI unit, an array by its shape, others as Python does."""
    if getattr(value, "ndim", 0):
        return f"{tuple(value.shape)}"
    try:
        number = float(value)
    except (TypeError, ValueError):  # a tracer
        return str(value)
    if "enum" in metadata and number == int(number):
        return str(metadata["enum"](int(number)).name)
    units = metadata.get("units", "1")
    return f"{number:.6g}" if units == "1" else f"{number:.6g} {units}"


def record_html(record: Any) -> str:
    """Return a record as an HTML table of its leaves.

    Args:
        record: of :mod:`dse.types`.
    """
    rows = ((html.escape(cell) for cell in row) for row in leaf_rows(record))
    head = f"<tr><th>{type(record).__name__}</th><th>value</th><th>meaning</th></tr>"
    body = "".join(f"<tr><td>{name}</td><td>{value}</td><td>{meaning}</td></tr>" for name, value, meaning in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def record_text(record: Any) -> str:
    """Return a record in one line: its class, and name and value of its first leaves but parts.

    Args:
        record: of :mod:`dse.types`.
    """
    rows = list(leaf_rows(record))
    totals = [row for i, row in enumerate(rows) if not any(row[0].startswith(f"{other[0]}_") for other in rows[:i])]
    texts = [f"{name}={text}" for name, text, _ in totals[:_SHOWN]]
    more = [f"… {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return f"{type(record).__name__}({', '.join([*texts, *more])})"
