"""Technology of generated accelerators: logic nodes, memory technologies, budgets of a chip and their shares."""

from __future__ import annotations

from dse.types.fields import POSITIVE, POSITIVE_SHARE, SHARE, Bounds, Scalar, metadata, record
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

    density: Scalar = metadata("", "1/m^2", "logic devices per area", bounds=POSITIVE)
    sram_density: Scalar = metadata("", "B/m^2", "SRAM capacity per area")
    clock: Scalar = metadata("f_0", "Hz", "logic clock at nominal voltage", bounds=POSITIVE)
    energy: Scalar = metadata("", "1", "switching energy over N7, at that clock")
    leakage: Scalar = metadata("", "1", "leakage over N7")
    threshold: Scalar = metadata("V_t", "1", "threshold over nominal voltage of logic", bounds=SHARE)
    lowest_voltage: Scalar = metadata("", "1", "lowest over nominal voltage", bounds=POSITIVE_SHARE)
    highest_voltage: Scalar = metadata("", "1", "highest over nominal voltage")
    highest_clock: Scalar = metadata("f_max", "Hz", "highest clock of chips as sold", bounds=POSITIVE)
    temperature: Scalar = metadata("", "K", "cold-side temperature; 300 or more: no cooler", bounds=POSITIVE)


@record
class MemoryTechnology:
    """A memory by unit: a stack, a device, a DIMM, a drive."""

    unit_bandwidth: Scalar = metadata("", "B/s", "peak bandwidth per unit", bounds=POSITIVE)
    unit_capacity: Scalar = metadata("", "B", "capacity per unit", bounds=POSITIVE)
    unit_energy: Scalar = metadata("", "J/B", "energy per byte, device level")
    unit_edge: Scalar = metadata("", "m", "die edge per unit; 0: stacked on the die")
    unit_area: Scalar = metadata("", "m^2", "die area of PHY and controller per unit")
    unit_temperature: Scalar = metadata("", "K", "memory temperature; 300 or more: no cooler", bounds=POSITIVE)
    unit_latency: Scalar = metadata("", "s", "access latency; 0: within the kernel floor", default=0.0)
    unit_price: Scalar = metadata("", "USD", "price per unit; 0: by capacity", default=0.0)


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
    die_area: Scalar = metadata("", "m^2", "area of all compute dies", bounds=_DIES)
    base_area: Scalar = metadata("", "m^2", "area of all base (I/O) dies", default=0.0)
    power_budget: Scalar = metadata("", "W", "power budget, coolers included", bounds=POSITIVE)
    clock_ratio: Scalar = metadata("", "1", "clock over the one that the power budget allows", default=1.0)
    stacks: Scalar = metadata("", "1", "memory units (stacks)")
    link_bandwidth: Scalar = metadata(
        "",
        "B/s",
        "scale-up bandwidth, one direction; absent: that of the network",
        default=1e30,
        bounds=POSITIVE,
    )
    link_density: Scalar = metadata("", "B/s/m", "link bandwidth per die edge, one direction")
    link_depth: Scalar = metadata("", "m", "depth of link PHYs")
    link_energy: Scalar = metadata(
        "",
        "J/B",
        "link energy per byte, for the power share of links",
    )
    die_link_density: Scalar = metadata(
        "", "B/s/m", "die-to-die bandwidth per inner die edge, one direction", default=440e12, bounds=POSITIVE
    )
    die_link_depth: Scalar = metadata("", "m", "depth of die-to-die PHYs", default=0.71e-3)
    die_link_energy: Scalar = metadata("", "J/B", "die-to-die energy per byte and crossing", default=2e-12)
    die_link_latency: Scalar = metadata("", "s", "die-to-die latency per crossing", default=10e-9)
    core_area: Scalar = metadata("", "1", "area share of the cores, of all dies", bounds=SHARE)
    matrix_area: Scalar = metadata("", "1", "area share of matrix units, of the cores", bounds=SHARE)
    vector_area: Scalar = metadata("", "1", "area share of vector units, of the cores", bounds=SHARE)
    core_memory_area: Scalar = metadata("", "1", "area share of core memory, of the cores", bounds=SHARE)
    cache_area: Scalar = metadata("", "1", "area share of the last-level cache, of the rest", bounds=SHARE)
    memory_area: Scalar = metadata("", "1", "area share of memory PHYs and controllers, of the rest", bounds=SHARE)
    link_area: Scalar = metadata("", "1", "area share of link PHYs, of the rest", bounds=SHARE)
    control_area: Scalar = metadata(
        "", "1", "area outside cores, caches and PHYs, minimum share of all dies", default=0.0, bounds=SHARE
    )
    memory_edge: Scalar = metadata("", "1", "perimeter share of memory", bounds=SHARE)
    link_edge: Scalar = metadata("", "1", "perimeter share of links", bounds=SHARE)
    core_power: Scalar = metadata("", "1", "power share of matrix compute", bounds=SHARE)
    matrix_load: Scalar = metadata(
        "",
        "1",
        "matrix load at that power share",
        bounds=SHARE,
    )
    boost_voltage: Scalar = metadata(
        "",
        "1",
        "minimum boost over nominal voltage",
        bounds=POSITIVE,
    )
    memory_power: Scalar = metadata("", "1", "power share of memory at full bandwidth", bounds=SHARE)
    link_power: Scalar = metadata("", "1", "power share of links", bounds=SHARE)
    board_power: Scalar = metadata("", "W", "board and host-interface power")
    in_flight: Scalar = metadata(
        "", "1", "share of core memory for data in flight from device memory", default=0.5, bounds=POSITIVE_SHARE
    )
    heat_flux: Scalar = metadata(
        "",
        "W/m^2",
        "heat flux limit of the cooling",
        bounds=POSITIVE,
    )
    matrix_devices: Scalar = metadata("", "1", "matrix-unit devices per 16-bit FLOP and cycle", bounds=POSITIVE)
    vector_devices: Scalar = metadata("", "1", "vector-unit devices per fp32 FLOP and cycle", bounds=POSITIVE)
    core_devices: Scalar = metadata("", "1", "devices per core", bounds=POSITIVE)
    spare_cores: Scalar = metadata("", "1", "cores that may be defective, share of all", default=0.0, bounds=SHARE)
    activity: Scalar = metadata("", "1", "activity of a working unit, share of devices per cycle", bounds=SHARE)
    control_activity: Scalar = metadata(
        "", "1", "activity of clock and control, share of core devices per cycle", bounds=SHARE
    )
    switching_energy: Scalar = metadata("", "J", "switching energy per N7 device, wire included")
    device_leakage: Scalar = metadata("", "W", "leakage per N7 device")
    byte_energy: Scalar = metadata("", "J/B", "energy per byte of an N7 last-level cache")
    tf32_ratio: Scalar = metadata("", "1", "tf32 over 16-bit matrix rate")
    fp8_ratio: Scalar = metadata("", "1", "fp8 over 16-bit matrix rate; 0: none")
    fp4_ratio: Scalar = metadata("", "1", "fp4 over 16-bit matrix rate; 0: none")
    int8_ratio: Scalar = metadata("", "1", "int8 over 16-bit matrix rate; 0: none")
    cooler: Scalar = metadata("", "1", "logic cooler efficiency, share of Carnot", bounds=POSITIVE_SHARE)
    memory_cooler: Scalar = metadata("", "1", "memory cooler efficiency, share of Carnot", bounds=POSITIVE_SHARE)
