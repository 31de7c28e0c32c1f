"""A specification composed into a grid: names to records, axes to dimensions, parts to the mapping table."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections import Counter
from typing import Any, get_type_hints

import jax
import numpy as np

from dse import catalog
from dse.design import CHIP, PLAIN_MAPPING, check_chip, known_leaves, leaf, leaves, optional_records, replace
from dse.errors import InputError
from dse.spec.axes import Axis
from dse.spec.sweep import NAMED, SweepSpec
from dse.sweep.grid import mappings
from dse.sweep.grid.degrees import DEGREES, N_DEVICES, OPTIONS, SHAPE_PATHS, Parts, Shape
from dse.sweep.grid.grid import Dimension, Grid
from dse.types import Chip, Design

_MOST_SHAPES = 100_000


def build(spec: SweepSpec) -> Grid:
    """The grid of a specification; names, sizes and divisibility are checked here."""
    layers = _layers(spec)
    _check_chip(layers, spec)
    groups = _groups(spec)
    stacked = [group for group in groups if _is_mapping(group)]
    orthogonal = [group for group in groups if not _is_mapping(group)]
    given = {axis.key: axis for axis in (*spec.fixed.values(), *spec.axes)}
    parts = Parts(
        axes={axis.key: axis for group in stacked for axis in group}
        | {path: axis for path, axis in spec.fixed.items() if path in DEGREES[1:] + OPTIONS},
        zips=tuple(group for group in stacked if len(group) > 1),
        n_devices_given="mapping.dp" not in given or N_DEVICES in given,
        study=spec.study,
    )
    owned = set(given) | (set() if parts.n_devices_given else {N_DEVICES})
    dimensions = tuple(_dimension(group, layers, owned) for group in orthogonal)
    base = _base(layers, spec, parts)
    orthogonal_paths = {path for dimension in dimensions for path in dimension.columns}
    settled = tuple(c for c in spec.constraints if set(c.names) <= {*DEGREES, *OPTIONS} - orthogonal_paths)
    shapes = tuple(_shapes(base, dimensions, spec.file))
    return Grid(
        spec=spec,
        base=base,
        fixed=(*(axis for key, axis in layers.items() if key not in given), *spec.fixed.values()),
        dimensions=dimensions,
        table=mappings.build(parts, shapes, settled, f"{spec.file}: axes"),
        mapping_axes=_mapping_axes(stacked, parts),
        constraints=tuple(c for c in spec.constraints if c not in settled),
        settled=settled,
        parts=parts,
        shapes=shapes,
        used=tuple((NAMED[key][0], slug) for key, axis in layers.items() for slug in axis.labels if slug != "none"),
    )


# --- catalogue names --------------------------------------------------------------------------------------


def _layers(spec: SweepSpec) -> dict[str, Axis]:
    """The named records of a design, swept or fixed, later ones laid over earlier ones."""
    named = spec.names | {axis.key: axis for axis in spec.axes if axis.key in NAMED}
    for key in ("workload", "system"):
        if key not in named:
            raise InputError(
                f"{spec.file}: {key}.name", "nothing", f"a {key} of the catalogue", f"see: dse catalog list {key}"
            )
    if "software" not in named:
        system = named["system"]
        stacks = tuple(catalog.default_software(str(slug), system.where) for slug in system.labels)
        named["software"] = dataclasses.replace(system, name="software", key="software", labels=stacks)
    order = ("workload", "system", "accelerator", "node", "memory", "scale_up", "scale_out", "software")
    return {key: named[key] for key in order if key in named}


def _device(layers: dict[str, Axis]) -> Axis:
    """The layer that says which accelerator it is."""
    return layers.get("accelerator", layers["system"])


def _has_chip(axis: Axis, slug: str) -> bool:
    """Whether a system or an accelerator is generated from a chip."""
    record = getattr(catalog, axis.key)(slug, axis.where)
    return (record.accelerator if axis.key == "system" else record).chip is not None


def _check_chip(layers: dict[str, Axis], spec: SweepSpec) -> None:
    """Accelerators of an axis are all generated or none is, and what is said of them is theirs to say."""
    device = _device(layers)
    generated = {str(slug): _has_chip(device, str(slug)) for slug in device.labels}
    if len(set(generated.values())) > 1:
        which = ", ".join(slug for slug, yes in generated.items() if yes)
        raise InputError(
            device.where, f"accelerators of which only some are generated ({which})", "all of them or none",
            "sweep the others alone",
        )  # fmt: skip
    made = all(generated.values())
    for key in ("node", "memory"):
        if key in layers:
            check_chip(f"{NAMED[key][1]}.", made, layers[key].where)
    for axis in (*spec.fixed.values(), *spec.axes):
        check_chip(axis.key, made, axis.where)


@functools.cache
def _record_leaves(key: str, slug: str, where: str, chip: bool = True) -> dict[str, float]:
    """Full path → value of every leaf that a catalogue name sets; without ``chip`` those of a chip are left out."""
    kind, prefix = NAMED[key]
    record = getattr(catalog, kind)(slug, where)
    known = known_leaves() if key in ("node", "memory") else leaves()
    if key in ("system", "accelerator"):
        accelerator = record.accelerator if key == "system" else record
        known = known_leaves() if chip and accelerator.chip is not None else leaves()
    paths = [path for path in known if path.startswith(f"{prefix}.")]
    if key == "scale_up":  # how many devices a node joins is the system's, whatever the links
        paths.remove("system.scale_up.domain")
    values = {path: leaf(record, path.removeprefix(f"{prefix}.")) for path in paths}
    return {path: value for path, value in values.items() if value is not None}  # absent until it is set


def _layer_leaves(layers: dict[str, Axis], key: str, slug: Any) -> dict[str, float]:
    """What a name of a layer sets; the chip is that of the accelerator which is named last."""
    return _record_leaves(key, str(slug), layers[key].where, _device(layers).key == key)


def _columns(axis: Axis, layers: dict[str, Axis], owned: set[str]) -> dict[str, np.ndarray]:
    """Leaf path → values along an axis of catalogue names, less what later layers or leaves set."""
    later = list(layers)[list(layers).index(axis.key) + 1 :]
    laid_over = [_layer_leaves(layers, key, layers[key].labels[0]) for key in later]
    over = owned.union(*laid_over)
    records = [_layer_leaves(layers, axis.key, slug) for slug in axis.labels]
    return {path: np.array([record[path] for record in records]) for path in records[0] if path not in over}


def _base(layers: dict[str, Axis], spec: SweepSpec, parts: Parts) -> Design:
    """The design that every axis starts from: names first, then the leaves that the specification fixes."""
    values = {f"mapping.{name}": float(value) for name, value in PLAIN_MAPPING.items()}
    for key, axis in layers.items():
        values |= _layer_leaves(layers, key, axis.labels[0])
    values |= {path: axis.values[0] for path, axis in spec.fixed.items()}
    values |= {path: axis.values[0] for path, axis in parts.axes.items() if axis.values}
    skeleton = _skeleton(Design)
    if f"{CHIP}.die_area" in values:
        skeleton = replace(skeleton, {CHIP: _skeleton(Chip, f"{CHIP}.")})
    base = jax.tree.map(lambda path: np.float32(values[path]) if path in values else None, skeleton)
    return replace(base, _optional_records(layers))


def _optional_records(layers: dict[str, Axis]) -> dict[str, Any]:
    """Full path → the optional records that the named ones bring; names of one axis must agree in them."""
    found: dict[str, Any] = {}
    for key, axis in layers.items():
        kind, prefix = NAMED[key]
        records = [getattr(catalog, kind)(str(slug), axis.where) for slug in axis.labels]
        for path in optional_records():
            if not path.startswith(f"{prefix}.") or path == CHIP:
                continue
            brought = [leaf(record, path.removeprefix(f"{prefix}.")) for record in records]
            if any(other != brought[0] for other in brought):
                raise InputError(
                    axis.where, f"{', '.join(map(str, axis.labels))}: unlike in {path.rpartition('.')[2]}",
                    "names that agree in it", "sweep each alone",
                )  # fmt: skip
            found[path] = jax.tree.map(np.float32, brought[0])
    return found


def _skeleton(cls: type, prefix: str = "") -> Any:
    """A record of class ``cls`` whose leaves are their own full paths."""
    hints = get_type_hints(cls)
    return cls(**{
        field.name: _skeleton(hints[field.name], f"{prefix}{field.name}.")
        if dataclasses.is_dataclass(hints[field.name])
        else f"{prefix}{field.name}"
        for field in dataclasses.fields(cls)
        if field.metadata or dataclasses.is_dataclass(hints[field.name])  # optional records stay absent
    })  # fmt: skip


# --- axes -------------------------------------------------------------------------------------------------


def _groups(spec: SweepSpec) -> list[tuple[Axis, ...]]:
    """The axes in their order, those that move together side by side in the first one's place."""
    by_name = {axis.name: axis for axis in spec.axes}
    zipped = {name: group for group in spec.zips for name in group}
    groups = [tuple(by_name[n] for n in zipped.get(axis.name, (axis.name,))) for axis in spec.axes]
    groups = list(dict.fromkeys(groups))
    for group in groups:
        _check_group(group, spec.file)
    return groups


