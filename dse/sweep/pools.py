"""Two pools of one service, swept apart and matched: ``dse pools`` (Splitwise: Patel et al. 2024).

A specification is that of a sweep with three sections more: what ``[prefill]`` and ``[decode]`` hold is laid over the
sections of the file for the pool that computes prompts and for the one that answers, ``[together]`` for engines that
do both, to compare with. Every pool is an ordinary sweep, of which all designs that can run are candidates.

A request takes ``1 / X`` seconds of a candidate that serves ``X`` a second, so that pools in balance cost
``C_p / X_p + C_d / X_d`` a request, of money as of provisioned power: the shares of devices follow, and with them what
a budget answers. Candidates that are behind in both are never part of the best pair.

The first token of a pair comes with the transfer: what the pool of prompts must keep of the time to it (constraints,
``first_token_limit``) the pair must keep.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.designs.leaves import leaf
from dse.errors import InputError
from dse.spec.expression import Expression
from dse.spec.pools import errors_of, read, varies
from dse.spec.sweep import SweepSpec
from dse.sweep.grid import compose
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.results.rebuilding import indices_at
from dse.sweep.run import execute

if TYPE_CHECKING:
    import xarray as xr

#: Labels of a candidate in addition to those that its sweep varies, where its results have them.
_LABELS = ("software", "precision", "tp", "pp", "dp", "ep", "concurrency")

#: Labels that a candidate tells of otherwise.
_TOLD_ELSEWHERE = ("accelerator", "system", "n_devices")

#: The metric that a transfer adds to.
_FIRST = "time_to_first_token"


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
    row: int = 0  #: its place among the designs of its pool


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


class MatchedPools(NamedTuple):
    """What a specification of pools found."""

    title: str
    together: list[Match]  #: the best of every accelerator alone
    pools: list[Match]  #: the best of every pair of accelerators


def match(path: str | Path) -> MatchedPools:
    """Sweep the pools of a specification and match them; nothing is written.

    Raises InputError for bad input, before anything is computed.
    """
    asked = read(path)
    grids = {}
    for name, spec in asked.specs.items():
        with errors_of(name, str(path)):
            grids[name] = compose.build(spec)
    results = {name: execute(grid, output=False, keep="feasible")[0] for name, grid in grids.items()}
    found = {
        name: list(_candidates(
            results[name], asked.prices, 0.0 if name == "together" else asked.transfer, _swept(asked.specs[name])
        ))
        for name in asked.specs
    }  # fmt: skip
    together = _best_by_accelerator([Match(one, None, 0.0) for one in found.get("together", [])])
    limits = _Limits.of(grids["prefill"], results["prefill"]) if asked.transfer else None
    pools = _best_by_accelerator(_pairs(found["prefill"], found["decode"], asked.transfer, limits))
    return MatchedPools(asked.title, together, pools)


def _pairs(prefill: list[Candidate], decode: list[Candidate], transfer: float, limits: _Limits | None) -> list[Match]:
    """Pairs of which one may be the best, whose first token comes in time with the transfer in it."""
    if not limits:
        return [Match(p, d, _seconds(p, d, transfer)) for p in front(prefill) for d in front(decode)]
    senders = front(prefill, (*_COSTS, "first_token", "cache")) if limits.are_plain else prefill
    receivers = front(decode, (*_COSTS, "cache"))
    found = []
    for p in senders:
        took = np.array([_seconds(p, d, transfer) for d in receivers])
        kept = limits.keeps(p.row, p.first_token + took)
        found += [Match(p, d, seconds) for d, seconds, keeps in zip(receivers, took.tolist(), kept, strict=True)
                  if keeps]  # fmt: skip
    return found


def _seconds(prefill: Candidate, decode: Candidate, transfer: float) -> float:
    """Seconds in which the keys and values of a prompt are sent and received; none where that is not counted."""
    return max(prefill.cache, decode.cache) / transfer if transfer else 0.0


@dataclasses.dataclass(frozen=True)
class _Limits:
    """What the pool of prompts must keep of the time to the first token, to be held against that of a pair."""

    constraints: tuple[Expression, ...]  #: those that read it
    values: dict[str, np.ndarray]  #: what else they read, a number a design
    longest: np.ndarray  #: seconds, a number a design; 0 for any

    @classmethod
    def of(cls, grid: Grid, results: xr.Dataset) -> _Limits:
        """Of the results of a pool of prompts."""
        constraints = tuple(one for one in grid.constraints if _FIRST in one.names)
        count = results.sizes["design"]
        values_at = grid.values(indices_at(results, np.arange(count), grid)) if count else {}

        def of_leaf(path: str) -> Any:
            return values_at[path] if path in values_at else leaf(grid.base, path)

        names = {name for one in constraints for name in one.names if name != _FIRST}
        values = {
            name: np.broadcast_to(np.asarray(results[name] if name in grid.spec.study.units else of_leaf(name),
                                             float), count)
            for name in names
        }  # fmt: skip
        asked = grid.base.workload.requests
        longest = 0.0 if asked is None else np.asarray(of_leaf("workload.requests.first_token_limit"), float)
        return cls(constraints, values, np.broadcast_to(longest, count))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.constraints) or bool((self.longest > 0.0).any())

    @property
    def are_plain(self) -> bool:
        """Whether they are the same for all designs, and kept by those that are earlier."""
        alike = not self.longest.size or bool((self.longest == self.longest[0]).all())
        return alike and all(one.bound == (_FIRST, True) for one in self.constraints)

    def keeps(self, row: int, first_token: np.ndarray) -> np.ndarray:
        """Whether the design at ``row`` meets them with this time to first token, in seconds."""
        kept = np.full(first_token.shape, True)

        def lookup(name: str) -> Any:
            return first_token if name == _FIRST else self.values[name][row]

        if self.longest[row] > 0.0:
            kept &= first_token <= self.longest[row]
        for one in self.constraints:
            kept &= np.asarray(one(lookup), bool)
        return kept


def _swept(spec: SweepSpec) -> tuple[str, ...]:
    """Names of the axes that tell designs of a pool apart, as its results have them."""
    names = (variable_name(axis) for axis in spec.axes if varies(axis))
    return tuple(name for name in names if name not in _TOLD_ELSEWHERE)


def _candidates(
    found: xr.Dataset, prices: dict[str, float], transfer: float, swept: Sequence[str] = ()
) -> Iterator[Candidate]:
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
    labels = {name: column(name) for name in dict.fromkeys((*_LABELS, *swept)) if name in found.coords}
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
            row=int(i),
        )


#: What a request takes of a candidate.
_COSTS = ("price", "watts")


def front(candidates: list[Candidate], by: Sequence[str] = _COSTS) -> list[Candidate]:
    """Of every accelerator those that no other one of it beats in price and power, or in all fields of ``by``."""
    kept: dict[str, np.ndarray] = {}
    found = []
    numbers = {id(one): np.array([getattr(one, name) for name in by]) for one in candidates}
    for one in sorted(candidates, key=lambda c: tuple(numbers[id(c)])):  # none beats one that stands before it
        own = numbers[id(one)]
        before = kept.get(one.accelerator, np.empty((0, len(by))))
        if not (before <= own).all(axis=1).any():
            kept[one.accelerator] = np.vstack([before, own])
            found.append(one)
    return found


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
