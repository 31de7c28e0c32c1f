"""Technology of generated accelerators: logic nodes, memory technologies, budgets of a chip and their shares."""

from __future__ import annotations

from dse.types.fields import Bounds, Scalar, number, positive, positive_share, record, share
from dse.types.money import Process

#: Records and leaves of an accelerator that :func:`dse.model.machine.technology.generate` fills in.
GENERATED = (
    "matrix_rate",
    "vector_rate",
    "cores",
    "cache",
    "memory",
    *(
        f"power.{name}"
        for name in (
            "matrix_energy",
            "vector_energy",
            "cache_energy",
            "memory_energy",
            "uncore",
            "leakage",
            "control",
            "nominal_clock",
            "clock",
            "threshold",
            "saturation",
            "lowest_voltage",
            "tdp",
            "cooling",
            "memory_cooling",
        )
    ),
)

#: Bounds of the area of an accelerator's dies; a 450 mm wafer has 0.16 m^2.
_DIES = Bounds(high=1.0, above=True)


@record
class LogicNode(Process):
    """A logic process: its devices at the nominal supply voltage.

    Energy is at iso speed: all nodes have the same clock, at which a newer node needs less energy; its gain in speed at
    iso power follows from :func:`dse.model.machine.power.voltage`. Devices are transistors, or Josephson junctions of
    superconducting logic.
    """

    density: Scalar = positive("logic devices per area", "1/m^2")
    sram_density: Scalar = number("SRAM capacity per area", "B/m^2")
    clock: Scalar = positive("logic clock at nominal voltage", "Hz", symbol="f_0")
    energy: Scalar = number("switching energy over N7, at that clock")
    leakage: Scalar = number("leakage over N7")
    threshold: Scalar = share("threshold over nominal voltage of logic", symbol="V_t")
    lowest_voltage: Scalar = positive_share("lowest over nominal voltage")
    highest_voltage: Scalar = number("highest over nominal voltage")
    highest_clock: Scalar = positive("highest clock of chips as sold", "Hz", symbol="f_max")
    temperature: Scalar = positive("cold-side temperature; 300 or more: no cooler", "K")


@record
class MemoryTechnology:
    """A memory by unit: a stack, a device, a DIMM, a drive."""

    unit_bandwidth: Scalar = positive("peak bandwidth per unit", "B/s")
    unit_capacity: Scalar = positive("capacity per unit", "B")
    unit_energy: Scalar = number("energy per byte, device level", "J/B")
    unit_edge: Scalar = number("die edge per unit; 0: stacked on the die", "m")
    unit_area: Scalar = number("die area of PHY and controller per unit", "m^2")
    unit_temperature: Scalar = positive("memory temperature; 300 or more: no cooler", "K")
    unit_latency: Scalar = number("access latency; 0: within the kernel floor", "s", default=0.0)
    unit_price: Scalar = number("price per unit; 0: by capacity", "USD", default=0.0)


@record
class Chip:
    """Source of a generated accelerator (:func:`dse.model.machine.technology.generate`).

    An optional part of an accelerator. ``…_area`` are shares of the area of the cores or of the rest, ``…_edge`` of the
    perimeter, ``…_power`` of the power budget without the board's; the remainder is control, wiring, yield and
    conversion.
    """

    node: LogicNode
    base_node: LogicNode  # of the base die, which may have no area
    memory: MemoryTechnology
    die_area: Scalar = number("area of all compute dies", "m^2", bounds=_DIES)
    base_area: Scalar = number("area of all base (I/O) dies", "m^2", default=0.0)
    power_budget: Scalar = positive("power budget, coolers included", "W")
    clock_ratio: Scalar = number("clock over the one that the power budget allows", default=1.0)
    stacks: Scalar = number("memory units (stacks)")
    link_bandwidth: Scalar = positive(
        "scale-up bandwidth, one direction; absent: that of the network", "B/s", default=1e30
    )
    link_density: Scalar = number("link bandwidth per die edge, one direction", "B/s/m")
    link_depth: Scalar = number("depth of link PHYs", "m")
    link_energy: Scalar = number("link energy per byte, for the power share of links", "J/B")
    die_link_density: Scalar = positive(
        "die-to-die bandwidth per inner die edge, one direction", "B/s/m", default=440e12
    )
    die_link_depth: Scalar = number("depth of die-to-die PHYs", "m", default=0.71e-3)
    die_link_energy: Scalar = number("die-to-die energy per byte and crossing", "J/B", default=2e-12)
    die_link_latency: Scalar = number("die-to-die latency per crossing", "s", default=10e-9)
    core_area: Scalar = share("area share of the cores, of all dies")
    matrix_area: Scalar = share("area share of matrix units, of the cores")
    vector_area: Scalar = share("area share of vector units, of the cores")
    core_memory_area: Scalar = share("area share of core memory, of the cores")
    cache_area: Scalar = share("area share of the last-level cache, of the rest")
    memory_area: Scalar = share("area share of memory PHYs and controllers, of the rest")
    link_area: Scalar = share("area share of link PHYs, of the rest")
    control_area: Scalar = share("area outside cores, caches and PHYs, minimum share of all dies", default=0.0)
    memory_edge: Scalar = share("perimeter share of memory")
    link_edge: Scalar = share("perimeter share of links")
    core_power: Scalar = share("power share of matrix compute")
    matrix_load: Scalar = share("matrix load at that power share")
    boost_voltage: Scalar = positive("minimum boost over nominal voltage")
    memory_power: Scalar = share("power share of memory at full bandwidth")
    link_power: Scalar = share("power share of links")
    board_power: Scalar = number("board and host-interface power", "W")
    in_flight: Scalar = positive_share("share of core memory for data in flight from device memory", default=0.5)
    heat_flux: Scalar = positive("heat flux limit of the cooling", "W/m^2")
    matrix_devices: Scalar = positive("matrix-unit devices per 16-bit FLOP and cycle")
    vector_devices: Scalar = positive("vector-unit devices per fp32 FLOP and cycle")
    core_devices: Scalar = positive("devices per core")
    spare_cores: Scalar = share("cores that may be defective, share of all", default=0.0)
    activity: Scalar = share("activity of a working unit, share of devices per cycle")
    control_activity: Scalar = share("activity of clock and control, share of core devices per cycle")
    switching_energy: Scalar = number("switching energy per N7 device, wire included", "J")
    device_leakage: Scalar = number("leakage per N7 device", "W")
    byte_energy: Scalar = number("energy per byte of an N7 last-level cache", "J/B")
    tf32_ratio: Scalar = number("tf32 over 16-bit matrix rate")
    fp8_ratio: Scalar = number("fp8 over 16-bit matrix rate; 0: none")
    fp4_ratio: Scalar = number("fp4 over 16-bit matrix rate; 0: none")
    int8_ratio: Scalar = number("int8 over 16-bit matrix rate; 0: none")
    cooler: Scalar = positive_share("logic cooler efficiency, share of Carnot")
    memory_cooler: Scalar = positive_share("memory cooler efficiency, share of Carnot")
