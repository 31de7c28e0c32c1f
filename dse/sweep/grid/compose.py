"""A specification composed into a grid: names and fixed values, axes as dimensions, parts of the mapping as a table.

Options of a mapping that no software stack of the sweep supports are removed from its axes and reported.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.designs import calibrated, catalog
from dse.designs.checks import check_load, check_routing, check_tiers
from dse.designs.leaves import MOST, is_whole, leaf, mesh_note, saturation_note
from dse.designs.records import (
    CAN,
    LOAD,
    MADE,
    N_DEVICES,
    PLAIN_EXPERTS,
    PLAIN_MAPPING,
    REQUEST_RATE,
    assumed,
    tokens_note,
)
from dse.errors import InputError
from dse.model.capabilities import LIMITED, lacking
from dse.model.divisibility import COPIES_PATH, EXPERT_SHAPE_PATHS, SHAPE_PATHS, Shape
from dse.spec.axes import Axis, Label
from dse.spec.space import NAMED
from dse.spec.sweep import SweepSpec
from dse.sweep.grid import mappings, structures
from dse.sweep.grid.degrees import ALL_DEGREES, OPTIONS, Parts
from dse.sweep.grid.grid import Grid, GridDimension
from dse.sweep.grid.names import Names
from dse.types import Capabilities, Design
from dse.types.paths import build as built
from dse.types.paths import leaves

_DOMAIN = "system.scale_up.domain"

#: Bandwidth of device memory, and the limit that the cores can use.
_BANDWIDTH, _FEED = "system.accelerator.memory.bandwidth", "system.accelerator.power.feed"

_MOST_SHAPES = 100_000
#: Fields that the mapping must divide and that may be 0.
_MAY_BE_NONE = ("shared_ffn", "n_predict", "redundant_experts", "uneven_layers")


def build(spec: SweepSpec) -> Grid:
    """The grid of a specification; InputError for faults of names, sizes and divisibility."""
    found = structures.separated(spec)
    if len(found) == 1:
        return _of_one_structure(*found[0])
    return structures.joined(spec, [_of_part(spec, *one) for one in found])


def _of_part(whole: SweepSpec, spec: SweepSpec, names: Names) -> Grid:
    """The grid of the designs of one structure; its InputErrors name those designs."""
    try:
        return _of_one_structure(spec, names)
    except InputError as error:
        where = f"{error.where} ({structures.named(whole, spec)})"
        raise InputError(where, error.got, error.allowed, error.fix) from None


def _of_one_structure(spec: SweepSpec, names: Names) -> Grid:
    names.check()
    offer = offered(_groups(spec), spec.fixed, _capabilities(names, spec), names.has_experts)
    given = {axis.key: axis for axis in (*spec.fixed.values(), *spec.axes) if not structures.is_none(axis)}
    groups = [(*group, *(one for axis in group for one in names.overlap_along(axis, given))) for group in offer.groups]
    stacked = [group for group in groups if _is_mapping(group)]
    orthogonal = [group for group in groups if not _is_mapping(group)]
    parts = Parts(
        axes=names.mapping_defaults(given)
        | {axis.key: axis for group in stacked for axis in group}
        | {path: axis for path, axis in spec.fixed.items() if path in ALL_DEGREES[1:] + OPTIONS},
        zips=tuple(group for group in stacked if len(group) > 1 and len(group[0].values) > 1),
        n_devices_given="mapping.dp" not in given or N_DEVICES in given,
        study=spec.study,
        has_experts=names.has_experts,
    )
    owned = {*given, *assumed(given)} | (set() if parts.n_devices_given else {N_DEVICES})
    dimensions = tuple(_dimension(group, names, owned) for group in orthogonal)
    moving = {axis.key for dimension in dimensions for axis in dimension.axes}  # includes stacks of swept machines
    base = _base(names, spec, parts, dimensions, assumed(given))
    parts = parts._replace(splits_hidden=_splits_hidden(base, dimensions))
    check_load(given[LOAD].values if LOAD in given else (), REQUEST_RATE in given, f"{spec.file}: load")
    _check_bills(names, spec, base, given)
    _check_routing(spec, base, dimensions)
    _check_tiers(spec, parts)
    orthogonal_paths = {path for dimension in dimensions for path in dimension.columns}
    settled = tuple(c for c in spec.constraints if set(c.names) <= {*ALL_DEGREES, *OPTIONS} - orthogonal_paths)
    shapes = tuple(_shapes(base, dimensions, spec))
    table = mappings.build(parts, shapes, settled, f"{spec.file}: axes")
    return Grid(
        spec=spec,
        base=base,
        fixed=(*(axis for key, axis in names.layers.items() if key not in {*given, *moving}), *spec.fixed.values()),
        dimensions=dimensions,
        table=table,
        mapping_axes=_mapping_axes(stacked, parts),
        constraints=tuple(c for c in spec.constraints if c not in settled),
        settled=settled,
        parts=parts,
        shapes=shapes,
        used=names.used,
        lacks=offer_note(offer, names.stacks),
        tokens=tokens_note(given) or names.format_note(),
        nodes=names.node_note(),
        kinds=names.price_note(),
        missing=_missing_note(table, shapes, N_DEVICES in given or not parts.n_devices_given),
        saturates="; ".join(filter(None, (_saturation(spec, base), _mesh(spec, base, names)))),
        trains=calibrated.without_engine(names.stacks) if spec.study.name == "serving" else "",
    )


def _missing_note(table: mappings.MappingTable, shapes: tuple[Shape, ...], said: bool) -> str:
    """Note on listed degrees that no mapping has, with reasons; ``said``: whether the sweep states ``n_devices``."""
    if not table.missing:
        return ""
    listed = "; ".join(f"{values} ({reason})" for values, reason in table.missing)
    devices = " or ".join(f"{count:,}" for count in sorted({shape.n_devices for shape in shapes}))
    hint = "" if said else f"; the sweep says no n_devices: {devices}, those of one node, are used"
    return f"in no mapping: {listed}{hint}"


def _saturation(spec: SweepSpec, base: Design) -> str:
    """Note on memory bandwidths above what the accelerator's cores can use; empty otherwise."""
    said = {axis.key: axis for axis in (*spec.fixed.values(), *spec.axes)}
    accelerator = base.system.accelerator
    if accelerator.chip is not None or {_FEED, "accelerator", "system"} & set(said) or _BANDWIDTH not in said:
        return ""
    return saturation_note(max(said[_BANDWIDTH].values), float(accelerator.power.feed))


