"""Two pools of one service, swept apart and matched: ``dse pools`` (Splitwise: Patel et al. 2024).

A specification is that of a sweep with three sections more: what ``[prefill]`` and ``[decode]`` hold is laid over the
sections of the file for the pool that computes prompts and for the one that answers, ``[together]`` for engines that
do both, to compare with. Every pool is an ordinary sweep, of which all designs that can run are candidates.

A request takes ``1 / X`` seconds of a candidate that serves ``X`` a second, so that pools in balance cost
``C_p / X_p + C_d / X_d`` a request, of money as of provisioned power: the shares of devices follow, and with them what
a budget answers. Candidates that are behind in both are never part of the best pair.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse import catalog, toml
from dse.errors import InputError, unknown_name
from dse.spec.sweep import SweepSpec, from_document, text_of
from dse.sweep.run import execute

if TYPE_CHECKING:
    import xarray as xr

#: Section of a pool → what its sweep says whatever the file says: a pool of prompts answers nothing, one that answers
#: finds all keys and values there.
POOLS: dict[str, dict[str, Any]] = {
    "prefill": {"load": "static", "output_tokens": 1},
    "decode": {"prefix_share": 1.0},
    "together": {},
}

#: Keys of ``[pools]``.
KEYS = ("prices", "transfer")

#: Labels that tell of a candidate, where its sweep has them.
_LABELS = ("software", "precision", "tp", "pp", "dp", "ep", "concurrency")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A design of one pool: what a request a second takes of it."""

    accelerator: str
    labels: dict[str, Any]
    rate: float  #: requests a second
    devices: float
    watts: float  #: provisioned, for a request a second
    price: float  #: USD a second, for a request a second; 0 where no prices are stated
    first_token: float  #: seconds
    token: float
    cache: float  #: bytes that a device holds of a sequence


@dataclasses.dataclass(frozen=True)
class Match:
    """What answers: pools of prompts and of answers in balance, or engines that do both (``decode`` is None)."""

    prefill: Candidate
    decode: Candidate | None
    transfer: float  #: seconds in which the keys and values of a prompt are sent

    @property
    def parts(self) -> tuple[Candidate, ...]:
        """The pools."""
        return (self.prefill,) if self.decode is None else (self.prefill, self.decode)

    @property
    def watts(self) -> float:
        """Provisioned power of a request a second."""
        return sum(part.watts for part in self.parts)

    @property
    def price(self) -> float:
        """USD of a request; 0 where no prices are stated."""
        return sum(part.price for part in self.parts)

    @property
    def share(self) -> float:
        """Share of the devices that compute prompts."""
        each = [part.devices / part.rate for part in self.parts]
        return each[0] / sum(each)

    @property
    def rate(self) -> float:
        """Requests a second of a device of the pools in balance."""
        return 1.0 / sum(part.devices / part.rate for part in self.parts)

    @property
    def first_token(self) -> float:
        """Seconds to the first token, with the transfer."""
        return self.prefill.first_token + self.transfer

    @property
    def token(self) -> float:
        """Seconds of an output token."""
        return self.parts[-1].token

    def gain(self, other: Match) -> tuple[float, float, float]:
        """Requests a second over another's at equal price, at equal power, and at both; NaN where no price is known."""
        power = other.watts / self.watts
        price = other.price / self.price if self.price > 0.0 and other.price > 0.0 else math.nan
        return price, power, min(price, power) if math.isfinite(price) else math.nan


class Matched(NamedTuple):
    """What a specification of pools found."""

    title: str
    together: list[Match]  #: the best of every accelerator alone
    pools: list[Match]  #: the best of every pair of accelerators


class PoolsSpec(NamedTuple):
    """A checked specification: the sweep of each pool, and how they are matched."""

    title: str
    specs: dict[str, SweepSpec]
    prices: dict[str, float]  #: accelerator → USD a second of a device; empty where none are stated
    transfer: float  #: B/s at which a device sends keys and values; 0 where that is not counted


def from_text(text: str, file: str = "pools.toml") -> PoolsSpec:
    """The specification in a TOML text; InputError for whatever is wrong with it."""
    document = toml.parsed(text, file)
    prices, transfer = _settings(document.pop("pools", {}), f"{file}: pools")
    own = {name: document.pop(name, None) for name in POOLS}
    for name in ("prefill", "decode"):
        if own[name] is None:
            raise InputError(file, f"no section [{name}]", "[prefill] and [decode]", f"add [{name}.axes]")
    specs = {
        name: from_document(_laid_over(document, overlay, name, f"{file}: {name}"), text, file)
        for name, overlay in own.items() if overlay is not None
    }  # fmt: skip
    return PoolsSpec(str(document.get("title", Path(file).stem)), specs, prices, transfer)


