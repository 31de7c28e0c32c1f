"""How much of a message adds to the compute that it may hide behind."""

from __future__ import annotations

import jax.numpy as jnp

from dse.types import Group, Scalar, System


def exposed(communication: Scalar, window: Scalar, overlap: Scalar, processor_usage: Scalar) -> Scalar:
    """Seconds that communication adds to the compute ``window`` it may hide behind.

    At most a share ``overlap`` of it hides, and no more than the window holds:
    ``max(t_comm - t_window, (1 - overlap) t_comm)``; what hides takes ``processor_usage`` of the compute.
    """
    hidden = jnp.minimum(overlap * communication, window)
    return communication - (1.0 - processor_usage) * hidden


def processor_usage(group: Group, system: System) -> Scalar:
    """Share of the device's compute that a collective over this group takes while it runs."""
    return jnp.where(group.domains > 1.0, system.scale_out.processor_usage, system.scale_up.processor_usage)
