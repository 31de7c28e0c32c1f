"""Packages: carriers, substrates and bonds, and what is lost with those that fail."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose
from dse.model.money.die import LEAST_YIELD, dies_per_wafer, survival
from dse.types import Assembly, Fab, Packaging, Scalar

#: Package areas in m^2 above which substrates of several dies have more layers (chiplet actuary).
_MIDDLE, _LARGE = 289e-6, 900e-6


class PackageCost(NamedTuple):
    """What joins dies, in USD of one that works, and what the bad ones take with them."""

    raw: Scalar  # carrier and substrate
    lost: Scalar  # carriers and substrates that failed
    dies_lost: Scalar  # dies (and memory) thrown away, over those that stay: times what they cost
    carrier_area: Scalar  # m^2; 0 without a carrier
    substrate_area: Scalar  # m^2
    substrate: Scalar  # USD
    layers: Scalar  # of the substrate over those for one die
    carrier_yield: Scalar


def assembly(packaging: Scalar, fab: Fab) -> Assembly:
    """What the packaging of this code takes."""
    by_code = {code: getattr(fab, code.name) for code in Packaging}
    if isinstance(packaging, int | float):
        return by_code[Packaging(int(packaging))]
    names = [field.name for field in dataclasses.fields(Assembly)]
    return Assembly(
        **{name: choose(packaging, {code: getattr(one, name) for code, one in by_code.items()}) for name in names}
    )


class Joined(NamedTuple):
    """What a package joins."""

    dies: Scalar  # to bond
    chiplets: Scalar  # those of logic
    area: Scalar  # m^2 that they stand on
    on_carrier: Scalar  # m^2 that memory adds to it, on a carrier alone
    quality: Scalar  # share of tested dies that work


def package(using: Assembly, fab: Fab, chip_first: Scalar, joined: Joined) -> PackageCost:
    """A package of tested dies.

    On an organic substrate all is lost with one bad bond: ``(chips + P) / b^n``. On a carrier of ``I = k area``, after
    which the dies come (chip-last), ``C_i / (y1 y2 y3) + C_s / y3 + chips / (y2 y3)`` with the yields of the carrier,
    of the bonds ``b^n`` and of the way onto the substrate; a carrier made around its dies (chip-first) takes these
    with it: ``(C_i + chips) / (y1 y3) + C_s / y3`` (chiplet actuary, DAC 2022).
    """
    carried = using.carrier_scale > 0.0
    carrier_area = using.carrier_scale * (joined.area + joined.on_carrier)
    carrier = jnp.where(
        carried, using.carrier_price / dies_per_wafer(carrier_area, fab) + fab.carrier_dicing * carrier_area, 0.0
    )
    made = jnp.maximum(survival(carrier_area, using.carrier_defects, using.carrier_clustering), LEAST_YIELD)
    bond = jnp.maximum(using.bond_yield**joined.dies * joined.quality, LEAST_YIELD)
    attach = jnp.where(carried, fab.attach_yield, 1.0)
    stands = jnp.where(carried, carrier_area, joined.area)
    substrate_area = fab.substrate_scale * stands
    layers = jnp.where(carried, 1.0, _layers(joined.chiplets, substrate_area, fab))
    substrate = fab.substrate_price * substrate_area * layers

    around = carried & (chip_first > 0.0)  # the carrier grows around the dies, which need no bond
    bonded = jnp.where(around, joined.quality, bond)
    chips = attach * bonded * jnp.where(around, made, 1.0)
    good_substrate = jnp.where(carried, attach, bond)
    whole = carrier / (made * bonded * attach) + substrate / good_substrate
    raw = carrier + substrate
    return PackageCost(
        raw, whole - raw, 1.0 / chips - 1.0, carrier_area, substrate_area, substrate, layers,
        made,
    )  # fmt: skip


def _layers(chiplets: Scalar, substrate_area: Scalar, fab: Fab) -> Scalar:
    """Layers over those for one die; between one die and two as much of it as there is of the second."""
    several = jnp.where(
        substrate_area > _LARGE, fab.layers_above_900mm2,
        jnp.where(substrate_area > _MIDDLE, fab.layers_above_289mm2, fab.substrate_layers),
    )  # fmt: skip
    return 1.0 + (several - 1.0) * jnp.minimum(chiplets - 1.0, 1.0)
