"""What is asked of JAX through the environment, and what its versions name differently.

The doors call this: no module does when it is imported.

``DSE_FUSE_OUTPUTS``
    ``0`` leaves XLA's fusion of outputs as it is.

What the user has set for JAX and XLA themselves takes precedence.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from contextlib import AbstractContextManager
from typing import Any

#: Lets XLA compute outputs that share their operands in one loop on CPUs, twice as fast where every output is stored.
_FUSED_OUTPUTS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


#: Numbers of glibc's ``mallopt``, and bytes of an array that is not returned to the system.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _REUSED_BELOW = -1, -3, 1 << 28


def fuse_outputs() -> None:
    """Ask XLA for fused outputs, unless ``XLA_FLAGS`` is set (to nothing, even) or ``DSE_FUSE_OUTPUTS=0`` says no.

    XLA reads it when the first array is made in a process; later calls change nothing.
    """
    if os.environ.get("DSE_FUSE_OUTPUTS") != "0":
        os.environ.setdefault("XLA_FLAGS", _FUSED_OUTPUTS)


def reuse_memory() -> None:
    """Let the allocator of glibc keep freed arrays: each chunk's would be new pages, whose clearing takes a third."""
    try:
        allocator = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # of another library of C
        return
    for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        allocator(parameter, _REUSED_BELOW)


def double_precision(wanted: bool = True) -> AbstractContextManager[None]:
    """A block in which JAX computes in double precision, or not; ``jax.enable_x64``, which JAX 0.6 has elsewhere."""
    import jax

    where: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    block: AbstractContextManager[None] = where.enable_x64(wanted)
    return block
