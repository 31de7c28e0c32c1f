"""Where arrays lie on the devices of a machine."""

from __future__ import annotations

import functools

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@functools.cache
def over_devices(*axes: str) -> NamedSharding:
    """How arrays lie on the devices of this process: split along the first axis (``"outer"``), or whole on each."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), ("outer",)), PartitionSpec(*axes))
