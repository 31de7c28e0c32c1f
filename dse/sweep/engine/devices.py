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
    """Return the factor, a power of two, by which a chunk of this device is longer than one of a processor.

    Chunks of processors fit into caches. GPUs would wait for launches in chunks so short: theirs are as long as a
    quarter of their memory allows.
    """
    device, stats = jax.local_devices()[0], dict[str, int]()
    if device.platform == "cpu":
        return 1
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # a plugin need not tell its memory
        stats = device.memory_stats() or {}
    return scale_in_memory(stats.get("bytes_limit", 1 << 34))


def scale_in_memory(memory_bytes: int, designs: int = 1 << 19) -> int:
    """Return :func:`chunk_scale` of a device by its memory in bytes, for chunks of ``designs`` on processors."""
    return min(1 << max(0, (memory_bytes // 4 // (_BYTES_PER_DESIGN * designs)).bit_length() - 1), _MAX_SCALE)


@functools.cache
def device_sharding(*axes: str | None) -> NamedSharding:
    """Return a sharding over the devices of this process: an axis named ``"outer"`` is split, others are replicated."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("outer",)), PartitionSpec(*axes))
