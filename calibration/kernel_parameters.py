"""What is fitted to measured kernels: jobs, each a table of parameters with the devices whose rows tell them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.lab.fits.fit import Parameter

#: Most that a threshold can be of the nominal voltage: 0.35 V, the upper end of FinFET logic, over 0.9 V.
HIGHEST_THRESHOLD = 0.39

_GEMM = [
    Parameter("kernels.fine.gemm_efficiency", 0.8, 0.2, upper=1.0),
    Parameter("kernels.fine.gemm_waves", 0.1, 1.0, upper=1.0),
    Parameter("kernels.fine.gemm_memory", 0.88, 0.1, upper=1.0),
    Parameter("kernels.fine.gemm_blend", 0.4, 0.5, upper=1.0),
    Parameter("kernels.fine.gemm_floor", 2.5e-6, 0.5),
    Parameter("kernels.fine.split_time", 0.6e-6, 0.7),
    Parameter("kernels.fine.tile_feed", 250e9, 0.5),
    Parameter("kernels.fine.output_overhead", 0.35, 0.7, upper=1.0),
    Parameter("kernels.fine.narrow_efficiency", 0.8, 0.1, upper=1.0),
    Parameter("kernels.fine.quantize_floor", 2e-6, 0.7),
    Parameter("kernels.fine.quantize_row", 1e-9, 1.0),
    Parameter("kernels.fine.block_floor", 90e-6, 0.4),
    Parameter("kernels.fine.block_floor_few", 60e-6, 0.4),
    Parameter("kernels.fine.block_floor_odd", 180e-6, 0.4),
]

_GEMM_OWN = frozenset(
    (
        "gemm_efficiency",
        "gemm_memory",
        "gemm_blend",
        "gemm_floor",
        "quantize_floor",
        "block_floor",
    )
)

_ATTENTION = [
    Parameter("kernels.attention.context_efficiency", 0.8, 0.2, upper=1.0),
    Parameter("kernels.attention.context_pair", 25e-12, 0.7),
    Parameter("kernels.attention.context_tile", 2.5e-6, 0.7),
    Parameter("kernels.attention.context_memory", 0.8, 0.2, upper=1.0),
    Parameter("kernels.attention.context_floor", 8e-6, 0.5),
    Parameter("kernels.attention.context_fp8", 1.0, 0.2),
    Parameter("kernels.attention.decode_efficiency", 0.15, 0.5, upper=1.0),
    Parameter("kernels.attention.decode_tile", 2e-6, 0.7),
    Parameter("kernels.attention.decode_split", 0.1e-6, 1.0),
    Parameter("kernels.attention.decode_memory", 0.87, 0.1, upper=1.0),
    Parameter("kernels.attention.decode_floor", 6e-6, 0.5),
    Parameter("kernels.attention.grouped_floor", 0.3e-6, 2.0),
    Parameter("kernels.attention.blend", 0.2, 0.5, upper=1.0),
]

_ATTENTION_OWN = frozenset(("context_efficiency", "context_memory", "context_floor", "decode_tile", "decode_floor"))

#: Times at the power limit tell the energy of a FLOP: there all powers are alike. They tell little of the voltage's
#: curve, as small energies make up for a high threshold: errors of time and power differ by less than half a per cent
#: between thresholds of 0.24 and 0.64. So its ends start near those that varied clocks and limits tell of the A30
#: (0.36, 0.72) and the V100 (0.38, 0.76), with carriers that saturate as theirs. Of what a board draws at rest they
#: tell the sum: what of it leaks is that of the transistors (``transistor_leakage`` of hw_catalog/kernels), and no
#: parameter here.
_POWER = [
    Parameter("power.matrix_energy", 0.5e-12, 0.4),
    Parameter("power.one_byte_energy", 0.6, 0.3),
    Parameter("power.half_byte_energy", 0.4, 0.3),
    Parameter("power.vector_energy", 2e-12, 0.7),
    Parameter("power.cache_energy", 20e-12, 0.5),
    Parameter("power.memory_energy", 50e-12, 0.3),
    Parameter("power.threshold", 0.371, 0.03, upper=HIGHEST_THRESHOLD),
    Parameter("power.lowest_voltage", 0.76, 0.05, upper=0.98),
    Parameter("power.uncore", 0.13, 0.4, upper=0.6),
    Parameter("power.control", 0.3, 0.4, upper=0.8),
]

_POWER_OWN = frozenset(("matrix_energy", "cache_energy", "uncore", "control"))

_COLLECTIVE = [
    Parameter("scale_up.alone.launch", 7e-6, 0.4),
    Parameter("scale_up.latency", 0.8e-6, 0.6),
    Parameter("scale_up.efficiency", 0.82, 0.15, upper=1.0),
    Parameter("scale_up.ramp", 1e6, 1.0),
    Parameter("scale_up.in_network_reduction", 0.6, 0.2, upper=1.0),
    Parameter("scale_up.alone.pair_loss", 0.1, 0.7, upper=0.6),
    Parameter("scale_up.crowding", 0.01, 2.0),
    Parameter("scale_up.alone.flagged_share", 0.3, 0.5, upper=1.0),
    Parameter("scale_up.alone.simple_latency", 4.0, 0.4),
    Parameter("scale_up.alone.simple_floor", 2.0, 0.7),
    Parameter("scale_up.alone.exchange_latency", 6.0, 0.4),
    Parameter("scale_up.alone.exchange_rate", 6e9, 0.4),
    Parameter("scale_up.alone.exchange_efficiency", 0.9, 0.2),
    Parameter("scale_up.alone.direct_launch", 0.5, 0.5),
    Parameter("scale_up.alone.lean_launch", 0.65, 0.2),
    Parameter("scale_up.alone.direct_latency", 2.3, 0.5),
    Parameter("scale_up.alone.direct_rate", 600e9, 0.5),
    Parameter("scale_up.alone.graph_efficiency", 1.1, 0.1),
    Parameter("scale_up.alone.eager_launch", 20e-6, 0.4),
]

_COLLECTIVE_OWN = frozenset(
    (
        "launch",
        "latency",
        "efficiency",
        "ramp",
        "in_network_reduction",
        "pair_loss",
        "crowding",
        "eager_launch",
        "simple_floor",
    )
)


@dataclasses.dataclass(frozen=True)
class KernelJob:
    """Parameters of one table, fitted to all devices together: some each file's own, the rest one value for all.

    Every file of ``homes`` keeps its own values; those of a file in ``families`` are the geometric means over
    its members', with their scatter as spread: what serves devices without rows.
    """

    kind: str  #: folder of the files with own values: kernels or network
    table: str
    parameters: Sequence[Parameter]
    own: frozenset[str]  #: names of the parameters of which every file has its own value
    kernels: tuple[str, ...]  #: kinds of kernels
    homes: Mapping[str, tuple[str, ...]]  #: file's slug → devices whose rows tell its own values
    families: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  #: slug → files it stands for
    absent: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)  #: slug → what is 0 there, unfitted
    apart: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)  #: slug → own there, shared elsewhere
    shares: frozenset[str] = frozenset()  #: powers that are fitted, and written, as shares of the limit as sold
    rows: int = 5000  #: most rows of one device and kind; more change no digit that counts
    sixteen_bit: float = 1.0  #: weight of 16-bit GEMMs among all
    redescending: bool = False  #: whether rows that are far off cease to count

    @property
    def devices(self) -> dict[str, str]:
        """Device → slug of the file with its own values."""
        return {device: slug for slug, devices in self.homes.items() for device in devices}

    def keys(self, slug: str) -> dict[str, str]:
        """Path of each parameter that a file has → its name in the fit."""
        absent, own = self.absent.get(slug, frozenset()), self.own | self.apart.get(slug, frozenset())
        paths = [p.path for p in self.parameters if leaf(p.path) not in absent]
        return {path: f"{slug}:{path}" if leaf(path) in own else path for path in paths}

    def stated(self, values: Mapping[str, Any], device: Any) -> dict[str, Any]:
        """Path → value as the device states it: watts where a share of its power limit is fitted."""
        return {path: v * device.power.tdp if leaf(path) in self.shares else v for path, v in values.items()}

    def written(self, path: str) -> str:
        """Name of a parameter in a table of the catalogue."""
        return f"{leaf(path)}_share" if leaf(path) in self.shares else leaf(path)

    def zeros(self, slug: str) -> list[str]:
        """Paths of what a file has not."""
        return [p.path for p in self.parameters if leaf(p.path) in self.absent.get(slug, frozenset())]

    def unknowns(self, slugs: Iterable[str]) -> list[Parameter]:
        """What is fitted to rows of some files: each parameter once, own ones once a file."""
        known = {p.path: p for p in self.parameters}
        wanted = {key: known[path] for slug in slugs for path, key in self.keys(slug).items()}
        return [dataclasses.replace(parameter, path=key) for key, parameter in wanted.items()]


def leaf(path: str) -> str:
    """Last name of a dotted path."""
    return path.rpartition(".")[2]


#: File whose values serve where a chip's or network's own and its family's say nothing.
SHARED = "generic"

_CHIPS: dict[str, tuple[str, ...]] = {
    "ampere": ("a100-sxm-80gb",), "h100": ("h100-sxm-80gb",), "h200": ("h200-sxm-141gb",),
    "blackwell": ("b200-sxm-180gb",),
}  # fmt: skip
#: Boards whose power was read.
_BOARDS = {slug: _CHIPS[slug] for slug in ("h200", "blackwell")}
_FAMILIES: dict[str, tuple[str, ...]] = {"hopper": ("h100", "h200"), SHARED: tuple(_CHIPS)}
_LINKS: dict[str, tuple[str, ...]] = {
    "nvlink-3": ("a100-sxm-80gb",), "nvlink-4": ("h100-sxm-80gb", "h200-sxm-141gb"),
    "nvlink-5": ("b200-sxm-180gb", "gb200-nvl72", "b300-sxm-288gb", "gb300-nvl72"), "pcie4-x16": ("l40s",),
    "pcie5-x16": ("rtx-pro-6000-server",),
}  # fmt: skip
#: A switch serves all members alike, and that of the third NVLink does not add; behind bridges is no switch.
_NOT_BUILT = {
    "nvlink-3": frozenset(("crowding", "in_network_reduction")), "nvlink-4": frozenset(("crowding", "simple_floor")),
    "nvlink-5": frozenset(("crowding", "simple_floor")),
    "pcie4-x16": frozenset(("pair_loss", "in_network_reduction", "simple_floor")),
    "pcie5-x16": frozenset(("pair_loss", "in_network_reduction", "simple_floor")),
}  # fmt: skip
#: Own where nothing alike is elsewhere: FlashAttention-2 rearranges grouped queries in a kernel of its own; Blackwell
#: multiplies in fp8 where the cache is; peers see each other's flags through the host.
_APART = {
    "ampere": frozenset(("grouped_floor",)), "blackwell": frozenset(("context_fp8",)),
    "pcie4-x16": frozenset(("direct_latency",)),
}  # fmt: skip

JOBS = [
    KernelJob("kernels", "fine", _GEMM, _GEMM_OWN, ("gemm",), _CHIPS, _FAMILIES, sixteen_bit=4.0),
    KernelJob("kernels", "attention", _ATTENTION, _ATTENTION_OWN, ("attention",), _CHIPS, _FAMILIES, apart=_APART),
    KernelJob("kernels", "power", _POWER, _POWER_OWN, ("gemm", "gemm_power"), _BOARDS,
              {"hopper": ("h200",), SHARED: tuple(_BOARDS)}, shares=frozenset(("uncore", "control")),
              rows=2500, sixteen_bit=3.0, redescending=True),
    KernelJob("network", "alone", _COLLECTIVE, _COLLECTIVE_OWN, ("collective", "direct"), _LINKS,
              {SHARED: tuple(_LINKS)}, _NOT_BUILT, _APART),
]  # fmt: skip