def _is_mapping(group: tuple[Axis, ...]) -> bool:
    """Whether a group is part of the stacked mapping dimension."""
    return all(axis.key in DEGREES + OPTIONS for axis in group)


def _check_group(group: tuple[Axis, ...], file: str) -> None:
    """Axes that move together are of one sort, and no position is there twice."""
    keys = {axis.key for axis in group}
    mixed = _is_mapping(group) and keys & set(DEGREES) and keys & set(OPTIONS)
    if mixed or (not _is_mapping(group) and keys & set(DEGREES[1:] + OPTIONS)):
        raise InputError(
            f"{file}: zip.groups", " with ".join(axis.name for axis in group),
            "degrees together, options together, or other axes (n_devices too) together",
            "take the mapping's parts out of this group",
        )  # fmt: skip
    positions = Counter(zip(*(axis.labels if axis.key in NAMED else axis.values for axis in group), strict=True))
    for position, count in positions.items():
        if count > 1:
            raise InputError(group[0].where, f"{position[0]!r} twice", "each value once", "remove one of them")


def _dimension(group: tuple[Axis, ...], layers: dict[str, Axis], owned: set[str]) -> Dimension:
    """An orthogonal dimension; a system brings its own software unless that is given."""
    columns: dict[str, np.ndarray] = {}
    axes = list(group)
    for axis in group:
        if axis.rule:
            raise InputError(
                axis.where, repr(axis.rule), "a list or a range", f"{axis.name} divides nothing: list its values"
            )
        if axis.key not in NAMED:
            columns[axis.key] = np.array(axis.values)
            continue
        columns |= _columns(axis, layers, owned)
        own_software = layers["software"]
        if axis.key == "system" and own_software.where == axis.where:
            columns |= _columns(own_software, layers, owned)
            axes.append(own_software)
    return Dimension(tuple(axes), columns)


