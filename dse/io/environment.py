"""Settings of JAX by environment variables, and differences between its versions.

Called by the doors, never on import.

``DSE_FUSE_OUTPUTS``
    ``0`` leaves XLA's fusion of outputs unchanged.

Settings of the user for JAX and XLA take precedence.
"""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager
from typing import Any

#: XLA option to compute outputs with common operands in one loop on CPUs, twice as fast where all outputs are stored.
_FUSED_OUTPUTS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


def fuse_outputs() -> None:
    """Set XLA's fusion of outputs, unless ``XLA_FLAGS`` is set (even to nothing) or ``DSE_FUSE_OUTPUTS=0``.

    XLA reads it when the first array of a process is made; later calls have no effect.
    """
    if os.environ.get("DSE_FUSE_OUTPUTS") != "0":
        os.environ.setdefault("XLA_FLAGS", _FUSED_OUTPUTS)


def double_precision(wanted: bool = True) -> AbstractContextManager[None]:
    """Context manager of double precision; ``jax.enable_x64``, which is elsewhere in JAX 0.6."""
    import jax

    where: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    block: AbstractContextManager[None] = where.enable_x64(wanted)
    return block
