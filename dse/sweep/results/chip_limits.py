"""What holds a generated chip below what it is given: room for stacks of memory, power for them and for the cores."""

from __future__ import annotations

from collections.abc import Iterable

from dse.model.machine.technology import clocked, memory_tier, memory_units
from dse.types import Chip

#: Share that counts as the whole, within rounding.
_ALL = 1.0 - 1e-5


def chip_limits(chip: Chip | None) -> dict[str, str]:
    """Limit → what it leaves, in words; empty for a chip that none holds, or an accelerator without a chip."""
    if chip is None:
        return {}
    found = {}
    built, bandwidth, fed = float(memory_units(chip)), float(memory_tier(chip).bandwidth), float(clocked(chip).fed)
    if built <= _ALL * float(chip.stacks):
        found["room for memory"] = (
            f"{built:.3g} of {float(chip.stacks):g} stacks of memory have room, and are built and paid: "
            "more need edge (chip.memory_edge) or area (chip.memory_area)"
        )
    if bandwidth <= _ALL * (whole := built * float(chip.memory.unit_bandwidth)):
        found["power for memory"] = (
            f"the power for memory moves {bandwidth / 1e12:.3g} of the {whole / 1e12:.3g} TB/s of its stacks: "
            "more needs power (chip.memory_power, chip.power_budget); fewer stacks (chip.stacks) are as fast"
        )
    if fed <= _ALL:
        found["power for cores"] = f"the power for cores feeds {100.0 * fed:.3g} % of them (chip.core_power)"
    return found


def limit_notes(chips: Iterable[Chip | None]) -> list[str]:
    """A line each limit of the chips of the best designs: how many it holds, and what it leaves the first of them."""
    each = [chip_limits(chip) for chip in chips]
    first: dict[str, str] = {}
    for limits in each:
        first = limits | first
    held = {name: sum(name in one for one in each) for name in first}
    return [f"{held[name]} of the {len(each)} best designs: {text}" for name, text in first.items()]