def _mesh(spec: SweepSpec, base: Design, names: Names) -> str:
    """Note on full meshes of another size than built; empty otherwise."""
    said = {axis.key: axis for axis in (*spec.fixed.values(), *spec.axes)}
    if _DOMAIN not in said or {"accelerator", "system", "scale_up"} & set(said):
        return ""
    network = base.system.scale_up
    return mesh_note(float(network.mesh), float(network.bandwidth), names.base()[_DOMAIN], *said[_DOMAIN].values)


def _check_bills(names: Names, spec: SweepSpec, base: Design, given: Mapping[str, Axis]) -> None:
    """InputError for an objective or constraint on ``device_cost`` of accelerators of unknown dies: it would be 0."""
    read = {name for one in (*spec.constraints, *(o.expression for o in spec.objectives)) for name in one.names}
    asked = next((name for name in sorted(read) if name.startswith("device_cost")), None)
    if asked is None or base.system.accelerator.chip is not None or f"{MADE}.logic_area" in given:
        return
    axis = names.layers.get("accelerator", names.layers["system"])
    unknown = [str(slug) for slug in dict.fromkeys(axis.labels) if not catalog.made(str(slug))["logic_area"]]
    if unknown:
        allowed = "accelerators whose files have dies (made.node, physical.die_area)"
        fix = "leave these out, rank by device_price, or state system.accelerator.made.logic_area"
        raise InputError(f"{spec.file}: {asked}", f"{', '.join(unknown)}, without a stated bill", allowed, fix)


