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

import numpy as np

from dse.designs import calibrated, catalog, is_integer, leaf
from dse.designs.checks import check_load, check_routing, check_tiers
from dse.designs.leaves import MAX_COUNT, mesh_note, saturation_note
from dse.designs.records import (
    CAN,
    LOAD,
    MANUFACTURE,
    N_DEVICES,
    PLAIN_EXPERTS,
    PLAIN_MAPPING,
    REQUEST_RATE,
    implied_values,
    tokens_note,
)
from dse.errors import InputError
from dse.model import Shape, missing_capabilities
from dse.model.capabilities import LIMITED
from dse.model.divisibility import COPIES_PATH, EXPERT_SHAPE_PATHS, SHAPE_PATHS
from dse.spec import Axis, SweepSpec
from dse.spec.axes import Label
from dse.spec.space import CATALOGUE_KEYS
from dse.sweep.grid import mappings, structures
from dse.sweep.grid.degrees import ALL_DEGREES, OPTIONS, MappingSpec
from dse.sweep.grid.grid import Grid, GridDimension
from dse.sweep.grid.names import Names
from dse.types import Capabilities, Design
from dse.types.paths import build as built, leaves
from dse.types.trees import tree_map

_DOMAIN = "system.scale_up.domain"

#: Bandwidth of device memory, and the limit that the cores can use.
_BANDWIDTH, _FEED = "system.accelerator.memory.bandwidth", "system.accelerator.power.feed"

_MOST_SHAPES = 100_000
#: Fields that the mapping must divide and that may be 0.
_MAY_BE_NONE = ("shared_ffn", "n_predict", "uneven_layers")


def build(spec: SweepSpec) -> Grid:
    """Return the grid of a specification; InputError for faults of names, sizes and divisibility."""
    spec_parts = structures.split_by_structure(spec)
    if len(spec_parts) == 1:
        return _grid_of_structure(*spec_parts[0])
    return structures.join_grids(spec, [_grid_of_part(spec, *part) for part in spec_parts])


def _grid_of_part(sweep_spec: SweepSpec, spec: SweepSpec, names: Names) -> Grid:
    """Return the grid of the designs of one structure; its InputErrors name those designs."""
    try:
        return _grid_of_structure(spec, names)
    except InputError as error:
        where = f"{error.where} ({structures.part_name(sweep_spec, spec)})"
        raise InputError(where, error.got, error.allowed, error.fix) from None