def _shapes(base: Design, dimensions: tuple[Dimension, ...], file: str) -> list[Shape]:
    """Every distinct combination of what the mapping must divide."""
    plain = {path: float(leaf(base, path)) for path in SHAPE_PATHS}
    choices = []
    for dimension in dimensions:
        paths = [path for path in SHAPE_PATHS if path in dimension.columns]
        if paths:
            rows = np.unique(np.stack([dimension.columns[path] for path in paths], axis=1), axis=0)
            choices.append([dict(zip(paths, row, strict=True)) for row in rows])
    count = math.prod(map(len, choices))
    if count > _MOST_SHAPES:
        raise InputError(f"{file}: axes", f"{count:,} shapes to map", f"at most {_MOST_SHAPES:,}", "shorten the axes")
    shapes = []
    for combination in itertools.product(*choices):
        values = functools.reduce(operator.or_, combination, plain)
        for path, value in values.items():
            if value < 1 or value != int(value):
                name = path.rpartition(".")[2]
                raise InputError(f"{file}: {name}", f"{value:g}", "a whole number, 1 or more", f"change {name}")
        shapes.append(Shape(*(int(values[path]) for path in SHAPE_PATHS)))
    return shapes


def _mapping_axes(stacked: list[tuple[Axis, ...]], parts: Parts) -> tuple[Axis, ...]:
    """The parts of the mapping that results are labelled with: degrees, what follows from them, options."""
    swept = [axis for group in stacked for axis in group]
    degrees = [axis for axis in swept if axis.key in DEGREES]
    if "mapping.dp" not in parts.axes:
        degrees.append(Axis(name="dp", key="mapping.dp", where=""))
    if not parts.n_devices_given:
        degrees.append(Axis(name="n_devices", key=N_DEVICES, where=""))
    return (*degrees, *(axis for axis in swept if axis.key in OPTIONS))
