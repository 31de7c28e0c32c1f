"""Power of a device, and its dependence on the clock."""

from __future__ import annotations

from dse.types.fields import Scalar, number, positive, positive_share, record, share


@record
class Power:
    """Energy of a device's work, idle power, and clock.

    Energies are those at the nominal clock and voltage; :mod:`dse.model.machine.power` scales them. Voltages are
    relative to the nominal one.

    ``polling``: a collective's kernel spins on its flags, one core per channel, of which NCCL opens 16 to 32 on chips
    of 108 to 148 cores (``NCCL_MAX_CTAS``), so 0.1 to 0.3 of the cores; idle cores are gated.
    """

    matrix_energy: Scalar = number("energy per 16-bit matrix FLOP, on-chip operands", "J/FLOP", default=0.5e-12)
    four_byte_energy: Scalar = number("fp32 over 16-bit energy per matrix FLOP", default=4.0)
    tf32_energy: Scalar = number("tf32 over 16-bit energy per matrix FLOP", default=2.0)
    one_byte_energy: Scalar = number("8-bit over 16-bit energy per matrix FLOP", default=0.5)
    half_byte_energy: Scalar = number("4-bit over 16-bit energy per matrix FLOP", default=0.25)
    vector_energy: Scalar = number("energy per fp32 vector FLOP", "J/FLOP", default=2e-12)
    cache_energy: Scalar = number("energy per byte, last-level cache", "J/B", default=20e-12)
    memory_energy: Scalar = number("additional energy per byte, device memory", "J/B", default=40e-12)
    uncore: Scalar = number("uncore power: memory refresh, links, board", "W", default=60.0)
    leakage: Scalar = number("leakage power of the cores at nominal voltage", "W", default=40.0)
    control: Scalar = number("clock-tree and control power of busy cores, nominal clock", "W", default=60.0)
    polling: Scalar = share("share of cores polling while a device waits", default=0.2)
    nominal_clock: Scalar = positive("nominal clock, at which rates are stated", "Hz", default=1.5e9)
    clock: Scalar = positive("core clock, subject to the power limit", "Hz", default=1.5e9, symbol="f")
    threshold: Scalar = share(
        "threshold over nominal voltage, f ~ (V - V_t)^2 / (V (1 + s (V - V_t)))", default=0.25, symbol="V_t"
    )
    saturation: Scalar = number(
        "velocity saturation: nominal voltage over that at which carriers saturate, 0 none", default=0.0, symbol="s"
    )
    lowest_voltage: Scalar = positive_share("minimum over nominal voltage", default=0.7)
    voltage_bend: Scalar | None = share(
        "width of the bend into the minimum voltage, over that voltage; absent: a kink", default=None
    )
    leakage_slope: Scalar = number("d ln(leakage current) / d ln(V)", default=2.0)
    feed: Scalar = positive("memory bandwidth that the cores can use at nominal clock", "B/s", default=1e16)
    tdp: Scalar = positive("power limit as sold (TDP)", "W", default=400.0)
    limit: Scalar | None = positive("power limit set by the operator; absent: TDP", "W", default=None)
    cooling: Scalar = number("cooler power per watt of the cores; 0 at room temperature", default=0.0)
    memory_cooling: Scalar = number("cooler power per watt of device memory", default=0.0)