def _check_routing(spec: SweepSpec, base: Design, dimensions: tuple[GridDimension, ...]) -> None:
    """InputError for faults of the routing that all designs have; those of some designs are reasons of these."""
    columns = (column for dimension in dimensions for column in dimension.columns.items())
    moving = {path for path, values in columns if np.any(values != values[0])}
    where = {path: axis.where for path, axis in spec.fixed.items()}
    if base.workload.experts is not None:
        check_routing(base.workload.experts, where, f"{spec.file}: workload", moving)


def _check_tiers(spec: SweepSpec, parts: Parts) -> None:
    """InputError for a fixed share of offloaded data where no mapping offloads any."""
    offloaded = {path: max(parts.axis(path).values, default=0.0) for path in OPTIONS}
    for path, axis in spec.fixed.items():
        check_tiers(path, axis.values[0], offloaded, axis.where)


def _capabilities(names: Names, spec: SweepSpec) -> dict[str, float]:
    """Capability → its maximum over the stacks of a sweep, from their files or the sweep."""
    stated = {axis.key: axis.values for axis in (*spec.fixed.values(), *spec.axes)}
    stacks = [names.values(names.layers["software"], slug) for slug in names.stacks]
    return {
        field: max(stated.get(CAN + field, [stack.get(CAN + field, about["default"]) for stack in stacks]))
        for field, about in leaves(Capabilities).items()
    }


def _base(
    names: Names, spec: SweepSpec, parts: Parts, dimensions: tuple[GridDimension, ...], assumed: dict[str, float]
) -> Design:
    """The base design: values of names, defaults, fixed values; axes add the optional records of their leaves."""
    values = PLAIN_MAPPING | (PLAIN_EXPERTS if names.has_experts else {}) | names.base()
    values |= {**spec.study.plain, **assumed}
    values |= {path: axis.values[0] for path, axis in spec.fixed.items()}
    values |= {path: axis.values[0] for path, axis in parts.axes.items() if axis.values}
    brought = (column for dimension in dimensions for column in dimension.columns.items())
    values = {path: column[0] for path, column in brought} | values
    return built(Design, jax.tree.map(np.float32, values))


# --- axes -------------------------------------------------------------------------------------------------


def _groups(spec: SweepSpec) -> list[tuple[Axis, ...]]:
    """The axes in their order, those that move together as one group in the place of the first."""
    by_name = {axis.name: axis for axis in spec.axes}
    zipped = {name: group for group in spec.zips for name in group}
    groups = [tuple(by_name[n] for n in zipped.get(axis.name, (axis.name,))) for axis in spec.axes]
    groups = list(dict.fromkeys(groups))
    for group in groups:
        _check_group(group, spec.file)
    return groups


def _is_mapping(group: tuple[Axis, ...]) -> bool:
    """Whether a group is part of the stacked mapping dimension."""
    return all(axis.key in ALL_DEGREES + OPTIONS for axis in group)


def _check_group(group: tuple[Axis, ...], file: str) -> None:
    """InputError for a group with axes of the mapping and others, or with a position twice."""
    keys = {axis.key for axis in group}
    mixed = _is_mapping(group) and keys & set(ALL_DEGREES) and keys & set(OPTIONS)
    if mixed or (not _is_mapping(group) and keys & set(ALL_DEGREES[1:] + OPTIONS)):
        raise InputError(
            f"{file}: zip.groups",
            " with ".join(axis.name for axis in group),
            "degrees together, options together, or other axes (n_devices too) together",
            "take the parts of the mapping out of this group",
        )
    positions = Counter(zip(*(axis.labels if axis.key in NAMED else axis.values for axis in group), strict=True))
    for position, count in positions.items():
        if count > 1:
            raise InputError(group[0].where, f"{position[0]!r} twice", "each value once", "remove one of them")


