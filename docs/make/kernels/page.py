"""The page of the docs on measured kernels: errors by class over held-out shapes, and how many parameters they took."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from calibration.kernels import FittedJob
from docs.make.kernels import power
from docs.make.markdown import document, filed, percent, table
from dse import types
from dse.designs import catalog
from dse.measured.kernels import PLATFORMS, POWER, Kernel, predict
from dse.model import Route
from dse.model.links import reach_in
from dse.model.machine.collectives import all_reduce
from dse.types import Collective, Group, Precision

#: Measured seconds from which a GEMM counts as a long one.
LONG = 20e-6


def _is_context(kernel: Kernel) -> bool:
    return kernel.kind == "attention" and kernel.values[7] > 0.0 and kernel.values[1] > 1.0


def _format(*precisions: Precision) -> Callable[[Kernel], bool]:
    return lambda kernel: kernel.kind == "gemm" and kernel.values[3] in {float(p) for p in precisions}


_SIXTEEN = _format(Precision.bf16, Precision.fp16)

#: Class of kernels → whether a kernel belongs to it.
CLASSES: dict[str, Callable[[Kernel], bool]] = {
    "GEMM, 16 bits": _SIXTEEN,
    "GEMM, 16 bits, 20 us or more": lambda kernel: _SIXTEEN(kernel) and kernel.measured >= LONG,
    "GEMM, fp8": _format(Precision.fp8),
    "GEMM, fp8 by blocks": _format(Precision.fp8_block),
    "GEMM, fp4": _format(Precision.fp4),
    "attention, context": _is_context,
    "attention, decode": lambda kernel: kernel.kind == "attention" and not _is_context(kernel),
    "collective of the library": lambda kernel: kernel.kind == "collective",
    "direct all-reduce": lambda kernel: kernel.kind == "direct",
}


def page(found: Sequence[FittedJob], command: str, others: Sequence[Kernel] = ()) -> str:
    """The page as Markdown; of ``others`` those on platforms are predicted by the catalogue as it is."""
    timed = [one for one in found if all(kernel.metric != POWER for kernel in one.kernels)]
    kernels = [kernel for one in timed for kernel in one.kernels]
    errors = np.expm1(np.concatenate([one.errors for one in timed]))
    parts = [
        "# Measured kernels",
        f"Written by `{command}`. An error is predicted over measured, less one, by a fit that saw no row of the same "
        "shape on any device, in any number format or regime.",
        "## Errors",
        *_errors(kernels, errors),
        *_by_size([kernel for kernel in others if kernel.kind == "collective" and kernel.device not in PLATFORMS]),
        *_platforms([kernel for kernel in others if kernel.device in PLATFORMS]),
        *_exchanges([kernel for kernel in others if kernel.kind == "exchange"]),
        *power.sections(found, others),
        "## Parameters",
        f"Numbers of each file of the catalogue, and how many the rows determine: {_parameters(found)}",
    ]
    return document(parts)


def _errors(kernels: Sequence[Kernel], errors: np.ndarray) -> list[str]:
    """Errors by class, and a file of those by device."""
    rows, whole = [], []
    for name, belongs in CLASSES.items():
        inside = np.array([belongs(kernel) for kernel in kernels], bool)
        devices = np.array([kernel.device for kernel in kernels])
        for device in dict.fromkeys(devices[inside]):
            rows.append([name, device, *_figures(errors[inside & (devices == device)])])
        if inside.any():
            whole.append([name, *_figures(errors[inside])])
    header = ["class", "device", "rows", "median", "90 %", "bias"]
    by_device = filed("kernels_errors", header, rows)
    return [table(["class", *header[2:]], whole), f"By class and device: {by_device}"]


def _figures(errors: np.ndarray) -> list[str]:
    sizes = (float(np.median(abs(errors))), float(np.quantile(abs(errors), 0.9)))
    return [str(len(errors)), *map(percent, sizes), percent(float(np.median(errors)), "+")]


#: Upper ends of classes of messages, bytes.
_SIZES = {"up to 64 KiB": 2.0**16, "to 512 KiB": 2.0**19, "to 4 MiB": 2.0**22, "above": np.inf}

#: A topology → a system of the catalogue.
_TOPOLOGIES = {
    "switch (A100)": "a100-sxm-80gb",
    "cube mesh of DGX-1 (V100)": "v100-sxm-32gb",
    "PCIe switches (L40S)": "l40s",
    "shared root ports (L40S)": "l40s-shared-root",
}

_SERVED = (
    "Mixtral 8x7B on 4 and 8 L40S (TensorRT-LLM 0.17, 18 rows, hosts unknown) is 3.9 % off with a path for each pair."
)


def _by_size(kernels: Sequence[Kernel]) -> list[str]:
    """Isolated collectives by device, members and size, and what topologies leave of the bandwidth."""
    if not kernels:
        return []
    done = [(k, s / k.measured - 1.0) for k, s in zip(kernels, predict(kernels), strict=True) if isinstance(s, float)]
    groups: dict[tuple[str, str, str], list[float]] = {}
    for kernel, error in done:
        size = next(name for name, end in _SIZES.items() if kernel.values[1] <= end)
        groups.setdefault((kernel.device, f"{kernel.values[2]:g}", size), []).append(error)
    order = sorted(groups, key=lambda key: (key[0], float(key[1]), list(_SIZES).index(key[2])))
    rows = [[*key, *_figures(np.array(groups[key]))] for key in order]
    files = filed("kernels_collective_sizes", ["device", "members", "bytes", "rows", "median", "90 %", "bias"], rows)
    text = (
        "Library collectives in one node, by the catalogue, which saw these rows. By device, members and size: "
        f"{files}\n\n"
        "Topologies differ in what a group has of a device's links. All-reduces of 256 MiB in training and serving, "
        "GB/s that a member sends:"
    )
    lines = []
    for name, system in _TOPOLOGIES.items():
        lines.append([name, *(f"{_bus_bandwidth(system, members):.1f}" for members in _MEMBERS)])
    header = ["topology", *(f"{members:g} members" for members in _MEMBERS)]
    return ["## Collectives by size and topology", text, table(header, lines, ("topology",)), _SERVED]


_MEMBERS = (2.0, 4.0, 8.0)


def _bus_bandwidth(name: str, members: float, size: float = 2.0**28) -> float:
    """GB/s that each of some neighbours of a node sends in an all-reduce of ``size`` bytes."""
    system = catalog.record(types.System, name)
    group = Group(members, members, reach=reach_in(system, members)((1.0, members)))
    seconds = all_reduce(size, Route(group, system), jnp.asarray(float(Collective.auto)))
    return 2e-9 * size * (members - 1.0) / members / float(seconds)


def _platforms(kernels: Sequence[Kernel]) -> list[str]:
    """Collectives on clusters with figures of their own, which are no part of these fits."""
    text = "Clusters of which only these rows are known; their own figures saw them."
    return _section("Collectives on clusters", text, "collective, cluster", kernels)


def _exchanges(kernels: Sequence[Kernel]) -> list[str]:
    """Kernels that send tokens to experts and back, which have figures of their own too."""
    text = (
        "DeepEP: dispatch and combine; those between nodes are of H100 and H200. Their figures "
        "(`dse/measured/kernels/kernels.toml`) saw these rows."
    )
    return _section("Exchanges between experts", text, "kernel, chip", kernels)


def _section(title: str, text: str, heading: str, kernels: Sequence[Kernel]) -> list[str]:
    """Errors by class and device of kernels that the catalogue predicts as it is."""
    done = [(k, s) for k, s in zip(kernels, predict(kernels), strict=True) if isinstance(s, float)]
    if not done:
        return []
    errors = np.array([seconds / kernel.measured - 1.0 for kernel, seconds in done])
    names = np.array([f"{kernel.label}, {kernel.device.removesuffix(' apart')}" for kernel, _ in done])
    rows = [[name, *_figures(errors[names == name])] for name in sorted(set(names))]
    header = [heading, "rows", "median", "90 %", "bias"]
    by_name = filed("kernels_" + title.partition(" ")[0].lower(), header, rows)
    return [f"## {title}", f"{text} By {heading}: {by_name}", table(header, [["**all**", *_figures(errors)]])]


def _parameters(found: Sequence[FittedJob]) -> str:
    """How many numbers each file has of its own, which the rows told, and how many all share."""
    rows = []
    for one in found:
        shared = [path for path in one.fit.values if ":" not in path]
        told = sum(one.fit.is_informed[path] for path in shared)
        rows.append([one.job.table, "shared by all", str(len(shared)), str(told)])
        for slug in one.slugs:
            own = [key for path, key in one.job.keys(slug).items() if key != path]
            rows.append([one.job.table, slug, str(len(own)), str(sum(one.fit.is_informed[key] for key in own))])
    return filed("kernels_parameters", ["table", "file", "parameters", "told by the rows"], rows)
