"""Parameters of chips and networks from measured kernels, through the model's own formulas.

A *job* fits the parameters of one table of one catalogue file (``fine`` and ``attention`` of a kernels file,
``alone`` of a network's) to the rows of the devices that share them. :func:`calibrate` runs the jobs that the
rows allow; :mod:`dse.calibrate.writing` writes what they found.
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
from dse.cases.kernels import Kernel, device_of, kind_of, read, times
from dse.cases.table import Skip, read_table
from dse.errors import InputError
from dse.types import Precision

#: Rows a job takes of one device and kind at most; more change no digit that counts.
MOST_ROWS = 20000

_GEMM = [
    Parameter("kernels.matrix_efficiency", 0.8, 0.2, upper=1.0),
    Parameter("kernels.matrix_depth", 40.0, 0.7),
    Parameter("kernels.wave_quantization", 0.1, 1.0, upper=1.0),
    Parameter("kernels.memory_efficiency", 0.88, 0.1, upper=1.0),
    Parameter("kernels.roofline_blend", 0.4, 0.5, upper=1.0),
    Parameter("kernels.kernel_floor", 2.5e-6, 0.5),
    Parameter("kernels.fine.split_depth", 90.0, 0.7),
    Parameter("kernels.fine.small_tile", 0.5, 0.4, upper=1.0),
    Parameter("kernels.fine.output_overhead", 0.35, 0.7, upper=1.0),
    Parameter("kernels.fine.sustained", 0.87, 0.05, upper=1.0),
    Parameter("kernels.fine.fp8_efficiency", 0.85, 0.1, upper=1.2),
    Parameter("kernels.fine.fp4_efficiency", 0.8, 0.15, upper=1.2),
    Parameter("kernels.fine.narrow_memory", 0.75, 0.2, upper=1.0),
    Parameter("kernels.fine.narrow_split", 50.0, 1.5),
    Parameter("kernels.fine.quantize_floor", 2e-6, 0.7),
    Parameter("kernels.fine.quantize_row", 1e-9, 1.0),
    Parameter("kernels.fine.block_floor", 90e-6, 0.4),
    Parameter("kernels.fine.block_floor_few", 60e-6, 0.4),
    Parameter("kernels.fine.block_floor_odd", 180e-6, 0.4),
]

_ATTENTION = [
    Parameter("kernels.attention.context_efficiency", 0.8, 0.2, upper=1.3),
    Parameter("kernels.attention.context_head", 40.0, 0.7),
    Parameter("kernels.attention.context_keys", 120.0, 0.7),
    Parameter("kernels.attention.context_tail", 0.6, 0.5, upper=1.0),
    Parameter("kernels.attention.context_empty", 0.2, 1.0, upper=1.0),
    Parameter("kernels.attention.context_memory", 0.8, 0.2, upper=1.3),
    Parameter("kernels.attention.context_token", 0.5e-9, 1.0),
    Parameter("kernels.attention.context_floor", 8e-6, 0.5),
    Parameter("kernels.attention.context_fp8", 1.0, 0.2),
    Parameter("kernels.attention.decode_keys", 130.0, 0.7),
    Parameter("kernels.attention.decode_head", 60.0, 0.7),
    Parameter("kernels.attention.decode_split", 12.0, 1.0),
    Parameter("kernels.attention.decode_core", 2.3, 0.5),
    Parameter("kernels.attention.decode_memory", 0.87, 0.1, upper=1.1),
    Parameter("kernels.attention.decode_floor", 6e-6, 0.5),
    Parameter("kernels.attention.grouped_floor", 0.3e-6, 1.0),
    Parameter("kernels.attention.fp8_floor", 0.6e-6, 1.0),
    Parameter("kernels.attention.blend", 0.2, 0.5, upper=1.0),
]

_COLLECTIVE = [
    Parameter("scale_up.alone.launch", 7e-6, 0.4),
    Parameter("scale_up.latency", 1.5e-6, 0.6),
    Parameter("scale_up.efficiency", 0.82, 0.15, upper=1.0),
    Parameter("scale_up.ramp", 3e6, 1.0),
    Parameter("scale_up.in_network_reduction", 0.6, 0.2, upper=1.0),
    Parameter("scale_up.alone.pair_loss", 0.1, 0.7, upper=0.6),
    Parameter("scale_up.alone.crowding", 0.001, 2.0),
    Parameter("scale_up.alone.exchange_efficiency", 0.9, 0.2),
    Parameter("scale_up.alone.direct_launch", 4e-6, 0.5),
    Parameter("scale_up.alone.lean_launch", 0.65, 0.2),
    Parameter("scale_up.alone.direct_latency", 1e-6, 0.5),
    Parameter("scale_up.alone.direct_efficiency", 0.8, 0.3),
    Parameter("scale_up.alone.graph_efficiency", 1.1, 0.1),
    Parameter("scale_up.alone.eager_launch", 20e-6, 0.4),
]


@dataclasses.dataclass(frozen=True)
class Job:
    """What to fit for one table of one catalogue file, and the devices whose rows tell it."""

    kind: str  #: folder of the file: kernels or network
    slug: str
    table: str
    parameters: Sequence[Parameter]
    kernels: tuple[str, ...]  #: kinds of kernels
    devices: tuple[str, ...]


#: Chips whose rows tell the parameters of a kernels file, and devices that those of a network; the pooled fit of
#: a family serves its chips without rows.
_CHIPS = {
    "ampere": ("a100-sxm-80gb",), "hopper": ("h100-sxm-80gb", "h200-sxm-141gb"), "h100": ("h100-sxm-80gb",),
    "h200": ("h200-sxm-141gb",), "blackwell": ("b200-sxm-180gb",),
}  # fmt: skip
_LINKS = {
    "nvlink-3": ("a100-sxm-80gb",), "nvlink-4": ("h100-sxm-80gb", "h200-sxm-141gb"),
    "nvlink-5": ("b200-sxm-180gb", "gb200-nvl72", "b300-sxm-288gb", "gb300-nvl72"), "pcie4-x16": ("l40s",),
    "pcie5-x16": ("rtx-pro-6000-server",),
}  # fmt: skip

JOBS = [
    *(Job("kernels", slug, "fine", _GEMM, ("gemm",), chips) for slug, chips in _CHIPS.items()),
    *(Job("kernels", slug, "attention", _ATTENTION, ("attention",), chips) for slug, chips in _CHIPS.items()),
    *(Job("network", slug, "alone", _COLLECTIVE, ("collective", "direct"), chips) for slug, chips in _LINKS.items()),
]

Group = tuple[str, str]  # kind of kernel, device


@dataclasses.dataclass(frozen=True)
class Found:
    """A job with its fit and, over held-out groups of shapes, the errors of every row."""

    job: Job
    fit: Fit
    kernels: list[Kernel]
    held_out: np.ndarray  #: log(predicted / measured) with the row's shape left out of the fit; empty without folds

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|, of held-out rows where there are some."""
        errors = self.held_out if len(self.held_out) else self.fit.errors
        return float(np.median(np.abs(np.expm1(errors))))

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
    split = folds([one.values for one in kernels], k) if k else np.zeros(0, int)
    held = np.zeros(len(kernels) if k else 0)
    for fold in range(k):
        held[split == fold] = _fitted(job, kernels, split != fold).errors[split == fold]
    return Found(job, _fitted(job, kernels, np.ones(len(kernels), bool)), list(kernels), held)


