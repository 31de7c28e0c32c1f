"""Machines: accelerators with their memory, and clusters."""

from __future__ import annotations

from dse.types.fields import COUNT, POSITIVE, YES_OR_NO, Bounds, Scalar, metadata, record
from dse.types.kernels import Kernels
from dse.types.money import Emissions, Fab, Manufacture, Prices
from dse.types.network import Network
from dse.types.power import Power
from dse.types.reliability import Reliability
from dse.types.technology import Chip


@record
class MatrixRate:
    """Dense matrix rate by precision; 0 where the accelerator lacks it."""

    fp32: Scalar = metadata("", "FLOP/s", "dense fp32 matrix rate")
    tf32: Scalar = metadata("", "FLOP/s", "dense tf32 matrix rate")
    bf16: Scalar = metadata("", "FLOP/s", "dense bf16 matrix rate")
    fp16: Scalar = metadata("", "FLOP/s", "dense fp16 matrix rate")
    fp8: Scalar = metadata("", "FLOP/s", "dense fp8 matrix rate")
    fp4: Scalar = metadata("", "FLOP/s", "dense fp4 matrix rate")
    int8: Scalar = metadata("", "FLOP/s", "dense int8 matrix rate")
    int4: Scalar = metadata("", "FLOP/s", "dense int4 matrix rate")


@record
class MemoryTier:
    """One memory of a device, or its share of the host's."""

    capacity: Scalar = metadata("", "B", "memory capacity, usable", bounds=POSITIVE)
    bandwidth: Scalar = metadata("", "B/s", "memory bandwidth, peak", bounds=POSITIVE)


#: Default host memory of a device: a 2 TiB node of eight, PCIe 4.
HOST = MemoryTier(capacity=256 * 2.0**30, bandwidth=32e9)


@record
class Accelerator:
    """One device: a GPU, or the part of one that software sees as a device."""

    matrix_rate: MatrixRate
    vector_rate: Scalar = metadata("", "FLOP/s", "fp32 rate of the vector units", bounds=POSITIVE)
    cores: Scalar = metadata("", "1", "cores (SM, CU)", bounds=POSITIVE)
    cache: Scalar = metadata("", "B", "last-level cache, capacity", bounds=POSITIVE)
    nvfp4: Scalar = metadata(
        "",
        "1",
        "NVFP4 blocks of 16: 1 yes, 0 OCP MX only",
        default=1.0,
        bounds=YES_OR_NO,
    )
    memory: MemoryTier
    kernels: Kernels
    power: Power = Power()
    chip: Chip | None = None  # generates rates, memory and power, where they are not stated
    made: Manufacture | None = None  # dies and price
    fab: Fab | None = None  # cost model of dies and packages; Fab() where absent

    @property
    def is_generated(self) -> bool:
        """True for rates, memory and power that are generated from a chip, not stated."""
        return self.chip is not None

    @property
    def has_die_data(self) -> bool:
        """True where the parts of a bill are stated, or are those of a generated chip."""
        return self.made is not None or self.is_generated

    @property
    def solves_clock(self) -> bool:
        """True where a limit other than the power as sold (TDP) holds, so that the clock is solved for."""
        return self.power.limit is not None or self.is_generated


@record
class HostTiers:
    """Storage and processors of the host, per device; an optional part of a system.

    Default: one drive behind four PCIe 4 lanes, and an eighth of a host of two sockets of 64 cores with eight channels
    of DDR4-3200 each (DGX A100), whose cores have twelve lines of 64 bytes in flight for 80 ns; one of them reads and
    writes each byte of a pageable copy, through a pinned buffer. Drives share their channels of flash between reads and
    writes, a PCIe link has lanes for each direction.
    """

    storage_capacity: Scalar = metadata("", "B", "storage capacity", default=2e12, bounds=POSITIVE)
    storage_read: Scalar = metadata("", "B/s", "storage read bandwidth", default=6.5e9, bounds=POSITIVE)
    storage_write: Scalar = metadata("", "B/s", "storage write bandwidth", default=3.5e9, bounds=POSITIVE)
    storage_duplex: Scalar = metadata(
        "", "1", "storage reads and writes: 1 in parallel, 0 in turn", default=0.0, bounds=YES_OR_NO
    )
    link_duplex: Scalar = metadata(
        "", "1", "directions of the link to the host: 1 in parallel, 0 in turn", default=1.0, bounds=YES_OR_NO
    )
    link_sharing: Scalar = metadata(
        "", "1", "devices that share one link to the host and use it at once", default=1.0, bounds=Bounds(low=1.0)
    )
    host_memory_bandwidth: Scalar = metadata(
        "", "B/s", "bandwidth of the host's memory per device", default=51.2e9, bounds=POSITIVE
    )
    host_cores: Scalar = metadata("", "1", "cores of the host per device", default=16.0, bounds=POSITIVE)
    core_bandwidth: Scalar = metadata(
        "", "B/s", "memory bandwidth of one core of the host", default=9.6e9, bounds=POSITIVE
    )
    pageable_bandwidth: Scalar = metadata(
        "", "B/s", "bandwidth of copies of pageable memory, by one core", default=4.8e9, bounds=POSITIVE
    )


@record
class FarMemory:
    """Far memory per device, in place of the host's; an optional part of a system."""

    capacity: Scalar = metadata("", "B", "capacity of far memory", default=HOST.capacity, bounds=POSITIVE)
    bandwidth: Scalar = metadata(
        "", "B/s", "bandwidth of far memory per device", default=HOST.bandwidth, bounds=POSITIVE
    )
    near_bandwidth: Scalar = metadata(
        "",
        "B/s",
        "bandwidth of near-memory attention (InstInfer), 0 none",
        default=0.0,
    )
    read_energy: Scalar = metadata(
        "",
        "J/B",
        "read energy per byte, far or host memory",
        default=8.0 * 11e-12,
        source="DDR5, 11 pJ/bit as the catalogue has it; of flash drives 120",
    )
    transfer_energy: Scalar = metadata(
        "",
        "J/B",
        "link energy per byte from far memory, both ends",
        default=8.0 * 8e-12,
        source="PCIe 4, 8 pJ/bit as the catalogue has it",
    )
    byte_price: Scalar = metadata(
        "",
        "USD/B",
        "price per byte of far memory beyond the host's",
        default=2.0 / 1e9,
        source="DDR5, 2 USD a GB as the catalogue has it, a rough market price; of flash drives 0.1",
    )


@record
class System:
    """A cluster: ``n_devices`` accelerators, switched scale-up domains joined by a scale-out network."""

    accelerator: Accelerator
    scale_up: Network
    scale_out: Network
    host: MemoryTier = HOST
    far: FarMemory | None = None  # far memory; the host's where absent
    host_tiers: HostTiers | None = None  # HostTiers() where absent and used by a mapping
    reliability: Reliability | None = None  # Reliability() where absent
    host_power: Scalar = metadata("", "W", "host power per device: processors, fans, NICs, conversion", default=200.0)
    host_slowdown: Scalar | None = metadata(
        "",
        "1",
        "time of a serving engine's code on the host over that on a host with x86 processors",
        default=None,
        bounds=POSITIVE,
        absent=1.0,
    )
    pue: Scalar = metadata("PUE", "1", "power usage effectiveness (PUE)", default=1.2, bounds=Bounds(low=1.0))
    n_devices: Scalar = metadata("N", "1", "devices", bounds=COUNT)
    prices: Prices | None = None  # Prices() where absent; likewise emissions
    emissions: Emissions | None = None
