"""Messages of a profile: bytes, ranks and times of collectives, and the bandwidth of the bus that they reach."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.designs import catalog
from dse.io import toml
from dse.measured.profiles.device_steps import DeviceSteps, KernelArrays
from dse.measured.profiles.run import CELL_ROWS

_ROWS = toml.table(Path(__file__).with_name("kernel_names.toml"))

#: Name in NCCL or PyTorch → kind of message; kind → pattern of names of kernels, the first that is found counts.
KINDS = {name: kind for kind, names in _ROWS["messages"].items() for name in names}
_KERNELS = {kind: re.compile(words, re.IGNORECASE) for kind, words in _ROWS["collectives"].items()}

_NCCL_KERNEL = re.compile(r"ncclDevKernel_([A-Za-z]+?)_|ncclKernel_([A-Za-z]+?)_")
_RANK = re.compile(r"\d{1,9}")

#: Collectives that a note lists.
_LISTED = 6

#: Mean over shortest time of a message from which on its ranks wait for each other.
_SKEW = 1.3


class TracedMessage(NamedTuple):
    """What kernels of one collective have in common."""

    name: str
    n_bytes: int = 0  #: of the whole, 0 where not stated
    n_ranks: int = 0  #: 0 where not stated
    first: int = 0  #: rank of the group, 0 where not stated
    last: int = 0

    @property
    def bus_factor(self) -> float:
        """Bytes that one rank sends over those of the message, as nccl-tests count; 0 where ranks are not known.

        With n ranks 2 (n - 1) / n of an all-reduce, (n - 1) / n of a gather, a scatter and an all-to-all
        (nccl-tests, doc/PERFORMANCE.md), 1 of other messages.
        """
        if self.n_ranks < 2:
            return 0.0
        part = (self.n_ranks - 1.0) / self.n_ranks
        kind = KINDS.get(self.name.lower(), "")
        return {"all_reduce": 2.0 * part, "all_gather": part, "reduce_scatter": part, "all_to_all": part}.get(kind, 1.0)


def message_of(name: str, args: Any) -> TracedMessage:
    """Return the message of a kernel by NCCL's metadata, else by its name.

    Args:
        name: of the kernel.
        args: arguments of its event.
    """
    metadata: Mapping[str, Any] = args if isinstance(args, dict) else {}
    name_match = _NCCL_KERNEL.search(name)
    stated = metadata.get("Collective name") or (name_match and (name_match[1] or name_match[2]))
    kind = str(stated or next((kind for kind, pattern in _KERNELS.items() if pattern.search(name)), "unknown"))
    elements = max((positive_int(metadata.get(key)) for key in ("In msg nelems", "Out msg nelems")), default=0)
    n_bytes = elements * CELL_ROWS["element_bytes"].get(str(metadata.get("dtype", "")).lower(), 0)
    ranks = [int(rank) for rank in _RANK.findall(str(metadata.get("Process Group Ranks", ""))[:2000])]
    n_ranks = positive_int(metadata.get("Group size"))
    first, last = (min(ranks), max(ranks)) if ranks else (0, max(n_ranks - 1, 0))
    return TracedMessage(kind.strip("_")[:40], n_bytes, n_ranks, first, last)


def positive_int(value: Any) -> int:
    """Return a value of a trace that is a positive integer, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50 else 0


def text(
    indices: Mapping[TracedMessage, np.ndarray],
    kernels: KernelArrays,
    steps: DeviceSteps,
    of_steps: list[int],
    device: str,
) -> str:
    """Return as text the collectives that take longest: number and ms a step, bus bandwidth and its share of the link.

    Numbers and times a step are medians over the steps that count; bandwidths are those of all kernels in steps, by
    their mean and by the shortest, whose ranks waited least.

    Args:
        indices: message → its kernels.
        kernels: of the device.
        steps: of the device.
        of_steps: indices of the steps that are alike.
        device: accelerator in the catalogue, "" where not known.
    """
    counted = steps.counted(of_steps)
    lines = []
    for message, members in indices.items():
        of_kernel, us = steps.kernel_step[members], (kernels.end - kernels.start)[members]
        us = us[np.isin(of_kernel, of_steps)]
        chosen = np.isin(of_kernel, counted)
        if not len(us) or not chosen.any():
            continue
        position = np.searchsorted(counted, of_kernel[chosen])
        count = np.bincount(position, minlength=len(counted))
        sums = np.bincount(position, (kernels.end - kernels.start)[members][chosen], len(counted))
        total = float(np.median(sums))
        line = (
            f"; {message.name}{f' of {message.n_bytes:,} B' if message.n_bytes else ''}"
            f"{f' over {message.n_ranks} ranks' if message.n_ranks else ''}: {float(np.median(count)):.4g} a step, "
            f"{1e-3 * total:.4g} ms"
        )
        lines.append((total, line + _rates_text(message, us, device)))
    return "".join(line for _, line in sorted(lines, key=lambda item: -item[0])[:_LISTED])


def _rates_text(message: TracedMessage, us: np.ndarray, device: str) -> str:
    """Return the bus bandwidth of the mean and the shortest kernel of a message as text, "" where not known."""
    bus_bytes, mean, least = message.bus_factor * message.n_bytes, float(us.mean()), float(us.min())
    if not bus_bytes or least <= 0.0:
        return ""
    name, link = link_of(device, message.first, message.last)
    rates = [1e6 * bus_bytes / time for time in (mean, least)]
    shares = [f" ({100.0 * rate / link:.3g} % of {name})" if link else "" for rate in rates]
    line = f", mean {1e-3 * mean:.4g} ms at {1e-9 * rates[0]:.4g} GB/s of bus{shares[0]}"
    if len(us) > 1:
        line += f", shortest {1e-3 * least:.4g} ms at {1e-9 * rates[1]:.4g} GB/s{shares[1]}"
        line += ", ranks wait for each other" if mean > _SKEW * least else ""
    return line


def link_of(device: str, first: int, last: int) -> tuple[str, float]:
    """Return name and B/s of a device and direction of the link between two ranks; ("", 0) where not known.

    Ranks of different scale-up domains use the network of the accelerator's usual node.

    Args:
        device: accelerator in the catalogue, "" where not known.
        first: rank of the group.
        last: rank of the group.

    >>> link_of("h100-sxm-80gb", 0, 7), link_of("h100-sxm-80gb", 0, 8)
    (('scale-up link', 450000000000.0), ('scale-out link', 50000000000.0))
    """
    if not device or catalog.find("accelerator", device) is None:
        return "", 0.0
    values = catalog.values("system", device)
    domain = max(values.get("scale_up.domain", 1.0), 1.0)
    level = "scale_up" if first // domain == last // domain else "scale_out"
    return f"{level.replace('_', '-')} link", float(values.get(f"{level}.bandwidth", 0.0))
