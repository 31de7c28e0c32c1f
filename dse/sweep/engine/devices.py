"""Where arrays lie on the devices of a machine."""

from __future__ import annotations

import contextlib
import functools

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

#: Bytes of device memory that a design of a chunk may take, with all that lies between its operations.
_BYTES_PER_DESIGN = 1024

#: Times the designs of a processor's chunk that keep any device busy: 2^25 scores.
_MAX_SCALE = 64


@functools.cache
def chunk_scale() -> int:
    """How many times as many designs a chunk has as on processors, whose caches it has to fit: a power of two.

    GPUs wait for launches in chunks so short: theirs are as long as a quarter of their memory allows.
    """
    device, stats = jax.local_devices()[0], dict[str, int]()
    if device.platform == "cpu":
        return 1
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # a plugin need not tell its memory
        stats = device.memory_stats() or {}
    return scale_in_memory(stats.get("bytes_limit", 1 << 34))


def scale_in_memory(memory_bytes: int, designs: int = 1 << 19) -> int:
    """The same for a device by its bytes, of a chunk with a number of ``designs`` on processors."""
    return min(1 << max(0, (memory_bytes // 4 // (_BYTES_PER_DESIGN * designs)).bit_length() - 1), _MAX_SCALE)


@functools.cache
def device_sharding(*axes: str | None) -> NamedSharding:
    """How arrays lie on the devices of this process: split along the first axis (``"outer"``), or whole on each."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("outer",)), PartitionSpec(*axes))
