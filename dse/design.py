"""Designs from names: the leaves of a design, their paths, and ``design(...)``.

A leaf is addressed by its path (``mapping.tp``, ``system.accelerator.memory.bandwidth``)
or by any dotted ending of it that is unique (``tp``, ``memory.bandwidth``).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping as MappingABC
from enum import IntEnum
from typing import Any, get_type_hints

from dse import catalog
from dse.errors import InputError, unknown_name
from dse.types import GENERATED, Chip, Design, Mapping, Scalar

#: Mapping of a design that says nothing else: one device, nothing split.
PLAIN_MAPPING = dict(
    tp=1, pp=1, dp=1, cp=1, micro_batch=1, virtual_stages=1, recompute=0, zero_stage=0,
    sequence_parallel=0, overlap_dp=0, overlap_tp=0, offload_weights=0, offload_activations=0, offload_optimizer=0,
    precision=2, placement=0,
)  # fmt: skip


#: The record that a generated accelerator has and an ordinary one lacks.
CHIP = "system.accelerator.chip"


@functools.cache
def leaves() -> dict[str, dict[str, Any]]:
    """Every leaf of an ordinary design: path → metadata (symbol, units, long_name, and enum for choices)."""
    return _walk(Design, "")


@functools.cache
def known_leaves() -> dict[str, dict[str, Any]]:
    """Every leaf that a design may have: those of any, and those of the chip that its accelerator is generated from."""
    return leaves() | _walk(Chip, f"{CHIP}.")


def leaves_of(design: Design) -> dict[str, dict[str, Any]]:
    """Every leaf that ``design`` has, but for presets."""
    return leaves() if design.system.accelerator.chip is None else known_leaves()


def _walk(cls: type, prefix: str) -> dict[str, dict[str, Any]]:
    hints = get_type_hints(cls)
    found: dict[str, dict[str, Any]] = {}
    for field in dataclasses.fields(cls):
        path = f"{prefix}{field.name}"
        if not field.metadata and not dataclasses.is_dataclass(hints[field.name]):
            continue  # an optional record: absent from an ordinary design
        if dataclasses.is_dataclass(hints[field.name]):
            found |= _walk(hints[field.name], path + ".")
        else:
            found[path] = dict(field.metadata)
    return found


def check_chip(path: str, generated: bool, where: str) -> None:
    """That an accelerator, ``generated`` or stated, has a leaf of its own at ``path``; else an InputError."""
    inner = path.removeprefix("system.accelerator.")
    if path.startswith(f"{CHIP}.") and not generated:
        raise InputError(
            where, inner.rstrip("."), "leaves of an accelerator that is not generated",
            "name a generated one as the system or accelerator, such as gpu",
        )  # fmt: skip
    if generated and inner != path and any(inner == name or inner.startswith(f"{name}.") for name in GENERATED):
        raise InputError(
            where, f"{inner} of a generated accelerator", "what it is generated from: chip.die_area, chip.stacks, …",
            "change the chip, or name an accelerator that is not generated",
        )  # fmt: skip


def optional_records(cls: type = Design, prefix: str = "") -> list[str]:
    """Full paths of the records that only some designs have (``system.accelerator.kernels.steps``)."""
    hints = get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            found += optional_records(hints[field.name], f"{prefix}{field.name}.")
        elif not field.metadata:
            found.append(f"{prefix}{field.name}")
    return found


@functools.cache
def _by_ending() -> dict[str, list[str]]:
    endings: dict[str, list[str]] = {}
    for path in known_leaves():
        for ending in path_endings(path):
            endings.setdefault(ending, []).append(path)
    return endings


def path_endings(path: str) -> list[str]:
    """Dotted endings that may mean a leaf; a chip's begin at ``chip`` or at its node, so that others stay unique."""
    parts = path.split(".")
    endings = [".".join(parts[start:]) for start in range(len(parts))]
    if not path.startswith(f"{CHIP}."):
        return endings
    return [ending for ending in endings if "chip." in ending or ending.startswith(("node.", "base_node."))]