def _dimension(group: tuple[Axis, ...], names: Names, owned: set[str]) -> GridDimension:
    """An orthogonal dimension; a system or accelerator adds its software stack unless one is given."""
    columns: dict[str, np.ndarray] = {}
    axes = list(group)
    for axis in group:
        if axis.rule:
            raise InputError(
                axis.where, repr(axis.rule), "a list or a range", f"{axis.name} divides nothing: list its values"
            )
        if axis.key not in NAMED:
            columns |= {} if structures.is_none(axis) else {axis.key: np.array(axis.values)}
            continue
        columns |= names.columns(axis, owned)
        own_software = names.layers["software"]
        if axis.key in ("system", "accelerator") and own_software.where == axis.where:
            columns |= names.columns(own_software, owned)
            axes.append(own_software)
    return GridDimension(tuple(axes), columns)


def _splits_hidden(base: Design, dimensions: tuple[GridDimension, ...]) -> bool:
    """Whether a stack of the sweep can split residuals along the hidden size where tp does not divide the sequence."""
    path = "software.splits_hidden"
    swept = [dimension.columns[path] for dimension in dimensions if path in dimension.columns]
    return any(np.any(column) for column in swept) or (not swept and bool(base.software.splits_hidden))


def _shapes(base: Design, dimensions: tuple[GridDimension, ...], spec: SweepSpec) -> list[Shape]:
    """Every distinct combination of the sizes that the mapping must divide."""
    file, unread = spec.file, spec.study.unread
    not_held = [path for path in EXPERT_SHAPE_PATHS if unread and path.startswith(unread)]
    experts, serving = base.workload.experts, base.mapping.serving
    left_out = (*(EXPERT_SHAPE_PATHS if experts is None else ()), *(() if experts and serving else (COPIES_PATH,)))
    fields = dict(zip(Shape._fields, SHAPE_PATHS, strict=True))
    plain = {path: float(leaf(base, path) or 0.0) for path in SHAPE_PATHS if path not in left_out}
    choices = []
    for dimension in dimensions:
        paths = [path for path in SHAPE_PATHS if path in dimension.columns]
        if paths:
            rows = np.unique(np.stack([dimension.columns[path] for path in paths], axis=1), axis=0)
            choices.append([dict(zip(paths, row, strict=True)) for row in rows])
    count = math.prod(map(len, choices))
    if count > _MOST_SHAPES:
        raise InputError(
            f"{file}: axes",
            f"{count:,} combinations of what the mapping must divide",
            f"at most {_MOST_SHAPES:,}",
            "shorten the axes",
        )
    shapes = []
    for combination in itertools.product(*choices):
        values = functools.reduce(operator.or_, combination, plain)
        values |= {path: 0.0 for path in not_held if path in values}
        for path, value in values.items():
            if not is_whole(value, minimum=0 if path.endswith(_MAY_BE_NONE) else 1):
                name = path.rpartition(".")[2]
                raise InputError(f"{file}: {name}", f"{value:g}", f"a whole number, 1 to {MOST:,}", f"change {name}")
        shapes.append(Shape(**{field: int(values[path]) for field, path in fields.items() if path in values}))
    return shapes


def _mapping_axes(stacked: list[tuple[Axis, ...]], parts: Parts) -> tuple[Axis, ...]:
    """Parts of the mapping that label results: degrees, degrees derived from them, options."""
    swept = [axis for group in stacked for axis in group]
    degrees = [axis for axis in swept if axis.key in ALL_DEGREES]
    if "mapping.dp" not in parts.axes:
        degrees.append(Axis(name="dp", key="mapping.dp", where=""))
    if not parts.n_devices_given:
        degrees.append(Axis(name="n_devices", key=N_DEVICES, where=""))
    return (*degrees, *(axis for axis in swept if axis.key in OPTIONS))


