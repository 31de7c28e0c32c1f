"""Accelerators generated from technology: rates, memory and power from node, areas, power budget and shares of each.

A die has an area, a perimeter and a power budget, and every part of it takes a share of each:

- the area of the cores holds matrix and vector units and core memory; the rest, on the compute dies or on base dies of
  another node, holds the last cache and the PHYs of memory and links;
- the clock follows from the power budget of the cores by the voltage law of :mod:`dse.model.machine.power`, up to the
  highest clock of the node; the budget is limited by the heat that the dies conduct;
- memory bandwidth is the minimum of that of the stacks, of their PHYs (area and perimeter), and of the power budget.

All outputs, the number of cores included, are continuous and piecewise smooth in areas, power, stacks and shares.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import max_prefer_first, min_prefer_first
from dse.model.machine.power import Demand, clock_under_limit, voltage
from dse.types import Accelerator, Chip, Design, MatrixRate, MemoryTier, Power, Scalar

#: Temperature in K at which coolers reject their heat, and from which on none is needed.
ROOM = 300.0

#: Lower limit of a node's voltage law, over the nominal voltage.
_LOWEST_VOLTAGE = 0.05

#: Minimum of denominators: areas in m^2, energy per byte in J.
_MIN_AREA, _MIN_BYTE_ENERGY = 1e-12, 1e-15


class ChipAreas(NamedTuple):
    """Areas in m^2: cores, and the rest by the die that holds it."""

    cores: Scalar
    on_die: Scalar
    on_base: Scalar


class OperatingPoint(NamedTuple):
    """Operating point of the cores under the power budget."""

    clock: Scalar  # Hz
    volts: Scalar  # voltage over the nominal one
    fed: Scalar  # powered share of the cores; the rest of their area is dark
    devices: Scalar  # transistors of the powered cores


def areas(chip: Chip) -> ChipAreas:
    """Return the areas of cores, of the rest of the compute dies and of base dies, m^2.

    Cores take their share of the whole area, at most that of the compute dies.
    """
    cores = jnp.minimum(chip.die_area, chip.core_area * (chip.die_area + chip.base_area))
    return ChipAreas(cores, chip.die_area - cores, jnp.asarray(chip.base_area))


def perimeter(chip: Chip) -> Scalar:
    """Return the perimeter in m of the dies as one square, that of the base dies where these are larger."""
    return 4.0 * jnp.sqrt(jnp.maximum(footprint(chip), 1e-12))


def cooling(temperature: Scalar, efficiency: Scalar) -> Scalar:
    """Return the cooler power per watt at ``temperature``: ``(300 K - T) / T / eta``, 0 from 300 K on."""
    cold = jnp.maximum(temperature, 1e-3)
    return jnp.where(temperature < ROOM, ROOM - temperature, 0.0) / (cold * jnp.maximum(efficiency, 1e-3))


def footprint(chip: Chip) -> Scalar:
    """Return the area in m^2 that conducts the heat: of compute dies, or of larger base dies under them."""
    return jnp.maximum(chip.die_area, chip.base_area)


def cooled_power(chip: Chip) -> Scalar:
    """Return the power in W of the device: its budget, at most what its dies can conduct plus the board's.

    Heat of the memory counts as that of the dies: stacks share their cold plate.
    """
    return min_prefer_first(chip.power_budget, chip.heat_flux * footprint(chip) + chip.board_power)


def shared_power(chip: Chip) -> Scalar:
    """Return the power in W divided by the shares: all but the board's."""
    return jnp.maximum(cooled_power(chip) - chip.board_power, 0.0)


def share_sums(chip: Chip) -> dict[str, Scalar]:
    """Return what is shared → sum of its shares, at most 1 for a chip that can be built."""
    return {
        "power": chip.core_power + chip.memory_power + chip.link_power,
        "edge": chip.memory_edge + chip.link_edge,
        "area of the cores": chip.matrix_area + chip.vector_area + chip.core_memory_area,
        "other area": _periphery_share(chip),
        "area": chip.core_area + (1.0 - chip.core_area) * jnp.minimum(_periphery_share(chip), 1.0) + chip.control_area,
    }


