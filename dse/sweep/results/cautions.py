"""What a reader of results must know of their best designs, and of all of them, in words.

Of constraints that no design meets: how often each is violated, and the nearest values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dse.designs import calibrated, leaf, leaves_of, replace
from dse.designs.records import PLAIN_EXPERTS
from dse.doors.study import Lookup
from dse.io import counted, quantity
from dse.spec import Expression
from dse.spec.axes import Label
from dse.sweep.engine.numpy_backend import evaluate_few, merge_structures
from dse.sweep.engine.point import Program
from dse.sweep.grid.grid import Grid
from dse.sweep.results.chip_limits import limit_notes
from dse.sweep.results.prices import price_notes
from dse.types import Design


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cautions:
    """What a reader must know, in words: part of what a sweep and a search have found."""

    design_cautions: tuple[str, ...] = ()  #: on the metrics of the best designs, a line for each that has some
    outside: str = ""  #: in what the best designs lie outside of what their stack was fitted to, in one line
    context: str = ""  #: in what they exceed the contexts of their models, and what holds their chips, in one line
    prices: str = ""  #: what stands in for prices and dies of their accelerators that nobody states, in one line
    remarks: tuple[str, ...] = ()  #: on the whole sweep or space, a line each

    @property
    def caution(self) -> str:
        """What a reader of the best designs' metrics must know, in one line; empty where there is nothing."""
        return next(iter(self.design_cautions), "")

    @property
    def best_cautions(self) -> tuple[str, ...]:
        """What a reader of the best designs must know, a line each."""
        return tuple(filter(None, (self.caution, self.outside, self.context, self.prices)))

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader of the results must know, a line each: of the best designs, then of the whole."""
        return tuple(dict.fromkeys((*self.best_cautions, *self.remarks)))


def cautions(
    grid: Grid,
    designs: Iterable[tuple[Mapping[str, Label], Mapping[str, float], Design]],
    labels: Iterable[Mapping[str, Label]],
    remarks: tuple[str, ...],
    most: float = math.inf,
) -> Cautions:
    """Return cautions on the best designs: their metrics, stacks' ranges, models' contexts and chips' limits.

    Args:
        grid: of the sweep or search.
        designs: labels by axis; metrics by name and leaves by path; the base design of its structure.
        labels: of the designs whose prices are told.
        remarks: on the whole of the results.
        most: cautions of metrics at most, each of which may take an evaluation of the model.
    """
    parts = [(member_grid.base, member_grid) for member_grid in grid.structure_grids]
    ranges_by_stack: dict[str, dict[str, None]] = {}  # by stack, in their order and each text once
    context: dict[str, None] = {}
    chips, design_cautions = [], list[str]()
    for design_labels, numbers, base in designs:
        design = replace(base, {path: numbers[path] for path in leaves_of(base) if path in numbers})
        if len(design_cautions) < most and (line := grid.spec.study.caution_on(numbers, design)):
            design_cautions.append(line)
        design_grid = next((member_grid for member_base, member_grid in parts if member_base is base), grid)
        entries = named_entries(grid, design_grid, design_labels)
        lookup = calibrated.lookup_of(base, numbers)
        chips.append(design.system.accelerator.chip)
        if "workload" in entries and (note := calibrated.context_note(entries["workload"], lookup)):
            context[note] = None
        if "software" in entries and {"system", "accelerator"} & entries.keys():
            chip = entries.get("accelerator") or calibrated.accelerator_of(entries["system"])
            range_texts = calibrated.uncalibrated_quantities(entries["software"], lookup, chip)
            ranges_by_stack.setdefault(entries["software"], {}).update(dict.fromkeys(range_texts))
    outside_note = calibrated.range_notes({stack: [*texts] for stack, texts in ranges_by_stack.items()})
    return Cautions(
        design_cautions=tuple(design_cautions),
        outside=outside_note,
        context="; ".join([*context, *limit_notes(chips)]),
        prices=price_notes(grid, [*labels]),
        remarks=remarks,
    )


def named_entries(grid: Grid, part_grid: Any, labels: Mapping[str, Label]) -> dict[str, str]:
    """Return key → slug of a design's workload, software, accelerator and system, those that it has."""
    kinds = ("workload", "software", "accelerator", "system")
    fixed = {axis.key: axis.labels[0] for axis in (*grid.fixed, *part_grid.fixed) if axis.key in kinds}
    return {key: str(label) for key, label in {**fixed, **labels}.items() if key in kinds}


#: Maximum number of designs that are evaluated, evenly spaced over the sweep.
_MAX_EVALUATED = 4096


def unmet_notes(grid: Grid) -> tuple[str, ...]:
    """Return how many designs can run but for the constraints, then a line for each constraint; empty without any.

    A constraint's line has the number of these designs that violate it, and the nearest value.

    Above 4,096 designs a sample of this size is evaluated, and the lines say so.
    """
    if not grid.constraints:
        return ()
    count, study = min(grid.n_designs, _MAX_EVALUATED), grid.spec.study
    index = grid.indices(np.linspace(0, grid.n_designs - 1, count).astype(np.int64))
    values = grid.values(index)
    metrics, _ = merge_structures(
        [
            (positions, evaluate_few(member_grid.base, member_grid.values(local_index), program=Program(study)))
            for positions, member_grid, local_index in grid.by_structure(index)
        ]
    )
    feasible_rows = np.flatnonzero(np.broadcast_to(np.asarray(metrics.infeasible_reason) == 0, count))

    def lookup(name: str) -> Any:
        value = getattr(metrics, name) if name in study.units else values.get(name)
        if name in PLAIN_EXPERTS and value is not None:
            value = np.where(np.isnan(value), PLAIN_EXPERTS[name], value)
        return np.broadcast_to(leaf(grid.base, name) if value is None else value, count)[feasible_rows]

    spread = "" if count == grid.n_designs else " spread over the sweep"
    share_text = f"{len(feasible_rows):,} of {counted(count, 'design')}{spread}"
    head = f"{share_text} can run but for the constraints{':' if len(feasible_rows) else ''}"
    return (
        head,
        *(_unmet_line(constraint, lookup, len(feasible_rows)) for constraint in grid.constraints if len(feasible_rows)),
    )


def _unmet_line(constraint: Expression, lookup: Lookup, count: int) -> str:
    """Return the text on one constraint; ``count``: number of otherwise feasible designs."""
    missed = count - int(np.count_nonzero(np.broadcast_to(constraint(lookup), count)))
    text = f"{constraint.text}: {missed:,} miss it"
    name, is_upper = constraint.bound or ("", False)
    units = constraint.study.display_units.get(name)
    if not missed or units is None:
        return text
    nearest = float(np.min(lookup(name)) if is_upper else np.max(lookup(name)))
    return f"{text}; the {'least' if is_upper else 'largest'} {name} is {quantity(nearest, units)}"
