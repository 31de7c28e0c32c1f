r"""Spreads of every leaf of a design that the catalogue does not know exactly, with what shares them.

A leaf's logarithm is a sum of independent factors. One that a fit states has the fit's ``spread``; one that is an
estimate, or quoted from memory, the width of such values (``[estimates]`` of ``intervals.toml``). Levels form a
hierarchy: a chip whose kernels nobody measured has the value of its kernel file, which all chips of the file share, and
a deviation of its own as wide as measured chips scatter within the family, or within all families where the family is
one chip; a stack without rows of a parameter shares that of its code base, or of all stacks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dse.designs import all_leaves, catalog, leaf, leaves_of
from dse.designs.catalog.entries import Entry, file_entry
from dse.designs.catalog.unverified import UNVERIFIED
from dse.measured.uncertainty import distance
from dse.types import MEASURED_ALONE, SHARED_KERNEL_LEAVES, Design


class Factor(NamedTuple):
    """A part of a leaf's logarithm, which designs with the same key share."""

    key: str
    deviation: float


#: Leaf path → its factors.
Spreads = Mapping[str, tuple[Factor, ...]]

#: How leaves begin → the group that they are reported as, the longest first.
GROUPS = {
    "software.engine.": "engine",
    "software.experts.": "experts",
    "software.": "parameters",
    "system.accelerator.power.": "power",
    "system.accelerator.chip.": "technology",
    "system.accelerator.": "kernels",
    "system.": "links",
}

#: Leaves that no measurement of a design moves: references, counts, what is held against a capacity alone, and prices
#: (:mod:`dse.measured.uncertainty.bills`).
_EXACT = (
    "system.host.", "system.n_devices", "system.pue", "system.host_power", "system.accelerator.memory.capacity",
    "system.accelerator.cores", "system.accelerator.kernels.tile_", "system.accelerator.made.",
    "system.scale_up.domain", "system.scale_out.domain",
    "system.accelerator.power.nominal_clock", "system.accelerator.power.clock", "software.memory_spread",
)  # fmt: skip


@functools.cache
def group_of(path: str) -> str:
    """Return the group of a leaf of software or system by its path.

    >>> group_of("system.accelerator.kernels.matrix_efficiency"), group_of("software.host_time")
    ('kernels', 'parameters')
    """
    return next(group for start, group in GROUPS.items() if path.startswith(start))


def total_deviation(factors: Iterable[Factor]) -> float:
    """Return the standard deviation of a leaf's logarithm, that of its independent factors together.

    Args:
        factors: of the leaf.
    """
    return float(sum(factor.deviation**2 for factor in factors) ** 0.5)


def total_deviations(spreads: Spreads) -> dict[str, float]:
    """Return leaf path → standard deviation of its logarithm, from leaf path → factors."""
    return {path: total_deviation(factors) for path, factors in spreads.items()}


def present_spreads(design: Design, spreads: Spreads) -> Spreads:
    """Return the spreads of leaves that a design has and that are not zero.

    Args:
        design: with plain numbers as leaves.
        spreads: by leaf path.

    Returns:
        Leaf path → factors.
    """
    present = leaves_of(design)
    return {path: factors for path, factors in spreads.items() if path in present and leaf(design, path)}


def spreads_of(stack: str, accelerator: str = "", system: str = "") -> Spreads:
    """Return leaf path → factors, of leaves that a stack, an accelerator and a system's networks bring into a design.

    Args:
        stack: by its name in the catalogue.
        accelerator: by its name in the catalogue; "" where unknown.
        system: the same; by default the accelerator's usual node.
    """
    spreads = dict(_stack_spreads(stack))
    if accelerator:
        spreads |= _chip_spreads(accelerator)
        spreads |= _network_spreads(catalog.entry("system", system or accelerator))
    leaf_info = all_leaves()
    uncertain = {
        path: factors for path, factors in spreads.items() if path in leaf_info and not path.startswith(_EXACT)
    }
    return {
        path: tuple(factor for factor in factors if factor.deviation)
        for path, factors in uncertain.items()
        if total_deviation(factors)
    }


def _stack_spreads(stack: str) -> Iterator[tuple[str, tuple[Factor, ...]]]:
    """Yield (leaf path, factors) of what was fitted of a stack, with a common key where it shares it with others."""
    entry = catalog.entry("software", stack)
    owner_by_source = {
        "shared by all stacks": "all stacks",
        "shared by the fitted stacks": "all stacks",
        "shared by the stacks of a lineage": entry.value("lineage", stack),
    }
    for field, value in entry.values.items():
        owner = "all stacks" if field.startswith("experts.") else owner_by_source.get(value.source, stack)
        if value.spread:
            yield f"software.{field}", (Factor(f"software/{owner}:{field}", value.spread),)


