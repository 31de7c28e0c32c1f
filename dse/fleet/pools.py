"""Prefill and decode pools of a service, swept separately and matched: ``dse pools`` (Splitwise: Patel et al. 2024).

A specification is that of a sweep with three more sections: ``[prefill]`` and ``[decode]`` override the file's
sections for the two pools, ``[together]`` for engines that do both, as a reference. Each pool is an ordinary sweep
whose feasible designs are the candidates.

A candidate that serves ``X`` requests/s takes ``1 / X`` seconds per request, so balanced pools cost ``C_p / X_p + C_d /
X_d`` per request, in money as in provisioned power; the shares of devices and the rate of a budget follow. Candidates
that are worse in both are never part of the best pair.

The time to first token of a pair includes the transfer of keys and values: limits on it in the prefill pool
(constraints, ``first_token_limit``) apply to the pair.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.designs import leaf
from dse.designs.records import N_DEVICES
from dse.errors import InputError
from dse.fleet.swept import SweptDesigns, only_launched, swept_designs
from dse.fleet.workers import WORKER, Match, PoolCandidate, PoolFleet, best_fleets, fleets
from dse.spec import Expression, SweepSpec
from dse.spec.pools import PoolsSpec, errors_of, read, varies
from dse.spec.sweep import name_of
from dse.sweep.grid import compose, vendors
from dse.sweep.grid.grid import variable_name

if TYPE_CHECKING:
    from dse.types import Design

#: Labels of a candidate besides the swept axes, if the results have them.
_LABELS = ("software", "precision", "tp", "pp", "dp", "ep", "concurrency")

#: Labels that are fields of a candidate.
_FIELD_LABELS = ("accelerator", "system", "n_devices")

#: The metric that includes the transfer.
_FIRST_TOKEN = "time_to_first_token"


class MatchedPools(NamedTuple):
    """Result of a specification of pools."""

    title: str
    together: list[Match]  #: the best per accelerator
    pools: list[Match]  #: the best per pair of accelerators
    fleets: tuple[PoolFleet, ...] = ()  #: whole workers: fronts of pools and of engines that do both
    spec: PoolsSpec | None = None
    workload: str = ""  #: name of the model in the catalogue
    output_tokens: float = 1.0  #: of an answer, mean
    designs: Callable[[PoolFleet], list[Design]] | None = None  #: designs of a fleet's parts


def match(specification: str | Path | Mapping[str, Any]) -> MatchedPools:
    """Return the best pools of a specification and the best engines that do both; no file is written.

    Args:
        specification: path of its TOML file, or its sections as a dictionary.

    Returns:
        The best pairs and the best engines that do both, by accelerator, with the fronts of whole workers.

    Raises:
        InputError: for bad input, before any evaluation.
    """
    pools_spec = read(specification)
    results, candidates = swept_pools(pools_spec, name_of(specification, "pools"))
    together = _best_by_accelerator([Match(candidate, None, 0.0) for candidate in candidates.get("together", [])])
    limits = _Limits.from_results(results["prefill"]) if pools_spec.transfer or pools_spec.devices else None
    pools = _best_by_accelerator(_pairs(candidates["prefill"], candidates["decode"], pools_spec.transfer, limits))
    requests = results["decode"].grid.base.workload.requests
    workload_axis = pools_spec.specs["decode"].names.get("workload")
    tokens = 1.0 if requests is None else float(requests.output_tokens)
    fleets = fleet_fronts(candidates, pools_spec, limits, tokens - 1.0) if pools_spec.devices else []

    def designs(fleet: PoolFleet) -> list[Design]:
        pools = zip(fleet.match.roles, fleet.match.parts, strict=True)
        return [results[name].designs(np.array([pool.row]))[0] for name, pool in pools]

    workload = str(workload_axis.labels[0]) if workload_axis else ""
    return MatchedPools(pools_spec.title, together, pools, tuple(fleets), pools_spec, workload, tokens, designs)


def swept_pools(pools_spec: PoolsSpec, file: str) -> tuple[dict[str, SweptDesigns], dict[str, list[PoolCandidate]]]:
    """Return feasible designs and candidates, each by name of the pool.

    Designs that engines do not launch are left out, unless the specification allows any option.

    Args:
        pools_spec: a checked specification.
        file: its name in errors.

    Raises:
        InputError: for mappings that do not fit, and pools whose engines launch no design.
    """
    grids = {}
    for name, spec in pools_spec.specs.items():
        with errors_of(name, file):
            grids[name] = compose.build(spec)
            vendors.check(grids[name])
    results = {name: swept_designs(grid, "feasible") for name, grid in grids.items()}
    results = {
        name: swept if swept.grid.spec.any_option else only_launched(swept, f"{file}: {name}")
        for name, swept in results.items()
    }
    bandwidths = dict.fromkeys(results, pools_spec.transfer) | {"together": 0.0}
    candidates = {
        name: list(_candidates(swept, pools_spec.prices, bandwidths[name], _swept_names(pools_spec.specs[name])))
        for name, swept in results.items()
    }
    return results, candidates


def fleet_fronts(
    candidates_by_pool: dict[str, list[PoolCandidate]], pools_spec: PoolsSpec, limits: _Limits | None, later: float
) -> list[PoolFleet]:
    """Return the fronts of fleets of whole workers: of pools within the limits, then of engines that do both.

    Designs with more requests in flight than their memory holds are left out: a worker at a stated utilisation has no
    use for them.
    """
    fitting = {
        name: [candidate for candidate in candidates if not candidate.queues]
        for name, candidates in candidates_by_pool.items()
    }
    prefill, how = fitting["prefill"], (pools_spec.devices, pools_spec.utilisation, later)
    if limits is None or limits.are_plain:
        prefill = front(prefill, (*WORKER, "first_token", "cache"))
    pairs = _all_pairs(prefill, front(fitting["decode"], (*WORKER, "token", "cache")), pools_spec.transfer)
    pools = list(fleets(pairs, *how))
    if limits:
        pools = [fleet for fleet in pools if limits.keeps(fleet.match.prefill.row, np.array([fleet.first_token]))[0]]
    combined = front(fitting.get("together", []), (*WORKER, "first_token", "token"))
    together = fleets([Match(candidate, None, 0.0) for candidate in combined], *how)
    return [*best_fleets(pools), *best_fleets(list(together))]


def _all_pairs(senders: list[PoolCandidate], receivers: list[PoolCandidate], bandwidth: float) -> list[Match]:
    """Return every pair of designs of both pools."""
    return [
        Match(sender, receiver, transfer_time(sender, receiver, bandwidth))
        for sender in senders
        for receiver in receivers
    ]


def _pairs(
    prefill: list[PoolCandidate], decode: list[PoolCandidate], bandwidth: float, limits: _Limits | None
) -> list[Match]:
    """Return the pairs that may be the best and whose time to first token, with the transfer, meets the limits.

    ``bandwidth`` of a device is in B/s; 0 counts no transfer, and no limit is checked then.
    """
    if not limits or not bandwidth:
        return _all_pairs(front(prefill), front(decode), bandwidth)
    senders = front(prefill, (*_COSTS, "first_token", "cache")) if limits.are_plain else prefill
    receivers = front(decode, (*_COSTS, "cache"))
    pairs: list[Match] = []
    for sender in senders:
        candidates = _all_pairs([sender], receivers, bandwidth)
        meets_limits = limits.keeps(sender.row, np.array([pair.first_token for pair in candidates]))
        pairs += itertools.compress(candidates, meets_limits)
    return pairs


def transfer_time(prefill: PoolCandidate, decode: PoolCandidate, bandwidth: float) -> float:
    """Return the seconds to send and receive the keys and values of a prompt, 0 where ``bandwidth`` is 0.

    Args:
        prefill: sends them.
        decode: receives them.
        bandwidth: bandwidth of a device, B/s; 0: not counted.
    """
    return max(prefill.cache, decode.cache) / bandwidth if bandwidth else 0.0


@dataclasses.dataclass(frozen=True)
class _Limits:
    """Limits on the time to first token of the prefill pool, applied to pairs."""

    constraints: tuple[Expression, ...]  #: constraints on the time to first token
    values: dict[str, np.ndarray]  #: their other names → [design] value
    longest: np.ndarray  #: [design] limit in seconds; 0: none

    @classmethod
    def from_results(cls, results: SweptDesigns) -> _Limits:
        """Return the limits on the time to first token of the designs of a prefill pool."""
        grid = results.grid
        constraints = tuple(constraint for constraint in grid.constraints if _FIRST_TOKEN in constraint.names)
        count, values_at = results.size, results.leaf_values()

        def of_leaf(path: str) -> Any:
            return values_at[path] if path in values_at else leaf(grid.base, path)

        names = {name for constraint in constraints for name in constraint.names if name != _FIRST_TOKEN}
        values = {
            name: np.broadcast_to(
                np.asarray(results.columns[name] if name in grid.spec.study.units else of_leaf(name), float), count
            )
            for name in names
        }
        requests = grid.base.workload.requests
        longest = 0.0 if requests is None else np.asarray(of_leaf("workload.requests.first_token_limit"), float)
        return cls(constraints, values, np.broadcast_to(longest, count))

    def __bool__(self) -> bool:
        """True where there are limits."""
        return bool(self.constraints) or bool((self.longest > 0.0).any())

    @property
    def are_plain(self) -> bool:
        """True where the limits are equal for all designs and met by any shorter time."""
        is_uniform = not self.longest.size or bool((self.longest == self.longest[0]).all())
        return is_uniform and all(constraint.bound == (_FIRST_TOKEN, True) for constraint in self.constraints)

    def keeps(self, row: int, first_token: np.ndarray) -> np.ndarray:
        """Return a mask of the times to first token, s, with which the design at ``row`` meets the limits."""
        meets_limits = np.full(first_token.shape, True)

        def lookup(name: str) -> Any:
            return first_token if name == _FIRST_TOKEN else self.values[name][row]

        if self.longest[row] > 0.0:
            meets_limits &= first_token <= self.longest[row]
        for constraint in self.constraints:
            meets_limits &= np.asarray(constraint(lookup), bool)
        return meets_limits


def _swept_names(spec: SweepSpec) -> tuple[str, ...]:
    """Return the names of the axes that distinguish the designs of a pool in its results."""
    names = (variable_name(axis) for axis in spec.axes if varies(axis))
    return tuple(name for name in names if name not in _FIELD_LABELS)


def _devices(results: SweptDesigns) -> np.ndarray:
    """Return the number of devices [design] of a pool's designs."""
    values = results.leaf_values()
    return np.broadcast_to(np.asarray(values.get(N_DEVICES, leaf(results.grid.base, N_DEVICES)), float), results.size)


