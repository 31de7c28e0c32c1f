"""Bill of an accelerator: dies, memory, package, losses with bad packages, test, and the share of the design (NRE)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, times
from dse.model.machine.technology import areas, memory_units, repeated_areas, split_area
from dse.model.money.die import LEAST_YIELD, MOST_SPARE, Die, die
from dse.model.money.package import Joined, PackageCost, assembly, package
from dse.types import Accelerator, Assembly, Chip, Fab, LogicNode, Made, Prices, Process, Scalar


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


class DeviceParts(NamedTuple):
    """Dies and memory of an accelerator; areas in m^2."""

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
    redundant: Made  # with the blocks and spares of a compute die


class Making(NamedTuple):
    """Manufacturing of an accelerator from its parts."""

    compute: Die
    base: Die
    linked: Scalar  # m^2 of all compute dies with their links
    chiplets: Scalar
    base_chiplets: Scalar  # 0 without base dies
    face_price: Scalar  # USD of face-to-face bonds of compute dies on base dies
    face_yield: Scalar  # yield of these bonds
    found: PackageCost
    nre: tuple[DesignCost, DesignCost, Scalar]  # compute die, base die, package


def parts_of(accelerator: Accelerator, made: Made, fab: Fab) -> DeviceParts:
    """Dies and memory of an accelerator: of its chip where it is generated, else as its file states.

    Memory stacks that do not fit are neither built nor paid. Compute dies are as many as stated, or more so that none
    exceeds the reticle.
    """
    chip = accelerator.chip
    if chip is None:
        return stated_parts(made, fab, accelerator.memory.capacity)
    chiplets = jnp.maximum(made.chiplets, chip.die_area / fab.reticle)
    unit, built = chip.memory, memory_units(chip)
    price = jnp.where(unit.unit_price > 0.0, unit.unit_price, fab.memory_price * unit.unit_capacity)
    carrier_area = jnp.where(unit.unit_edge > 0.0, fab.memory_area, 0.0)  # 0 where memory is stacked on the die
    return DeviceParts(
        chip.die_area,
        chip.base_area,
        _as_process(chip.node),
        _as_process(chip.base_node),
        built,
        built * price,
        built * unit.unit_capacity,
        built * carrier_area,
        chiplets,
        split_area(chip, chiplets),
        repeated_areas(chip, chiplets, made.base_chiplets),
        _redundant(chip, made, chiplets),
    )


def stated_parts(made: Made, fab: Fab, held: Scalar) -> DeviceParts:
    """Dies as stated, with ``held`` bytes of memory; blocks of a die are designed once."""
    area = made.logic_area
    chiplets = jnp.maximum(made.chiplets, area / fab.reticle)
    units = jnp.where(made.stacks_beside > 0.0, made.stacks_beside, held / fab.memory_unit)
    return DeviceParts(
        area,
        made.io_area,
        made.process,
        made.base_process,
        units,
        fab.memory_price * held,
        held,
        units * fab.memory_area,
        chiplets,
        fab.link_area * jnp.minimum(chiplets - 1.0, 1.0) * area,
        ((made.block_area - made.block_area / made.blocks) * (area / chiplets), 0.0),
        made,
    )


def _redundant(chip: Chip, made: Made, chiplets: Scalar) -> Made:
    """Blocks and spares of a compute die of a generated chip: as stated, or its cores."""
    cores, stated = areas(chip).cores, made.spare_blocks > 0.0
    blocks = jnp.maximum(cores * chip.node.density / (chip.core_devices * chiplets), 1.0)
    share = cores / (chip.die_area + split_area(chip, chiplets))
    return dataclasses.replace(
        made,
        blocks=jnp.where(stated, made.blocks, blocks),
        spare_blocks=jnp.where(stated, made.spare_blocks, jnp.minimum(chip.spare_cores * blocks, MOST_SPARE)),
        block_area=jnp.where(stated, made.block_area, share),
    )


def _as_process(node: LogicNode) -> Process:
    return node


def making(parts: DeviceParts, made: Made, fab: Fab) -> Making:
    """Dies, package and designs of an accelerator; compute dies, and base dies, have equal areas."""
    chiplets, linked = parts.chiplets, parts.logic + parts.links
    repeated, base_repeated = parts.repeated
    based_area = parts.base / made.base_chiplets
    base_unique = plus(based_area, times(-1.0, base_repeated))
    based = jnp.where(parts.base > 0.0, 1.0, 0.0)
    compute = die(linked / chiplets, parts.process, fab, parts.redundant)
    base = die(based_area, parts.base_process, fab, None)
    using = assembly(made.packaging, fab)
    stacked = using.bond_price + using.bond_defects > 0.0  # each base die with its share of the compute dies
    stands = jnp.where(stacked, jnp.maximum(linked, parts.base), linked + parts.base)
    a_base = using.bond_yield ** (chiplets / made.base_chiplets)
    a_base = jnp.maximum(a_base / (1.0 + using.bond_defects * linked / made.base_chiplets), LEAST_YIELD)
    dies = jnp.where(stacked, made.base_chiplets, chiplets + based * made.base_chiplets)
    dies = dies + jnp.where(using.carrier_scale > 0.0, parts.units, 0.0)
    quality = compute.quality**chiplets * base.quality ** (based * made.base_chiplets)
    found = package(using, fab, made.chip_first, Joined(dies, chiplets, stands, parts.memory_area, quality))
    nre = (
        die_design(parts.logic / chiplets - repeated, linked / chiplets - repeated, chiplets, parts.process, fab),
        die_design(base_unique, base_unique, 1.0, parts.base_process, fab),
        package_design(using, found),
    )
    return Making(
        compute,
        base,
        linked,
        chiplets,
        based * made.base_chiplets,
        using.bond_price * linked,
        jnp.where(stacked, a_base, 1.0),
        found,
        nre,
    )


def bill(accelerator: Accelerator) -> Bill:
    """Manufacturing cost of ``accelerator`` by part, USD."""
    made, fab = accelerator.made or Made(), accelerator.fab or Fab()
    parts = parts_of(accelerator, made, fab)
    done = making(parts, made, fab)
    using = assembly(made.packaging, fab)
    bumps = using.bump_price * (done.linked + parts.base)
    dies = done.chiplets * done.compute.cost + done.base_chiplets * done.base.cost + bumps
    stacks = (dies + done.face_price) / done.face_yield
    carried = jnp.where(using.carrier_scale > 0.0, parts.memory, 0.0)
    compute, base, of_package = done.nre
    of_base = jnp.where(done.base_chiplets > 0.0, base.modules + base.chips, 0.0)
    return Bill(
        dies=dies,
        memory=parts.memory,
        package=done.found.raw + done.found.lost + done.face_price,
        lost=stacks - dies - done.face_price + (stacks + carried) * done.found.dies_lost,
        test=fab.test_price,
        design=((compute.modules + compute.chips + of_base) / made.reuse + of_package) / made.volume,
    )


def price_of(accelerator: Accelerator, prices: Prices) -> tuple[Scalar, Bill]:
    """Price of an accelerator in USD, and its bill.

    As sold where known, else the cost of a unit over (1 - margin) and its share of the design; where the dies are
    unknown too, a price per watt of TDP, and no bill.
    """
    made, by_power = accelerator.made, prices.watt_price * accelerator.power.tdp
    if not accelerator.has_known_dies:
        return by_power, Bill(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    found = bill(accelerator)
    made = made or Made()
    dear = sum(found[:-1]) / (1.0 - made.margin) + found.design
    if accelerator.is_generated:
        return dear, found
    known = made.logic_area > 0.0
    found = Bill(*(jnp.where(known, part, 0.0) for part in found))
    return jnp.where(made.price > 0.0, made.price, jnp.where(known, dear, by_power)), found