def _grid_of_structure(spec: SweepSpec, names: Names) -> Grid:
    """Return the grid of a specification whose designs have one structure; InputError for all of its faults."""
    names.check()
    offer = supported_axes(_groups(spec), spec.fixed, _capabilities(names, spec), names.has_experts)
    axis_by_path = {axis.key: axis for axis in (*spec.fixed.values(), *spec.axes) if not structures.is_none(axis)}
    groups = [
        (*group, *(overlap_axis for axis in group for overlap_axis in names.overlap_along(axis, axis_by_path)))
        for group in offer.groups
    ]
    mapping_groups = [group for group in groups if _is_mapping(group)]
    dimension_groups = [group for group in groups if not _is_mapping(group)]
    parts = MappingSpec(
        axes=names.mapping_defaults(axis_by_path)
        | {axis.key: axis for group in mapping_groups for axis in group}
        | {path: axis for path, axis in spec.fixed.items() if path in ALL_DEGREES[1:] + OPTIONS},
        zips=tuple(group for group in mapping_groups if len(group) > 1 and len(group[0].values) > 1),
        has_n_devices="mapping.dp" not in axis_by_path or N_DEVICES in axis_by_path,
        study=spec.study,
        has_experts=names.has_experts,
    )
    set_paths = {*axis_by_path, *implied_values(axis_by_path)} | (set() if parts.has_n_devices else {N_DEVICES})
    dimensions = tuple(_dimension(group, names, set_paths) for group in dimension_groups)
    varying = {axis.key for dimension in dimensions for axis in dimension.axes}  # includes stacks of swept machines
    base = _base(names, spec, parts, dimensions, implied_values(axis_by_path))
    parts = parts._replace(splits_hidden=_splits_hidden(base, dimensions))
    check_load(
        axis_by_path[LOAD].values if LOAD in axis_by_path else (), REQUEST_RATE in axis_by_path, f"{spec.file}: load"
    )
    _check_bills(names, spec, base, axis_by_path)
    _check_routing(spec, base, dimensions)
    _check_tiers(spec, parts)
    orthogonal_paths = {path for dimension in dimensions for path in dimension.columns}
    settled = tuple(c for c in spec.constraints if set(c.names) <= {*ALL_DEGREES, *OPTIONS} - orthogonal_paths)
    shapes = tuple(_shapes(base, dimensions, spec))
    table = mappings.build(parts, shapes, settled, f"{spec.file}: axes")
    return Grid(
        spec=spec,
        base=base,
        fixed=(
            *(axis for key, axis in names.layers.items() if key not in {*axis_by_path, *varying}),
            *spec.fixed.values(),
        ),
        dimensions=dimensions,
        table=table,
        mapping_axes=_mapping_axes(mapping_groups, parts),
        constraints=tuple(c for c in spec.constraints if c not in settled),
        settled=settled,
        parts=parts,
        shapes=shapes,
        catalog_entries=names.catalog_entries,
        notes={
            "nodes": names.node_note(),
            "kinds": names.price_note(),
            "saturates": "; ".join(filter(None, (_saturation(axis_by_path, base), _mesh(axis_by_path, base, names)))),
            "missing": _missing_note(table, shapes, N_DEVICES in axis_by_path or not parts.has_n_devices),
            "trains": calibrated.training_stack_note(names.stacks) if spec.study.name == "serving" else "",
            "unsupported": offer_note(offer, names.stacks),
            "tokens": tokens_note(axis_by_path) or names.format_note(),
        },
    )


def _missing_note(table: mappings.MappingTable, shapes: tuple[Shape, ...], states_devices: bool) -> str:
    """Return the note on listed degrees that no mapping has, with reasons; empty if there are none.

    ``states_devices``: True if the sweep or its degrees state ``n_devices``.
    """
    if not table.missing:
        return ""
    texts = "; ".join(f"{values} ({reason})" for values, reason in table.missing)
    devices = " or ".join(f"{count:,}" for count in sorted({shape.n_devices for shape in shapes}))
    hint = "" if states_devices else f"; the sweep says no n_devices: {devices}, those of one node, are used"
    return f"in no mapping: {texts}{hint}"


def _saturation(axis_by_path: Mapping[str, Axis], base: Design) -> str:
    """Return the note on memory bandwidths above what the accelerator's cores can use; empty otherwise."""
    accelerator, decided_by = base.system.accelerator, {_FEED, "accelerator", "system"}
    if accelerator.chip is not None or decided_by & axis_by_path.keys() or _BANDWIDTH not in axis_by_path:
        return ""
    return saturation_note(max(axis_by_path[_BANDWIDTH].values), float(accelerator.power.feed))


def _mesh(axis_by_path: Mapping[str, Axis], base: Design, names: Names) -> str:
    """Return the note on full meshes of another size than built; empty otherwise."""
    if _DOMAIN not in axis_by_path or {"accelerator", "system", "scale_up"} & axis_by_path.keys():
        return ""
    network = base.system.scale_up
    return mesh_note(
        float(network.mesh), float(network.bandwidth), names.base()[_DOMAIN], *axis_by_path[_DOMAIN].values
    )


def _check_bills(names: Names, spec: SweepSpec, base: Design, axis_by_path: Mapping[str, Axis]) -> None:
    """Raise InputError for an objective or constraint on ``device_cost`` if dies are not known: it would be 0."""
    read_names = {
        name
        for expression in (*spec.constraints, *(o.expression for o in spec.objectives))
        for name in expression.names
    }
    cost_name = next((name for name in sorted(read_names) if name.startswith("device_cost")), None)
    if cost_name is None or base.system.accelerator.chip is not None or f"{MANUFACTURE}.logic_area" in axis_by_path:
        return
    axis = names.layers.get("accelerator", names.layers["system"])
    unknown = [str(slug) for slug in dict.fromkeys(axis.labels) if not catalog.manufacture(str(slug))["logic_area"]]
    if unknown:
        allowed = "accelerators whose files have dies (made.node, physical.die_area)"
        fix = "leave these out, rank by device_price, or state system.accelerator.made.logic_area"
        raise InputError(f"{spec.file}: {cost_name}", f"{', '.join(unknown)}, without a stated bill", allowed, fix)


