"""Bill of an accelerator: dies, memory, package, losses with bad packages, test, and the share of the design (NRE)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, select, times
from dse.model.machine.technology import areas, memory_units, repeated_areas, split_area
from dse.model.money.die import LEAST_YIELD, MOST_SPARE, Die, die
from dse.model.money.package import PackageCost, PackagedDies, assembly, package
from dse.types import Accelerator, Assembly, Chip, Fab, LogicNode, Manufacture, Prices, Process, Scalar


class DesignCost(NamedTuple):
    """One-time design cost in USD: modules, and chips with their masks."""

    modules: Scalar
    chips: Scalar
    package: Scalar


def die_design(unique: Scalar, linked: Scalar, chiplets: Scalar, process: Process, fab: Fab) -> DesignCost:
    """Return the design cost of a die by modules and chip, USD.

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


def package_design(packaging: Assembly, package: PackageCost) -> Scalar:
    """Return the design cost of a package, USD.

    By the area of its carrier, or of its substrate and layers without one.
    """
    by_area = jnp.where(
        packaging.carrier_scale > 0.0,
        packaging.design_rate * package.carrier_area + package.substrate,
        packaging.design_rate * package.substrate_area * package.layers,
    )
    return by_area + packaging.design_fixed


class Bill(NamedTuple):
    """Cost of one accelerator by part, USD."""

    dies: Scalar  # tested dies, with their bumps
    memory: Scalar
    package: Scalar  # carrier, substrate, bonds, failed ones included
    lost: Scalar  # dies and memory lost with bad packages
    test: Scalar  # of the package, with final assembly
    design: Scalar  # NRE per unit

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


