"""What is asked of JAX through the environment. The doors call this: no module does when it is imported.

``DSE_CACHE``
    Folder of compiled programs, by default ``$XDG_CACHE_HOME/dse``, else ``~/.cache/dse``.
``DSE_FUSE_OUTPUTS``
    ``0`` leaves XLA's fusion of outputs as it is.

What the user has set for JAX and XLA themselves takes precedence.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Lets XLA compute outputs that share their operands in one loop on CPUs, twice as fast where every output is stored.
_FUSED_OUTPUTS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


def fuse_outputs() -> None:
    """Ask XLA for fused outputs, unless ``XLA_FLAGS`` is set (to nothing, even) or ``DSE_FUSE_OUTPUTS=0`` says no.

    XLA reads it when the first array is made in a process; later calls change nothing.
    """
    if os.environ.get("DSE_FUSE_OUTPUTS") != "0":
        os.environ.setdefault("XLA_FLAGS", _FUSED_OUTPUTS)


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in the user's cache folder, so that a second run starts at once.

    A folder that cannot be written to is left alone. JAX reads its variables when it is imported, which is later
    than this.
    """
    own = os.environ.get("DSE_CACHE")
    folder = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dse"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    if os.access(folder, os.W_OK):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
