"""Accelerators of a sweep without a stated price or stated dies, and the estimates used in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dse.designs import accelerator_of, priced
from dse.designs.catalog import UnverifiedConstant
from dse.designs.records import MANUFACTURE
from dse.spec.axes import Label
from dse.sweep.grid.grid import Grid
from dse.types import Emissions, Prices
from dse.types.metrics import CARBON, MONEY

_WATT_PRICE, _WATT = "system.prices.watt_price", "system.emissions.watt"


class Unstated(NamedTuple):
    """Accelerators with missing data, by the estimate used."""

    by_watt: list[str]  #: price from power
    by_dies: list[str]  #: price from the cost of the dies
    no_dies: list[str]  #: emissions of the dies from power


def price_notes(grid: Grid, designs: Iterable[Mapping[str, Label]]) -> str:
    """Return the note on estimated prices and dies of the accelerators of these designs; empty if there are none.

    Args:
        grid: of the sweep; without metrics of money or carbon the note is empty.
        designs: axis → label of each design.
    """
    fixed = {axis.key: axis.labels[0] for axis in grid.fixed if axis.labels}
    unstated = _unstated(grid, [slug for labels in designs for slug in _accelerators({**fixed, **labels})])
    parts = zip(unstated, (
        ("price of {}, not stated", f"{_watt_price(grid)} of the power limit"),
        ("price of {}, not stated", "cost of dies and memory over 1 - margin"),
        ("embodied carbon of {}, dies not stated", f"{_watt_carbon(grid)} of the power limit"),
    ), strict=True)  # fmt: skip
    return "; ".join(f"{what.format(', '.join(slugs))}: {rule}" for slugs, (what, rule) in parts if slugs)


def constants(grid: Grid) -> Iterator[UnverifiedConstant]:
    """Yield the estimates for all accelerators of a sweep, as unverified constants."""
    axes = [*grid.fixed, *(axis for dimension in grid.dimensions for axis in dimension.axes)]
    keys = {axis.key for axis in axes}
    devices = "accelerator" if "accelerator" in keys else "system"
    labels_by_device = [{devices: label} for axis in axes if axis.key == devices for label in axis.labels]
    unstated = _unstated(grid, [slug for labels in labels_by_device for slug in _accelerators(labels)])
    texts = (
        ("made.price", f"{_watt_price(grid)} of its power limit"),
        ("made.price", "cost of dies and memory over 1 - margin"),
        ("made.logic_area", f"not known: carbon is {_watt_carbon(grid)} of its power limit"),
    )
    for slugs, (field, text) in zip(unstated, texts, strict=True):
        for slug in slugs:
            yield UnverifiedConstant(f"accelerator/{slug}", field, text, "default", "no entry states it")


def _accelerators(labels: Mapping[str, Label]) -> list[str]:
    """Return the accelerator's slug, of a design's labels, in a list; empty where its system has none."""
    slug = str(labels.get("accelerator") or accelerator_of(str(labels["system"])))
    return [slug] if slug else []


def _unstated(grid: Grid, slugs: list[str]) -> Unstated:
    """Return the accelerators among these whose metrics need data that neither catalogue nor sweep states."""
    said = {axis.key for axis in (*grid.spec.fixed.values(), *grid.spec.axes)}
    groups, dies = grid.spec.groups, f"{MANUFACTURE}.logic_area" in said
    by_watt, by_dies = priced.unpriced(slugs) if MONEY in groups and f"{MANUFACTURE}.price" not in said else ([], [])
    if dies:
        by_watt, by_dies = [], [*by_watt, *by_dies]
    return Unstated(by_watt, by_dies, priced.without_dies(slugs) if CARBON in groups and not dies else [])


def _watt_price(grid: Grid) -> str:
    """Return the text of the price of power, USD/W; the name of its leaf where an axis moves it."""
    prices = grid.base.system.prices or Prices()
    return f"{float(prices.watt_price):g} USD/W" if _is_fixed(grid, _WATT_PRICE) else "watt_price"


def _watt_carbon(grid: Grid) -> str:
    """Return the text of the carbon of power, kg/W; the name of its leaf where an axis moves it."""
    emissions = grid.base.system.emissions or Emissions()
    return f"{float(emissions.watt):g} kg/W" if _is_fixed(grid, _WATT) else "emissions.watt"


def _is_fixed(grid: Grid, path: str) -> bool:
    """Return True if no axis moves a leaf: it is equal in all designs."""
    return path not in {axis.key for axis in grid.spec.axes}
