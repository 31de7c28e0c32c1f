"""Machines: accelerators with their memory, and clusters."""

from __future__ import annotations

from dse.types.fields import Bounds, Scalar, count, number, positive, record, yes_or_no
from dse.types.kernels import Kernels
from dse.types.money import Emissions, Fab, Manufacture, Prices
from dse.types.network import Network
from dse.types.power import Power
from dse.types.reliability import Reliability
from dse.types.technology import Chip


@record
class MatrixRate:
    """Dense matrix rate by precision; 0 where the accelerator lacks it."""

    fp32: Scalar = number("dense fp32 matrix rate", "FLOP/s")
    tf32: Scalar = number("dense tf32 matrix rate", "FLOP/s")
    bf16: Scalar = number("dense bf16 matrix rate", "FLOP/s")
    fp16: Scalar = number("dense fp16 matrix rate", "FLOP/s")
    fp8: Scalar = number("dense fp8 matrix rate", "FLOP/s")
    fp4: Scalar = number("dense fp4 matrix rate", "FLOP/s")
    int8: Scalar = number("dense int8 matrix rate", "FLOP/s")
    int4: Scalar = number("dense int4 matrix rate", "FLOP/s")


@record
class MemoryTier:
    """One memory of a device, or its share of the host's."""

    capacity: Scalar = positive("memory capacity, usable", "B")
    bandwidth: Scalar = positive("memory bandwidth, peak", "B/s")


#: Default host memory of a device: a 2 TiB node of eight, PCIe 4.
HOST = MemoryTier(capacity=256 * 2.0**30, bandwidth=32e9)


@record
class Accelerator:
    """One device: a GPU, or the part of one that software sees as a device."""

    matrix_rate: MatrixRate
    vector_rate: Scalar = positive("fp32 rate of the vector units", "FLOP/s")
    cores: Scalar = positive("cores (SM, CU)")
    cache: Scalar = positive("last-level cache, capacity", "B")
    nvfp4: Scalar = yes_or_no("NVFP4 blocks of 16: 1 yes, 0 OCP MX only", default=1.0)
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

    storage_capacity: Scalar = positive("storage capacity", "B", default=2e12)
    storage_read: Scalar = positive("storage read bandwidth", "B/s", default=6.5e9)
    storage_write: Scalar = positive("storage write bandwidth", "B/s", default=3.5e9)
    storage_duplex: Scalar = yes_or_no("storage reads and writes: 1 in parallel, 0 in turn", default=0.0)
    link_duplex: Scalar = yes_or_no("directions of the link to the host: 1 in parallel, 0 in turn", default=1.0)
    link_sharing: Scalar = number(
        "devices that share one link to the host and use it at once", default=1.0, bounds=Bounds(low=1.0)
    )
    host_memory_bandwidth: Scalar = positive("bandwidth of the host's memory per device", "B/s", default=51.2e9)
    host_cores: Scalar = positive("cores of the host per device", default=16.0)
    core_bandwidth: Scalar = positive("memory bandwidth of one core of the host", "B/s", default=9.6e9)
    pageable_bandwidth: Scalar = positive("bandwidth of copies of pageable memory, by one core", "B/s", default=4.8e9)


@record
class FarMemory:
    """Far memory per device, in place of the host's; an optional part of a system."""

    capacity: Scalar = positive("capacity of far memory", "B", default=HOST.capacity)
    bandwidth: Scalar = positive("bandwidth of far memory per device", "B/s", default=HOST.bandwidth)
    near_bandwidth: Scalar = number("bandwidth of near-memory attention (InstInfer), 0 none", "B/s", default=0.0)
    read_energy: Scalar = number(
        "read energy per byte, far or host memory",
        "J/B",
        default=8.0 * 11e-12,
        source="DDR5, 11 pJ/bit as the catalogue has it; of flash drives 120",
    )
    transfer_energy: Scalar = number(
        "link energy per byte from far memory, both ends",
        "J/B",
        default=8.0 * 8e-12,
        source="PCIe 4, 8 pJ/bit as the catalogue has it",
    )
    byte_price: Scalar = number(
        "price per byte of far memory beyond the host's",
        "USD/B",
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
    host_power: Scalar = number("host power per device: processors, fans, NICs, conversion", "W", default=200.0)
    host_slowdown: Scalar | None = positive(
        "time of a serving engine's code on the host over that on a host with x86 processors", default=None, absent=1.0
    )
    pue: Scalar = number("power usage effectiveness (PUE)", default=1.2, bounds=Bounds(low=1.0), symbol="PUE")
    n_devices: Scalar = count("devices", symbol="N")
    prices: Prices | None = None  # Prices() where absent; likewise emissions
    emissions: Emissions | None = None
