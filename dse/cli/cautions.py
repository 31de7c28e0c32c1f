"""Cautions on the metrics of a design: range of calibration, assumed values, unused parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dse.doors import Study
    from dse.types import Design


def range_cautions(design: Design, software: str, system: str, metrics: Mapping[str, float]) -> list[str]:
    """Return a text for each value of a design outside the rows that its stack was fitted to, empty within them.

    Args:
        design: with plain numbers as leaves.
        software: name of its stack.
        system: name of its system or accelerator.
        metrics: its metrics by name.
    """
    from dse.designs import accelerator_of, lookup_of, uncalibrated_quantities

    return uncalibrated_quantities(software, lookup_of(design, metrics), accelerator_of(system))


def all_cautions(
    design: Design, names: tuple[str, str, str], set_leaves: frozenset[str], metrics: Mapping[str, float], study: Study
) -> list[str]:
    """Return the texts of all cautions on a design but those of :func:`chip_cautions` and :func:`range_cautions`.

    Args:
        design: with plain numbers as leaves.
        names: of workload, system and stack.
        set_leaves: paths that the user has set.
        metrics: its metrics by name.
        study: its study.
    """
    _, system, _ = names
    return [
        *design_cautions(design, *names, metrics, study),
        *power_limit_cautions(design, system, set_leaves),
        *mesh_cautions(design, system, set_leaves),
        *token_cautions(set_leaves),
    ]


def design_cautions(
    design: Design, workload: str, system: str, software: str, metrics: Mapping[str, float], study: Study
) -> list[str]:
    """Return the texts of cautions on vendor, context, kind of stack and unused devices of a design, empty for none."""
    from dse.designs import accelerator_of, lookup_of
    from dse.designs.calibrated import context_note, training_stack_note, vendor_note

    engines = training_stack_note([software]) if study.name == "serving" else ""
    context = context_note(workload, lookup_of(design, metrics))
    vendor = vendor_note(software, accelerator_of(system))
    return [*filter(None, (vendor, context, engines, _unused_devices_note(design)))]


def power_limit_cautions(design: Design, system: str, set_leaves: frozenset[str]) -> list[str]:
    """Return in a list the text on a power limit that is not stated or leaves times unchanged, empty for neither."""
    from dse.designs import accelerator_of, catalog
    from dse.designs.records import LIMIT_AS_SOLD

    if LIMIT_AS_SOLD in set_leaves:
        return ["power.tdp is the limit under which times were measured: they stay as they are; power.limit sets one"]
    slug = accelerator_of(system)
    if not slug or {"tdp", "chip.node"} & set(catalog.entry("accelerator", slug).values):
        return []
    limit = f"power limit of {slug}: {float(design.system.accelerator.power.tdp):,.0f} W"
    return [f"{limit}, matrix units and memory at their full rates; physical.tdp is not stated"]


def mesh_cautions(design: Design, system: str, set_leaves: frozenset[str]) -> list[str]:
    """Return in a list the text on a full mesh of another size than built, empty for none."""
    from dse.designs import catalog
    from dse.designs.leaves import mesh_note

    if "system.scale_up.domain" not in set_leaves:
        return []
    network, catalog_domain = design.system.scale_up, catalog.values("system", system)["scale_up.domain"]
    return [
        *filter(None, [mesh_note(float(network.mesh), float(network.bandwidth), catalog_domain, float(network.domain))])
    ]


def token_cautions(set_leaves: frozenset[str]) -> list[str]:
    """Return in a list the text on assumed run tokens of adapters, empty for none."""
    from dse.designs.records import tokens_note

    return [*filter(None, [tokens_note(set_leaves)])]


def chip_cautions(design: Design) -> list[str]:
    """Return texts on a memory faster than its feed and on a chip limited by area or power, empty for none."""
    from dse.designs.leaves import saturation_note
    from dse.sweep.results.chip_limits import chip_limits

    accelerator = design.system.accelerator
    saturated = saturation_note(float(accelerator.memory.bandwidth), float(accelerator.power.feed))
    return [*filter(None, [saturated]), *chip_limits(accelerator.chip).values()]


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
