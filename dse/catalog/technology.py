"""What catalogue files of technology may hold: logic nodes, memories, and the architectures of generated chips."""

from __future__ import annotations

from dse import types
from dse.catalog.fields import File, Text, leaves, quantities, table, without

_NODE = leaves(types.LogicNode)
_MEMORY = leaves(types.MemoryTechnology)


class LogicNode(
    table(
        "LogicNodeFile", _NODE,
        dict(foundry=Text, status=Text)
        | quantities(year="1", supply="V", wafer_price="USD", defect_density="1/m^2", delay="1", bitcell="m^2"), File,
    )
):  # fmt: skip
    """A process of logic. ``delay`` is that of a gate over N7's at iso power, as claimed; the model does not use it."""


class MemoryTechnology(
    table(
        "MemoryTechnologyFile", _MEMORY,
        dict(family=Text, status=Text, unit=Text) | quantities(year="1", unit_latency="s", unit_price="USD"), File,
    )
):  # fmt: skip
    """A memory by its unit (stack, device, DIMM, drive)."""


#: Leaves that are a chip's own.
_OWN = {"die_area", "base_area", "power_budget", "clock_ratio", "stacks", "link_bandwidth"}


class Architecture(table("ArchitectureFile", without(leaves(types.Chip), _OWN), {}, File)):
    """Shares and constants that the chips of an architecture have in common."""


#: Kind → schema of its files.
SCHEMAS: dict[str, type[File]] = {"node": LogicNode, "memory": MemoryTechnology, "architecture": Architecture}
