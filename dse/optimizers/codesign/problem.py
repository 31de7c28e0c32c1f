"""The problem of a co-design, made of its specification: variables, bounds and budgets on a grid of mappings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dse.designs import catalog
from dse.designs.leaves import known_leaves, leaf, leaf_value, reading_note, replace
from dse.designs.records import CHIP, LINKS, MADE, OPTIONAL, PACKAGE, PODS
from dse.errors import InputError
from dse.optimizers.codesign.descent import DescentProblem, DescentSchedule
from dse.optimizers.codesign.hardware import STACKS, Hardware, Leaves
from dse.optimizers.codesign.inner import Inner
from dse.spec import codesign as codesign_spec
from dse.spec.axes import find_leaf
from dse.spec.codesign import SECTION, Budget, Codesign, CodesignSpec
from dse.spec.space import flat
from dse.sweep.grid import compose
from dse.sweep.grid.grid import Grid
from dse.types import Accelerator, Made
from dse.types.paths import build as built

_BUDGETS = {"area": f"{CHIP}.die_area", "power": f"{CHIP}.power_budget", "cost": ""}

#: Leaves whose elasticities are reported in addition to those of the variables, where the design has them.
WATCHED = (
    *(
        f"{CHIP}.{name}"
        for name in (
            "die_area",
            "power_budget",
            "stacks",
            "core_area",
            "matrix_area",
            "vector_area",
            "cache_area",
            "memory_area",
            "link_area",
            "memory_edge",
            "link_edge",
            "core_power",
            "memory_power",
            "link_power",
            "link_energy",
            "link_density",
            "memory.unit_bandwidth",
            "memory.unit_capacity",
            "memory.unit_energy",
            "node.density",
            "node.energy",
        )
    ),
    "system.scale_up.bandwidth",
    "system.scale_out.bandwidth",
)


def read(path: str | Path) -> DescentProblem:
    """The problem of a TOML file; whatever is wrong with it is an InputError."""
    return build(codesign_spec.read(path))


def from_text(text: str, file: str = "codesign.toml") -> DescentProblem:
    """The problem of a TOML text; ``file`` is what errors call it."""
    return build(codesign_spec.from_text(text, file))


def build(spec: CodesignSpec) -> DescentProblem:
    """The problem of a specification; bad names, bounds and budgets are InputErrors."""
    section, file, grid = spec.section, spec.sweep.file, compose.build(spec.sweep)
    _check(grid, file)
    grid = _with_records(grid, section, file)
    hardware = _hardware(section, grid, file)
    given = section.model_dump(exclude_none=True, exclude={"shares", "weights", "between", "budget", "whole_stacks"})
    schedule = DescentSchedule(**given)
    inner = Inner(grid, tuple(dict.fromkeys((*hardware.names, *WATCHED))), schedule.k)
    if section.whole_stacks and STACKS not in hardware.bounds:
        where = f"{file}: {SECTION}.whole_stacks"
        raise InputError(where, "true", "chip.stacks as a variable", f"put it under [{SECTION}.between]")
    weights, notes = _weights(section, grid, file), (*grid.spec.notes, *_notes(section, file))
    return DescentProblem(hardware, inner, weights, schedule, grid.spec.title, section.whole_stacks, notes)


def _notes(section: Codesign, file: str) -> Iterator[str]:
    """How values of the section without their units were read, in words."""
    said = [(name, _path(name, file), list(value.values())) for name, value in flat(section.between)]
    budget = section.budget.model_dump(exclude_none=True).items()
    said += [(f"budget.{key}", path, [value]) for key, value in budget if (path := _BUDGETS[key])]
    return filter(None, (reading_note(name, path, *values) for name, path, values in said))


def _check(grid: Grid, file: str) -> None:
    """One objective, a generated accelerator, and no dimension but workloads."""
    if grid.members:
        raise InputError(
            f"{file}: axes",
            "designs of several structures",
            "workloads that all have experts, or none",
            "co-design for each of them separately",
        )
    if grid.base.system.accelerator.chip is None:
        raise InputError(
            f"{file}: system", "an accelerator that is not generated", "a generated one", 'write accelerator = "gpu"'
        )
    if len(grid.spec.objectives) != 1:
        raise InputError(
            f"{file}: objective",
            f"{len(grid.spec.objectives)} objectives",
            "one",
            "combine them in one expression, such as their product",
        )
    for dimension in grid.dimensions:
        if any(path.startswith(f"{CHIP}.") for path in dimension.columns):
            raise InputError(
                f"{file}: axes.{dimension.name}",
                "an axis of the chip",
                "workloads and parts of the mapping",
                f"put it under [{SECTION}.between]",
            )


def _with_records(grid: Grid, section: Codesign, file: str) -> Grid:
    """The grid whose base has the records of all variables, which a sweep that reads none of them leaves out."""
    named = {name: f"{file}: {SECTION}.between.{name}" for name, _ in flat(section.between)}
    named |= {name: f"{file}: {SECTION}.shares" for names in section.shares for name in names}
    added: dict[str, Any] = {}
    for name, where in named.items():
        path = _path(name, where)
        record = next((record for record in OPTIONAL if path.startswith(f"{record}.")), "")
        if not record or record in added or leaf(grid.base, record) is not None:
            continue
        if record == MADE:
            added[record] = _priced(grid).made
        elif record in (PODS, LINKS, PACKAGE):  # their defaults would make another network of it
            raise InputError(where, name, "leaves that the system has", "take it out, or name a system that has it")
        else:
            added[record] = OPTIONAL[record]()
    return dataclasses.replace(grid, base=replace(grid.base, jax.tree.map(np.float32, added))) if added else grid


def _hardware(section: Codesign, grid: Grid, file: str) -> Hardware:
    """Variables, bounds and budgets."""
    where = f"{file}: {SECTION}"
    budget = _budget(section.budget, f"{where}.budget")
    simplices = tuple(tuple(_path(name, f"{where}.shares") for name in names) for names in section.shares)
    bounds = dict(_bounds(section.between, f"{where}.between"))
    taken = [path for simplex in simplices for path in simplex]
    for path in taken:
        if taken.count(path) > 1 or path in bounds:
            raise InputError(f"{where}.shares", f"{_short(path)} twice", "each leaf once", "remove one of them")
    if not taken and not bounds:
        raise InputError(where, "nothing that may change", "shares, between or both", f"write [{SECTION}.between]")
    fixed: Leaves = {path: float(leaf(grid.base, path)) for path in (f"{CHIP}.die_area", f"{CHIP}.stacks")}
    _cap(bounds, budget, grid, f"{where}.budget")
    hardware = Hardware(
        simplices=simplices,
        totals=tuple(sum(float(leaf(grid.base, path)) for path in simplex) for simplex in simplices),
        bounds=bounds,
        fixed=fixed,
        priced=_priced(grid) if "cost" in budget else None,
        budget=budget.get("cost", math.inf),
    )
    _check_cheapest(hardware, f"{where}.budget.cost")
    return hardware


def _budget(budget: Budget, where: str) -> dict[str, float]:
    found = {}
    for key, value in budget.model_dump(exclude_none=True).items():
        path = _BUDGETS[key]
        found[key] = leaf_value(path, value, f"{where}.{key}") if path else catalog.quantity(str(value), "USD", where)
    return found


def _bounds(table: Mapping[str, Any], where: str) -> list[tuple[str, tuple[float, float]]]:
    """Full path → least and largest value, of dotted keys or nested tables."""
    found = []
    for name, value in flat(table):
        here = f"{where}.{name}"
        if not isinstance(value, dict) or set(value) != {"from", "to"}:
            raise InputError(here, repr(value), "{ from, to }", 'write { from = "200 mm2", to = "800 mm2" }')
        path = _path(name, here)
        low, high = (leaf_value(path, value[end], f"{here}.{end}") for end in ("from", "to"))
        if not 0.0 < low < high:
            raise InputError(here, f"{low:g} to {high:g}", "0 < from < to", "check both ends")
        found.append((path, (low, high)))
    return found


def _path(name: str, where: str) -> str:
    """Full path of a continuous leaf of the system."""
    path = find_leaf(name, where, (), "leaves of a design")
    if not path.startswith("system.") or "enum" in known_leaves()[path] or path == "system.n_devices":
        raise InputError(where, name, "continuous leaves of the system, such as chip.die_area", "make it an axis")
    return path


def _cap(bounds: dict[str, tuple[float, float]], budget: dict[str, float], grid: Grid, where: str) -> None:
    """Budgets of area and power cap their leaves."""
    for key, most in budget.items():
        path = _BUDGETS[key]
        low, high = bounds.get(path, (0.0, 0.0)) if path else (0.0, 0.0)
        least = low if path in bounds else float(leaf(grid.base, path)) if path else 0.0
        if path and least > most * (1.0 + 1e-6):
            raise InputError(f"{where}.{key}", f"{most:g}", f"{least:g} or more", f"lower {_short(path)}")
        if path in bounds:
            bounds[path] = (low, min(high, most))


def _priced(grid: Grid) -> Accelerator:
    """The accelerator whose bill is held against a budget: that of the sweep, made as its file says."""
    accelerator, used = grid.base.system.accelerator, dict(grid.used)
    if accelerator.made is not None:
        return accelerator
    return dataclasses.replace(accelerator, made=built(Made, catalog.made(used.get("accelerator", used["system"]))))


def _check_cheapest(hardware: Hardware, where: str) -> None:
    if hardware.priced is None:
        return
    at = {path: math.log(low) for path, (low, _) in hardware.bounds.items()}
    least = float(hardware.cost({**dict.fromkeys(hardware.names, 0.0), **at}))
    if least > hardware.budget:
        raise InputError(
            where, f"{hardware.budget:g} USD", f"{least:.0f} USD or more", "raise the budget, or lower from"
        )


def _weights(section: Codesign, grid: Grid, file: str) -> np.ndarray:
    """Weights of the workloads, adding up to 1."""
    weights = section.weights or (1.0,) * grid.n_points
    if len(weights) != grid.n_points:
        where, allowed = f"{file}: {SECTION}.weights", f"{grid.n_points} numbers above 0"
        raise InputError(where, repr(list(weights)), allowed, "one for each workload")
    return np.array(weights, np.float64) / sum(weights)


def _short(path: str) -> str:
    return path.removeprefix("system.accelerator.")