def _periphery_share(chip: Chip) -> Scalar:
    """Return the share of the area outside of cores that caches and PHYs take, above 1 where they do not fit."""
    return chip.cache_area + chip.memory_area + chip.link_area


def exceeds_shares(chip: Chip) -> Scalar:
    """Return true where a sum of shares exceeds 1 by more than rounding."""
    return functools.reduce(jnp.maximum, share_sums(chip).values()) > 1.0 + 1e-5


def core_memory(chip: Chip) -> Scalar:
    """Return the bytes of core memory."""
    return chip.core_memory_area * areas(chip).cores * chip.node.sram_density


def cache(chip: Chip) -> Scalar:
    """Return the bytes of the last cache."""
    die_areas = areas(chip)
    return chip.cache_area * (
        die_areas.on_die * chip.node.sram_density + die_areas.on_base * chip.base_node.sram_density
    )


def memory_units(chip: Chip) -> Scalar:
    """Return the count of memory units built: ``stacks``, at most those whose PHYs fit by area and perimeter."""
    die_areas, memory = areas(chip), chip.memory
    by_area = chip.memory_area * (die_areas.on_die + die_areas.on_base) / jnp.maximum(memory.unit_area, _MIN_AREA)
    by_edge = chip.memory_edge * perimeter(chip) / jnp.maximum(memory.unit_edge, 1e-9)
    return min_prefer_first(chip.stacks, jnp.minimum(by_area, by_edge))


def memory_tier(chip: Chip) -> MemoryTier:
    """Return the capacity in bytes and bandwidth in bytes/s of the memory units built.

    ``B = min(n B_unit, in flight / latency, P_memory / E_byte)`` for ``n`` units.

    Its bandwidth is limited by power (that of coolers included) and by the data in flight.
    """
    unit, units = chip.memory, memory_units(chip)
    joules = unit.unit_energy * (1.0 + cooling(unit.unit_temperature, chip.memory_cooler))
    powered_bandwidth = chip.memory_power * shared_power(chip) / jnp.maximum(joules, _MIN_BYTE_ENERGY)
    in_time = chip.in_flight * core_memory(chip) / jnp.maximum(unit.unit_latency, 1e-15)  # Little's law
    stack_bandwidth = jnp.minimum(units * unit.unit_bandwidth, jnp.where(unit.unit_latency > 0.0, in_time, jnp.inf))
    return MemoryTier(
        capacity=units * unit.unit_capacity, bandwidth=jnp.maximum(jnp.minimum(stack_bandwidth, powered_bandwidth), 1.0)
    )


def link_bandwidth(chip: Chip) -> Scalar:
    """Return the scale-up bandwidth in B/s per direction: that wanted, limited by edge, area and power.

    ``min(wanted, P_link / E_byte, edge density, area density / depth)``.
    """
    die_areas = areas(chip)
    by_edge = chip.link_edge * perimeter(chip) * chip.link_density
    by_area = (
        chip.link_area * (die_areas.on_die + die_areas.on_base) / jnp.maximum(chip.link_depth, 1e-9) * chip.link_density
    )
    by_power = chip.link_power * shared_power(chip) / jnp.maximum(chip.link_energy, _MIN_BYTE_ENERGY)
    return jnp.minimum(jnp.minimum(chip.link_bandwidth, by_power), jnp.minimum(by_edge, by_area))


def split_area(chip: Chip, dies: Scalar) -> Scalar:
    """Return the area in m^2 that ``dies`` equal dies in a square (n) have together beyond that of one die.

    One design serves all places. Links to other dies are on as many edges as the innermost die needs, ``log2 n`` up to
    4: ``min(log2 n, 4) sqrt(n A)`` of edge. PHYs of memory and of links are on two edges, of which a mean die of more
    than four uses ``4 / sqrt(n)``: the others face neighbours.
    """
    inner = jnp.minimum(jnp.log2(dies), 4.0) * jnp.sqrt(dies * chip.die_area)
    phys = memory_units(chip) * chip.memory.unit_area
    phys = phys + link_bandwidth(chip) / jnp.maximum(chip.link_density, 1e-9) * chip.link_depth
    return inner * chip.die_link_depth + phys * (jnp.maximum(0.5 * jnp.sqrt(dies), 1.0) - 1.0)


