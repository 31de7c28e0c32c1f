"""What a device draws, and how that follows its clock."""

from __future__ import annotations

from dse.types.fields import POSITIVE, POSITIVE_SHARE, SHARE, Scalar, metadata, record


@record
class Power:
    """Energy of a device's work, its power at rest, and its clock.

    Energies are those of the nominal clock, and with it of the nominal voltage; what clock and voltage make of
    them is :mod:`dse.model.machine.power`'s business. Voltages are relative to the nominal one.

    ``polling``: a collective's kernel spins on its flags, one core a channel, of which NCCL opens 16 to 32 on chips of
    108 to 148 cores (``NCCL_MAX_CTAS``), so 0.1 to 0.3 of the cores; those without work are gated.
    """

    matrix_energy: Scalar = metadata(
        "", "J/FLOP", "energy of a 16-bit matrix FLOP, operands from on-chip memory", default=0.5e-12
    )
    four_byte_energy: Scalar = metadata("", "1", "energy of an fp32 matrix FLOP over a 16-bit one", default=4.0)
    tf32_energy: Scalar = metadata("", "1", "energy of a tf32 matrix FLOP over a 16-bit one", default=2.0)
    one_byte_energy: Scalar = metadata("", "1", "energy of an 8-bit matrix FLOP over a 16-bit one", default=0.5)
    half_byte_energy: Scalar = metadata("", "1", "energy of a 4-bit matrix FLOP over a 16-bit one", default=0.25)
    vector_energy: Scalar = metadata("", "J/FLOP", "energy of an fp32 FLOP of the vector units", default=2e-12)
    cache_energy: Scalar = metadata("", "J/B", "energy of a byte through the last on-chip cache", default=20e-12)
    memory_energy: Scalar = metadata("", "J/B", "what a byte of device memory adds to that", default=40e-12)
    uncore: Scalar = metadata(
        "", "W", "power that does not follow the cores: memory refresh, links, board", default=60.0
    )
    leakage: Scalar = metadata("", "W", "static power of the cores at the nominal voltage", default=40.0)
    control: Scalar = metadata(
        "", "W", "power of clock trees and control of busy cores at the nominal clock", default=60.0
    )
    polling: Scalar = metadata(
        "", "1", "share of the cores that poll, and so have clocks, while a device waits for others", default=0.2,
        bounds=SHARE,
    )  # fmt: skip
    nominal_clock: Scalar = metadata(
        "", "Hz", "clock at which the accelerator's rates are stated", default=1.5e9, bounds=POSITIVE
    )
    clock: Scalar = metadata(
        "f", "Hz", "clock of the cores, as far as the power limit allows it", default=1.5e9, bounds=POSITIVE
    )
    threshold: Scalar = metadata(
        "V_t", "1", "threshold voltage of the clock's law f ~ (V - V_t)^2 / V", default=0.25, bounds=SHARE
    )
    lowest_voltage: Scalar = metadata(
        "", "1", "voltage below which it does not fall with the clock", default=0.7, bounds=POSITIVE_SHARE
    )
    leakage_slope: Scalar = metadata("", "1", "d ln(leakage current) / d ln(V)", default=2.0)
    feed: Scalar = metadata(
        "", "B/s", "device-memory bandwidth that the cores can ask for at the nominal clock", default=1e16,
        bounds=POSITIVE,
    )  # fmt: skip
    tdp: Scalar = metadata("", "W", "power limit as sold", default=400.0, bounds=POSITIVE)
    limit: Scalar | None = metadata(
        "", "W", "power limit set by the operator; absent: as sold", default=None, bounds=POSITIVE
    )
    cooling: Scalar = metadata(
        "", "1", "watts of a cooler for each watt of the cores; 0 at room temperature", default=0.0
    )
    memory_cooling: Scalar = metadata("", "1", "watts of a cooler for each watt of device memory", default=0.0)
