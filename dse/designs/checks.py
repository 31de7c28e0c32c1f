"""Checks of stated leaves: of absent records, stacks of other vendors, impossible values."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping as MappingABC
from typing import Any

from dse.designs import catalog
from dse.designs.records import CHIP, EXPERTS, OF_EXPERTS, OF_SHAPE, TABLE
from dse.errors import InputError
from dse.types import GENERATED, Experts, Load, Requests

#: Record that depends on a record of the workload → that record.
_OF_WORKLOAD = {**{record: record for record in (EXPERTS, *OF_SHAPE)}, **dict.fromkeys(OF_EXPERTS, EXPERTS)}


def check_chip(path: str, generated: bool, where: str) -> None:
    """Raise InputError where the accelerator lacks the leaf at ``path``.

    Args:
        path: full path of a stated leaf.
        generated: True for a generated accelerator, which has no leaves of what is generated.
        where: place of the value, for errors.

    Raises:
        InputError: for a leaf that only the other kind of accelerator has.
    """
    subpath = path.removeprefix("system.accelerator.")
    if path.startswith(f"{CHIP}.") and not generated:
        raise InputError(
            where,
            subpath.rstrip("."),
            "leaves of an accelerator that is not generated",
            "name a generated accelerator, such as gpu, as the system or accelerator",
        )
    if generated and subpath != path and any(subpath == name or subpath.startswith(f"{name}.") for name in GENERATED):
        raise InputError(
            where,
            f"{subpath} of a generated accelerator",
            "what it is generated from: chip.die_area, chip.stacks, …",
            "change the chip, or name an accelerator that is not generated",
        )


def check_experts(path: str, values: MappingABC[str, Any], where: str) -> None:
    """Raise InputError where the model lacks the record of a leaf of its shape.

    Args:
        path: full path of a stated leaf.
        values: full path → value of the named entries.
        where: place of the value, for errors.

    Raises:
        InputError: for a leaf of an absent record.
    """
    required_record = next((_OF_WORKLOAD[record] for record in _OF_WORKLOAD if path.startswith(f"{record}.")), None)
    if required_record is not None and not _has_record(values, required_record):
        feature, example = TABLE["features"][required_record]
        raise InputError(
            where,
            path.rpartition(".")[2],
            f"leaves of a model without {feature}",
            f"name a workload that has {feature}, such as {example}",
        )


def check_networks(path: str, values: MappingABC[str, Any], explicit_paths: Container[str], where: str) -> None:
    """Raise InputError where a leaf of links without a switch, or of pods, does not belong to the system.

    Args:
        path: full path of a stated leaf.
        values: full path → value of named entries.
        explicit_paths: full paths of all stated leaves, one of which may add the record.
        where: place of the value, for errors.

    Raises:
        InputError: for a leaf of an absent record.
    """
    record = next((record for record in TABLE["networks"] if path.startswith(f"{record}.")), None)
    if record is None or _has_record(values, record):
        return
    adding_leaf, networks, allowed, fix = TABLE["networks"][record]
    if f"{record}.{adding_leaf}" not in explicit_paths:
        network, _, _ = record.rpartition(".")
        raise InputError(where, f"{path.removeprefix(f'{network}.')} of {networks}", allowed, fix)


def check_tiers(path: str, value: float, offloaded: MappingABC[str, Any], where: str) -> None:
    """Raise InputError for a share of offloaded bytes of which nothing is offloaded.

    Args:
        path: full path of a stated leaf.
        value: its value.
        offloaded: full path → value of the offload options of the mapping, 0 for none.
        where: place of the value, for errors.

    Raises:
        InputError: for a share of an option that is 0.
    """
    name = path.removeprefix("mapping.tiers.")
    option = TABLE["shares"].get(name, "")
    if option and value and not offloaded.get(f"mapping.{option}"):
        raise InputError(
            where,
            f"{name} = {value:g} without {option}",
            f"shares of what {option} takes off the device",
            f"set {option} too, or leave {name} out",
        )


def check_routing(
    experts: Experts, places: MappingABC[str, str], default_place: str, varied_paths: Container[str] = ()
) -> None:
    """Raise InputError where experts per token, groups, or rows of an expert are more than there are.

    Args:
        experts: numbers in SI units.
        places: full path of a stated leaf → its place, for errors.
        default_place: place of all other leaves.
        varied_paths: full paths of leaves that differ between designs, for which limits are reasons of infeasibility.

    Raises:
        InputError: for the first leaf above its limit.
    """
    for name, is_allowed in experts.within_limits.items():
        number, most, limit_expression = (
            float(getattr(experts, name)),
            experts.upper_limits[name],
            TABLE["limits"][name],
        )
        limit_paths = [f"{EXPERTS}.{leaf_name}" for leaf_name in (name, *limit_expression.split(" / "))]
        if not is_allowed and not any(path in varied_paths for path in limit_paths):
            place = next((places[path] for path in limit_paths if path in places), default_place)
            raise InputError(
                place,
                f"{name} = {number:g}",
                f"at most {limit_expression} = {most:g}",
                f"lower {name}, or change {limit_expression}",
            )


def check_load(loads: Iterable[float], has_rate: bool, where: str) -> None:
    """Raise InputError for ``load=rate`` without a rate.

    Args:
        loads: codes of :class:`dse.types.Load`.
        has_rate: True where a request rate is stated.
        where: place of the value, for errors.

    Raises:
        InputError: for a load by rate without one.
    """
    if float(Load.rate) in map(float, loads) and not has_rate:
        raise InputError(where, "load = rate without request_rate", "a rate, requests/s", "set request_rate")


def check_turns(requests: Requests | None, turns: Any, where: str) -> None:
    """Raise InputError where the mean prompt of a session is too short for earlier answers and new tokens.

    Args:
        requests: of the workload; None passes.
        turns: mean number of turns of a session.
        where: place of the value, for errors.

    Raises:
        InputError: for a prompt that is too short.
    """
    if requests is None or not isinstance(turns, int | float) or turns <= 1.0:
        return
    unshared_tokens = requests.prompt_tokens * (1.0 - requests.prefix_share)
    least_tokens = 0.5 * (requests.output_tokens * (turns - 1.0) + turns + 1.0)
    if isinstance(unshared_tokens, int | float) and unshared_tokens < least_tokens:
        raise InputError(
            where,
            f"{unshared_tokens:g} tokens of a mean prompt beyond its shared prefix for {turns:g} turns",
            f"{least_tokens:g} or more: half of the answers of all turns, and new tokens",
            "longer prompt_tokens, fewer turns or shorter output_tokens",
        )


def has_experts(values: MappingABC[str, Any]) -> bool:
    """True where values (by full path) include a mixture of experts."""
    return _has_record(values, EXPERTS)


def _has_record(values: MappingABC[str, Any], record: str) -> bool:
    """True where values (by full path) have a leaf below the path ``record``."""
    return any(path.startswith(f"{record}.") for path in values)


def check_vendor(stack: str, system: str, where: str) -> None:
    """Raise InputError where a stack does not exist for the vendor of a system's accelerator.

    Args:
        stack: name in the catalogue.
        system: name of a system or an accelerator in the catalogue.
        where: place of the value, for errors.

    Raises:
        InputError: for a stack of other vendors.
    """
    if clash := catalog.vendor_mismatch(stack, system):
        vendor, vendors = clash
        raise InputError(
            where,
            f"{stack} on {system} of {vendor}",
            f"a stack that exists for {vendor} ({stack}: {', '.join(vendors)})",
            "name another stack; --any-option (any_option=True) runs it anyway",
        )