def _fitted(job: Job, kernels: Sequence[Kernel], used: np.ndarray) -> Fit:
    """The fit to the rows that are ``used``; its errors are those of all rows, in order."""
    order, data = _grouped(kernels)
    weights = (used * [_weight(one) for one in kernels])[order].astype(np.float32)
    result = fit(_residuals([(g.kind, g.device) for g in data]), job.parameters, weights,
                 tuple((g.rows, g.measured) for g in data), starts=1, steps=250)  # fmt: skip
    back = np.empty(len(order), int)
    back[order] = np.arange(len(order))
    return dataclasses.replace(result, errors=result.errors[back], rows=int(used.sum()))


def _weight(kernel: Kernel) -> float:
    """16-bit GEMMs count most: they alone tell what all number formats share, and they are what is trained in."""
    return 4.0 if kernel.kind == "gemm" and kernel.values[3] == float(Precision.bf16) else 1.0


@dataclasses.dataclass(frozen=True)
class _Rows:
    kind: str
    device: str
    rows: jax.Array
    measured: jax.Array


def _grouped(kernels: Sequence[Kernel]) -> tuple[np.ndarray, list[_Rows]]:
    """Kernels of one kind and device together: where each went, and their arrays."""
    groups: dict[Group, list[int]] = {}
    for index, kernel in enumerate(kernels):
        groups.setdefault((kernel.kind, kernel.device), []).append(index)
    data = [
        _Rows(kind, device, jnp.asarray([kernels[i].values for i in members], jnp.float32),
              jnp.asarray([kernels[i].measured for i in members], jnp.float32))
        for (kind, device), members in groups.items()
    ]  # fmt: skip
    return np.concatenate(list(groups.values())), data


def _residuals(groups: Sequence[Group]) -> Callable[..., jax.Array]:
    """log(predicted / measured) of all rows, group after group, as a function of the parameters."""
    devices = [device_of(*group) for group in groups]

    def residuals(values: dict[str, jax.Array], *data: tuple[jax.Array, jax.Array]) -> jax.Array:
        logs = [
            jnp.log(times(kind, rows, with_leaves(device, values))) - jnp.log(measured)
            for (kind, _), device, (rows, measured) in zip(groups, devices, data, strict=True)
        ]
        return jnp.concatenate(logs)

    return residuals


def with_leaves(record: Any, values: dict[str, Any]) -> Any:
    """A record with some leaves replaced, each named by its dotted path."""
    own = {path: value for path, value in values.items() if "." not in path}
    inner: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        head, _, rest = path.partition(".")
        if rest:
            inner.setdefault(head, {})[rest] = value
    parts = {head: with_leaves(getattr(record, head), leaves) for head, leaves in inner.items()}
    return dataclasses.replace(record, **own, **parts)


def _thinned(kernels: list[Kernel]) -> list[Kernel]:
    """At most ``MOST_ROWS`` kernels of each kind and device, evenly over the table."""
    groups: dict[Group, list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.kind, kernel.device), []).append(kernel)
    return [kernel for group in groups.values() for kernel in group[:: -(-len(group) // MOST_ROWS)]]
