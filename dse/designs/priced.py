"""Stated prices and dies of accelerators, and the estimates in their place.

A price that no file states is, with known dies, the cost of a unit over (1 - margin) and its share of the design, else
a price per watt times the TDP (:func:`dse.model.money.device.price_of`); likewise emissions of unknown dies. A
generated accelerator has its own dies and no stated price. Nothing here is traced.
"""

from __future__ import annotations

from collections.abc import Iterable

from dse.designs import catalog
from dse.io import percent
from dse.types import Accelerator, Emissions, Manufacture, Prices


def stands_in_for_price(device: Accelerator, prices: Prices) -> str:
    """Return the estimate in place of an accelerator's price as text, "" where no price is missing.

    None is missing for a stated price and for a generated accelerator.

    >>> from dse import types
    >>> stands_in_for_price(catalog.record(types.Accelerator, "b300"), Prices())
    '35 USD/W of its power limit'
    """
    manufacture = device.made or Manufacture()
    if device.chip is not None or manufacture.price:
        return ""
    if manufacture.logic_area:
        return f"cost of its dies and memory over 1 - margin of {percent(float(manufacture.margin))}"
    return f"{float(prices.watt_price):g} USD/W of its power limit"


def stands_in_for_dies(device: Accelerator, emissions: Emissions) -> str:
    """Return the estimate in place of the emissions of unknown dies as text, "" for known dies.

    >>> from dse import types
    >>> stands_in_for_dies(catalog.record(types.Accelerator, "b300"), Emissions())
    '0.15 kg/W of its power limit'
    """
    if device.chip is not None or (device.made or Manufacture()).logic_area:
        return ""
    return f"{float(emissions.watt):g} kg/W of its power limit"


def unpriced(slugs: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the slugs of accelerators without a stated price: those with unknown dies, those with known ones.

    Args:
        slugs: of accelerators in the catalogue.

    Returns:
        Slugs of those with unknown dies, and of those with known dies.

    >>> unpriced(["h100-sxm-80gb", "b300-sxm-288gb", "tpu-v5p", "gpu"])
    (['b300-sxm-288gb'], ['tpu-v5p'])
    """
    manufactures = {slug: catalog.manufacture(slug) for slug in _sold_accelerators(slugs)}
    unpriced_slugs = [slug for slug, manufacture in manufactures.items() if not manufacture["price"]]
    without_area = [slug for slug in unpriced_slugs if not manufactures[slug]["logic_area"]]
    return without_area, [slug for slug in unpriced_slugs if manufactures[slug]["logic_area"]]


def without_dies(slugs: Iterable[str]) -> list[str]:
    """Return the slugs of the accelerators with unknown dies, without generated ones.

    >>> without_dies(["h100-sxm-80gb", "b300-sxm-288gb"])
    ['b300-sxm-288gb']
    """
    return [slug for slug in _sold_accelerators(slugs) if not catalog.manufacture(slug)["logic_area"]]


def _sold_accelerators(slugs: Iterable[str]) -> list[str]:
    """Return the slugs of accelerators that are not generated, without repetitions."""
    return [slug for slug in dict.fromkeys(slugs) if catalog.entry("accelerator", slug).value("chip.node") is None]
