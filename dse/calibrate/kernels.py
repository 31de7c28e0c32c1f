"""Parameters of chips and networks from measured kernels, through the model's own formulas.

A *job* fits one table (``fine`` or ``attention`` of kernels files, ``alone`` of networks') to all devices together:
what differs by device is its own, what an algorithm or a library has is one value for all. :func:`calibrate` runs the
jobs that the rows allow; :mod:`dse.calibrate.writing` writes what they found, :mod:`dse.calibrate.kernel_page` how far
off it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.calibrate.fit import Fit, Parameter, fit, folds
from dse.cases.kernels import FORMULAS, Kernel, device_of, kind_of, read
from dse.cases.table import Skip, read_table
from dse.design import replace
from dse.errors import InputError
from dse.types import Precision

#: Rows a job takes of one device and kind at most; more change no digit that counts.
MOST_ROWS = 5000
#: Residual from which one counts linearly: what is judged is the median.
DELTA = 0.05
#: Steps of a fit.
STEPS = 250

_GEMM = [
    Parameter("kernels.matrix_efficiency", 0.8, 0.2, upper=1.0),
    Parameter("kernels.wave_quantization", 0.1, 1.0, upper=1.0),
    Parameter("kernels.memory_efficiency", 0.88, 0.1, upper=1.0),
    Parameter("kernels.roofline_blend", 0.4, 0.5, upper=1.0),
    Parameter("kernels.kernel_floor", 2.5e-6, 0.5),
    Parameter("kernels.fine.split_time", 0.6e-6, 0.7),
    Parameter("kernels.fine.feed", 250e9, 0.5),
    Parameter("kernels.fine.output_overhead", 0.35, 0.7, upper=1.0),
    Parameter("kernels.fine.sustained", 0.87, 0.05, upper=1.0),
    Parameter("kernels.fine.narrow_efficiency", 0.8, 0.1, upper=1.0),
    Parameter("kernels.fine.quantize_floor", 2e-6, 0.7),
    Parameter("kernels.fine.quantize_row", 1e-9, 1.0),
    Parameter("kernels.fine.block_floor", 90e-6, 0.4),
    Parameter("kernels.fine.block_floor_few", 60e-6, 0.4),
    Parameter("kernels.fine.block_floor_odd", 180e-6, 0.4),
]

_GEMM_OWN = frozenset((
    "matrix_efficiency", "memory_efficiency", "roofline_blend", "kernel_floor", "quantize_floor", "block_floor",
))  # fmt: skip

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

_COLLECTIVE = [
    Parameter("scale_up.alone.launch", 7e-6, 0.4),
    Parameter("scale_up.latency", 1.5e-6, 0.6),
    Parameter("scale_up.efficiency", 0.82, 0.15, upper=1.0),
    Parameter("scale_up.ramp", 3e6, 1.0),
    Parameter("scale_up.in_network_reduction", 0.6, 0.2, upper=1.0),
    Parameter("scale_up.alone.pair_loss", 0.1, 0.7, upper=0.6),
    Parameter("scale_up.alone.crowding", 0.001, 2.0),
    Parameter("scale_up.alone.exchange_efficiency", 0.9, 0.2),
    Parameter("scale_up.alone.direct_launch", 0.5, 0.5),
    Parameter("scale_up.alone.lean_launch", 0.65, 0.2),
    Parameter("scale_up.alone.direct_latency", 2.3, 0.5),
    Parameter("scale_up.alone.direct_rate", 600e9, 0.5),
    Parameter("scale_up.alone.graph_efficiency", 1.1, 0.1),
    Parameter("scale_up.alone.eager_launch", 20e-6, 0.4),
]

_COLLECTIVE_OWN = frozenset(
    ("launch", "latency", "efficiency", "ramp", "in_network_reduction", "pair_loss", "crowding", "eager_launch")
)


@dataclasses.dataclass(frozen=True)
class Job:
    """Parameters of one table, fitted to all devices together: some each file's own, the rest one value for all.

    Every file of ``homes`` keeps its own values; those of a file in ``families`` are the geometric means over
    its members', with their scatter as spread: what serves devices without rows.
    """

    kind: str  #: folder of the files with own values: kernels or network
    table: str
    parameters: Sequence[Parameter]
    own: frozenset[str]  #: names of the parameters of which every file has its own value
    kernels: tuple[str, ...]  #: kinds of kernels
    homes: dict[str, tuple[str, ...]]  #: file's slug → devices whose rows tell its own values
    families: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  #: slug → files it stands for
    absent: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)  #: slug → what is 0 there, not fitted
    apart: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)  #: slug → own there, shared elsewhere

    @property
    def devices(self) -> dict[str, str]:
        """Device → slug of the file with its own values."""
        return {device: slug for slug, devices in self.homes.items() for device in devices}

    def keys(self, slug: str) -> dict[str, str]:
        """Path of each parameter that a file has → its name in the fit."""
        absent, own = self.absent.get(slug, frozenset()), self.own | self.apart.get(slug, frozenset())
        paths = [p.path for p in self.parameters if leaf(p.path) not in absent]
        return {path: f"{slug}:{path}" if leaf(path) in own else path for path in paths}

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

_CHIPS = {
    "ampere": ("a100-sxm-80gb",), "h100": ("h100-sxm-80gb",), "h200": ("h200-sxm-141gb",),
    "blackwell": ("b200-sxm-180gb",),
}  # fmt: skip
_FAMILIES = {"hopper": ("h100", "h200"), SHARED: tuple(_CHIPS)}
_LINKS = {
    "nvlink-3": ("a100-sxm-80gb",), "nvlink-4": ("h100-sxm-80gb", "h200-sxm-141gb"),
    "nvlink-5": ("b200-sxm-180gb", "gb200-nvl72", "b300-sxm-288gb", "gb300-nvl72"), "pcie4-x16": ("l40s",),
    "pcie5-x16": ("rtx-pro-6000-server",),
}  # fmt: skip
#: A switch serves all members alike, and that of the third NVLink does not add; behind bridges is no switch.
_NOT_BUILT = {
    "nvlink-3": frozenset(("crowding", "in_network_reduction")), "nvlink-4": frozenset(("crowding",)),
    "nvlink-5": frozenset(("crowding",)), "pcie4-x16": frozenset(("pair_loss", "in_network_reduction")),
    "pcie5-x16": frozenset(("pair_loss", "in_network_reduction")),
}  # fmt: skip
#: Own where nothing alike is elsewhere: FlashAttention-2 rearranges grouped queries in a kernel of its own; Blackwell
#: multiplies in fp8 where the cache is; peers see each other's flags through the host.
_APART = {
    "ampere": frozenset(("grouped_floor",)), "blackwell": frozenset(("context_fp8",)),
    "pcie4-x16": frozenset(("direct_latency",)),
}  # fmt: skip

JOBS = [
    Job("kernels", "fine", _GEMM, _GEMM_OWN, ("gemm",), _CHIPS, _FAMILIES),
    Job("kernels", "attention", _ATTENTION, _ATTENTION_OWN, ("attention",), _CHIPS, _FAMILIES, apart=_APART),
    Job("network", "alone", _COLLECTIVE, _COLLECTIVE_OWN, ("collective", "direct"), _LINKS, {SHARED: tuple(_LINKS)},
        _NOT_BUILT, _APART),
]  # fmt: skip

Group = tuple[str, str]  # kind of kernel, device


@dataclasses.dataclass(frozen=True)
class Found:
    """A job with its fit and, over held-out groups of shapes, the errors of every row."""

    job: Job
    fit: Fit
    kernels: list[Kernel]
    held_out: np.ndarray  #: log(predicted / measured) with the row's shape left out of the fit; empty without folds

    @property
    def errors(self) -> np.ndarray:
        """log(predicted / measured) of every row, held out where there are folds."""
        return self.held_out if len(self.held_out) else self.fit.errors

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|, of held-out rows where there are some."""
        return float(np.median(np.abs(np.expm1(self.errors))))

    @property
    def slugs(self) -> list[str]:
        """Files that have rows of their own."""
        known = self.job.devices
        return list(dict.fromkeys(known[one.device] for one in self.kernels))

    @property
    def at_prior(self) -> list[str]:
        """Parameters that the rows told nothing of."""
        return [path for path, moved in self.fit.moved.items() if not moved]


