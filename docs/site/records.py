"""Fields of the records in the API reference: what each is and its unit, from the field's own metadata."""

from __future__ import annotations

import dataclasses
from typing import Any

from sphinx.application import Sphinx


def with_fields(_: Sphinx, what: str, __: str, found: Any, ___: Any, lines: list[str]) -> None:
    """Put a list of its fields under the docstring of a record."""
    if what != "class" or not dataclasses.is_dataclass(found) or not found.__module__.startswith("dse.types"):
        return
    for field in dataclasses.fields(found):
        lines.append(f"- ``{field.name}``: {told(field)}".replace("*", r"\*"))
    lines.append("")


def told(field: dataclasses.Field[Any]) -> str:
    """What a field is, with its unit; of a record its kind."""
    if "long_name" not in field.metadata:
        return f"``{field.type}``"
    units = field.metadata.get("units", "")
    return field.metadata["long_name"] + (f" ({units})" if units not in ("", "1") else "")


def without_signature(_: Sphinx, what: str, *rest: Any) -> tuple[str, str] | None:
    """Classes are shown by their fields or members, not by what makes one."""
    return ("", "") if what == "class" else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", with_fields)
    app.connect("autodoc-process-signature", without_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
