"""Which accelerators of a sweep have a price, or emissions of their dies, that nobody states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dse.designs import priced
from dse.designs.calibrated import accelerator_of
from dse.designs.catalog import UnverifiedConstant
from dse.designs.records import MADE
from dse.spec.axes import Label
from dse.sweep.grid.grid import Grid
from dse.types import Emissions, Prices
from dse.types.metrics import CARBON, MONEY

_WATT_PRICE, _WATT = "system.prices.watt_price", "system.emissions.watt"


class Unstated(NamedTuple):
    """Accelerators of which something is not stated, by what stands in for it."""

    by_watt: list[str]  #: a price of a watt for the price
    by_dies: list[str]  #: the cost of their dies for the price
    no_dies: list[str]  #: emissions of a watt for those of the dies


def price_notes(grid: Grid, designs: Iterable[Mapping[str, Label]]) -> str:
    """What stands in for prices and dies of these designs' accelerators that nobody states, in one line.

    Args:
        grid: of the sweep; of one that tells neither money nor carbon there is nothing to say.
        designs: what its axes are at each design, by name.
    """
    fixed = {axis.key: axis.labels[0] for axis in grid.fixed if axis.labels}
    found = _unstated(grid, [slug for labels in designs for slug in _accelerators({**fixed, **labels})])
    parts = zip(found, (
        ("price of {}, not stated", f"{_watt_price(grid)} of the power limit"),
        ("price of {}, not stated", "cost of dies and memory over 1 - margin"),
        ("embodied carbon of {}, dies not stated", f"{_watt_carbon(grid)} of the power limit"),
    ), strict=True)  # fmt: skip
    return "; ".join(f"{what.format(', '.join(slugs))}: {rule}" for slugs, (what, rule) in parts if slugs)


def constants(grid: Grid) -> Iterator[UnverifiedConstant]:
    """The same of all accelerators of a sweep, as constants that nobody checked."""
    axes = [*grid.fixed, *(axis for one in grid.dimensions for axis in one.axes)]
    keys = {axis.key for axis in axes}
    devices = "accelerator" if "accelerator" in keys else "system"
    named = [{devices: label} for axis in axes if axis.key == devices for label in axis.labels]
    found = _unstated(grid, [slug for labels in named for slug in _accelerators(labels)])
    texts = (
        ("made.price", f"{_watt_price(grid)} of its power limit"),
        ("made.price", "cost of dies and memory over 1 - margin"),
        ("made.logic_area", f"not known: carbon is {_watt_carbon(grid)} of its power limit"),
    )
    for slugs, (field, text) in zip(found, texts, strict=True):
        for slug in slugs:
            yield UnverifiedConstant(f"accelerator/{slug}", field, text, "default", "no entry states it")


def _accelerators(labels: Mapping[str, Label]) -> list[str]:
    """The accelerator that names of a design mean."""
    slug = str(labels.get("accelerator") or accelerator_of(str(labels["system"])))
    return [slug] if slug else []


def _unstated(grid: Grid, slugs: list[str]) -> Unstated:
    """Those of which the results tell something that neither the catalogue nor the sweep states."""
    said = {axis.key for axis in (*grid.spec.fixed.values(), *grid.spec.axes)}
    groups, dies = grid.spec.groups, f"{MADE}.logic_area" in said
    by_watt, by_dies = priced.unpriced(slugs) if MONEY in groups and f"{MADE}.price" not in said else ([], [])
    if dies:
        by_watt, by_dies = [], [*by_watt, *by_dies]
    return Unstated(by_watt, by_dies, priced.without_dies(slugs) if CARBON in groups and not dies else [])


def _watt_price(grid: Grid) -> str:
    prices = grid.base.system.prices or Prices()
    return f"{float(prices.watt_price):g} USD/W" if _is_fixed(grid, _WATT_PRICE) else "watt_price"


def _watt_carbon(grid: Grid) -> str:
    emissions = grid.base.system.emissions or Emissions()
    return f"{float(emissions.watt):g} kg/W" if _is_fixed(grid, _WATT) else "emissions.watt"


def _is_fixed(grid: Grid, path: str) -> bool:
    """Whether a leaf is the same in all designs."""
    return path not in {axis.key for axis in grid.spec.axes}
