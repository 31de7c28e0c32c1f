"""Where arrays lie on the devices of a machine."""

from __future__ import annotations

import contextlib
import functools

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

#: Bytes of device memory that a design of a chunk may take, with all that lies between its operations.
_BYTES_A_DESIGN = 1024

#: Times the designs of a processor's chunk that keep any device busy: 2^25 scores.
_MOST_TIMES = 64


@functools.cache
def chunk_times() -> int:
    """How many times as many designs a chunk has as on processors, whose caches it has to fit: a power of two.

    GPUs wait for launches in chunks so short: theirs are as long as a quarter of their memory allows.
    """
    device, stats = jax.local_devices()[0], dict[str, int]()
    if device.platform == "cpu":
        return 1
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # a plugin need not tell its memory
        stats = device.memory_stats() or {}
    return times_within(stats.get("bytes_limit", 1 << 34))


def times_within(memory: int, designs: int = 1 << 19) -> int:
    """The same for a device by its bytes, of a chunk with a number of ``designs`` on processors."""
    return min(1 << max(0, (memory // 4 // (_BYTES_A_DESIGN * designs)).bit_length() - 1), _MOST_TIMES)


@functools.cache
def over_devices(*axes: str | None) -> NamedSharding:
    """How arrays lie on the devices of this process: split along the first axis (``"outer"``), or whole on each."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("outer",)), PartitionSpec(*axes))
