"""How XLA compiles and where arrays lie: the two things that depend on the machine."""

from __future__ import annotations

import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

#: Lets XLA compute outputs that share their operands in one loop on CPUs, twice as fast where every output is stored.
_FUSED_OUTPUTS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


def fuse_outputs() -> None:
    """Ask XLA for fused outputs, unless the user has set ``XLA_FLAGS`` (an empty one says no).

    XLA reads it when the first array is made in a process; later calls change nothing.
    """
    os.environ.setdefault("XLA_FLAGS", _FUSED_OUTPUTS)


def over_devices(*axes: str) -> NamedSharding:
    """How arrays lie on the devices of this process: split along the first axis (``"outer"``), or whole on each."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("outer",)), PartitionSpec(*axes))
