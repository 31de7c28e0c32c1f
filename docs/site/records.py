"""Fields of the records in the API reference: what each is and its unit, from the field's own metadata."""

from __future__ import annotations

import dataclasses
from typing import Any

from sphinx.application import Sphinx


def with_fields(_: Sphinx, what: str, __: str, found: Any, ___: Any, lines: list[str]) -> None:
    """Put a list of its fields under the docstring of a record."""
    if what != "class" or not dataclasses.is_dataclass(found):
        return
    told = [field for field in dataclasses.fields(found) if "long_name" in field.metadata]
    for field in told:
        units = field.metadata.get("units", "")
        of_units = f" ({units})" if units and units != "1" else ""
        lines.append(f"- ``{field.name}``: {field.metadata['long_name']}{of_units}".replace("*", r"\*"))
    if told:
        lines.append("")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", with_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