def _check_routing(spec: SweepSpec, base: Design, dimensions: tuple[GridDimension, ...]) -> None:
    """Raise InputError for faults of the routing that all designs have; those of some designs are reasons of these."""
    columns = (column for dimension in dimensions for column in dimension.columns.items())
    varying = {path for path, values in columns if np.any(values != values[0])}
    where_by_path = {path: axis.where for path, axis in spec.fixed.items()}
    if base.workload.experts is not None:
        check_routing(base.workload.experts, where_by_path, f"{spec.file}: workload", varying)


def _check_tiers(spec: SweepSpec, parts: MappingSpec) -> None:
    """Raise InputError for a fixed share of offloaded data where no mapping offloads any."""
    offloaded = {path: max(parts.axis(path).values, default=0.0) for path in OPTIONS}
    for path, axis in spec.fixed.items():
        check_tiers(path, axis.values[0], offloaded, axis.where)


def _capabilities(names: Names, spec: SweepSpec) -> dict[str, float]:
    """Return capability (field of :class:`dse.types.Capabilities`) → its maximum over the stacks of a sweep."""
    values_by_path = {axis.key: axis.values for axis in (*spec.fixed.values(), *spec.axes)}
    stacks = [names.values(names.layers["software"], slug) for slug in names.stacks]
    return {
        field: max(values_by_path.get(CAN + field, [stack.get(CAN + field, about["default"]) for stack in stacks]))
        for field, about in leaves(Capabilities).items()
    }


def _base(
    names: Names, spec: SweepSpec, parts: MappingSpec, dimensions: tuple[GridDimension, ...], assumed: dict[str, float]
) -> Design:
    """Return the base design: values of names, defaults, fixed values, and the first of each axis."""
    values = PLAIN_MAPPING | (PLAIN_EXPERTS if names.has_experts else {}) | names.base()
    values |= {**spec.study.neutral_values, **assumed}
    values |= {path: axis.values[0] for path, axis in spec.fixed.items()}
    values |= {path: axis.values[0] for path, axis in parts.axes.items() if axis.values}
    brought = (column for dimension in dimensions for column in dimension.columns.items())
    values = {path: column[0] for path, column in brought} | values
    return built(Design, tree_map(np.float32, values))


# --- axes -------------------------------------------------------------------------------------------------


def _groups(spec: SweepSpec) -> list[tuple[Axis, ...]]:
    """Return the axes in their order, those that move together as one group in the place of the first.

    Raises InputError for a group of axes that cannot move together.
    """
    by_name = {axis.name: axis for axis in spec.axes}
    zipped = {name: group for group in spec.zips for name in group}
    groups = [tuple(by_name[n] for n in zipped.get(axis.name, (axis.name,))) for axis in spec.axes]
    groups = list(dict.fromkeys(groups))
    for group in groups:
        _check_group(group, spec.file)
    return groups


def _is_mapping(group: tuple[Axis, ...]) -> bool:
    """Return True if all axes of a group are parts of the mapping, the stacked dimension."""
    return all(axis.key in ALL_DEGREES + OPTIONS for axis in group)


def _check_group(group: tuple[Axis, ...], file: str) -> None:
    """Raise InputError for a group with axes of the mapping and others, or with a position twice."""
    keys = {axis.key for axis in group}
    mixed = _is_mapping(group) and keys & set(ALL_DEGREES) and keys & set(OPTIONS)
    if mixed or (not _is_mapping(group) and keys & set(ALL_DEGREES[1:] + OPTIONS)):
        raise InputError(
            f"{file}: zip.groups",
            " with ".join(axis.name for axis in group),
            "degrees together, options together, or other axes (n_devices too) together",
            "take the parts of the mapping out of this group",
        )
    positions = Counter(
        zip(*(axis.labels if axis.key in CATALOGUE_KEYS else axis.values for axis in group), strict=True)
    )
    for position, count in positions.items():
        if count > 1:
            raise InputError(group[0].where, f"{position[0]!r} twice", "each value once", "remove one of them")


