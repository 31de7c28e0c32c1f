"""Links between the dies of a generated accelerator: bytes that cross them, with their time and energy.

Memory and last cache are interleaved over ``n`` equal dies in a square. Between two random dies a byte crosses
``h(n) = max((n - 1) / n, 2 (sqrt(n) - 1 / sqrt(n)) / 3)`` edges, the mean of a mesh of ``sqrt(n)`` by ``sqrt(n)``; a
quarter of all bytes crosses the middle of the mesh in either direction. The dies share the output of a product as a
grid, so that several of them read each operand.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import max_prefer_first
from dse.types import Accelerator, Manufacture, OperatorKind, Scalar, Work

#: Kinds of matrix products, whose operands are read by several dies.
_PRODUCTS = (OperatorKind.matrix, OperatorKind.matrix_16, OperatorKind.grouped)


class DieLinks(NamedTuple):
    """Links between the dies that share the last cache."""

    dies: Scalar
    byte_time: Scalar  # s per byte that the last cache serves
    byte_energy: Scalar  # J per byte that it serves
    latency: Scalar  # s, mean of an access to device memory, that of the memory included


def die_links(accelerator: Accelerator) -> DieLinks | None:
    """Return the links between the dies of a generated accelerator, None for one with stated rates.

    Those between its base dies where it has some.

    Measured rates of chips as sold include their links.
    """
    chip, manufacturing = accelerator.chip, accelerator.made or Manufacture()
    if chip is None:
        return None
    dies = jnp.where(chip.base_area > 0.0, manufacturing.base_chiplets, manufacturing.chiplets)
    hops = crossings(dies)
    latency = chip.memory.unit_latency + hops * chip.die_link_latency
    side = jnp.sqrt(jnp.maximum(chip.die_area, chip.base_area))
    pair = jnp.minimum(dies, 2.0)
    middle = (pair - 1.0) / (pair * pair)  # share of all bytes, in one direction
    return DieLinks(dies, middle / (side * chip.die_link_density), hops * chip.die_link_energy, latency)


def crossings(dies: Scalar) -> Scalar:
    """Return the mean count of die edges that a byte crosses between two random dies of a square mesh.

    0 for one die, 1 for four.
    """
    root = jnp.sqrt(dies)
    return max_prefer_first((dies - 1.0) / dies, 2.0 / 3.0 * (root - 1.0 / root))


def served_bytes(kind: OperatorKind, work: Work, dies: Scalar) -> Scalar:
    """Return the bytes of a kernel that the last cache serves to its ``dies``.

    Those of device memory; of a product of ``m x n`` whose output ``d`` dies share as a grid, the operands
    ``max(1, 2 sqrt(d m n) / (m + n))`` times, the minimum over all grids. Products of a batch are on separate dies.
    """
    if kind not in _PRODUCTS:
        return work.bytes
    sharing = jnp.maximum(dies / work.batch, 1.0)
    readers = 2.0 * jnp.sqrt(sharing * work.rows * work.columns) / (work.rows + work.columns)
    return work.bytes * jnp.maximum(readers, 1.0)


def crossing_time(kind: OperatorKind, work: Work, links: DieLinks) -> Scalar:
    """Return the time in which the bytes of a kernel cross the links between dies, s.

    0 for one die.
    """
    return links.byte_time * served_bytes(kind, work, links.dies)