#: Of an accelerator whose dies are unknown.
NO_BILL = Bill(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class DeviceParts(NamedTuple):
    """Dies and memory of an accelerator, with areas in m^2."""

    logic: Scalar
    base: Scalar
    process: Process
    base_process: Process
    units: Scalar  # memory stacks
    memory: Scalar  # USD
    memory_bytes: Scalar
    memory_area: Scalar  # m^2 on a carrier
    chiplets: Scalar  # compute dies
    links: Scalar  # m^2 that several compute dies have beyond one, mostly links between them
    repeated: tuple[Scalar, Scalar]  # m^2 of a compute and of a base die that repeat designs
    redundant: Manufacture  # with the blocks and spares of a compute die


class Manufacturing(NamedTuple):
    """Manufacturing of an accelerator from its parts."""

    compute: Die
    base: Die
    linked: Scalar  # m^2 of all compute dies with their links
    chiplets: Scalar
    base_chiplets: Scalar  # 0 without base dies
    face_price: Scalar  # USD of face-to-face bonds of compute dies on base dies
    face_yield: Scalar  # yield of these bonds
    package_cost: PackageCost
    nre: tuple[DesignCost, DesignCost, Scalar]  # compute die, base die, package


def parts_of(accelerator: Accelerator, manufacturing: Manufacture, fab: Fab) -> DeviceParts:
    """Return areas, processes, memory and price of the parts of an accelerator: of its chip, else as its file states.

    Memory stacks that do not fit are neither built nor paid. Compute dies are as many as stated, or more so that none
    exceeds the reticle.
    """
    chip = accelerator.chip
    if chip is None:
        return specified_parts(manufacturing, fab, accelerator.memory.capacity)
    chiplets = jnp.maximum(manufacturing.chiplets, chip.die_area / fab.reticle)
    unit, units_built = chip.memory, memory_units(chip)
    price = jnp.where(unit.unit_price > 0.0, unit.unit_price, fab.memory_price * unit.unit_capacity)
    carrier_area = jnp.where(unit.unit_edge > 0.0, fab.memory_area, 0.0)  # 0 where memory is stacked on the die
    return DeviceParts(
        chip.die_area,
        chip.base_area,
        _as_process(chip.node),
        _as_process(chip.base_node),
        units_built,
        units_built * price,
        units_built * unit.unit_capacity,
        units_built * carrier_area,
        chiplets,
        split_area(chip, chiplets),
        repeated_areas(chip, chiplets, manufacturing.base_chiplets),
        _redundancy(chip, manufacturing, chiplets),
    )


def specified_parts(manufacturing: Manufacture, fab: Fab, memory_bytes: Scalar) -> DeviceParts:
    """Return the parts of an accelerator that a file states, with ``memory_bytes`` bytes of memory.

    Blocks of a die are designed once.

    Args:
        manufacturing: dies as stated.
        fab: prices and areas.
        memory_bytes: capacity of the memory, bytes.
    """
    area = manufacturing.logic_area
    chiplets = jnp.maximum(manufacturing.chiplets, area / fab.reticle)
    units = jnp.where(manufacturing.stacks_beside > 0.0, manufacturing.stacks_beside, memory_bytes / fab.memory_unit)
    return DeviceParts(
        area,
        manufacturing.io_area,
        manufacturing.process,
        manufacturing.base_process,
        units,
        fab.memory_price * memory_bytes,
        memory_bytes,
        units * fab.memory_area,
        chiplets,
        fab.link_area * jnp.minimum(chiplets - 1.0, 1.0) * area,
        ((manufacturing.block_area - manufacturing.block_area / manufacturing.blocks) * (area / chiplets), 0.0),
        manufacturing,
    )


def _redundancy(chip: Chip, manufacturing: Manufacture, chiplets: Scalar) -> Manufacture:
    """Return ``manufacturing`` with the blocks and spare blocks of a generated compute die: as stated, or its cores."""
    cores, has_spares = areas(chip).cores, manufacturing.spare_blocks > 0.0
    blocks = jnp.maximum(cores * chip.node.density / (chip.core_devices * chiplets), 1.0)
    share = cores / (chip.die_area + split_area(chip, chiplets))
    return dataclasses.replace(
        manufacturing,
        blocks=jnp.where(has_spares, manufacturing.blocks, blocks),
        spare_blocks=jnp.where(
            has_spares, manufacturing.spare_blocks, jnp.minimum(chip.spare_cores * blocks, MOST_SPARE)
        ),
        block_area=jnp.where(has_spares, manufacturing.block_area, share),
    )


def _as_process(node: LogicNode) -> Process:
    """Return a logic node, which is a process, as such."""
    return node


def manufacture(parts: DeviceParts, manufacturing: Manufacture, fab: Fab) -> Manufacturing:
    """Return costs (USD) and yields of dies, package and designs of an accelerator, for dies of equal area.

    Args:
        parts: dies and memory.
        manufacturing: how it is made.
        fab: prices and yields.
    """
    chiplets, linked_area = parts.chiplets, parts.logic + parts.links
    repeated, base_repeated = parts.repeated
    base_area = parts.base / manufacturing.base_chiplets
    base_unique = plus(base_area, times(-1.0, base_repeated))
    has_base = jnp.where(parts.base > 0.0, 1.0, 0.0)
    compute = die(linked_area / chiplets, parts.process, fab, parts.redundant)
    base = die(base_area, parts.base_process, fab, None)
    packaging = assembly(manufacturing.packaging, fab)
    is_stacked = packaging.bond_price + packaging.bond_defects > 0.0  # each base die with its share of the compute dies
    carrier_area = jnp.where(is_stacked, jnp.maximum(linked_area, parts.base), linked_area + parts.base)
    face_yield = packaging.bond_yield ** (chiplets / manufacturing.base_chiplets)
    face_yield = jnp.maximum(
        face_yield / (1.0 + packaging.bond_defects * linked_area / manufacturing.base_chiplets), LEAST_YIELD
    )
    dies = jnp.where(is_stacked, manufacturing.base_chiplets, chiplets + has_base * manufacturing.base_chiplets)
    dies = dies + jnp.where(packaging.carrier_scale > 0.0, parts.units, 0.0)
    quality = compute.quality**chiplets * base.quality ** (has_base * manufacturing.base_chiplets)
    package_cost = package(
        packaging, fab, manufacturing.chip_first, PackagedDies(dies, chiplets, carrier_area, parts.memory_area, quality)
    )
    nre = (
        die_design(parts.logic / chiplets - repeated, linked_area / chiplets - repeated, chiplets, parts.process, fab),
        die_design(base_unique, base_unique, 1.0, parts.base_process, fab),
        package_design(packaging, package_cost),
    )
    return Manufacturing(
        compute,
        base,
        linked_area,
        chiplets,
        has_base * manufacturing.base_chiplets,
        packaging.bond_price * linked_area,
        jnp.where(is_stacked, face_yield, 1.0),
        package_cost,
        nre,
    )


def bill(accelerator: Accelerator) -> Bill:
    """Return the manufacturing cost of ``accelerator`` by part, USD."""
    manufacturing, fab = accelerator.made or Manufacture(), accelerator.fab or Fab()
    parts = parts_of(accelerator, manufacturing, fab)
    products = manufacture(parts, manufacturing, fab)
    packaging = assembly(manufacturing.packaging, fab)
    bumps = packaging.bump_price * (products.linked + parts.base)
    dies = products.chiplets * products.compute.cost + products.base_chiplets * products.base.cost + bumps
    stacks = (dies + products.face_price) / products.face_yield
    carried = jnp.where(packaging.carrier_scale > 0.0, parts.memory, 0.0)
    compute, base, package_design_cost = products.nre
    base_design_cost = jnp.where(products.base_chiplets > 0.0, base.modules + base.chips, 0.0)
    return Bill(
        dies=dies,
        memory=parts.memory,
        package=products.package_cost.raw + products.package_cost.lost + products.face_price,
        lost=stacks - dies - products.face_price + (stacks + carried) * products.package_cost.dies_lost,
        test=fab.test_price,
        design=((compute.modules + compute.chips + base_design_cost) / manufacturing.reuse + package_design_cost)
        / manufacturing.volume,
    )


def price_of(accelerator: Accelerator, prices: Prices) -> tuple[Scalar, Bill]:
    """Return the price of an accelerator in USD, and its cost by part in USD.

    As sold where known, else the cost of a unit over (1 - margin) and its share of the design; where the dies are
    unknown too, a price per watt of TDP, and a bill of zeros.

    Args:
        accelerator: with or without known dies.
        prices: of dies unknown, per W.

    Returns:
        Price in USD, and the bill.
    """
    manufacturing, by_power = accelerator.made, prices.watt_price * accelerator.power.tdp
    if not accelerator.has_die_data:
        return by_power, NO_BILL
    costs = bill(accelerator)
    manufacturing = manufacturing or Manufacture()
    cost_price = sum(costs[:-1]) / (1.0 - manufacturing.margin) + costs.design
    if accelerator.is_generated:
        return cost_price, costs
    has_area = manufacturing.logic_area > 0.0
    costs = select(has_area, costs, NO_BILL)
    return jnp.where(manufacturing.price > 0.0, manufacturing.price, jnp.where(has_area, cost_price, by_power)), costs