def read_kernels(paths: Iterable[str | Path]) -> list[Kernel]:
    """Every kernel of some tables that can be predicted; InputError for a file that is no table of kernels."""
    found: list[Kernel] = []
    for path in paths:
        columns, rows = read_table(path)
        kind = kind_of(columns)
        if not kind:
            allowed = "a table of kernels: latency_ms or median_ms and the columns of a shape"
            raise InputError(f"{path}: columns", ", ".join(columns[:8]), allowed, "name tables of measured kernels")
        for row in rows:
            try:
                found += [k for k in read(row, kind) if kind not in ("operator",)]
            except Skip:
                continue
    return found


def calibrate(kernels: Sequence[Kernel], k: int = 0, jobs: Sequence[Job] = JOBS) -> list[Found]:
    """Every job that has rows, fitted; with ``k`` also cross-validated over ``k`` folds of shapes."""
    found = []
    for job in jobs:
        own = _thinned([one for one in kernels if one.kind in job.kernels and one.device in job.devices])
        if own:
            found.append(run(job, own, k))
    if not found:
        devices = sorted({d for job in jobs for d in job.devices})
        raise InputError("rows", "none that a parameter depends on", ", ".join(devices), "name tables of these chips")
    return found


def run(job: Job, kernels: Sequence[Kernel], k: int = 0) -> Found:
    """One job: its fit to all rows, and the error of each row by a fit to the other folds."""
    split = folds([shape(one) for one in kernels], k) if k else np.zeros(0, int)
    held = np.zeros(len(kernels) if k else 0)
    for fold in range(k):
        held[split == fold] = _fitted(job, kernels, split != fold).errors[split == fold]
    return Found(job, _fitted(job, kernels, np.ones(len(kernels), bool)), list(kernels), held)


