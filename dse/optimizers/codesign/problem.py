"""The problem of a descent, made of its specification: variables and their limits on a grid of mappings."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dse.designs import catalog, leaf, replace, short_name
from dse.designs.records import CHIP, LINKS, MANUFACTURE, OPTIONAL, PACKAGE, PODS
from dse.errors import InputError
from dse.io import toml
from dse.optimizers.codesign.descent import DescentProblem
from dse.optimizers.codesign.hardware import STACKS, Hardware, Leaves
from dse.optimizers.codesign.inner import InnerProblem
from dse.spec import SearchSpec
from dse.spec.codesign import DESCENT, SECTION, DescentSchedule
from dse.spec.continuous import DEVICE_COST, Interval, Limit, hardware_path
from dse.sweep import Grid
from dse.types import Accelerator, Manufacture
from dse.types.paths import build as built


@functools.cache
def _watched_leaves() -> tuple[str, ...]:
    """Return the full paths of the leaves of ``watched.toml``."""
    records = toml.table(Path(__file__).with_name("watched.toml"))
    return tuple(f"{record}.{name}" for record, names in records.items() for name in names)


def build(spec: SearchSpec, grid: Grid) -> DescentProblem:
    """Return the problem of a descent from its specification and its grid of mappings.

    Raises:
        InputError: for unknown names, and limits that contradict each other.
    """
    where, options = f"{spec.sweep.file}: {spec.section}", spec.options[DESCENT]
    _check(grid, spec.sweep.file)
    share_lists = options.get("shares", ())
    simplices = tuple(tuple(hardware_path(name, f"{where}.shares") for name in names) for names in share_lists)
    grid = _with_records(grid, spec, simplices)
    hardware = _hardware(spec, grid, simplices)
    schedule = DescentSchedule(**{name: options[name] for name in DescentSchedule.model_fields if name in options})
    inner = InnerProblem(grid, tuple(dict.fromkeys((*hardware.names, *_watched_leaves()))), schedule.k)
    whole_stacks = options.get("whole_stacks", False)
    if whole_stacks and STACKS not in hardware.bounds:
        fix = f"give it a range under [axes], or under [{SECTION}.between]"
        raise InputError(f"{where}.whole_stacks", "true", "chip.stacks as a variable", fix)
    return DescentProblem(hardware, inner, _weights(options, grid, where), schedule, whole_stacks)


def shares(problem: DescentProblem) -> tuple[Interval, ...]:
    """Return the variables that are shares as linear intervals, each from 0 to the total of its simplex."""
    hardware = problem.hardware
    return tuple(
        Interval(path, short_name(path), 0.0, total, log=False)
        for simplex, total in zip(hardware.simplices, hardware.totals, strict=True)
        for path in simplex
    )


def _check(grid: Grid, file: str) -> None:
    """Raise InputError but for one objective, one structure, a generated accelerator, and no axis of the chip."""
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
                "give it a range with continuous = true",
            )


def _with_records(grid: Grid, spec: SearchSpec, simplices: tuple[tuple[str, ...], ...]) -> Grid:
    """Return the grid whose base has the optional records of all variables; InputError where none can be made."""
    records: dict[str, Any] = {}
    for path in (*(interval.path for interval in spec.intervals), *itertools.chain(*simplices)):
        record = next((record for record in OPTIONAL if path.startswith(f"{record}.")), "")
        if not record or record in records or leaf(grid.base, record) is not None:
            continue
        if record == MANUFACTURE:
            records[record] = _priced_accelerator(grid).made
        elif record in (PODS, LINKS, PACKAGE):  # their defaults would make another network of it
            fix = "take it out, or name a system that has it"
            raise InputError(
                f"{spec.sweep.file}: {_short_path(path)}", _short_path(path), "leaves that the system has", fix
            )
        else:
            records[record] = OPTIONAL[record]()
    return dataclasses.replace(grid, base=replace(grid.base, jax.tree.map(np.float32, records))) if records else grid


def _hardware(spec: SearchSpec, grid: Grid, simplices: tuple[tuple[str, ...], ...]) -> Hardware:
    """Return the variables with bounds and budget.

    InputError where nothing may change, a leaf is given twice, or a limit cannot be met.
    """
    where = f"{spec.sweep.file}: {spec.section}"
    bounds = {interval.path: (interval.low, interval.high) for interval in spec.intervals}
    shares = list(itertools.chain(*simplices))
    for path in shares:
        if shares.count(path) > 1 or path in bounds:
            raise InputError(f"{where}.shares", f"{_short_path(path)} twice", "each leaf once", "remove one of them")
    if not shares and not bounds:
        fix = f"give a leaf a range with continuous = true, or write [{SECTION}.between]"
        raise InputError(where, "nothing that may change", "shares, continuous axes or both", fix)
    fixed: Leaves = {path: float(leaf(grid.base, path)) for path in (f"{CHIP}.die_area", f"{CHIP}.stacks")}
    for limit in spec.limits:
        if limit.name != DEVICE_COST:
            _narrow_range(bounds, limit, grid)
    cost_limits = [limit for limit in spec.limits if limit.name == DEVICE_COST]
    hardware = Hardware(
        simplices=simplices,
        totals=tuple(sum(float(leaf(grid.base, path)) for path in simplex) for simplex in simplices),
        bounds=bounds,
        fixed=fixed,
        priced_accelerator=_priced_accelerator(grid) if cost_limits else None,
        budget=min((cost_limit.value for cost_limit in cost_limits), default=math.inf),
    )
    _check_cheapest(hardware, cost_limits[0].where if cost_limits else "")
    return hardware


def _narrow_range(bounds: dict[str, tuple[float, float]], limit: Limit, grid: Grid) -> None:
    """Narrow ``bounds[path]`` in place by a limit in SI units; InputError where the limit leaves nothing."""
    path, value = limit.name, limit.value
    low, high = bounds.get(path) or (float(leaf(grid.base, path)),) * 2
    if limit.is_upper and low > value * (1.0 + 1e-6):
        raise InputError(limit.where, f"{value:g}", f"{low:g} or more", f"lower {_short_path(path)}")
    if not limit.is_upper and high < value * (1.0 - 1e-6):
        raise InputError(limit.where, f"{value:g}", f"{high:g} or less", f"raise {_short_path(path)}")
    if path in bounds:
        bounds[path] = (low, min(high, value)) if limit.is_upper else (max(low, value), high)


def _priced_accelerator(grid: Grid) -> Accelerator:
    """Return the sweep's accelerator, with how it is made from its catalog file where it lacks that."""
    accelerator, files_by_section = grid.base.system.accelerator, dict(grid.catalog_entries)
    if accelerator.made is not None:
        return accelerator
    return dataclasses.replace(
        accelerator,
        made=built(Manufacture, catalog.manufacture(files_by_section.get("accelerator", files_by_section["system"]))),
    )


