"""A design as options state it: with its stack, what was set, its words, and what its reader should know."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dse.capabilities.settings import raise_duplicate, settings_of

if TYPE_CHECKING:
    from dse.doors import Study
    from dse.types import Design

#: What ``settings`` may be.
Settings = Mapping[str, Any] | Sequence[str] | None


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
        stack = f"{self.stack} (default of {self.system})" if self.has_default_stack else self.stack
        return design_summary(self.workload, self.system, stack, self.design, self.study)

    def cautions(self, metrics: Mapping[str, float]) -> list[str]:
        """Return texts on what a reader of the metrics should know, without those on the range of calibration."""
        return design_cautions(self, metrics)

    def uncalibrated(self, metrics: Mapping[str, float]) -> list[str]:
        """Return a text for each value outside the rows that the stack was fitted to, empty within them."""
        from dse.designs import accelerator_of, lookup_of, uncalibrated_quantities

        return uncalibrated_quantities(self.stack, lookup_of(self.design, metrics), accelerator_of(self.system))


def request_design(
    workload: str,
    system: str,
    settings: Settings = None,
    n_devices: int | None = None,
    software: str | None = None,
    any_option: bool = False,
    study: Study | None = None,
    to_serve: str = "add --serving",
    tool: str = "",
) -> DesignRequest:
    """Build the design that options state, with its stack and the leaves that they set.

    Args:
        workload: name in the catalogue.
        system: name of a system or an accelerator.
        settings: name → value, or ``NAME=VALUE`` each.
        n_devices: None for the product of the degrees.
        software: name of the stack; None for the default.
        any_option: allow options that the stack lacks.
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
    values = settings_of(settings, study, to_serve=to_serve)
    for name, option, option_value in (("n_devices", "-n", n_devices), ("software", "--software", software)):
        if option_value is not None and name in values:
            raise_duplicate("--set", name, f"{option} {option_value}", f"--set {name}")
    n_devices, software = values.pop("n_devices", n_devices), values.pop("software", software)
    paths = {name: leaf_path(name, "--set", serves) for name in values}
    stack = software
    if stack is None:
        stack = default_software(system, serving=serves, workload=workload, tool=tool)
    kind = "serving" if serves else "training"
    complete_design = study.complete(design(workload, system, stack, n_devices, "--set", any_option, kind, **values))
    notes = [reading_note(name, paths[name], value) for name, value in values.items()]
    if serves and not set(SERVED_FORMAT) & set(paths.values()):
        notes.append(format_note([workload]))
    set_values = {path: leaf(complete_design, path) for path in paths.values()}
    has_default_stack = software is None
    readings = list(filter(None, notes))
    return DesignRequest(complete_design, workload, system, stack, has_default_stack, study, readings, set_values)


def leaf_values(design: Design) -> dict[str, float]:
    """Return full path → number of the leaves that a design has, choices by their number; absent ones are left out."""
    from dse.designs import leaf, leaves_of

    values = {path: leaf(design, path) for path in leaves_of(design)}
    return {path: float(value) for path, value in values.items() if value is not None}


def design_summary(workload: str, system: str, software: str, design: Design, study: Study) -> str:
    """Return two lines on a design: model, system, stack and precision; devices, degrees and settings of its study."""
    from dse.designs import catalog
    from dse.types import Precision, choice_name
    from dse.views.studies import presentation_of

    m = design.mapping
    precision = choice_name(Precision(int(m.precision)))
    degrees = [name for name in ("tp", "cp", "pp", "dp") if f"mapping.{name}" not in study.ignored_leaves]
    split = " x ".join(f"{name} {getattr(m, name):g}" for name in degrees)
    first = f"{catalog.resolve('workload', workload)} on {system}, {software}, {precision}"
    devices = "device" if design.system.n_devices == 1 else "devices"
    settings = presentation_of(study).settings(design)
    return f"{first}\n{design.system.n_devices:g} {devices}{_slice_text(design)} = {split}; {settings}"


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


def design_cautions(request: DesignRequest, metrics: Mapping[str, float]) -> list[str]:
    """Return texts on vendor, context, kind of stack, unused devices, power limit, mesh and tokens, empty for none.

    Args:
        request: with plain numbers as leaves.
        metrics: metrics of its design by name.
    """
    from dse.designs import accelerator_of, lookup_of
    from dse.designs.calibrated import context_note, training_stack_note, vendor_note
    from dse.designs.records import tokens_note

    return [
        *filter(
            None,
            (
                vendor_note(request.stack, accelerator_of(request.system)),
                context_note(request.workload, lookup_of(request.design, metrics)),
                training_stack_note([request.stack]) if request.study.name == "serving" else "",
                _unused_devices_note(request.design),
                _power_limit_note(request),
                _mesh_note(request),
                tokens_note(request.set_leaves),
            ),
        )
    ]


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
    network, catalog_domain = (
        request.design.system.scale_up,
        catalog.values("system", request.system)["scale_up.domain"],
    )
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
