"""What an accelerator is generated from: logic nodes, memory technologies, budgets of a chip and their shares."""

from __future__ import annotations

from dse.types.fields import POSITIVE, POSITIVE_SHARE, SHARE, Bounds, Scalar, metadata, record
from dse.types.money import Process

#: What a chip makes of an accelerator: records and leaves that :func:`dse.model.machine.technology.generate` fills in.
GENERATED = (
    "matrix_rate", "vector_rate", "cores", "cache", "memory",
    *(f"power.{name}" for name in (
        "matrix_energy", "vector_energy", "cache_energy", "memory_energy", "uncore", "leakage", "control",
        "nominal_clock", "clock", "threshold", "lowest_voltage", "tdp", "cooling", "memory_cooling",
    )),
)  # fmt: skip

#: Area of an accelerator's dies: a wafer of 450 mm has 0.16 m^2.
_DIES = Bounds(high=1.0, above=True)


@record
class LogicNode(Process):
    """A process of logic: what its devices are like at the nominal supply voltage.

    Energy is that at iso speed: every node's point is the same clock, at which a newer node takes less energy;
    what a node gains in speed at iso power is :func:`dse.model.machine.power.voltage`'s business. Devices are
    transistors, or Josephson junctions of superconducting logic.
    """

    density: Scalar = metadata("", "1/m^2", "devices of logic on an area", bounds=POSITIVE)
    sram_density: Scalar = metadata("", "B/m^2", "capacity of SRAM arrays on an area")
    clock: Scalar = metadata("f_0", "Hz", "clock of accelerator logic at the nominal voltage", bounds=POSITIVE)
    energy: Scalar = metadata("", "1", "energy of a switched device over that of N7, at that clock")
    leakage: Scalar = metadata("", "1", "static power of a device over that of N7")
    threshold: Scalar = metadata("V_t", "1", "threshold over nominal voltage, f ~ (V - V_t)^2 / V", bounds=SHARE)
    lowest_voltage: Scalar = metadata("", "1", "lowest voltage over the nominal one", bounds=POSITIVE_SHARE)
    highest_voltage: Scalar = metadata("", "1", "highest voltage over the nominal one")
    highest_clock: Scalar = metadata(
        "f_max", "Hz", "highest clock that a chip is sold at, whatever its power", bounds=POSITIVE
    )
    temperature: Scalar = metadata(
        "", "K", "temperature of the cooled side; 300 or more: no cooler counted", bounds=POSITIVE
    )


@record
class MemoryTechnology:
    """A memory, by its unit: a stack, a device, a DIMM, a drive."""

    unit_bandwidth: Scalar = metadata("", "B/s", "peak bandwidth of a unit", bounds=POSITIVE)
    unit_capacity: Scalar = metadata("", "B", "capacity of a unit", bounds=POSITIVE)
    unit_energy: Scalar = metadata("", "J/B", "energy of a byte, device level")
    unit_edge: Scalar = metadata("", "m", "edge of the die that a unit takes; 0 where it is stacked on the die")
    unit_area: Scalar = metadata("", "m^2", "area of the die that PHY and controller of a unit take")
    unit_temperature: Scalar = metadata(
        "", "K", "temperature of the memory; 300 or more: no cooler counted", bounds=POSITIVE
    )
    unit_price: Scalar = metadata("", "USD", "price of a unit; 0: not known, by its capacity", default=0.0)


