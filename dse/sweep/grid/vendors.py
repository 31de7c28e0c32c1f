"""Whether the stacks of a sweep exist for its accelerators."""

from __future__ import annotations

from dse.designs.checks import check_vendor
from dse.sweep.grid.grid import Grid


def check(grid: Grid) -> None:
    """That every stack exists for every accelerator, unless any option is allowed; else an InputError.

    Where both are axes nothing is refused: their product may be of use though some of its pairs are none, and stacks
    that come with accelerators, or move with them, are their own. It is asked before a sweep runs, not of results.
    """
    axes = {axis.key: axis for axis in (*grid.fixed, *(axis for one in grid.dimensions for axis in one.axes))}
    devices, stacks = axes.get("accelerator", axes["system"]), axes["software"]
    names = [list(dict.fromkeys(map(str, axis.labels))) for axis in (devices, stacks)]
    if grid.spec.any_option or min(map(len, names)) > 1:
        return
    for device in names[0]:
        for stack in names[1]:
            check_vendor(stack, device, stacks.where or f"{grid.spec.file}: software")
