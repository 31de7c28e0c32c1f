"""Check that the software stacks of a sweep exist for its accelerators."""

from __future__ import annotations

from dse.designs.checks import check_vendor
from dse.sweep.grid.grid import Grid


def check(grid: Grid) -> None:
    """Raise InputError for a stack that does not exist for an accelerator, unless any option is allowed.

    If both are swept, nothing is refused: their product may be useful although some pairs do not exist; stacks that
    come or move with accelerators are their own. Checked before a sweep runs, not for stored results.
    """
    axes = {
        axis.key: axis for axis in (*grid.fixed, *(axis for dimension in grid.dimensions for axis in dimension.axes))
    }
    devices, stacks = axes.get("accelerator", axes["system"]), axes["software"]
    names = [list(dict.fromkeys(map(str, axis.labels))) for axis in (devices, stacks)]
    if grid.spec.any_option or min(map(len, names)) > 1:
        return
    for device in names[0]:
        for stack in names[1]:
            check_vendor(stack, device, stacks.where or f"{grid.spec.file}: software")