def shape(kernel: Kernel) -> tuple[float, ...]:
    """What rows of one shape have in common, whatever ran them and in which format: they share a fold."""
    v = kernel.values
    if kernel.kind == "gemm":
        return v[:3]
    if kernel.kind == "attention":  # batch, tokens, heads, window; context or decode
        return (*v[:6], v[7])
    return v[1:3] if kernel.kind == "collective" else v[:2]  # bytes, members


def _fitted(job: Job, kernels: Sequence[Kernel], used: np.ndarray) -> Fit:
    """The fit to the rows that are ``used``; its errors are those of all rows, in order."""
    order, data = _grouped(kernels)
    weights = (used * _weights(kernels))[order].astype(np.float32)
    slugs = dict.fromkeys(job.devices[device] for g in data for device in g.devices)
    result = fit(_residuals(job, data), job.unknowns(slugs), weights,
                 tuple((g.rows, g.which, g.measured) for g in data), delta=DELTA, starts=1, steps=STEPS)  # fmt: skip
    back = np.empty(len(order), int)
    back[order] = np.arange(len(order))
    return dataclasses.replace(result, errors=result.errors[back], rows=int(used.sum()))


def _weights(kernels: Sequence[Kernel]) -> np.ndarray:
    """Weights of rows, such that every device counts alike whatever its number of rows."""
    plain = np.array([_weight(one) for one in kernels])
    devices = np.array([one.device for one in kernels])
    names, where = np.unique(devices, return_inverse=True)
    sums = np.bincount(where, plain)
    return plain * (plain.sum() / len(names) / sums)[where]


def _weight(kernel: Kernel) -> float:
    """16-bit GEMMs count most: they alone tell what all number formats share, and they are what is trained in."""
    return 4.0 if kernel.kind == "gemm" and kernel.values[3] == float(Precision.bf16) else 1.0


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Kernels of one kind: the devices, which of them ran each row, and the rows as arrays."""

    kind: str
    devices: list[str]
    rows: jax.Array
    which: jax.Array
    measured: jax.Array


def _grouped(kernels: Sequence[Kernel]) -> tuple[np.ndarray, list[_Rows]]:
    """Kernels of one kind together: where each went, and their arrays."""
    groups: dict[str, list[int]] = {}
    for index, kernel in enumerate(kernels):
        groups.setdefault(kernel.kind, []).append(index)
    return np.concatenate(list(groups.values())), [
        _arrays(kind, [kernels[i] for i in members]) for kind, members in groups.items()
    ]


def _arrays(kind: str, kernels: Sequence[Kernel]) -> _Rows:
    devices = list(dict.fromkeys(one.device for one in kernels))
    return _Rows(
        kind, devices, jnp.asarray([one.values for one in kernels], jnp.float32),
        jnp.asarray([devices.index(one.device) for one in kernels]),
        jnp.asarray([one.measured for one in kernels], jnp.float32),
    )  # fmt: skip


def _residuals(job: Job, groups: Sequence[_Rows]) -> Callable[..., jax.Array]:
    """log(predicted / measured) of all rows, kind after kind, as a function of the parameters."""
    known = [[(device_of(g.kind, name), job.devices[name]) for name in g.devices] for g in groups]
    kinds = [g.kind for g in groups]

    def residuals(values: dict[str, jax.Array], *data: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        logs = []
        for kind, devices, (rows, which, measured) in zip(kinds, known, data, strict=True):
            fitted = [
                replace(device, dict.fromkeys(job.zeros(slug), 0.0)
                        | {path: values[key] for path, key in job.keys(slug).items()})
                for device, slug in devices
            ]  # fmt: skip
            logs.append(jnp.log(_each(kind, rows, which, jax.tree.map(_stacked, *fitted))) - jnp.log(measured))
        return jnp.concatenate(logs)

    return residuals


def _stacked(*leaves: Any) -> jax.Array:
    return jnp.stack([jnp.asarray(one, jnp.float32) for one in leaves])


def _each(kind: str, rows: jax.Array, which: jax.Array, devices: Any) -> jax.Array:
    """Seconds of kernels of one kind, a row each on one of some devices: one program for all of them."""
    return jax.vmap(lambda row, i: FORMULAS[kind](list(row), jax.tree.map(lambda x: x[i], devices)))(rows, which)


def _thinned(kernels: list[Kernel]) -> list[Kernel]:
    """At most ``MOST_ROWS`` kernels of each kind and device, evenly over the table."""
    groups: dict[Group, list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.kind, kernel.device), []).append(kernel)
    return [kernel for group in groups.values() for kernel in group[:: -(-len(group) // MOST_ROWS)]]