def repeated_areas(chip: Chip, dies: Scalar, base_dies: Scalar) -> tuple[Scalar, Scalar]:
    """Return the area in m^2 of a compute and of a base die that repeats designs: all but one core and one memory PHY.

    Slices of the last cache and PHYs of links repeat too; control and wiring do not.
    """
    die_areas, phy = areas(chip), chip.memory.unit_area
    core = chip.core_devices / chip.node.density
    on_die = (die_areas.cores + _periphery_share(chip) * die_areas.on_die) / dies - core - phy
    return jnp.maximum(on_die, 0.0), jnp.maximum(_periphery_share(chip) * die_areas.on_base / base_dies - phy, 0.0)


def flops_per_cycle(chip: Chip) -> tuple[Scalar, Scalar]:
    """Return 16-bit FLOPs of all matrix units, and fp32 FLOPs of all vector units, per cycle."""
    devices = areas(chip).cores * chip.node.density
    return (
        chip.matrix_area * devices / jnp.maximum(chip.matrix_devices, 1e-3),
        chip.vector_area * devices / jnp.maximum(chip.vector_devices, 1e-3),
    )


def device_switching_energy(chip: Chip) -> Scalar:
    """Return the energy in J per switched transistor at the nominal voltage."""
    return chip.switching_energy * chip.node.energy


def clocked(chip: Chip) -> OperatingPoint:
    """Return the clock (Hz), voltage and powered share at which the cores draw their power, at design load.

    ``V^2 f (l E_matrix + E_control) (1 + cooling) = share P`` with ``f ~ (V - V_t)^2 / V``, at least the voltage of
    boost clocks, at most the highest voltage and the node's highest clock. Where the power falls short of the least
    voltage, fewer cores are powered. A heavier load lowers the clock in use, as on sold chips.
    """
    node = chip.node
    devices = areas(chip).cores * node.density
    matrix, _ = flops_per_cycle(chip)
    working = chip.matrix_load * chip.activity * chip.matrix_devices * matrix + chip.control_activity * devices
    watts = working * device_switching_energy(chip) * node.clock * (1.0 + cooling(node.temperature, chip.cooler))
    law = Power(threshold=node.threshold, lowest_voltage=chip.boost_voltage, leakage=0.0, control=0.0, uncore=0.0)
    demand = Demand(core_time=1.0, other_time=0.0, core_energy=watts, other_energy=0.0)
    max_clock_ratio = node.highest_clock / jnp.maximum(node.clock, 1.0)
    highest = min_prefer_first(max_clock_ratio, _clock_over_nominal(jnp.asarray(node.highest_voltage), node.threshold))
    ratio = clock_under_limit(demand, chip.core_power * shared_power(chip), highest, law)
    slowest = min_prefer_first(_clock_over_nominal(chip.boost_voltage, node.threshold), highest)
    powered_share = min_prefer_first(1.0, ratio / jnp.maximum(slowest, 1e-6))
    clock_ratio = max_prefer_first(ratio, slowest)
    return OperatingPoint(
        clock_ratio * node.clock,
        voltage(clock_ratio, dataclasses.replace(law, lowest_voltage=0.0)),
        powered_share,
        powered_share * devices,
    )


def _clock_over_nominal(volts: Scalar, threshold: Scalar) -> Scalar:
    """Return the clock over the nominal one, at ``volts`` and ``threshold`` over the nominal voltage."""
    overdrive = jnp.maximum(volts - threshold, 0.0)
    return overdrive * overdrive / (jnp.maximum(volts, _LOWEST_VOLTAGE) * (1.0 - threshold) * (1.0 - threshold))