def _dimension(group: tuple[Axis, ...], names: Names, owned: set[str]) -> GridDimension:
    """Return an orthogonal dimension; a system or accelerator adds its software stack unless one is given."""
    columns: dict[str, np.ndarray] = {}
    axes = list(group)
    for axis in group:
        if axis.rule:
            raise InputError(
                axis.where, repr(axis.rule), "a list or a range", f"{axis.name} divides nothing: list its values"
            )
        if axis.key not in CATALOGUE_KEYS:
            columns |= {} if structures.is_none(axis) else {axis.key: np.array(axis.values)}
            continue
        columns |= names.columns(axis, owned)
        software_axis = names.layers["software"]
        if axis.key in ("system", "accelerator") and software_axis.where == axis.where:
            columns |= names.columns(software_axis, owned)
            axes.append(software_axis)
    return GridDimension(tuple(axes), columns)


def _splits_hidden(base: Design, dimensions: tuple[GridDimension, ...]) -> bool:
    """Return True if a stack of the sweep can split residuals by hidden size where tp does not divide the sequence."""
    path = "software.splits_hidden"
    swept = [dimension.columns[path] for dimension in dimensions if path in dimension.columns]
    return any(np.any(column) for column in swept) or (not swept and bool(base.software.splits_hidden))


def _shapes(base: Design, dimensions: tuple[GridDimension, ...], spec: SweepSpec) -> list[Shape]:
    """Return every distinct combination of the sizes that the mapping must divide.

    Raises InputError for sizes that are no whole numbers, and for more than 100,000 combinations.
    """
    file, unread_prefix = spec.file, spec.study.ignored_leaves
    unread_paths = [path for path in EXPERT_SHAPE_PATHS if unread_prefix and path.startswith(unread_prefix)]
    experts, serving = base.workload.experts, base.mapping.serving
    absent_paths = (*(EXPERT_SHAPE_PATHS if experts is None else ()), *(() if experts and serving else (COPIES_PATH,)))
    fields = dict(zip(Shape._fields, SHAPE_PATHS, strict=True))
    base_values = {path: float(leaf(base, path) or 0.0) for path in SHAPE_PATHS if path not in absent_paths}
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
        values = functools.reduce(operator.or_, combination, base_values)
        values |= {path: 0.0 for path in unread_paths if path in values}
        for path, value in values.items():
            least = -1 if path == COPIES_PATH else 0 if path.endswith(_MAY_BE_NONE) else 1  # copies that are chosen: -1
            if not is_integer(value, minimum=least):
                name = path.rpartition(".")[2]
                raise InputError(
                    f"{file}: {name}", f"{value:g}", f"a whole number, 1 to {MAX_COUNT:,}", f"change {name}"
                )
        shapes.append(Shape(**{field: int(values[path]) for field, path in fields.items() if path in values}))
    return shapes


def _mapping_axes(mapping_groups: list[tuple[Axis, ...]], parts: MappingSpec) -> tuple[Axis, ...]:
    """Return the parts of the mapping that label results: degrees, degrees derived from them, options."""
    swept = [axis for group in mapping_groups for axis in group]
    degrees = [axis for axis in swept if axis.key in ALL_DEGREES]
    if "mapping.dp" not in parts.axes:
        degrees.append(Axis(name="dp", key="mapping.dp", where=""))
    if not parts.has_n_devices:
        degrees.append(Axis(name="n_devices", key=N_DEVICES, where=""))
    return (*degrees, *(axis for axis in swept if axis.key in OPTIONS))


_ALL_CAPABILITIES = Capabilities()
_PLAIN = {path.removeprefix("mapping."): value for path, value in PLAIN_MAPPING.items()}