@record
class Chip:
    """What an accelerator is generated from (:func:`dse.model.machine.technology.generate`).

    An optional part of an accelerator: an ordinary one has none of these leaves. ``…_area`` shares are of the area
    of the cores or of the rest, ``…_edge`` of the perimeter, ``…_power`` of the power budget less the board's;
    what the shares leave over is control, wiring, yield and conversion.
    """

    node: LogicNode
    base_node: LogicNode  # of the base die; without one it fills no area
    memory: MemoryTechnology
    die_area: Scalar = metadata("", "m^2", "area of the compute dies together", bounds=_DIES)
    base_area: Scalar = metadata("", "m^2", "area of the base (I/O) dies under them together", default=0.0)
    power_budget: Scalar = metadata("", "W", "power that the device may draw, coolers included", bounds=POSITIVE)
    clock_ratio: Scalar = metadata("", "1", "clock set over the one that the power budget leaves", default=1.0)
    stacks: Scalar = metadata("", "1", "units of memory")
    link_bandwidth: Scalar = metadata(
        "", "B/s", "scale-up bandwidth wanted, one direction; by default that of its network", default=1e30,
        bounds=POSITIVE,
    )  # fmt: skip
    link_density: Scalar = metadata("", "B/s/m", "link bandwidth on an edge of the die, one direction")
    link_depth: Scalar = metadata("", "m", "depth of the links' PHYs behind that edge")
    link_energy: Scalar = metadata(
        "", "J/B", "energy of a byte over a link, which bounds the bandwidth of links by their share of the power; "
        "messages take the energy of the network",
    )  # fmt: skip
    core_area: Scalar = metadata("", "1", "share of all dies' area that cores may take", bounds=SHARE)
    matrix_area: Scalar = metadata("", "1", "share of the cores' area in matrix units", bounds=SHARE)
    vector_area: Scalar = metadata("", "1", "share of the cores' area in vector units", bounds=SHARE)
    core_memory_area: Scalar = metadata("", "1", "share of the cores' area in their own memory", bounds=SHARE)
    cache_area: Scalar = metadata("", "1", "share of the rest's area in the last cache", bounds=SHARE)
    memory_area: Scalar = metadata("", "1", "share of the rest's area in PHYs and controllers of memory", bounds=SHARE)
    link_area: Scalar = metadata("", "1", "share of the rest's area in PHYs of links", bounds=SHARE)
    memory_edge: Scalar = metadata("", "1", "share of the perimeter for memory", bounds=SHARE)
    link_edge: Scalar = metadata("", "1", "share of the perimeter for links", bounds=SHARE)
    core_power: Scalar = metadata(
        "", "1", "share of the power for the switching of cores that multiply matrices", bounds=SHARE
    )
    matrix_load: Scalar = metadata(
        "", "1", "share of their peak at which matrix units fill that share; heavier loads lower the clock",
        bounds=SHARE,
    )  # fmt: skip
    boost_voltage: Scalar = metadata(
        "", "1", "voltage over the nominal one that the clock is laid out for at least; where power leaves less, "
        "fewer cores are fed", bounds=POSITIVE,
    )  # fmt: skip
    memory_power: Scalar = metadata("", "1", "share of the power for memory at its full bandwidth", bounds=SHARE)
    link_power: Scalar = metadata("", "1", "share of the power for links", bounds=SHARE)
    board_power: Scalar = metadata("", "W", "power of board and host interface, whatever the chip")
    heat_flux: Scalar = metadata(
        "", "W/m^2", "heat that the cooling takes off an area of dies; a larger power budget is left unused",
        bounds=POSITIVE,
    )  # fmt: skip
    matrix_devices: Scalar = metadata("", "1", "devices of a matrix unit for one 16-bit FLOP a cycle", bounds=POSITIVE)
    vector_devices: Scalar = metadata("", "1", "devices of a vector unit for one fp32 FLOP a cycle", bounds=POSITIVE)
    core_devices: Scalar = metadata("", "1", "devices of one core", bounds=POSITIVE)
    activity: Scalar = metadata("", "1", "share of a working unit's devices that switch in a cycle", bounds=SHARE)
    control_activity: Scalar = metadata(
        "", "1", "share of all core devices that clock and control switch in a cycle", bounds=SHARE
    )
    switching_energy: Scalar = metadata("", "J", "energy of a switched device of N7, its wire included")
    device_leakage: Scalar = metadata("", "W", "static power of a device of N7")
    byte_energy: Scalar = metadata("", "J/B", "energy of a byte through the last cache of a chip in N7")
    tf32_ratio: Scalar = metadata("", "1", "tf32 matrix rate over the 16-bit one")
    fp8_ratio: Scalar = metadata("", "1", "fp8 matrix rate over the 16-bit one; 0: none")
    fp4_ratio: Scalar = metadata("", "1", "fp4 matrix rate over the 16-bit one; 0: none")
    int8_ratio: Scalar = metadata("", "1", "int8 matrix rate over the 16-bit one; 0: none")
    cooler: Scalar = metadata(
        "", "1", "share of Carnot's efficiency that the cooler of the logic reaches", bounds=POSITIVE_SHARE
    )
    memory_cooler: Scalar = metadata(
        "", "1", "share of Carnot's efficiency that the cooler of the memory reaches", bounds=POSITIVE_SHARE
    )