_EVERYTHING = Capabilities()
_PLAIN = {path.removeprefix("mapping."): value for path, value in PLAIN_MAPPING.items()}


class Offer(NamedTuple):
    """Axes of a mapping limited to supported values, with the removed ones."""

    groups: list[tuple[Axis, ...]]  #: the axes by group, without values that no stack supports
    left_out: tuple[str, ...] = ()  #: axis and removed values
    asked: tuple[str, ...] = ()  #: axis and unsupported values that stay because no others are listed


def offered(
    groups: Sequence[tuple[Axis, ...]], fixed: Mapping[str, Axis], can: Mapping[str, float], experts: bool = False
) -> Offer:
    """The axes without values that no stack supports; an axis without supported values is not changed.

    Args:
        groups: axes that move together; those outside the mapping are not changed.
        fixed: leaves that the sweep fixes, by path.
        can: capability (a field of :class:`dse.types.Capabilities`) → its maximum over the stacks.
        experts: whether the model has experts.
    """
    kept, left_out = [], []
    asked = [_listed(axis, lacks) for axis in fixed.values() if (lacks := _lacks(axis, can, experts)).any()]
    for group in groups:
        lacks = np.any([_lacks(axis, can, experts) for axis in group], axis=0)
        lacking_here = [_listed(axis, own) for axis in group if (own := _lacks(axis, can, experts)).any()]
        if not lacks.all() or not lacks.size:
            left_out += lacking_here
            group = tuple(_without(axis, lacks, can) for axis in group)
        else:
            asked += lacking_here
        kept.append(group)
        left_out += [f"{axis.name} above {axis.most:g}" for axis in group if math.isfinite(axis.most)]
    return Offer(kept, tuple(left_out), tuple(asked))


def _lacks(axis: Axis, can: Mapping[str, float], experts: bool) -> np.ndarray:
    """[position] whether no stack supports the value of a part of the mapping."""
    prefix, _, name = axis.key.rpartition(".")
    values: dict[str, Any] = {**_PLAIN, "experts": experts or None, name: np.array(axis.values)}
    if prefix != "mapping" or not axis.values:
        return np.zeros(len(axis.values), bool)
    return np.any([np.broadcast_to(lacks, len(axis.values)) for lacks in lacking(values, can).values()], axis=0)


def _without(axis: Axis, lacks: np.ndarray, can: Mapping[str, float]) -> Axis:
    """An axis without these positions; a rule gets an upper limit."""
    name = axis.key.rpartition(".")[2]
    if axis.rule:
        limited = name in LIMITED and can[name] < getattr(_EVERYTHING, name)
        return dataclasses.replace(axis, most=can[name]) if limited else axis
    if not lacks.any():
        return axis
    kept = np.flatnonzero(~lacks)
    values, labels = tuple(axis.values[i] for i in kept), tuple(axis.labels[i] for i in kept)
    return dataclasses.replace(axis, values=values, labels=labels)


def _listed(axis: Axis, lacks: np.ndarray) -> str:
    """An axis and the labels of its unsupported values."""
    return " ".join([axis.name, *(_text(axis.labels[position]) for position in np.flatnonzero(lacks))])


def _text(label: Label) -> str:
    if isinstance(label, bool):
        return "yes" if label else "no"
    return f"{label:g}" if isinstance(label, float) else str(label)


def offer_note(offer: Offer, stacks: Sequence[str]) -> str:
    """Note on unsupported options of a sweep and the flag that allows them; empty where all are supported."""
    verb = f"{', '.join(dict.fromkeys(stacks))} {'lacks' if len(set(stacks)) == 1 else 'lack'}"
    parts = []
    if offer.left_out:
        parts.append(f"{verb} {', '.join(offer.left_out)}: left out")
    if offer.asked:
        parts.append(f"{verb} {', '.join(offer.asked)}, which the sweep asks for: such designs cannot run")
    return f"{'; '.join(parts)} (--any-option offers everything)" if parts else ""
