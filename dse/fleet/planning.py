"""What all plans are made by: a demand is checked, every accelerator offers its cheapest fleet, changes are tried.

A kind of plan (:mod:`dse.fleet.service`, :mod:`dse.fleet.runs`) states its options, what it decides itself, and how one
accelerator is swept; :func:`plan` does the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import tomlkit

from dse.designs import catalog, leaf_path, leaf_value, leaves_of, replace, short_name
from dse.errors import InputError
from dse.io import toml
from dse.types import Design

#: Values that are stated by leaf: numbers in SI units, names of choices, or texts with units.
Settings = Mapping[str, float | str]

#: Relative change of what a plan minimises from which on it is shown.
MIN_CHANGE = 0.02


class PlanProgress(NamedTuple):
    """State of a plan, for a bar."""

    done: int  #: accelerators whose candidates are known
    total: int  #: accelerators
    accelerator: str  #: the one that is done last, "" at the beginning

    def __str__(self) -> str:
        """Return the state as text, such as ``2 of 4 accelerators``."""
        return f"{self.done} of {self.total} accelerators"


#: Called with the state of a plan at its beginning and when an accelerator is done.
Progress = Callable[[PlanProgress], None]


class AcceleratorDesigns(Protocol):
    """Designs of one accelerator, which serve any demand of the same work."""

    def fleets(self, demand: Any) -> tuple[list[Any], str]:
        """Return the cheapest fleets for a demand, and a text why one is missing, or ""."""


class PlanKind(NamedTuple):
    """What distinguishes plans of services from those of training runs."""

    serves: bool
    noun: str  #: for a fleet
    options: Mapping[str, str]  #: number of a demand → option of ``dse plan``
    limits: tuple[str, ...]  #: numbers that may be infinite: no limit
    largest: float  #: limit of each number
    decided: Mapping[str, str]  #: path of a leaf that the plan itself sets → what states it instead
    changes: Mapping[str, tuple[str, tuple[float, ...]]]  #: number of a demand → its words, factors that are tried
    criterion: Callable[[Any, Any], float]  #: (fleet, demand) → what the best one minimises
    fleet_text: Callable[[Any], str]  #: of the cheapest fleet for a changed demand
    price_text: Callable[[Any, Any, Any], str]  #: (best fleet, another one, demand) → when that is as cheap, or ""


#: Kind of plan → its fields that are data.
_KINDS = toml.table(Path(__file__).with_name("plans.toml"))


def plan_kind(name: str, **functions: Any) -> PlanKind:
    """Return a kind of plan of ``plans.toml``.

    Args:
        name: of its table.
        functions: the fields that are functions.
    """
    return PlanKind(serves=name == "service", **_KINDS[name], **functions)


class Plan(NamedTuple):
    """Fleets by accelerator, cheapest first; the reason of those without one; what would change the cheapest."""

    demand: Any
    fleets: list[Any]
    without: dict[str, str]
    changes: list[str]
    designs: Mapping[str, AcceleratorDesigns]  #: accelerator → its designs, which serve other demands too


def checked(demand: Any, kind: PlanKind) -> Any:
    """Return a demand with slugs of the catalogue and short names of its settings.

    Args:
        demand: of the kind, with names of the catalogue.
        kind: of the plan.

    Raises:
        InputError: for unknown names, numbers that are not positive, and settings of what the plan decides.
    """
    for name, option in kind.options.items():
        value = getattr(demand, name)
        is_unlimited = name in kind.limits and value == math.inf
        if value is not None and not is_unlimited and not 0.0 < value < kind.largest:
            raise InputError(option, f"{value:g}", f"more than 0, less than {kind.largest:g}", "check the number")
    if not demand.accelerators:
        raise InputError("--on", "no name", "accelerators of the catalogue", "see: dse catalog list accelerator")
    slugs = dict.fromkeys(catalog.resolve("accelerator", name, "--on") for name in demand.accelerators)
    return demand._replace(
        accelerators=tuple(slugs),
        software=demand.software and catalog.resolve("software", demand.software, "--software"),
        settings=read_settings(demand.settings, kind.serves, kind.decided),
    )


def plan(
    demand: Any,
    kind: PlanKind,
    sweep: Callable[[Any], Iterable[tuple[str, AcceleratorDesigns]]],
    progress: Progress | None,
) -> Plan:
    """Return the cheapest fleets of each accelerator for a checked demand.

    Args:
        demand: of the kind, checked.
        kind: of the plan.
        sweep: demand → accelerator and its designs, one after the other.
        progress: called with the state of the plan.
    """
    stacks = {name: foreign_stack(demand.software, name) for name in demand.accelerators}
    names = tuple(name for name, reason in stacks.items() if not reason)
    designs: dict[str, AcceleratorDesigns] = {}
    if progress and names:
        progress(PlanProgress(0, len(names), ""))
    for name, candidates in sweep(demand._replace(accelerators=names)) if names else ():
        designs[name] = candidates
        if progress:
            progress(PlanProgress(len(designs), len(names), name))
    offers = {name: candidates.fleets(demand) for name, candidates in designs.items()}
    fleets = [fleet for accelerator_fleets, _ in offers.values() for fleet in accelerator_fleets]
    fleets.sort(key=lambda fleet: kind.criterion(fleet, demand))
    reasons = stacks | {name: reason for name, (_, reason) in offers.items()}
    without = {name: reason for name, reason in reasons.items() if reason}
    return Plan(demand, fleets, without, [*_changes(designs, demand, fleets, kind)] if fleets else [], designs)


def _changes(
    designs: Mapping[str, AcceleratorDesigns], demand: Any, fleets: list[Any], kind: PlanKind
) -> Iterator[str]:
    """Yield what would change the best fleet, a line each: prices, then limits and rate."""
    best = fleets[0]
    others = {fleet.accelerator: fleet for fleet in reversed(fleets) if fleet.accelerator != best.accelerator}
    for other in sorted(others.values(), key=lambda fleet: kind.criterion(fleet, demand)):
        yield from filter(None, [kind.price_text(best, other, demand)])
    for field, (words, factors) in kind.changes.items():
        for factor in factors if math.isfinite(getattr(demand, field)) else ():
            changed = demand._replace(**{field: factor * getattr(demand, field)})
            offers = [fleet for candidates in designs.values() for fleet in candidates.fleets(changed)[0]]
            if not offers:
                yield f"{words} x {factor:g}: no {kind.noun}"
                continue
            cheapest = min(offers, key=lambda fleet: kind.criterion(fleet, changed))
            ratio = kind.criterion(cheapest, changed) / kind.criterion(best, demand)
            if abs(ratio - 1.0) > MIN_CHANGE or cheapest.accelerator != best.accelerator:
                yield f"{words} x {factor:g}: {kind.fleet_text(cheapest)}"


def read_settings(settings: Settings, serving: bool, decided: Mapping[str, str]) -> dict[str, float | str]:
    """Return short name → value of settings, whole numbers as integers.

    Args:
        settings: name of a leaf → its value.
        serving: whether the plan is of a service.
        decided: path of a leaf that the plan itself sets → what states it instead.

    Raises:
        InputError: for an unknown leaf, a value that it cannot have, two values of one leaf, and a leaf that the plan
            decides.
    """
    values: dict[str, float | str] = {}
    for name, value in settings.items():
        where = f"--set {name}"
        path = leaf_path(name, where, serving)
        if path in decided:
            raise InputError(where, f"{value}", "leaves that the plan does not decide", decided[path])
        number = leaf_value(path, value, where)
        if short_name(path) in values:
            raise InputError(where, f"{value}", f"one value of {short_name(path)}", "leave one of them out")
        is_whole = math.isfinite(number) and number == int(number)
        values[short_name(path)] = value if isinstance(value, str) else int(number) if is_whole else number
    return values


def specification(demand: Any, system: str, axes: Mapping[str, Any], **sections: Any) -> str:
    """Return the TOML specification of the candidates of a plan.

    Args:
        demand: checked.
        system: name of the first system.
        axes: of the sweep; a setting is an axis of one value in place of the one that lists the same leaf.
        sections: others by name; ``workload`` has further values of the model.
    """
    if axes and catalog.is_mixture(demand.workload):
        axes = {**axes, "ep": "divisors"}
    document = {
        "workload": {"name": demand.workload, **sections.pop("workload", {})},
        "system": {"name": system},
        "software": {"name": demand.software} if demand.software else {},
        **sections,
    }
    return tomlkit.dumps(document | ({"axes": with_settings(axes, demand)} if axes else {}))


def with_settings(axes: Mapping[str, Any], demand: Any) -> dict[str, Any]:
    """Return the axes of a sweep with the settings of a demand, each an axis of one value."""
    return {**axes, **{name: [value] for name, value in demand.settings.items()}}


def set_leaves(design: Design, settings: Settings) -> Design:
    """Return a design with the settings of leaves that it has."""
    values = {leaf_path(name): leaf_value(leaf_path(name), value) for name, value in settings.items()}
    paths = {*leaves_of(design)}
    return replace(design, {path: value for path, value in values.items() if path in paths})


def foreign_stack(software: str, accelerator: str) -> str:
    """Return why a stack does not exist for an accelerator, as text; "" where it does, and for no stack."""
    mismatch = catalog.vendor_mismatch(software, accelerator) if software else None
    return "" if mismatch is None else f"{software} is of {', '.join(mismatch[1])}, not of {mismatch[0]}"
