"""Settings of JAX by environment variables, and differences between its versions.

Called by the doors, never on import.

``DSE_FUSE_OUTPUTS``
    ``0`` leaves XLA's fusion of outputs unchanged.

Settings of the user for JAX and XLA take precedence.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from contextlib import AbstractContextManager
from typing import Any

from dse.io.files import code_digest
from dse.io.plugins import plugins

#: XLA option to compute outputs with common operands in one loop on CPUs, twice as fast where all outputs are stored.
_FUSED_OUTPUTS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


#: Numbers of glibc's ``mallopt``, bytes of an array that is not returned to the system, cores that share a heap.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENAS, _REUSED_BELOW, _CORES_A_HEAP = -1, -3, -8, 1 << 28, 4

#: Texts of environment variables that JAX reads as true.
_TRUE = ("y", "yes", "t", "true", "on", "1")

#: Values of ``JAX_PLATFORMS`` with which JAX computes on processors, unless it finds other devices.
_PROCESSORS = (None, "", "cpu")

#: Linux's advice to use pages of 2 MB, bytes of the heap that have them, bytes of its usual pages.
_HUGE_PAGES, _IN_HUGE_PAGES, _PAGE = 14, 3 << 26, 4096


def fuse_outputs() -> None:
    """Set XLA's fusion of outputs in ``XLA_FLAGS``, unless that is set (even to "") or ``DSE_FUSE_OUTPUTS=0``.

    XLA reads it when the first array of a process is made; later calls have no effect.
    """
    if os.environ.get("DSE_FUSE_OUTPUTS") != "0":
        os.environ.setdefault("XLA_FLAGS", _FUSED_OUTPUTS)


@functools.cache
def reuse_memory() -> None:
    """Let the allocator of glibc keep freed arrays; nothing with another C library, and once per process.

    Clearing new pages for each chunk takes a third of the time.
    Few heaps: with one a thread, each keeps the largest arrays that its thread ever had, and memory grows for hours.
    The heap's next 192 MB get pages of 2 MB once they are used: dozens of arrays are read and written side by side, in
    more small pages than a processor has the addresses of at hand, which takes a fifth of the time.
    """
    try:
        system = ctypes.CDLL(None)
        allocator, malloc, advise, free = system.mallopt, system.malloc, system.madvise, system.free
    except (AttributeError, OSError, TypeError):  # of another library of C
        return
    for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        allocator(parameter, _REUSED_BELOW)
    allocator(_ARENAS, max((os.cpu_count() or 1) // _CORES_A_HEAP, 1))
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    advise.argtypes, free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], [ctypes.c_void_p]
    if heap := malloc(_IN_HUGE_PAGES):
        advise(-(-heap // _PAGE) * _PAGE, _IN_HUGE_PAGES - _PAGE, _HUGE_PAGES)
        free(heap)


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def jax_version() -> str:
    """Return the version of the installed JAX, which is not imported for it."""
    return importlib.metadata.version("jax")


@functools.cache
def software_versions() -> str:
    """Return the digest of this package's code and the versions of JAX and NumPy, as text."""
    return f"{code_digest()} {jax_version()} {importlib.metadata.version('numpy')}"


def device_kind() -> str:
    """Return the kind of JAX's first device, such as ``cpu`` or ``NVIDIA H200``.

    JAX is not imported for it where nothing is installed that gives it other devices than processors.
    """
    if "jax" not in sys.modules and os.environ.get("JAX_PLATFORMS") in _PROCESSORS and not _has_other_devices():
        return "cpu"
    import jax

    return str(jax.devices()[0].device_kind)


@functools.cache
def _has_other_devices() -> bool:
    """True where a plugin for JAX or the library of TPUs is installed."""
    modules = ("jax_plugins", "libtpu")
    return bool(plugins("jax_plugins")) or any(importlib.util.find_spec(name) is not None for name in modules)


def default_precision() -> str:
    """Return the name of the data type of JAX's numbers: ``float32``, or ``float64`` where that is enabled.

    A process that has not imported JAX has the setting of ``JAX_ENABLE_X64``, as JAX will read it.
    """
    if "jax" in sys.modules:
        import jax
        import numpy as np

        return str(jax.dtypes.canonicalize_dtype(np.float64))
    return "float64" if os.environ.get("JAX_ENABLE_X64", "").lower() in _TRUE else "float32"


def double_precision(enabled: bool = True) -> AbstractContextManager[None]:
    """Return the context manager of JAX's double precision (``enable_x64``), or of single one."""
    import jax

    where: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    block: AbstractContextManager[None] = where.enable_x64(enabled)
    return block