def leaf_path(name: str, where: str = "design") -> str:
    """Full path of the leaf that ``name`` means; an unknown or ambiguous name is an InputError."""
    found = _by_ending().get(name, [])
    if name in known_leaves():
        return name
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(where, repr(name), " or ".join(found), "write enough of the path to make it unique")
    raise unknown_name(where, name, _by_ending(), "leaves of a design")


def leaf_value(path: str, value: Any, where: str = "design") -> float:
    """A leaf's value in SI from a number, a name of its enumeration, a boolean or a text with units."""
    meta = known_leaves()[path]
    enum: type[IntEnum] | None = meta.get("enum")
    if enum is not None:
        return float(_enum_value(enum, value, where))
    if isinstance(value, str):
        number = catalog.quantity(value, meta["units"], where)
    elif isinstance(value, bool | int | float):
        number = float(value)
    else:
        raise InputError(where, repr(value), f"a number or a text in {meta['units']}", "write a single value")
    return catalog.bounded(number, value, path.rpartition(".")[2], where)


def _enum_value(enum: type[IntEnum], value: Any, where: str) -> int:
    names = {e.name.replace("_", "-"): int(e) for e in enum}
    if isinstance(value, str):
        key = value.lower().replace("_", "-")
        if key in names:
            return names[key]
        raise unknown_name(where, value, names, f"names of {enum.__name__}")
    if not isinstance(value, str) and value in set(names.values()):
        return int(value)
    raise InputError(where, repr(value), ", ".join(names), f"use one of the names of {enum.__name__}")


def replace(design: Design, values: MappingABC[str, Scalar]) -> Design:
    """A copy of ``design`` with the leaves at the given full paths replaced; values may be traced."""
    if not values:
        return design
    heads: dict[str, dict[str, Scalar]] = {}
    for path, value in values.items():
        head, _, rest = path.partition(".")
        heads.setdefault(head, {})[rest] = value
    changed = {
        head: rest[""] if "" in rest else replace(getattr(design, head), rest) for head, rest in heads.items()
    }
    return dataclasses.replace(design, **changed)


def leaf(design: Design, path: str) -> Scalar:
    """The value at a full path."""
    return functools.reduce(getattr, path.split("."), design)


def design(
    workload: str,
    system: str,
    software: str | None = None,
    n_devices: int | None = None,
    where: str = "design",
    **settings: Any,
) -> Design:
    """One design from catalogue names and leaf values.

    Args:
        workload: catalogue name of the model.
        system: catalogue name of a cluster, or of an accelerator: then its default node and network are used.
        software: catalogue name of the training stack; by default the system's own.
        n_devices: devices used; by default ``tp cp pp dp``.
        where: how errors call the place these values come from.
        **settings: any leaf by its name or dotted ending (``tp=8``, ``recompute="full"``,
            ``**{"memory.bandwidth": "3.35 TB/s"}``).

    ``dp`` follows from ``n_devices`` when it is not given. Raises InputError for unknown names and bad values.
    """
    values = {}
    for name, value in settings.items():
        path = leaf_path(name, where)
        values[path] = leaf_value(path, value, f"{where}.{name}")
    mapping = PLAIN_MAPPING | {p.removeprefix("mapping."): v for p, v in values.items() if p.startswith("mapping.")}
    model_parallel = mapping["tp"] * mapping["cp"] * mapping["pp"]
    if "mapping.dp" not in values and n_devices is not None:
        if n_devices % model_parallel:
            raise InputError(
                f"{where}.n_devices", str(n_devices), f"multiples of tp x cp x pp = {model_parallel:g}",
                "change n_devices or one of the degrees",
            )  # fmt: skip
        mapping["dp"] = n_devices / model_parallel
    devices = float(n_devices) if n_devices is not None else model_parallel * mapping["dp"]
    base = Design(
        workload=catalog.workload(workload),
        system=dataclasses.replace(catalog.system(system), n_devices=devices),
        software=catalog.software(software or catalog.default_software(system)),
        mapping=Mapping(**{k: float(v) for k, v in mapping.items()}),
    )
    for path in values:
        check_chip(path, base.system.accelerator.chip is not None, where)
    return replace(base, {p: v for p, v in values.items() if not p.startswith("mapping.")})
