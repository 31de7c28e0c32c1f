"""``dse plan --serving``: the cheapest replicas and pools of each accelerator, and what would change the cheapest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from dse.designs import catalog
from dse.errors import InputError
from dse.fleet import pooled, replicas
from dse.fleet.demand import Demand, Fleet
from dse.io.quantities import digits

#: Changed demands whose effect is shown: field → factors.
_CHANGES = {"token_limit": (0.75, 1.5), "first_token_limit": (0.5, 2.0), "rate": (2.0,)}

#: Numbers of a demand that may be infinite: no limit.
_LIMITS = ("first_token_limit", "token_limit")

#: Limit of each number of a demand.
_MOST = 1e9

#: Number of a demand → option of ``dse plan``.
_OPTIONS = {
    "rate": "--rate",
    "prompt_tokens": "--isl",
    "output_tokens": "--osl",
    "first_token_limit": "--ttft",
    "token_limit": "--tpot",
    "max_devices": "--max-devices",
}

#: Relative change of cost that is shown.
_NOTICED = 0.02


class Plan(NamedTuple):
    """Fleets by accelerator, cheapest first; the reason of those without one; what would change the cheapest."""

    demand: Demand
    fleets: list[Fleet]
    without: dict[str, str]
    changes: list[str]


def provision(demand: Demand) -> Plan:
    """The cheapest replicas and the cheapest pools of each accelerator for a demand.

    Args:
        demand: rate, lengths and limits, at least one; names of the catalogue.

    Returns:
        The plan; no fleet where no accelerator serves the demand.

    Raises:
        InputError: for unknown names and numbers that are not positive.
    """
    if not demand.limits:
        raise InputError("dse plan --serving", "no limit of latency", "--ttft, --tpot or both", "add --tpot 50ms")
    for name, value in demand._asdict().items():
        unlimited = name in _LIMITS and value == math.inf
        if isinstance(value, int | float) and not unlimited and not 0.0 < value < _MOST:
            raise InputError(_OPTIONS[name], f"{value:g}", f"more than 0, less than {_MOST:g}", "check the number")
    if not demand.accelerators:
        raise InputError("--on", "no name", "accelerators of the catalogue", "see: dse catalog list accelerator")
    slugs = [catalog.resolve("accelerator", name, "--on") for name in demand.accelerators]
    demand = demand._replace(accelerators=tuple(dict.fromkeys(slugs)))
    candidates = {name: _Candidates(demand, name, every) for name, every in replicas.swept(demand).items()}
    found = {name: own.fleets(demand) for name, own in candidates.items()}
    fleets = sorted((one for own, _ in found.values() for one in own), key=lambda fleet: fleet.hourly)
    without = {name: reason for name, (_, reason) in found.items() if reason}
    return Plan(demand, fleets, without, list(_changes(candidates, demand, fleets)))


class _Candidates:
    """Designs of one accelerator, of which any demand of the same lengths takes the cheapest."""

    def __init__(self, demand: Demand, accelerator: str, every: dict[str, Any]) -> None:
        self.accelerator, self.replicas = accelerator, every
        self.pools = pooled.swept(demand, accelerator) if every["possible"].any() else None

    def fleets(self, demand: Demand) -> tuple[list[Fleet], str]:
        """The cheapest replicas and pools, as far as there are; the reasons of those that there are not."""
        tried = [replicas.cheapest(self.replicas, demand, self.accelerator)]
        if self.pools:
            tried.append(pooled.cheapest(self.pools, demand, self.accelerator))
        return [one for one in tried if isinstance(one, Fleet)], "; ".join(one for one in tried if isinstance(one, str))


def _changes(candidates: dict[str, _Candidates], demand: Demand, fleets: list[Fleet]) -> Iterator[str]:
    """What would change the cheapest fleet, a line each: prices, limits, rate."""
    if not fleets:
        return
    best = fleets[0]
    dearer = {one.accelerator: one for one in reversed(fleets) if one.accelerator != best.accelerator}
    for name, other in sorted(dearer.items(), key=lambda item: item[1].hourly):
        saved = 100.0 * (1.0 - best.hourly / other.hourly)
        yield f"{name} is as cheap at a price per device-hour {saved:.0f} % lower"
    for field, factors in _CHANGES.items():
        for factor in factors if math.isfinite(getattr(demand, field)) else ():
            asked = demand._replace(**{field: factor * getattr(demand, field)})
            found = [one for own in candidates.values() for one in own.fleets(asked)[0]]
            words = f"{field.replace('_', ' ')} x {factor:g}"
            if not found:
                yield f"{words}: no fleet"
                continue
            one = min(found, key=lambda fleet: fleet.hourly)
            if abs(one.hourly / best.hourly - 1.0) > _NOTICED or one.accelerator != best.accelerator:
                yield f"{words}: {digits(one.hourly)} USD/h, {one.accelerator}, {one.kind}"