def generate(accelerator: Accelerator) -> Accelerator:
    """Return the accelerator generated from its ``chip``, with the same kernels; unchanged without a chip."""
    chip = accelerator.chip
    if chip is None:
        return accelerator
    cores = clocked(chip)
    matrix, vector = flops_per_cycle(chip)
    rate = cores.fed * cores.clock
    return dataclasses.replace(
        accelerator,
        matrix_rate=_rates_by_precision(chip, matrix * rate, vector * rate),
        vector_rate=jnp.maximum(vector * rate, 1.0),
        cores=jnp.maximum(cores.devices / jnp.maximum(chip.core_devices, 1.0), 1.0),
        cache=jnp.maximum(cache(chip), 1.0),
        memory=memory_tier(chip),
        power=_generated_power(accelerator.power, chip, cores),
    )


def generated(design: Design) -> Design:
    """Return the design with its accelerator and links generated from its chip, unchanged without a chip."""
    system, chip = design.system, design.system.accelerator.chip
    if chip is None:
        return design
    link_rate = jnp.maximum(min_prefer_first(system.scale_up.bandwidth, link_bandwidth(chip)), 1.0)
    generated_system = dataclasses.replace(
        system,
        accelerator=generate(system.accelerator),
        scale_up=dataclasses.replace(system.scale_up, bandwidth=link_rate),
    )
    return dataclasses.replace(design, system=generated_system)


def _rates_by_precision(chip: Chip, matrix: Scalar, vector: Scalar) -> MatrixRate:
    """Return the FLOP/s by precision from those of the matrix units in 16 bits, fp32 from the vector units."""
    return MatrixRate(
        fp32=vector,
        tf32=chip.tf32_ratio * matrix,
        bf16=matrix,
        fp16=matrix,
        fp8=chip.fp8_ratio * matrix,
        fp4=chip.fp4_ratio * matrix,
        int8=chip.int8_ratio * matrix,
        int4=jnp.zeros_like(matrix),
    )


def _generated_power(power: Power, chip: Chip, cores: OperatingPoint) -> Power:
    """Return ``power`` with energies, clocks, leakage and TDP of a generated chip, at the clock of ``cores``."""
    node, square = chip.node, cores.volts * cores.volts
    device_energy = device_switching_energy(chip) * square
    die_areas = areas(chip)
    on_base = die_areas.on_base * chip.base_node.sram_density
    on_die = die_areas.on_die * node.sram_density
    cache_energy = (on_base * chip.base_node.energy + on_die * node.energy) / jnp.maximum(on_base + on_die, 1.0)
    transistors = chip.die_area * node.density * node.leakage + chip.base_area * chip.base_node.density * (
        chip.base_node.leakage
    )
    static = cores.volts * jnp.exp(power.leakage_slope * (cores.volts - 1.0))
    return dataclasses.replace(
        power,
        matrix_energy=device_energy * chip.activity * chip.matrix_devices,
        vector_energy=device_energy * chip.activity * chip.vector_devices,
        cache_energy=chip.byte_energy * cache_energy * square,
        memory_energy=jnp.asarray(chip.memory.unit_energy),
        uncore=jnp.asarray(chip.board_power),
        leakage=chip.device_leakage * transistors * static,
        control=device_energy * chip.control_activity * cores.devices * cores.clock,
        nominal_clock=cores.clock,
        clock=chip.clock_ratio * cores.clock,
        threshold=node.threshold / jnp.maximum(cores.volts, _LOWEST_VOLTAGE),
        saturation=0.0,  # thresholds of nodes stand in for it
        voltage_bend=None,
        lowest_voltage=min_prefer_first(1.0, node.lowest_voltage / jnp.maximum(cores.volts, _LOWEST_VOLTAGE)),
        tdp=jnp.asarray(cooled_power(chip)),
        cooling=cooling(node.temperature, chip.cooler),
        memory_cooling=cooling(chip.memory.unit_temperature, chip.memory_cooler),
    )