def _candidates(
    results: SweptDesigns,
    prices: dict[str, float],
    bandwidth: float,
    swept_names: Sequence[str] = (),
) -> Iterator[PoolCandidate]:
    """Yield the designs of a pool's results that serve at all as candidates; InputError for a missing price.

    The rate is limited by the links, over which each device sends or receives its share of keys and values at
    ``bandwidth`` B/s; 0 counts no transfer. ``prices`` are accelerator → USD/s of a device; empty for none.
    """
    columns, devices = results.columns, _devices(results)
    accelerators = [str(slug) for slug in columns["accelerator" if "accelerator" in columns else "system"]]
    missing = next((accelerator for accelerator in accelerators if prices and accelerator not in prices), None)
    if missing is not None:
        raise InputError("pools.prices", f"none of {missing}", ", ".join(prices), "state one for every accelerator")
    labels = {name: columns[name] for name in dict.fromkeys((*_LABELS, *swept_names)) if name in columns}
    names = "requests_per_second provisioned_power time_to_first_token time_per_output_token peak_memory_cache"
    rate, watts, first_token, token, cache = (columns[name].astype(float) for name in names.split())
    degrees = [
        columns[name].astype(float) if name in columns else np.ones(results.size) for name in ("dp", "concurrency")
    ]
    sequences = np.maximum(degrees[1] / degrees[0], 1.0)
    if bandwidth:
        rate = np.minimum(rate, degrees[0] * bandwidth * sequences / np.maximum(cache, 1.0))
    for design_index in np.flatnonzero(rate > 0.0):
        yield PoolCandidate(
            accelerator=accelerators[design_index],
            labels={name: values[design_index] for name, values in labels.items()},
            rate=rate[design_index],
            devices=devices[design_index],
            watts=watts[design_index] / rate[design_index],
            price=devices[design_index] * prices.get(accelerators[design_index], 0.0) / rate[design_index],
            first_token=first_token[design_index],
            token=token[design_index],
            cache=cache[design_index] / sequences[design_index],
            row=int(design_index),
            queues=bool(degrees[1][design_index] > columns["concurrency_limit"][design_index]),
        )


