"""Design (NRE) cost of dies and packages, and its share per unit."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.money.package import PackageCost
from dse.types import Assembly, Fab, Process, Scalar


class DesignCost(NamedTuple):
    """One-time design cost in USD: modules, and chips with their masks."""

    modules: Scalar
    chips: Scalar
    package: Scalar


def die_design(unique: Scalar, linked: Scalar, chiplets: Scalar, process: Process, fab: Fab) -> DesignCost:
    """Design cost of a die, USD: modules and chip.

    ``0.5 C A / A0`` for its modules and the one that links dies, ``0.3 C A / A0 + 0.2 C`` for the chip, with the cost
    ``C`` of a chip of ``A0`` = 300 mm2 (chiplet actuary, DAC 2022) and the area ``A`` of what is designed: a repeated
    core counts once.

    Args:
        unique: m^2 of the die without repetitions.
        linked: m^2 of it with its links to other dies.
        chiplets: dies of the package.
        process: node of the die.
        fab: prices.
    """
    rate = process.design_cost / fab.design_area
    link = fab.link_design * jnp.minimum(chiplets - 1.0, 1.0)
    return DesignCost(
        fab.module_share * rate * (unique + link),
        fab.chip_share * rate * linked + fab.fixed_share * process.design_cost,
        0.0,
    )


def package_design(using: Assembly, found: PackageCost) -> Scalar:
    """Design cost of a package, USD, by the area of its carrier, or of its substrate and layers without one."""
    by_area = jnp.where(
        using.carrier_scale > 0.0,
        using.design_rate * found.carrier_area + found.substrate,
        using.design_rate * found.substrate_area * found.layers,
    )
    return by_area + using.design_fixed
