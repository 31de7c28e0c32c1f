"""Reports: what capabilities return, the declaration of their options, and four renderers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.reports.capabilities import Capability, capability
    from dse.reports.options import Option
    from dse.reports.report import Report
    from dse.reports.tables import Column, Line, Table, bar, caution, heading, verbatim
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "Capability",
    "Column",
    "Line",
    "Option",
    "Report",
    "Table",
    "bar",
    "capability",
    "caution",
    "heading",
    "verbatim",
]