#: Fields of a candidate that are costs.
_COSTS = ("price", "watts")


def front(candidates: list[PoolCandidate], fields: Sequence[str] = _COSTS) -> list[PoolCandidate]:
    """Return the candidates that no other of the same accelerator beats in all ``fields``, sorted by these.

    Of equals there is one.

    Args:
        candidates: of any accelerators.
        fields: of a candidate, all of them better when smaller.
    """
    values_by_accelerator: dict[str, np.ndarray] = {}
    members = []
    fields_of = operator.attrgetter(*fields)
    for candidate in sorted(candidates, key=fields_of):  # a candidate is not beaten by later ones
        values = np.array(fields_of(candidate))
        better_values = values_by_accelerator.get(candidate.accelerator, np.empty((0, len(fields))))
        if not (better_values <= values).all(axis=1).any():
            values_by_accelerator[candidate.accelerator] = np.vstack([better_values, values])
            members.append(candidate)
    return members


def _best_by_accelerator(matches: list[Match]) -> list[Match]:
    """Return the match of least price times power for each pair of accelerators, the least first."""
    best: dict[tuple[str, ...], Match] = {}
    for match in sorted(matches, key=_cost):
        best.setdefault(tuple(pool.accelerator for pool in match.parts), match)
    return list(best.values())


def _cost(match: Match) -> float:
    """Return price times power of a match, or power squared without prices."""
    return match.watts * (match.price or match.watts)
