"""A design as options state it: with its stack, what was set, its words, and what its reader should know."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dse.capabilities.settings import raise_duplicate, settings_of
from dse.reports.options import AnyOption, Devices, Settings, Software, System, Workload

if TYPE_CHECKING:
    from dse.doors import Study
    from dse.types import Design


class DesignRequest(NamedTuple):
    """A design as options state it."""

    design: Design
    workload: str  #: names as the user wrote them
    system: str
    stack: str  #: slug or name of the stack
    has_default_stack: bool
    study: Study
    readings: list[str]  #: how plain numbers were read for leaves with units
    values: dict[str, float]  #: full path → value of the leaves that are set

    @property
    def set_leaves(self) -> frozenset[str]:
        """Full paths of the leaves that are set."""
        return frozenset(self.values)

    @property
    def summary(self) -> str:
        """Lines on the design: model, system, stack and precision; devices, degrees and settings of its study."""
        return self.description(f"{self.stack} (default of {self.system})" if self.has_default_stack else self.stack)

    def description(self, stack: str) -> str:
        """Return lines on the design, with a text on its stack."""
        from dse.designs import catalog
        from dse.types import Precision, choice_name
        from dse.views.studies import presentation_of

        m, n_devices = self.design.mapping, self.design.system.n_devices
        precision = choice_name(Precision(int(m.precision)))
        degrees = [name for name in ("tp", "cp", "pp", "dp") if f"mapping.{name}" not in self.study.ignored_leaves]
        split = " x ".join(f"{name} {getattr(m, name):g}" for name in degrees)
        devices = f"{n_devices:g} {'device' if n_devices == 1 else 'devices'}{_slice_text(self.design)}"
        first = f"{catalog.resolve('workload', self.workload)} on {self.system}, {stack}, {precision}"
        return f"{first}\n{devices} = {split}; {presentation_of(self.study).settings(self.design)}"

    def cautions(self, metrics: Mapping[str, float]) -> list[str]:
        """Return texts on vendor, context, kind of stack, unused devices, power limit, mesh and tokens, empty for none.

        Args:
            metrics: metrics of the design by name.
        """
        from dse.designs import accelerator_of, lookup_of
        from dse.designs.calibrated import context_note, training_stack_note, vendor_note
        from dse.designs.records import tokens_note

        texts = (
            vendor_note(self.stack, accelerator_of(self.system)),
            context_note(self.workload, lookup_of(self.design, metrics)),
            training_stack_note([self.stack]) if self.study.name == "serving" else "",
            _unused_devices_note(self.design),
            _power_limit_note(self),
            _mesh_note(self),
            tokens_note(self.set_leaves),
        )
        return [*filter(None, texts)]

    def uncalibrated(self, metrics: Mapping[str, float]) -> list[str]:
        """Return a text for each value outside the rows that the stack was fitted to, empty within them."""
        from dse.designs import accelerator_of, lookup_of, uncalibrated_quantities

        return uncalibrated_quantities(self.stack, lookup_of(self.design, metrics), accelerator_of(self.system))


@dataclasses.dataclass(frozen=True)
class MappingOptions:
    """Options of a design, but for its model and its machine."""

    settings: Settings = None
    n_devices: Devices = None
    software: Software = None
    any_option: AnyOption = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignOptions(MappingOptions):
    """Options of a design: a group, which each capability of one design takes."""

    workload: Workload
    system: System

    def request(self, study: Study | None = None, to_serve: str = "add --serving", tool: str = "") -> DesignRequest:
        """Build the design that the options state, with its stack and the leaves that they set.

        Args:
            study: study of the design, by default training.
            to_serve: fix in errors for leaves of serving.
            tool: name of the tool that the design is for, which prefers stacks.

        Returns:
            The design with the names it was stated by; leaves are plain numbers in SI units.

        Raises:
            InputError: for unknown names, invalid values and options stated twice.
        """
        from dse.designs import design, leaf, leaf_path
        from dse.designs.catalog import SERVED_FORMAT, default_software, format_note
        from dse.designs.leaves import reading_note
        from dse.doors import TRAINING

        study = TRAINING if study is None else study
        serves = study.name == "serving"
        values = settings_of(self.settings, study, to_serve=to_serve)
        for name, option in (("n_devices", "-n"), ("software", "--software")):
            if getattr(self, name) is not None and name in values:
                raise_duplicate("--set", name, f"{option} {getattr(self, name)}", f"--set {name}")
        n_devices, software = values.pop("n_devices", self.n_devices), values.pop("software", self.software)
        paths = {name: leaf_path(name, "--set", serves) for name in values}
        stack = software
        if stack is None:
            stack = default_software(self.system, serving=serves, workload=self.workload, tool=tool)
        kind = "serving" if serves else "training"
        complete_design = study.complete(
            design(self.workload, self.system, stack, n_devices, "--set", self.any_option, kind, **values)
        )
        notes = [reading_note(name, paths[name], value) for name, value in values.items()]
        if serves and not set(SERVED_FORMAT) & set(paths.values()):
            notes.append(format_note([self.workload]))
        set_values = {path: leaf(complete_design, path) for path in paths.values()}
        readings = list(filter(None, notes))
        return DesignRequest(
            complete_design, self.workload, self.system, stack, software is None, study, readings, set_values
        )


def leaf_values(design: Design) -> dict[str, float]:
    """Return full path → number of the leaves that a design has, choices by their number; absent ones are left out."""
    from dse.designs import leaf, leaves_of

    values = {path: leaf(design, path) for path in leaves_of(design)}
    return {path: float(value) for path, value in values.items() if value is not None}


def _slice_text(design: Design) -> str:
    """Return the lengths of a torus slice's axes above 1 as `` (4 x 4 a slice)``, "" for other links and one device."""
    from dse.types import Topology
    from dse.views.studies.notes import torus_strides

    links = design.system.scale_up.links
    if links is None or links.topology != float(Topology.torus):
        return ""
    edges = torus_strides(design)
    lengths = [high / low for low, high in itertools.pairwise(edges)]
    return f" ({' x '.join(f'{length:g}' for length in lengths if length > 1.0)} a slice)" if edges[-1] > 1.0 else ""


