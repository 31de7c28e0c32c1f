"""What of a design is refused when it is stated: leaves that it has not, stacks of other vendors, what cannot be."""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Mapping as MappingABC
from typing import Any

from dse.designs import catalog
from dse.designs.records import CHIP, EXPERTS, LINKS, OF_EXPERTS, OF_SHAPE, PODS
from dse.errors import InputError
from dse.types import GENERATED, Experts

#: Record → what a model that has it has, and a model that does.
_SHAPES = {
    EXPERTS: ("experts", "deepseek-v3"), "workload.latent": ("latent attention", "deepseek-v3"),
    "workload.recurrent": ("layers with a state", "nemotron-nano-9b-v2"),
    "workload.sparse": ("sparse attention", "glm-5"),
}  # fmt: skip

#: What a leaf of a mixture of experts is at most (:attr:`dse.types.Experts.most`), in words.
_MOST_ROUTED = {
    "top_k": "n_experts", "group_limit": "n_groups", "imbalance": "n_experts / top_k", "capacity": "n_experts / top_k",
}  # fmt: skip

#: Record of a network → the leaf that gives it to one without, what that one is called, what has it, how to mend it.
_GIVEN_BY = {
    LINKS: (
        "topology", "a system whose links are switched", "leaves of links that no switch joins, as of tpu-v5e",
        "leave it out, name such a system, or set links.topology too: torus or hypercube in place of the switch",
    ),
    PODS: (
        "size", "a network without pods", "leaves of pods whose size is stated",
        "set pods.size too: devices that reach each other at full bandwidth",
    ),
}  # fmt: skip

#: Leaf of a mapping's tiers → the option that takes off the device what it is a share of.
_SHARE_OF = {
    "storage_weights": "offload_weights", "storage_activations": "offload_activations",
    "storage_optimizer": "offload_optimizer", "host_update": "offload_optimizer",
}  # fmt: skip

#: Record that is there or not with a record of the workload → that record.
_OF_WORKLOAD = {
    **{record: record for record in (EXPERTS, *OF_SHAPE)}, **dict.fromkeys(OF_EXPERTS, EXPERTS)
}  # fmt: skip


def check_chip(path: str, generated: bool, where: str) -> None:
    """That an accelerator, ``generated`` or stated, has a leaf of its own at ``path``; else an InputError."""
    inner = path.removeprefix("system.accelerator.")
    if path.startswith(f"{CHIP}.") and not generated:
        raise InputError(
            where, inner.rstrip("."), "leaves of an accelerator that is not generated",
            "name a generated accelerator, such as gpu, as the system or accelerator",
        )  # fmt: skip
    if generated and inner != path and any(inner == name or inner.startswith(f"{name}.") for name in GENERATED):
        raise InputError(
            where, f"{inner} of a generated accelerator", "what it is generated from: chip.die_area, chip.stacks, …",
            "change the chip, or name an accelerator that is not generated",
        )  # fmt: skip


def check_experts(path: str, values: MappingABC[str, Any], where: str) -> None:
    """That a design whose workload brings these values has the record of a leaf at ``path``, if it is of a shape."""
    needs = next((_OF_WORKLOAD[record] for record in _OF_WORKLOAD if path.startswith(f"{record}.")), None)
    if needs is not None and not _has_record(values, needs):
        what, such = _SHAPES[needs]
        raise InputError(
            where, path.rpartition(".")[2], f"leaves of a model without {what}",
            f"name a workload that has {what}, such as {such}",
        )  # fmt: skip


def check_networks(path: str, values: MappingABC[str, Any], said: Container[str], where: str) -> None:
    """That a leaf of links without a switch, or of pods, is of a system that has them or is given them.

    Args:
        path: full path of a leaf that is stated.
        values: full path → value of what names bring.
        said: full paths of all leaves that are stated; some leaf among them may give a network its record.
        where: what the error names.

    Raises:
        InputError: for a leaf of a record that the system has not.
    """
    record = next((record for record in _GIVEN_BY if path.startswith(f"{record}.")), None)
    if record is None or _has_record(values, record):
        return
    giver, without, allowed, fix = _GIVEN_BY[record]
    if f"{record}.{giver}" not in said:
        network, _, _ = record.rpartition(".")
        raise InputError(where, f"{path.removeprefix(f'{network}.')} of {without}", allowed, fix)


def check_tiers(path: str, value: float, offloaded: MappingABC[str, Any], where: str) -> None:
    """That a share of what is offloaded is one of something; else an InputError.

    Args:
        path: full path of a leaf that is stated.
        value: its value.
        offloaded: full path → value of the options of the mapping, 0 where nothing is offloaded.
        where: what the error names.
    """
    name = path.removeprefix("mapping.tiers.")
    of = _SHARE_OF.get(name, "")
    if of and value and not offloaded.get(f"mapping.{of}"):
        raise InputError(
            where, f"{name} = {value:g} without {of}", f"shares of what {of} takes off the device",
            f"set {of} too, or leave {name} out",
        )  # fmt: skip


def check_routing(
    experts: Experts, where: MappingABC[str, str], otherwise: str, moving: Container[str] = ()
) -> None:
    """That a mixture's router is possible: no more experts a token, groups, or rows of an expert than there are.

    Args:
        experts: numbers in SI units.
        where: full path of a leaf of its → what the error names, for those that were stated.
        otherwise: what it names for what was not.
        moving: full paths of leaves whose values differ between designs: what is a limit of some is a reason there.

    Raises:
        InputError: for the first leaf that is more than it can be.
    """
    for name, is_kept in experts.kept.items():
        got, most, of = float(getattr(experts, name)), experts.most[name], _MOST_ROUTED[name]
        both = [f"{EXPERTS}.{one}" for one in (name, *of.split(" / "))]
        if not is_kept and not any(path in moving for path in both):
            stated = next((where[path] for path in both if path in where), otherwise)
            raise InputError(stated, f"{name} = {got:g}", f"at most {of} = {most:g}", f"lower {name}, or change {of}")


def has_experts(values: MappingABC[str, Any]) -> bool:
    """Whether values by full path are of a mixture of experts."""
    return _has_record(values, EXPERTS)


def _has_record(values: MappingABC[str, Any], record: str) -> bool:
    return any(path.startswith(f"{record}.") for path in values)


def check_vendor(stack: str, system: str, where: str) -> None:
    """That a stack exists for the vendor of a system's accelerator; else an InputError.

    Args:
        stack: of the catalogue.
        system: of the catalogue, or an accelerator.
        where: what the error names.
    """
    if clash := catalog.foreign(stack, system):
        vendor, known = clash
        raise InputError(
            where, f"{stack} on {system} of {vendor}",
            f"a stack that exists for {vendor} ({stack}: {', '.join(known)})",
            "name another stack; --any-option (any_option=True) runs it anyway",
        )  # fmt: skip
