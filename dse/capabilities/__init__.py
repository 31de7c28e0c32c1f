"""Capabilities: the functions of ``dse`` that are commands, paths of HTTP, and tools of MCP as well.

A capability is a function with declared options that returns a report (:mod:`dse.reports`). To add one: a module here,
its line in :data:`dse.reports.registry.MODULES`, its test. Those of the lab, and of other distributions, join by entry
points of the group ``dse.commands``.
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
