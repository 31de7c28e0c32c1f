"""Notes on designs, common to training and serving: networks, shares of chips, prices, carbon and clocks in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dse.designs.priced import stands_in_for_dies, stands_in_for_price
from dse.equations import ScalarFunction
from dse.io import quantity
from dse.types import Chip, Design, Emissions, Experts, Prices, System, Topology

#: Clocks that differ by less, over the nominal one, are equal within what their solve leaves.
_EQUAL_CLOCKS = 1e-3


def plain_numbers(name: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Return a decorator of functions of a traced record, which evaluates them for plain numbers as leaves.

    Args:
        name: of the recorded program.
    """

    def decorate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        program = ScalarFunction(lambda record: (function(record), None), name)
        return lambda record: program(record)[0]

    return decorate


@plain_numbers("strides of a torus")
def torus_strides(design: Design) -> Any:
    """Return the devices between neighbours along each axis of a design's slice of a torus, and those of the slice.

    Args:
        design: with links that are a torus, and plain numbers as leaves.
    """
    from dse.model.links import axis_edges, slice_size

    links = design.system.scale_up.links
    assert links is not None, "a torus has links"
    return tuple(axis_edges(links, slice_size(design.system), design.mapping.tp))


def network_description(system: System) -> str:
    """Return text on the counts of devices in use and in the network, with the topology where there are links."""
    n_connected = max(system.scale_up.domain, system.scale_out.domain)
    text, links = f"n_devices={system.n_devices:g}, the network connects {n_connected:g}", system.scale_up.links
    if links is None:
        return text
    axes = f", links.x={links.x:g}, links.y={links.y:g}" if links.topology == float(Topology.torus) else ""
    return f"{text}; a {Topology(int(links.topology)).name} of links.per_device={links.per_device:g}{axes}"


def routing_excess(experts: Experts) -> str:
    """Return text on values of a mixture of experts above their limits, each after a comma, empty for none."""
    excess = [name for name, is_allowed in experts.within_limits.items() if not is_allowed]
    return "".join(f", {name}={getattr(experts, name):g} of at most {experts.upper_limits[name]:g}" for name in excess)


@plain_numbers("sums of shares")
def _share_sums(chip: Chip) -> Any:
    """Return name → sum of the shares of a generated chip."""
    from dse.model.machine.technology import share_sums

    return share_sums(chip)


def chip_share_excess(design: Design) -> str:
    """Return text on the sums of a generated chip's shares that exceed 1, ``no shares`` where none does."""
    chip = design.system.accelerator.chip
    totals = {} if chip is None else {name: float(total) for name, total in _share_sums(chip).items()}
    return ", ".join(f"{name} {total:.3g}" for name, total in totals.items() if total > 1.0) or "no shares"


def price_note(total: str, metrics: Mapping[str, float], design: Design) -> str:
    """Return a note on an accelerator's price, or on an assumed price or dies, as text; empty for other totals.

    Args:
        total: metric whose parts are shown.
        metrics: values of all metrics by name.
        design: design that they are of.
    """
    if total == "device_cost":
        return f"Price: {quantity(metrics['device_price'], 'USD')}. Analysts' bills leave the design out."
    return {"capital_cost": price_assumption, "device_carbon": carbon_assumption}.get(total, lambda *_: "")(
        metrics, design
    )


def price_assumption(metrics: Mapping[str, float], design: Design) -> str:
    """Return one line of text on the rule behind an assumed accelerator price, empty where none is assumed.

    Args:
        metrics: values of all metrics by name.
        design: design that they are of.
    """
    system = design.system
    rule = stands_in_for_price(system.accelerator, system.prices or Prices())
    price = quantity(metrics["device_price"], "USD")
    return f"accelerator price: {price} = {rule}; made.price is not stated" if rule else ""


def carbon_assumption(metrics: Mapping[str, float], design: Design) -> str:
    """Return one line of text on the rule behind assumed emissions of dies, empty where none are assumed.

    Args:
        metrics: values of all metrics by name.
        design: design that they are of.
    """
    system = design.system
    rule = stands_in_for_dies(system.accelerator, system.emissions or Emissions())
    carbon = quantity(metrics["device_carbon_dies"], "kg")
    return f"embodied carbon of the dies: {carbon} = {rule}; made.logic_area is not stated" if rule else ""


@plain_numbers("nominal clock")
def _nominal_clock(design: Design) -> Any:
    """Return the nominal clock of an accelerator, Hz, also of a generated one."""
    from dse.model import generated

    return generated(design).system.accelerator.power.nominal_clock


def clock_note(clocks: Mapping[str, float], design: Design) -> str:
    """Return a note on core clocks below the nominal one, as text with a space before it, empty where none is.

    Args:
        clocks: what runs at a clock, in words → the clock in Hz.
        design: design that they are of.
    """
    accelerator = design.system.accelerator
    nominal = float(_nominal_clock(design) if accelerator.is_generated else accelerator.power.nominal_clock)
    lower = {name: hertz for name, hertz in clocks.items() if hertz < (1.0 - _EQUAL_CLOCKS) * nominal}
    texts = [f"{quantity(hertz, 'Hz')}{name and f' in {name}'}" for name, hertz in lower.items()]
    return f" Clock of the cores: {', '.join(texts)} of {quantity(nominal, 'Hz')} nominal." if texts else ""


def money_note(total: str, metrics: Mapping[str, float], design: Design) -> str:
    """Return a note on cost in USD per device-hour, year and token, for totals of carbon on kg per million tokens.

    Args:
        total: metric whose parts are shown.
        metrics: values of all metrics by name.
        design: design that they are of.
    """
    if total.startswith("carbon"):
        return f"Emissions per million tokens: {quantity(1e6 * metrics['carbon_per_token'], 'kg')}."
    return (
        f"{metrics['cost_per_device_hour']:.2f} USD per device-hour, {quantity(metrics['tco_per_year'], 'USD')} per "
        f"year for the system, {1e6 * metrics['cost_per_token']:.3g} USD per million tokens: "
        f"{quantity(metrics['tokens_per_cost'], '1')} tokens per dollar. "
        f"{design.system.n_devices:g} device{'s' * (design.system.n_devices != 1)}; without failures and without the "
        "margin of a cloud provider."
    )