def chip_notes(design: Design) -> list[str]:
    """Return texts on a memory faster than its feed and on a chip limited by area or power, empty for none."""
    from dse.designs.leaves import saturation_note
    from dse.sweep.results.chip_limits import chip_limits

    accelerator = design.system.accelerator
    saturated = saturation_note(float(accelerator.memory.bandwidth), float(accelerator.power.feed))
    return [*filter(None, [saturated]), *chip_limits(accelerator.chip).values()]


def _power_limit_note(request: DesignRequest) -> str:
    """Return a text on a power limit that is not stated or leaves times unchanged, "" for neither."""
    from dse.designs import accelerator_of, catalog
    from dse.designs.records import LIMIT_AS_SOLD

    if LIMIT_AS_SOLD in request.set_leaves:
        return "power.tdp is the limit under which times were measured: they stay as they are; power.limit sets one"
    slug = accelerator_of(request.system)
    if not slug or {"tdp", "chip.node"} & set(catalog.entry("accelerator", slug).values):
        return ""
    limit = f"power limit of {slug}: {float(request.design.system.accelerator.power.tdp):,.0f} W"
    return f"{limit}, matrix units and memory at their full rates; physical.tdp is not stated"


def _mesh_note(request: DesignRequest) -> str:
    """Return a text on a full mesh of another size than built, "" for none."""
    from dse.designs import catalog
    from dse.designs.leaves import mesh_note

    if "system.scale_up.domain" not in request.set_leaves:
        return ""
    network = request.design.system.scale_up
    catalog_domain = catalog.values("system", request.system)["scale_up.domain"]
    return mesh_note(float(network.mesh), float(network.bandwidth), catalog_domain, float(network.domain))


def _unused_devices_note(design: Design) -> str:
    """Return a text on the unused devices of the last node or rack and what they cost, "" where all are used."""
    devices, domain = float(design.system.n_devices), float(design.system.scale_up.domain)
    unused_devices = -devices % domain
    if devices < domain or not unused_devices:
        return ""
    return (
        f"{devices:,.0f} devices leave {unused_devices:.0f} of the last node or rack of {domain:.0f} unused: "
        f"bought whole, they cost {100.0 * unused_devices / devices:.2g} % more than stands here"
    )
