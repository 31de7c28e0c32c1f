"""Capabilities: the functions of ``dse`` that are commands, paths of HTTP, and tools of MCP as well.

**Answers** what a user asks: explain a design, run a sweep, search, plan, match pools, decide, predict, validate, plot,
compare, trace, launch, list names and the catalogue.

**Knows** how options become designs, tables and files, and how answers become tables, lines and a document. Whatever it
computes it asks of the rooms below; it prints nothing, and no room below imports it.

**Start** with ``evaluate.py``: a decorated function with declared options that returns a report (:mod:`dse.reports`).
Options of one design are the group ``designs.DesignOptions``, those of measured runs ``tables.RunCells``. To add one: a
module here, its line in :data:`dse.reports.registry.MODULES`, its test. Those of the lab, and of other distributions,
join by entry points of the group ``dse.commands``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.capabilities.designs import DesignOptions, DesignRequest as DesignRequest
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = ["DesignOptions"]
