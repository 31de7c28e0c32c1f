"""The catalogue names of a sweep: what each sets, and which take the place of what others set."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from dse.designs import catalog
from dse.designs.catalog import Values
from dse.designs.checks import check_chip, check_experts, check_networks, has_experts
from dse.designs.leaves import known_leaves, stack_values
from dse.designs.records import CHIP, MADE
from dse.errors import InputError
from dse.spec.axes import Axis, Label
from dse.spec.space import NAMED
from dse.spec.sweep import SweepSpec
from dse.types.metrics import CARBON, MONEY

#: The one leaf of the scale-up network that its name does not set.
_DOMAIN = "system.scale_up.domain"

#: How the leaves begin that an accelerator's own node brings; the network between nodes stays the system's.
_NODE = ("system.scale_up.", "system.host.", "system.host_power")


def _layers(spec: SweepSpec) -> dict[str, Axis]:
    """The named records of a design, swept or fixed, later ones laid over earlier ones."""
    named = spec.names | {axis.key: axis for axis in spec.axes if axis.key in NAMED}
    for key in ("workload", "system"):
        if key not in named:
            raise InputError(
                f"{spec.file}: {key}.name", "nothing", f"a {key} of the catalogue", f"see: dse catalog list {key}"
            )
    if "software" not in named:
        brings = named["accelerator" if _in_own_nodes(named, spec) else "system"]
        serving = spec.study.name == "serving"
        stacks = tuple(catalog.default_software(str(slug), brings.where, serving=serving) for slug in brings.labels)
        named["software"] = dataclasses.replace(brings, name="software", key="software", labels=stacks)
    order = ("workload", "system", "accelerator", "node", "memory", "scale_up", "scale_out", "software")
    return {key: named[key] for key in order if key in named}


def _in_own_nodes(named: dict[str, Axis], spec: SweepSpec) -> frozenset[str]:
    """The accelerators that bring their own nodes; all bring their stacks where one does, none where one is fixed.

    One whose links are not in the catalogue stands in the node of the system, on its own stack.
    """
    if "accelerator" not in {axis.key for axis in spec.axes} or len(named["system"].labels) > 1:
        return frozenset()
    return frozenset(slug for slug in map(str, named["accelerator"].labels) if not _without_node(slug))


def _without_node(slug: str) -> bool:
    """Whether a system is an accelerator the links of which are not in the catalogue."""
    found = catalog.entry("system", slug)
    return found.kind == "accelerator" and found.value("node.scale_up") == catalog.NO_NETWORK


def _node(slug: str) -> Values:
    """Full path → value of the node of a system or an accelerator: how its devices are linked, and their host."""
    found = catalog.within("system", catalog.values("system", slug))
    return {path: value for path, value in found.items() if path.startswith(_NODE)}


#: Why prices of generated accelerators and of bought ones are of two kinds.
_TWO_KINDS = "a generated one is priced at its bill over 1 - made.margin, a bought one as sold"


class Names:
    """What the named records of a design set, by full path; a later record takes the place of an earlier one's."""

    def __init__(self, spec: SweepSpec) -> None:
        self.layers = _layers(spec)
        self.any_option = spec.any_option
        self._groups = set(spec.groups)
        self._absent: Callable[[Axis], Values] = functools.cache(self._absent_along)
        self.priced = bool({MONEY, CARBON} & self._groups)  #: whether designs say what accelerators are made of
        self.own_nodes = _in_own_nodes(self.layers, spec)  #: accelerators that stand in them
        self.device = self.layers.get("accelerator", self.layers["system"])  #: says which accelerator it is
        stated = {slug: _chip_of(self._brought(self.device, slug)) for slug in map(str, self.device.labels)}
        self.generated = [slug for slug, chip in stated.items() if chip]
        self.mixed = 0 < len(self.generated) < len(stated)
        models = self.layers["workload"]
        self.has_experts = has_experts(self._brought(models, str(models.labels[0])))  # or all have none, see alike
        said = (*spec.fixed.values(), *spec.axes)
        self._said = {axis.key: axis.where for axis in said if axis.key not in NAMED}

    def values(self, axis: Axis, slug: Label) -> Values:
        """Full path → value of all that a name sets; optional records that it does not have are left out.

        A leaf that another name of the axis has, and this one lacks, has the value that means its absence.
        """
        return self._absent(axis) | self._own(axis, slug)

    def _absent_along(self, axis: Axis) -> Values:
        """Path → value that means its absence, of leaves that some names of an axis bring."""
        if len(axis.labels) < 2:
            return {}
        brought = itertools.chain(*(self._own(axis, slug) for slug in axis.labels))
        about = {path: known_leaves().get(path, {}) for path in brought}
        return {path: leaf["absent"] for path, leaf in about.items() if "absent" in leaf}

    def _own(self, axis: Axis, slug: Label) -> Values:
        if axis.key == "software":
            return stack_values(str(slug), axis.where, self.any_option, self.has_experts)
        found = self._brought(axis, str(slug))
        if axis.key == "scale_up":  # how many devices a node joins is the system's, whatever the links
            del found[_DOMAIN]
        order = list(self.layers)
        later = tuple(f"{NAMED[key][1]}." for key in order[order.index(axis.key) + 1 :])
        if axis.key == "system" and self.own_nodes:
            later += _NODE
        return {path: value for path, value in found.items() if path == _DOMAIN or not path.startswith(later)}

    def columns(self, axis: Axis, owned: set[str]) -> dict[str, np.ndarray]:
        """Leaf path → values along an axis of names of one structure, less those that are set elsewhere."""
        records = [self.values(axis, slug) for slug in axis.labels]
        return {
            path: np.array([record[path] for record in records])
            for path, first in records[0].items() if path not in owned and not isinstance(first, tuple)
        }  # fmt: skip

    def alike(self, axis: Axis) -> list[list[int]]:
        """Positions of an axis of names by structure: by leaves, and by steps of efficiencies."""
        groups: dict[frozenset[Any], list[int]] = {}
        for position, slug in enumerate(axis.labels):
            values = {path: value for path, value in self.values(axis, slug).items() if path not in self._said}
            kind = frozenset((path, value if isinstance(value, tuple) else None) for path, value in values.items())
            groups.setdefault(kind, []).append(position)
        return list(groups.values())

    @property
    def stacks(self) -> tuple[str, ...]:
        """Slugs of the stacks."""
        return tuple(map(str, self.layers["software"].labels))

    def mapping_defaults(self, given: Container[str]) -> dict[str, Axis]:
        """Full path → what the stacks do where the sweep does not say, fixed.

        Where stacks differ, designs have each its own (a column along the stacks), and the table of mappings takes
        what lets most of them pass: copies of shards need a ZeRO stage, split sequences a divisor.
        """
        axis = self.layers["software"]
        found = {}
        for option in catalog.LEFT_OPEN:
            path = f"mapping.{option}"
            values = {self.values(axis, slug)[path] for slug in axis.labels}
            easiest = min(values) if option == "sequence_parallel" else max(values)
            if path not in given:
                found[path] = Axis(name=option, key=path, where="", values=(easiest,))
        return found

    @property
    def used(self) -> tuple[tuple[str, str], ...]:
        """(kind, slug) of the entries that are named."""
        named = ((NAMED[key][0], str(slug)) for key, axis in self.layers.items() for slug in axis.labels)
        return tuple(pair for pair in named if pair[1] != "none")

    def base(self) -> Values:
        """Full path → value of what the first name of every record sets."""
        return dict(self._first)

    @functools.cached_property
    def _first(self) -> Values:
        brought = (self.values(axis, axis.labels[0]) for axis in self.layers.values())
        return functools.reduce(operator.or_, brought, dict[str, Any]())

    def _brought(self, axis: Axis, slug: str) -> Values:
        kind, prefix = NAMED[axis.key]
        own = catalog.values(kind, slug, axis.where)
        if axis.key == "scale_out":
            catalog.check_between(own, axis.where, slug)
        found = catalog.within(prefix, own)
        if self.priced and kind in ("system", "accelerator"):
            found |= catalog.within(MADE, catalog.made(slug, axis.where))
        if axis.key != "accelerator" or not self.own_nodes:
            return found
        return found | _node(slug if slug in self.own_nodes else str(self.layers["system"].labels[0]))

    def node_note(self) -> str:
        """In which nodes and with which stacks accelerators stand, in words; empty where the system has its own."""
        if "accelerator" not in self.layers:
            return ""
        devices, system, stacks = (self.layers[key] for key in ("accelerator", "system", "software"))
        slugs = dict.fromkeys(map(str, devices.labels))
        whose = "its system" if len(system.labels) > 1 else str(system.labels[0])
        if not self.own_nodes:
            stack = f" and its stack{_named(stacks.labels)}" if stacks.where == system.where else ""
            return f"{', '.join(slugs)}: in the nodes of {whose}, with its links{stack}"
        own = [self._node_of(slug, stacks, devices) for slug in slugs if slug in self.own_nodes]
        guests = [self._node_of(slug, stacks, devices) for slug in slugs if slug not in self.own_nodes]
        text = f"{'each accelerator' if not guests else 'each'} in its own node: {', '.join(own)}"
        if guests:
            text += f"; in the nodes of {whose}, with its links: {', '.join(guests)} (their own are not known)"
        shared = stacks.where != devices.where and len(set(stacks.labels)) == 1
        common = f"; software{_named(stacks.labels)} for all" if shared else ""
        return f"{text}; the network between nodes is that of {system.labels[0]}{common}"

    def price_note(self) -> str:
        """That prices of bought and of generated accelerators are of two kinds; empty where one kind is there."""
        if not self.mixed or MONEY not in self._groups:
            return ""
        made = ", ".join(self.generated)
        return f"{made}: compare prices with those of generated chips, not of bought ones ({_TWO_KINDS})"

    def _node_of(self, slug: str, stacks: Axis, devices: Axis) -> str:
        own = dict(zip(map(str, devices.labels), map(str, stacks.labels), strict=False))
        parts = [own[slug]] if stacks.where == devices.where else []
        if slug in self.own_nodes:
            links = [] if "scale_up" in self.layers else [catalog.entry("accelerator", slug).value("node.scale_up")]
            parts = [f"{_node(slug)[_DOMAIN]:g} a node", *links, *parts]
        return f"{slug} ({', '.join(parts)})" if parts else slug

    def check(self) -> None:
        """That what is said of models, networks and accelerators is theirs to say; else an InputError."""
        said = self._said | {f"{NAMED[key][1]}.": axis.where for key, axis in self.layers.items() if axis.where}
        for path, where in said.items():
            self._check_leaf(path, where)

    def has(self, path: str) -> bool:
        """Whether the designs have a leaf that is said of them, or the record of an axis of names."""
        try:
            self._check_leaf(f"{NAMED[path][1]}." if path in NAMED else path, "")
        except InputError:
            return False
        return True

    def _check_leaf(self, path: str, where: str) -> None:
        models = self.layers["workload"]
        check_experts(path, self._brought(models, str(models.labels[0])), where)
        check_networks(path, self._first, self._said, where)
        check_chip(path, bool(self.generated), where)


def _named(labels: Iterable[Label]) -> str:
    """Names after the noun that they belong to."""
    return f" {', '.join(dict.fromkeys(map(str, labels)))}"


def _chip_of(values: Values) -> Values:
    """The values of the chip that an accelerator is generated from; none for one of stated rates."""
    return {path: value for path, value in values.items() if path.startswith(f"{CHIP}.")}
