"""The catalogue names of a sweep: the values they set, and their order of precedence."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from dse.designs import all_leaves, catalog
from dse.designs.catalog import Values
from dse.designs.checks import check_chip, check_experts, check_networks, has_experts
from dse.designs.composing import stack_values
from dse.designs.records import CHIP, MANUFACTURE
from dse.errors import InputError
from dse.spec import Axis, SweepSpec
from dse.spec.axes import Label
from dse.spec.space import CATALOGUE_KEYS
from dse.types.metrics import CARBON, MONEY

#: The leaf of the scale-up network that its name does not set.
_DOMAIN = "system.scale_up.domain"

_FORMAT = frozenset(catalog.SERVED_FORMAT)

_ZERO_STAGE, _OVERLAP = "mapping.zero_stage", "mapping.overlap_dp"

#: Prefixes of leaves that an accelerator's own node sets; the network between nodes remains the system's.
_NODE = ("system.scale_up.", "system.host.", "system.host_power", "system.host_slowdown")


def _layers(spec: SweepSpec) -> dict[str, Axis]:
    """Return key (workload, system, …) → axis of the names of a design's records; later ones override earlier ones.

    Raises InputError without a workload or system.
    """
    axis_by_key = spec.names | {axis.key: axis for axis in spec.axes if axis.key in CATALOGUE_KEYS}
    for key in ("workload", "system"):
        if key not in axis_by_key:
            raise InputError(
                f"{spec.file}: {key}.name", "nothing", f"a {key} of the catalogue", f"see: dse catalog list {key}"
            )
    if "software" not in axis_by_key:
        owner = axis_by_key["accelerator" if _accelerators_with_nodes(axis_by_key, spec) else "system"]
        serving = spec.study.name == "serving"
        works = str(axis_by_key["workload"].labels[0])  # of one structure, once the sweep is divided
        stacks = tuple(
            catalog.default_software(str(slug), owner.where, serving=serving, workload=works) for slug in owner.labels
        )
        axis_by_key["software"] = dataclasses.replace(owner, name="software", key="software", labels=stacks)
    order = ("workload", "system", "accelerator", "node", "memory", "scale_up", "scale_out", "software")
    return {key: axis_by_key[key] for key in order if key in axis_by_key}


def _accelerators_with_nodes(axis_by_key: dict[str, Axis], spec: SweepSpec) -> frozenset[str]:
    """Return the slugs of the accelerators that are evaluated in their own nodes.

    All bring their stacks if one does, none if the stack is fixed. One whose links are not in the catalogue is
    evaluated in the node of the system, with its own stack.
    """
    if "accelerator" not in {axis.key for axis in spec.axes} or len(axis_by_key["system"].labels) > 1:
        return frozenset()
    return frozenset(slug for slug in map(str, axis_by_key["accelerator"].labels) if not _lacks_node(slug))


def _lacks_node(slug: str) -> bool:
    """Return True if a system is a bare accelerator whose links are not in the catalogue."""
    entry = catalog.entry("system", slug)
    return entry.kind == "accelerator" and entry.value("node.scale_up") == catalog.NO_NETWORK


def _node_values(slug: str) -> Values:
    """Return full path → value of the node of a system or an accelerator: links between devices, and the host."""
    values = catalog.with_prefix("system", catalog.values("system", slug))
    return {path: value for path, value in values.items() if path.startswith(_NODE)}


#: Reason why prices of generated and of bought accelerators cannot be compared.
_TWO_KINDS = "a generated one is priced at its unit cost over 1 - made.margin and the design, a bought one as sold"


class Names:
    """Values that the named records of a design set, by full path; later records override earlier ones."""

    def __init__(self, spec: SweepSpec) -> None:
        self.layers = _layers(spec)
        self.any_option = spec.any_option
        self._groups = set(spec.groups)
        self._absent: Callable[[Axis], Values] = functools.cache(self._absent_along)
        self.priced = bool({MONEY, CARBON} & self._groups)  #: whether designs have the parts of accelerators
        #: accelerators that are evaluated in their own nodes
        self.own_nodes = _accelerators_with_nodes(self.layers, spec)
        self.device = self.layers.get("accelerator", self.layers["system"])  #: the axis that names the accelerator
        slugs, chip = dict.fromkeys(map(str, self.device.labels)), f"{CHIP}."
        self.generated = [s for s in slugs if any(path.startswith(chip) for path in self._entry_values(self.device, s))]
        self.mixed = 0 < len(self.generated) < len(slugs)
        models = self.layers["workload"]
        # Equal for all: see by_structure.
        self.has_experts = has_experts(self._entry_values(models, str(models.labels[0])))
        said = (*spec.fixed.values(), *spec.axes)
        self._said = {axis.key: axis.where for axis in said if axis.key not in CATALOGUE_KEYS}
        self._stages = tuple(float(stage) for axis in said if axis.key == _ZERO_STAGE for stage in axis.values)
        self.of_checkpoint = spec.study.name == "serving" and not set(catalog.SERVED_FORMAT) & set(self._said)

    def values(self, axis: Axis, slug: Label) -> Values:
        """Return full path → value, SI, of all leaves that a name sets, without optional records that it lacks.

        A leaf that only other names of the axis have is set to the value of its absence.
        """
        return self._absent(axis) | self._axis_values(axis, slug)

    @functools.cached_property
    def _any_device(self) -> Values:
        """Values of the first accelerator with 8-bit products, else of the first."""
        values_by_device = [self._entry_values(self.device, str(slug)) for slug in self.device.labels]
        return next(
            (values for values in values_by_device if values.get("system.accelerator.matrix_rate.fp8")),
            values_by_device[0],
        )

    def format_note(self) -> str:
        """Return the note on models that are served in the format of their checkpoint; empty for 16 bits."""
        return catalog.format_note(map(str, self.layers["workload"].labels)) if self.of_checkpoint else ""

    def _absent_along(self, axis: Axis) -> Values:
        """Return full path → value of absence, for leaves that some names of an axis set; empty for one name."""
        if len(axis.labels) < 2:
            return {}
        brought = itertools.chain(*(self._axis_values(axis, slug) for slug in axis.labels))
        about = {path: all_leaves().get(path, {}) for path in brought}
        return {path: leaf["absent"] for path, leaf in about.items() if "absent" in leaf}

    def _axis_values(self, axis: Axis, slug: Label) -> Values:
        """Return full path → value of the leaves that a name sets and no later record overrides."""
        if axis.key == "software":
            stage = next(iter(self._stages), None)  # of several see overlap_along
            values = stack_values(str(slug), axis.where, self.any_option, self.has_experts, stage)
            return {path: value for path, value in values.items() if not (self.of_checkpoint and path in _FORMAT)}
        values = self._entry_values(axis, str(slug))
        if axis.key == "workload" and self.of_checkpoint:
            values |= catalog.served_format(str(slug), self._any_device)
        if axis.key == "scale_up":  # the number of devices in a node is the system's, whatever the links
            del values[_DOMAIN]
        order = list(self.layers)
        later = tuple(f"{CATALOGUE_KEYS[key][1]}." for key in order[order.index(axis.key) + 1 :])
        if axis.key == "system" and self.own_nodes:
            later += _NODE
        return {path: value for path, value in values.items() if path == _DOMAIN or not path.startswith(later)}

    def columns(self, axis: Axis, owned: set[str]) -> dict[str, np.ndarray]:
        """Return leaf path → values along an axis of names of one structure, without leaves that are set elsewhere."""
        records = [self.values(axis, slug) for slug in axis.labels]
        return {
            path: np.array([record[path] for record in records])
            for path, first in records[0].items()
            if path not in owned and not isinstance(first, tuple)
        }

    def by_structure(self, axis: Axis) -> list[list[int]]:
        """Return the positions of an axis of names in groups, one for each structure.

        A structure is a set of leaves, with the number of steps of efficiencies.

        Stacks are also divided by the overlap at the ZeRO stages of the sweep, where the stage decides it for one of
        them: the table of mappings has one overlap per stage.
        """
        groups: dict[tuple[frozenset[Any], tuple[float, ...]], list[int]] = {}
        overlaps = self._overlaps(self._stages) if axis.key == "software" and _OVERLAP not in self._said else {}
        if all(len(set(values)) < 2 for values in overlaps.values()):
            overlaps = {}  # a column along the stacks
        for position, slug in enumerate(axis.labels):
            values = {path: value for path, value in self.values(axis, slug).items() if path not in self._said}
            kind = frozenset((path, value if isinstance(value, tuple) else None) for path, value in values.items())
            groups.setdefault((kind, overlaps.get(str(slug), ())), []).append(position)
        return list(groups.values())

    def _overlaps(self, stages: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
        """Return stack → its overlap of data-parallel messages at each ZeRO stage, where the mapping leaves it open."""
        return {
            slug: tuple(catalog.mapping_defaults(slug, zero_stage=stage)["overlap_dp"] for stage in stages)
            for slug in self.stacks
        }

    @property
    def stacks(self) -> tuple[str, ...]:
        """Slugs of the software stacks."""
        return tuple(map(str, self.layers["software"].labels))

    def mapping_defaults(self, set_paths: Container[str]) -> dict[str, Axis]:
        """Return full path → axis with a default of the stacks, for options of the mapping that are not set.

        Where stacks differ each design has the default of its own (a column along the stacks), and the table of
        mappings uses the least restrictive one: copies of shards need a ZeRO stage, split sequences a divisor.
        """
        axis = self.layers["software"]
        axis_by_path = {}
        for option in catalog.LEFT_OPEN:
            path = f"mapping.{option}"
            brought = (self.values(axis, slug) for slug in axis.labels)
            values = {record[path] for record in brought if path in record}
            if values and path not in set_paths:
                least_restrictive = min(values) if option == "sequence_parallel" else max(values)
                axis_by_path[path] = Axis(name=option, key=path, where="", values=(least_restrictive,))
        return axis_by_path

    def overlap_along(self, axis: Axis, set_paths: Container[str]) -> tuple[Axis, ...]:
        """Return the axis of data-parallel overlap along an axis of ZeRO stages, or nothing, as a tuple.

        There is one where stacks decide the overlap by stage.

        Empty where the sweep states the overlap, and where each stack has at all stages the overlap of its column.
        The stacks of one structure have the same one at each stage (:meth:`by_structure`).
        """
        if axis.key != _ZERO_STAGE or _OVERLAP in set_paths or axis.rule or not axis.values:
            return ()
        overlaps = self._overlaps(tuple(map(float, axis.values)))
        stacks = self.layers["software"]
        if all({self.values(stacks, slug)[_OVERLAP]} == {*overlaps[str(slug)]} for slug in stacks.labels):
            return ()
        values = next(iter(overlaps.values()))
        return (Axis("overlap_dp", _OVERLAP, axis.where, values, tuple(value > 0.0 for value in values)),)

    @property
    def catalog_entries(self) -> tuple[tuple[str, str], ...]:
        """(kind, slug) of the catalogue entries that are named, without the name "none"."""
        pairs = ((CATALOGUE_KEYS[key][0], str(slug)) for key, axis in self.layers.items() for slug in axis.labels)
        return tuple((kind, slug) for kind, slug in pairs if slug != "none")

    def base(self) -> Values:
        """Return full path → value set by the first name of every record."""
        return dict(self._first)

    @functools.cached_property
    def _first(self) -> Values:
        """Full path → value set by the first name of every record; later records override earlier ones."""
        brought = (self.values(axis, axis.labels[0]) for axis in self.layers.values())
        return functools.reduce(operator.or_, brought, dict[str, Any]())

    def _entry_values(self, axis: Axis, slug: str) -> Values:
        """Return full path → value of a catalogue entry, with dies, price and node where the sweep needs them."""
        kind, prefix = CATALOGUE_KEYS[axis.key]
        entry_values = catalog.values(kind, slug, axis.where)
        if axis.key == "scale_out":
            catalog.check_between(entry_values, axis.where, slug)
        values = catalog.with_prefix(prefix, entry_values)
        if self.priced and kind in ("system", "accelerator"):
            values |= catalog.with_prefix(MANUFACTURE, catalog.manufacture(slug, axis.where))
        if axis.key != "accelerator" or not self.own_nodes:
            return values
        return values | _node_values(slug if slug in self.own_nodes else str(self.layers["system"].labels[0]))

    def node_note(self) -> str:
        """Return the note on nodes and stacks of swept accelerators; empty if the sweep names no accelerator."""
        if "accelerator" not in self.layers:
            return ""
        devices, system, stacks = (self.layers[key] for key in ("accelerator", "system", "software"))
        slugs = dict.fromkeys(map(str, devices.labels))
        node_owner = "its system" if len(system.labels) > 1 else str(system.labels[0])
        if not self.own_nodes:
            stack = f" and its stack{_names_text(stacks.labels)}" if stacks.where == system.where else ""
            return f"{', '.join(slugs)}: in the nodes of {node_owner}, with its links{stack}"
        slugs_with_node = [self._node_of(slug, stacks, devices) for slug in slugs if slug in self.own_nodes]
        guests = [self._node_of(slug, stacks, devices) for slug in slugs if slug not in self.own_nodes]
        text = f"{'each accelerator' if not guests else 'each'} in its own node: {', '.join(slugs_with_node)}"
        if guests:
            text += f"; in the nodes of {node_owner}, with its links: {', '.join(guests)} (their own are not known)"
        shared = stacks.where != devices.where and len(set(stacks.labels)) == 1
        common = f"; software{_names_text(stacks.labels)} for all" if shared else ""
        return f"{text}; the network between nodes is that of {system.labels[0]}{common}"

    def price_note(self) -> str:
        """Return the warning that prices of bought and generated accelerators differ in kind; empty for one kind."""
        if not self.mixed or MONEY not in self._groups:
            return ""
        generated = ", ".join(self.generated)
        return f"{generated}: compare prices with those of generated chips, not of bought ones ({_TWO_KINDS})"

    def _node_of(self, slug: str, stacks: Axis, devices: Axis) -> str:
        """Return the text of an accelerator with its node, links and stack in parentheses."""
        stack_by_device = dict(zip(map(str, devices.labels), map(str, stacks.labels), strict=False))
        parts = [stack_by_device[slug]] if stacks.where == devices.where else []
        if slug in self.own_nodes:
            links = [] if "scale_up" in self.layers else [catalog.entry("accelerator", slug).value("node.scale_up")]
            parts = [f"{_node_values(slug)[_DOMAIN]:g} a node", *links, *parts]
        return f"{slug} ({', '.join(parts)})" if parts else slug

    def check(self) -> None:
        """Raise InputError for a leaf of a model, network or accelerator that the named records do not have."""
        said = self._said | {
            f"{CATALOGUE_KEYS[key][1]}.": axis.where for key, axis in self.layers.items() if axis.where
        }
        for path, where in said.items():
            self._check_leaf(path, where)

    def has(self, path: str) -> bool:
        """Return True if the designs have a leaf, or the record of an axis of names."""
        try:
            self._check_leaf(f"{CATALOGUE_KEYS[path][1]}." if path in CATALOGUE_KEYS else path, "")
        except InputError:
            return False
        return True

    def _check_leaf(self, path: str, where: str) -> None:
        """Raise InputError, for this place, if designs lack a leaf or a record (prefix that ends with a dot)."""
        models = self.layers["workload"]
        check_experts(path, self._entry_values(models, str(models.labels[0])), where)
        check_networks(path, self._first, self._said, where)
        check_chip(path, bool(self.generated), where)


def _names_text(labels: Iterable[Label]) -> str:
    """Return the distinct names, comma-separated, after a space."""
    return f" {', '.join(dict.fromkeys(map(str, labels)))}"