def _deviation(path: str, value: catalog.Sourced) -> float:
    """Return the log standard deviation of a value: as stated, else by its confidence; 0 where it is sure."""
    if value.spread:
        return value.spread
    leaf_info = all_leaves().get(path, {})
    if value.confidence not in UNVERIFIED or not leaf_info or "enum" in leaf_info or leaf_info["bounds"].is_integer:
        return 0.0
    kind = "share" if leaf_info["bounds"].high <= 1.0 else "time" if leaf_info["units"] == "s" else "rate"
    return distance.estimate_spread(kind)


def _chip_spreads(accelerator: str) -> Spreads:
    """Return leaf path → factors of an accelerator's leaves: its own, and those of its kernel files."""
    entry, chip_entry = catalog.entry("accelerator", accelerator), file_entry("accelerator", accelerator)
    files = list(_kernel_files(str(entry.value("kernels.family", "generic"))))
    is_measured = any(accelerator in value.source for value in files[0].values.values())
    spreads: dict[str, tuple[Factor, ...]] = {}
    for field, value in entry.values.items():
        path = f"system.accelerator.{field}"
        chip_field = (
            f"kernels.{SHARED_KERNEL_LEAVES.get(field.removeprefix('kernels.'))}"  # what the chip itself may say of it
        )
        if chip_field in chip_entry.values:
            deviation = _deviation(f"system.accelerator.{chip_field}", value)
            spreads[path] = (Factor(f"accelerator/{accelerator}:{chip_field}", deviation),)
            continue
        deviation, names = _deviation(path, value), _field_names(field)
        file_index = next(
            (i for i, file in enumerate(files) if names[0] in file.values or names[1] in file.values), None
        )
        if field in chip_entry.values or file_index is None:
            spreads[path] = (Factor(f"accelerator/{accelerator}:{field}", deviation),)
            continue
        # What a family states of its fit is the scatter of its chips, of which one without rows has a draw of its own.
        is_scatter = not is_measured and bool(value.spread) and (file_index > 0 or len(files) == 1)
        shared = Factor(f"kernels/{files[file_index].slug}:{field}", 0.0 if is_scatter else deviation)
        scatter = 0.0 if is_measured else _scatter(names, files[max(file_index, 1) :] or files)
        spreads[path] = (shared, Factor(f"accelerator/{accelerator}:{field}", scatter))
    return spreads


def _field_names(field: str) -> tuple[str, str]:
    """Return the names of an accelerator's field in kernel files: as it is used, and as it was fitted."""
    name = field.removeprefix("kernels.")
    return (name, f"fine.{MEASURED_ALONE.get(name, name)}") if name != field else (name, f"{name}_share")


def _kernel_files(slug: str) -> Iterator[Entry]:
    """Yield a kernel file and those that it takes from, outwards."""
    entry = catalog.entry("kernels", slug)
    yield entry
    if (family := entry.value("family")) is not None:
        yield from _kernel_files(str(family))


def _scatter(names: Sequence[str], files: Sequence[Entry]) -> float:
    """Return the log scatter of a value among the measured chips of the innermost family that states one, else 0."""
    file_spreads = (file.values[name].spread for file in files for name in names if name in file.values)
    return next((spread for spread in file_spreads if spread), 0.0)


def _network_spreads(entry: Entry) -> Spreads:
    """Return leaf path → factors of both networks of a system, or of an accelerator's usual node."""
    prefix = "node." if entry.kind == "accelerator" else ""
    spreads: dict[str, tuple[Factor, ...]] = {}
    for level in ("scale_up", "scale_out"):
        name = entry.value(prefix + level)
        if name not in (None, "none"):
            network = catalog.entry("network", str(name))
            values = {field: (f"network/{network.slug}", value) for field, value in network.values.items()}
            if (bandwidth := entry.values.get(f"{prefix}{level}_bandwidth")) is not None:
                values["bandwidth"] = (f"{entry.kind}/{entry.slug}/{level}", bandwidth)
            for field, (owner, value) in values.items():
                path = f"system.{level}.{field}"
                spreads[path] = (Factor(f"{owner}:{field}", _deviation(path, value)),)
    return spreads
