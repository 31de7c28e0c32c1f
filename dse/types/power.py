"""Power of a device, and its dependence on the clock."""

from __future__ import annotations

from dse.types.fields import POSITIVE, POSITIVE_SHARE, SHARE, Scalar, metadata, record


@record
class Power:
    """Energy of a device's work, idle power, and clock.

    Energies are those at the nominal clock and voltage; :mod:`dse.model.machine.power` scales them. Voltages are
    relative to the nominal one.

    ``polling``: a collective's kernel spins on its flags, one core per channel, of which NCCL opens 16 to 32 on chips
    of 108 to 148 cores (``NCCL_MAX_CTAS``), so 0.1 to 0.3 of the cores; idle cores are gated.
    """

    matrix_energy: Scalar = metadata("", "J/FLOP", "energy per 16-bit matrix FLOP, on-chip operands", default=0.5e-12)
    four_byte_energy: Scalar = metadata("", "1", "fp32 over 16-bit energy per matrix FLOP", default=4.0)
    tf32_energy: Scalar = metadata("", "1", "tf32 over 16-bit energy per matrix FLOP", default=2.0)
    one_byte_energy: Scalar = metadata("", "1", "8-bit over 16-bit energy per matrix FLOP", default=0.5)
    half_byte_energy: Scalar = metadata("", "1", "4-bit over 16-bit energy per matrix FLOP", default=0.25)
    vector_energy: Scalar = metadata("", "J/FLOP", "energy per fp32 vector FLOP", default=2e-12)
    cache_energy: Scalar = metadata("", "J/B", "energy per byte, last-level cache", default=20e-12)
    memory_energy: Scalar = metadata("", "J/B", "additional energy per byte, device memory", default=40e-12)
    uncore: Scalar = metadata("", "W", "uncore power: memory refresh, links, board", default=60.0)
    leakage: Scalar = metadata("", "W", "leakage power of the cores at nominal voltage", default=40.0)
    control: Scalar = metadata("", "W", "clock-tree and control power of busy cores, nominal clock", default=60.0)
    polling: Scalar = metadata(
        "",
        "1",
        "share of cores polling while a device waits",
        default=0.2,
        bounds=SHARE,
    )
    nominal_clock: Scalar = metadata(
        "", "Hz", "nominal clock, at which rates are stated", default=1.5e9, bounds=POSITIVE
    )
    clock: Scalar = metadata("f", "Hz", "core clock, subject to the power limit", default=1.5e9, bounds=POSITIVE)
    threshold: Scalar = metadata(
        "V_t",
        "1",
        "threshold over nominal voltage, f ~ (V - V_t)^2 / (V (1 + s (V - V_t)))",
        default=0.25,
        bounds=SHARE,
    )
    saturation: Scalar = metadata(
        "s", "1", "velocity saturation: nominal voltage over that at which carriers saturate, 0 none", default=0.0
    )
    lowest_voltage: Scalar = metadata("", "1", "minimum over nominal voltage", default=0.7, bounds=POSITIVE_SHARE)
    voltage_bend: Scalar | None = metadata(
        "",
        "1",
        "width of the bend into the minimum voltage, over that voltage; absent: a kink",
        default=None,
        bounds=SHARE,
    )
    leakage_slope: Scalar = metadata("", "1", "d ln(leakage current) / d ln(V)", default=2.0)
    feed: Scalar = metadata(
        "",
        "B/s",
        "memory bandwidth that the cores can use at nominal clock",
        default=1e16,
        bounds=POSITIVE,
    )
    tdp: Scalar = metadata("", "W", "power limit as sold (TDP)", default=400.0, bounds=POSITIVE)
    limit: Scalar | None = metadata(
        "", "W", "power limit set by the operator; absent: TDP", default=None, bounds=POSITIVE
    )
    cooling: Scalar = metadata("", "1", "cooler power per watt of the cores; 0 at room temperature", default=0.0)
    memory_cooling: Scalar = metadata("", "1", "cooler power per watt of device memory", default=0.0)
