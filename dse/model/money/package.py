"""Packages: carriers, substrates and bonds, and losses with failed packages."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose
from dse.model.money.die import LEAST_YIELD, dies_per_wafer, survival
from dse.types import Assembly, Fab, Packaging, Scalar

#: Package areas in m^2 above which substrates of several dies have more layers (chiplet actuary).
_MIDDLE_AREA, _LARGE_AREA = 289e-6, 900e-6


class PackageCost(NamedTuple):
    """Cost of a working package without its dies, USD, and losses with failed ones."""

    raw: Scalar  # carrier and substrate
    lost: Scalar  # failed carriers and substrates
    dies_lost: Scalar  # dies (and memory) lost per die kept, in units of their cost
    carrier_area: Scalar  # m^2; 0 without a carrier
    substrate_area: Scalar  # m^2
    substrate: Scalar  # USD
    layers: Scalar  # of the substrate over those for one die
    carrier_yield: Scalar


def assembly(packaging: Scalar, fab: Fab) -> Assembly:
    """Return the parameters of the packaging with a code of :class:`Packaging`, as a number or traced."""
    by_code = {code: Assembly(**vars(getattr(fab, code.name))) for code in Packaging}
    if isinstance(packaging, int | float):
        return by_code[Packaging(int(packaging))]
    return choose(packaging, by_code)


class PackagedDies(NamedTuple):
    """Dies of a package."""

    dies: Scalar  # bonded dies
    chiplets: Scalar  # logic dies
    area: Scalar  # m^2 under the dies
    on_carrier: Scalar  # m^2 of memory, on a carrier alone
    quality: Scalar  # share of tested dies that work


def package(packaging: Assembly, fab: Fab, chip_first: Scalar, dies: PackagedDies) -> PackageCost:
    """Return the cost of a package of tested dies, USD, with its areas and yields.

    On an organic substrate one bad bond loses all: ``(chips + P) / b^n``. On a carrier of area ``I = k area``, with the
    dies bonded after it (chip-last), ``C_i / (y1 y2 y3) + C_s / y3 + chips / (y2 y3)`` with the yields of the carrier,
    of the bonds ``b^n`` and of the substrate assembly; a carrier made around its dies (chip-first) loses them with it:
    ``(C_i + chips) / (y1 y3) + C_s / y3`` (chiplet actuary, DAC 2022).
    """
    has_carrier = packaging.carrier_scale > 0.0
    carrier_area = packaging.carrier_scale * (dies.area + dies.on_carrier)
    carrier = jnp.where(
        has_carrier,
        packaging.carrier_price / dies_per_wafer(carrier_area, fab) + fab.carrier_dicing * carrier_area,
        0.0,
    )
    carrier_yield = jnp.maximum(
        survival(carrier_area, packaging.carrier_defects, packaging.carrier_clustering), LEAST_YIELD
    )
    bond = jnp.maximum(packaging.bond_yield**dies.dies * dies.quality, LEAST_YIELD)
    attach = jnp.where(has_carrier, fab.attach_yield, 1.0)
    area = jnp.where(has_carrier, carrier_area, dies.area)
    substrate_area = fab.substrate_scale * area
    layers = jnp.where(has_carrier, 1.0, _layer_ratio(dies.chiplets, substrate_area, fab))
    substrate = fab.substrate_price * substrate_area * layers

    is_chip_first = has_carrier & (chip_first > 0.0)  # chip-first: no bonds
    bond_yield = jnp.where(is_chip_first, dies.quality, bond)
    chips = attach * bond_yield * jnp.where(is_chip_first, carrier_yield, 1.0)
    good_substrate = jnp.where(has_carrier, attach, bond)
    package_cost = carrier / (carrier_yield * bond_yield * attach) + substrate / good_substrate
    raw = carrier + substrate
    return PackageCost(
        raw,
        package_cost - raw,
        1.0 / chips - 1.0,
        carrier_area,
        substrate_area,
        substrate,
        layers,
        carrier_yield,
    )


def _layer_ratio(chiplets: Scalar, substrate_area: Scalar, fab: Fab) -> Scalar:
    """Return the ratio of substrate layers to those for one die, linear between one die and two."""
    several = jnp.where(
        substrate_area > _LARGE_AREA,
        fab.layers_above_900mm2,
        jnp.where(substrate_area > _MIDDLE_AREA, fab.layers_above_289mm2, fab.substrate_layers),
    )
    return 1.0 + (several - 1.0) * jnp.minimum(chiplets - 1.0, 1.0)