class Offer(NamedTuple):
    """Axes of a mapping limited to supported values, with the removed ones."""

    groups: list[tuple[Axis, ...]]  #: the axes by group, without values that no stack supports
    left_out: tuple[str, ...] = ()  #: axis and removed values
    requested: tuple[str, ...] = ()  #: axis and unsupported values that stay because no others are listed


def supported_axes(
    groups: Sequence[tuple[Axis, ...]], fixed: Mapping[str, Axis], can: Mapping[str, float], experts: bool = False
) -> Offer:
    """Return groups of axes without values that no stack supports, and the removed values as text.

    A group all of whose positions are unsupported is not changed.

    Args:
        groups: axes that move together; those outside the mapping are not changed.
        fixed: leaves that the sweep fixes, by path.
        can: capability (a field of :class:`dse.types.Capabilities`) → its maximum over the stacks.
        experts: whether the model has experts.
    """
    supported, left_out = [], []
    requested = [
        _unsupported_text(axis, is_unsupported)
        for axis in fixed.values()
        if (is_unsupported := _is_unsupported(axis, can, experts)).any()
    ]
    for group in groups:
        masks = [_is_unsupported(axis, can, experts) for axis in group]
        is_unsupported = np.any(masks, axis=0)
        unsupported_texts = [
            _unsupported_text(axis, mask) for axis, mask in zip(group, masks, strict=True) if mask.any()
        ]
        if not is_unsupported.all() or not is_unsupported.size:
            left_out += unsupported_texts
            group = tuple(_drop_unsupported(axis, is_unsupported, can) for axis in group)
        else:
            requested += unsupported_texts
        supported.append(group)
        left_out += [f"{axis.name} above {axis.most:g}" for axis in group if math.isfinite(axis.most)]
    return Offer(supported, tuple(left_out), tuple(requested))


def _is_unsupported(axis: Axis, can: Mapping[str, float], experts: bool) -> np.ndarray:
    """Return [position] True where no stack supports the value of a part of the mapping; False for other axes."""
    prefix, _, name = axis.key.rpartition(".")
    values: dict[str, Any] = {**_PLAIN, "experts": experts or None, name: np.array(axis.values)}
    if prefix != "mapping" or not axis.values:
        return np.zeros(len(axis.values), bool)
    missing = missing_capabilities(values, can).values()
    return np.any([np.broadcast_to(is_missing, len(axis.values)) for is_missing in missing], axis=0)


def _drop_unsupported(axis: Axis, is_unsupported: np.ndarray, can: Mapping[str, float]) -> Axis:
    """Return an axis without these positions; one with a rule gets the stacks' maximum as upper limit."""
    name = axis.key.rpartition(".")[2]
    if axis.rule:
        limited = name in LIMITED and can[name] < getattr(_ALL_CAPABILITIES, name)
        return dataclasses.replace(axis, most=can[name]) if limited else axis
    return structures.take(axis, np.flatnonzero(~is_unsupported)) if is_unsupported.any() else axis


def _unsupported_text(axis: Axis, is_unsupported: np.ndarray) -> str:
    """Return the text of an axis: its name, and the labels of its unsupported values."""
    return " ".join([axis.name, *(_label_text(axis.labels[index]) for index in np.flatnonzero(is_unsupported))])


def _label_text(label: Label) -> str:
    """Return a label as text: yes or no, a number to six digits, or a name."""
    if isinstance(label, bool):
        return "yes" if label else "no"
    return f"{label:g}" if isinstance(label, float) else str(label)


def offer_note(offer: Offer, stacks: Sequence[str]) -> str:
    """Return the note on unsupported options of a sweep with the flag that allows them; empty if all are supported."""
    verb = f"{', '.join(dict.fromkeys(stacks))} {'lacks' if len(set(stacks)) == 1 else 'lack'}"
    parts = []
    if offer.left_out:
        parts.append(f"{verb} {', '.join(offer.left_out)}: left out")
    if offer.requested:
        parts.append(f"{verb} {', '.join(offer.requested)}, which the sweep asks for: such designs cannot run")
    return f"{'; '.join(parts)} (--any-option offers everything)" if parts else ""
