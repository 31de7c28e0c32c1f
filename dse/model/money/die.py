"""Dies per wafer, yield, and cost of a good die."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Fab, Manufacture, Process, Scalar

_PI = 3.141592653589793

#: Minimum area of a die in m^2, so that nothing divides by zero.
_MIN_AREA = 1e-12

#: Yields of dies or packages below this count as this.
LEAST_YIELD = 1e-6

#: Maximum number of defective blocks that are summed.
MOST_SPARE = 16


class Die(NamedTuple):
    """Cost of one die before and after its test, and its yield."""

    raw: Scalar  # USD, its share of a wafer
    cost: Scalar  # USD per die that passes its test; of a known good die at full coverage
    good: Scalar  # yield
    quality: Scalar  # share of working dies among those that pass


def dies_per_wafer(area: Scalar, fab: Fab) -> Scalar:
    """Return the smooth count of square dies of ``area`` m^2 per wafer, at least 1.

    ``N = pi (D / 2 - e)^2 / A' - pi (D - 2 e) / sqrt(2 A')`` with ``A' = A + 2 s sqrt(A) + s^2`` (chiplet actuary,
    Feng and Ma, DAC 2022).
    """
    side = jnp.sqrt(jnp.maximum(area, _MIN_AREA)) + fab.scribe
    usable = jnp.maximum(fab.wafer_diameter - 2.0 * fab.wafer_edge, 0.0)
    return jnp.maximum(_PI * (0.5 * usable / side) ** 2 - _PI * usable / (2.0**0.5 * side), 1.0)


def survival(area: Scalar, defects: Scalar, clustering: Scalar) -> Scalar:
    """Return the yield (0 to 1) of ``area`` m^2 without repair: ``(1 + D0 A / alpha)^-alpha`` (Stapper 1989).

    Poisson's ``exp(-D0 A)`` for a large ``alpha``, Seeds' for 1. A critical-area ratio multiplies ``A``.
    """
    return jnp.exp(-clustering * jnp.log1p(defects * area / clustering))  # powers of numbers near 1 lose digits


def die_yield(area: Scalar, process: Process, fab: Fab, redundancy: Manufacture | None) -> Scalar:
    """Return the yield (0 to 1) of a die with repair: its area outside of blocks works, and all blocks but spare ones.

    ``Y(A_rest) sum_j<=k C(n, j) (1 - y)^j y^(n - j)`` with the yield ``y`` of one of ``n`` blocks, linear between whole
    numbers ``k`` of spare blocks. ``redundancy``: blocks and spares of a compute die; None for dies without repair.
    """
    critical = fab.critical_area * area
    if redundancy is None:
        return survival(critical, process.defect_density, fab.clustering)
    in_blocks = redundancy.block_area * critical
    block = fab.clustering * jnp.log1p(process.defect_density * in_blocks / (redundancy.blocks * fab.clustering))
    defect_odds = jnp.expm1(block)  # of a defective over a good block
    term = jnp.exp(-block * redundancy.blocks)
    repaired_probability = term
    for defects in range(MOST_SPARE):
        term = term * defect_odds * jnp.maximum((redundancy.blocks - defects) / (defects + 1.0), 0.0)
        repaired_probability = repaired_probability + term * jnp.clip(redundancy.spare_blocks - defects, 0.0, 1.0)
    return survival(critical - in_blocks, process.defect_density, fab.clustering) * jnp.minimum(
        repaired_probability, 1.0
    )


def die(area: Scalar, process: Process, fab: Fab, redundancy: Manufacture | None) -> Die:
    """Return cost (USD) and yields of one die of ``area`` m^2.

    A test with coverage ``c`` passes ``Y_t = 1 - (1 - Y) c`` of the dies, of which ``Y / Y_t`` work, at
    ``(raw + test) / Y_t`` each (CATCH, Graening et al. 2025). ``c = 1`` is the known good die ``raw / Y``.
    """
    raw = process.wafer_price / dies_per_wafer(area, fab)
    good = jnp.maximum(die_yield(area, process, fab, redundancy), LEAST_YIELD)
    passing = good + (1.0 - good) * (1.0 - fab.coverage)  # written so that small yields are not lost to rounding
    return Die(raw, (raw + fab.die_test) / passing, good, good / passing)