def _check_cheapest(hardware: Hardware, where: str) -> None:
    """Raise InputError where even the lowest bounds cost more than the budget, USD to make one accelerator.

    Nothing is checked where no accelerator is priced.
    """
    if hardware.priced_accelerator is None:
        return
    coordinates = {path: math.log(low) for path, (low, _) in hardware.bounds.items()}
    cheapest = float(hardware.cost({**dict.fromkeys(hardware.names, 0.0), **coordinates}))
    if cheapest > hardware.budget:
        raise InputError(
            where, f"{hardware.budget:g} USD", f"{cheapest:.0f} USD or more", "raise the budget, or lower from"
        )


def _weights(options: dict[str, Any], grid: Grid, where: str) -> np.ndarray:
    """Return the weights [workload], which add up to 1, equal by default; InputError for a wrong number of them."""
    weights = options.get("weights") or (1.0,) * grid.n_points
    if len(weights) != grid.n_points:
        allowed = f"{grid.n_points} numbers above 0"
        raise InputError(f"{where}.weights", repr(list(weights)), allowed, "one for each workload")
    return np.array(weights, np.float64) / sum(weights)


def _short_path(path: str) -> str:
    """Return a path without ``system.accelerator.`` at its start."""
    return path.removeprefix("system.accelerator.")
