"""What holds a generated chip below what it is given: room for stacks of memory, power for them and for the cores."""

from __future__ import annotations

from collections.abc import Iterable

from dse.equations import ScalarFunction
from dse.types import Chip, Scalar

#: Share that counts as the whole, within rounding.
_FULL_SHARE = 1.0 - 1e-5


def _supply_scalars(chip: Chip) -> tuple[tuple[Scalar, Scalar, Scalar], None]:
    """Return the count of stacks with room, their bandwidth in B/s and the powered share of the cores, and None."""
    from dse.model import memory_units
    from dse.model.machine.technology import clocked, memory_tier

    return (memory_units(chip), memory_tier(chip).bandwidth, clocked(chip).fed), None


_supplies = ScalarFunction(_supply_scalars, "supplies of a chip")


def chip_limits(chip: Chip | None) -> dict[str, str]:
    """Return limit of a generated chip → its effect, in words; empty where no limit binds or there is no chip."""
    if chip is None:
        return {}
    limits = {}
    n_stacks, bandwidth, fed_share = map(float, _supplies(chip)[0])
    if n_stacks <= _FULL_SHARE * float(chip.stacks):
        limits["room for memory"] = (
            f"{n_stacks:.3g} of {float(chip.stacks):g} stacks of memory have room, and are built and paid: "
            "more need edge (chip.memory_edge) or area (chip.memory_area)"
        )
    if bandwidth <= _FULL_SHARE * (full_bandwidth := n_stacks * float(chip.memory.unit_bandwidth)):
        limits["power for memory"] = (
            f"the power for memory moves {bandwidth / 1e12:.3g} of the {full_bandwidth / 1e12:.3g} TB/s of its stacks: "
            "more needs power (chip.memory_power, chip.power_budget); fewer stacks (chip.stacks) are as fast"
        )
    if fed_share <= _FULL_SHARE:
        limits["power for cores"] = f"the power for cores feeds {100.0 * fed_share:.3g} % of them (chip.core_power)"
    return limits


def limit_notes(chips: Iterable[Chip | None]) -> list[str]:
    """Return a line for each limit of the best designs' chips: how many it holds, what it leaves the first of them."""
    limits_by_chip = [chip_limits(chip) for chip in chips]
    first: dict[str, str] = {}
    for limits in limits_by_chip:
        first = limits | first
    count_by_limit = {name: sum(name in limit_set for limit_set in limits_by_chip) for name in first}
    return [f"{count_by_limit[name]} of the {len(limits_by_chip)} best designs: {text}" for name, text in first.items()]
