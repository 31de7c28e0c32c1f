"""Reports: what capabilities return, the declaration of their options, and four renderers.

**Answers** how an answer is read (a terminal, JSON, CSV, HTML) and how a question is asked (Python, a command line, a
file, HTTP, MCP), each from one declaration.

**Knows** a :class:`Capability` (function, options, names at every door, details), an :class:`Option` with its type and
limits, groups of options as records, a :class:`Report` (document, tables, lines, notes, files) and a :class:`Column`
(heading, key, format; of an interval both ends).

**Start** with ``report.py`` and ``tables.py``, what is shown; then ``options.py`` and ``capabilities.py``, what is
asked; ``registry.py`` lists the capabilities by name. It knows no design and no model.
"""

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