def match(path: str | Path) -> Matched:
    """Sweep the pools of a specification and match them; nothing is written.

    Raises InputError for bad input, before anything is computed.
    """
    asked = from_text(text_of(path), str(path))
    found = {
        name: list(_candidates(
            execute(spec, output=False, keep="feasible")[0], asked.prices, 0.0 if name == "together" else asked.transfer
        ))
        for name, spec in asked.specs.items()
    }
    together = _best_by_accelerator([Match(one, None, 0.0) for one in found.get("together", [])])
    pools = _best_by_accelerator([
        Match(p, d, max(p.cache, d.cache) / asked.transfer if asked.transfer else 0.0)
        for p in front(found["prefill"]) for d in front(found["decode"])
    ])  # fmt: skip
    return Matched(asked.title, together, pools)


def _settings(table: Any, where: str) -> tuple[dict[str, float], float]:
    if not isinstance(table, dict) or not isinstance(table.get("prices", {}), dict):
        raise InputError(where, repr(table), "a table", "write [pools.prices] on a line of its own")
    for key in table:
        if key not in KEYS:
            raise unknown_name(where, key, KEYS, "keys")
    prices = {
        catalog.resolve("accelerator", name): catalog.quantity(value, "USD/s", f"{where}.prices.{name}")
        for name, value in table.get("prices", {}).items()
    }
    transfer = catalog.quantity(table["transfer"], "B/s", f"{where}.transfer") if "transfer" in table else 0.0
    return prices, transfer


def _laid_over(document: dict[str, Any], overlay: dict[str, Any], pool: str, where: str) -> dict[str, Any]:
    """The sections of a file with those of a pool over them."""
    if not isinstance(overlay, dict) or not all(isinstance(section, dict) for section in overlay.values()):
        raise InputError(where, repr(overlay), "sections of a sweep", f"write [{pool}.axes] on a line of its own")
    sections = {**document}
    asked = {**overlay, "serving": {**overlay.get("serving", {}), **POOLS[pool]}}
    for name, section in asked.items():
        sections[name] = {**document.get(name, {}), **section}
    sections["output"] = {**sections.get("output", {}), "energy": True}
    return sections


def _candidates(found: xr.Dataset, prices: dict[str, float], transfer: float) -> Iterator[Candidate]:
    """Designs of a pool's results; those without a price where others have one are an error.

    None serves more requests than its links carry, each device sending or receiving its share of keys and values at
    ``transfer`` bytes a second, where that counts.
    """
    count = found.sizes["design"]

    def column(name: str) -> np.ndarray:
        return np.broadcast_to(found[name].values, count)

    accelerators = [str(one) for one in column("accelerator" if "accelerator" in found.coords else "system")]
    missing = next((one for one in accelerators if prices and one not in prices), None)
    if missing is not None:
        raise InputError("pools.prices", f"none of {missing}", ", ".join(prices), "state one for every accelerator")
    labels = {name: column(name) for name in _LABELS if name in found.coords}
    rate, devices, watts, first_token, token, cache = (
        column(name).astype(float)
        for name in ("requests_per_second", "n_devices", "provisioned_power", "time_to_first_token",
                     "time_per_output_token", "peak_memory_cache")
    )  # fmt: skip
    degrees = [column(name).astype(float) if name in found.coords else np.ones(count) for name in ("dp", "concurrency")]
    sequences = np.maximum(degrees[1] / degrees[0], 1.0)
    if transfer:
        rate = np.minimum(rate, degrees[0] * transfer * sequences / np.maximum(cache, 1.0))
    for i in np.flatnonzero(rate > 0.0):
        yield Candidate(
            accelerator=accelerators[i],
            labels={name: values[i] for name, values in labels.items()},
            rate=rate[i],
            devices=devices[i],
            watts=watts[i] / rate[i],
            price=devices[i] * prices.get(accelerators[i], 0.0) / rate[i],
            first_token=first_token[i],
            token=token[i],
            cache=cache[i] / sequences[i],
        )


def front(candidates: list[Candidate]) -> list[Candidate]:
    """Of every accelerator those that no other one of it beats in price and power."""
    kept: list[Candidate] = []
    least: dict[str, float] = {}
    for one in sorted(candidates, key=lambda c: (c.price, c.watts)):
        if one.watts < least.get(one.accelerator, np.inf):
            least[one.accelerator] = one.watts
            kept.append(one)
    return kept


def _best_by_accelerator(matches: list[Match]) -> list[Match]:
    """Of every pair of accelerators the one with the least product of price and power (power alone without prices)."""
    best: dict[tuple[str, ...], Match] = {}
    for one in matches:
        key = tuple(part.accelerator for part in one.parts)
        if key not in best or _cost(one) < _cost(best[key]):
            best[key] = one
    return sorted(best.values(), key=_cost)


def _cost(one: Match) -> float:
    return one.watts * (one.price or one.watts)
