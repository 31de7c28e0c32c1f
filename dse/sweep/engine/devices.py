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

#: Bytes of memory of a device that does not tell.
_UNKNOWN_MEMORY = 1 << 34


@functools.cache
def chunk_scale() -> int:
    """Return the factor by which a chunk of this process is longer than one of a processor.

    Its devices share a chunk. The share of each fits into the caches of a processor; a GPU would wait for launches in
    chunks so short: its share is as long as a quarter of the memory that JAX preallocates allows, of the smallest GPU.
    """
    devices = jax.local_devices()
    return len(devices) * min(1 if device.platform == "cpu" else _scale(device) for device in devices)


def _scale(device: jax.Device) -> int:
    """Return the factor for one device that is no processor."""
    stats = dict[str, int]()
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # a plugin need not tell its memory
        stats = device.memory_stats() or {}
    return scale_in_memory(stats.get("bytes_limit") or _UNKNOWN_MEMORY)


def scale_in_memory(memory_bytes: int, designs: int = 1 << 19) -> int:
    """Return the factor for a device by the memory that JAX has of it, for chunks of ``designs`` on processors.

    Args:
        memory_bytes: that JAX may allocate, by default three quarters of the device's (XLA_PYTHON_CLIENT_MEM_FRACTION).
        designs: of a chunk on a processor.
    """
    return min(max(1, memory_bytes // 4 // (_BYTES_PER_DESIGN * designs)), _MAX_SCALE)


@functools.cache
def device_sharding(*axes: str | None) -> NamedSharding:
    """Return a sharding over the devices of this process: an axis named ``"outer"`` is split, others are replicated."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("outer",)), PartitionSpec(*axes))
