"""What is asked of JAX through the environment, and what its versions name differently.

The doors call this: no module does when it is imported.

``DSE_FUSE_OUTPUTS``
    ``0`` leaves XLA's fusion of outputs as it is.

What the user has set for JAX and XLA themselves takes precedence.
"""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager
from typing import Any

#: Lets XLA compute outputs that share their operands in one loop on CPUs, twice as fast where every output is stored.
_FUSED_OUTPUTS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


def fuse_outputs() -> None:
    """Ask XLA for fused outputs, unless ``XLA_FLAGS`` is set (to nothing, even) or ``DSE_FUSE_OUTPUTS=0`` says no.

    XLA reads it when the first array is made in a process; later calls change nothing.
    """
    if os.environ.get("DSE_FUSE_OUTPUTS") != "0":
        os.environ.setdefault("XLA_FLAGS", _FUSED_OUTPUTS)


def double_precision(wanted: bool = True) -> AbstractContextManager[None]:
    """A block in which JAX computes in double precision, or not; ``jax.enable_x64``, which JAX 0.6 has elsewhere."""
    import jax

    where: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    block: AbstractContextManager[None] = where.enable_x64(wanted)
    return block
