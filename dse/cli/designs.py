"""Designs as commands print them: headings of axes, labels with units, counts by reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.cli import show

if TYPE_CHECKING:
    from rich.table import Table

    from dse.study import Study

#: Axis → its heading; the others keep their names. This is also the order of the columns.
SHORT = {
    "tp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "micro_batch": "mb", "virtual_stages": "v",
    "recompute": "recompute", "recompute_share": "of layers", "zero_stage": "zero", "sequence_parallel": "sp",
    "overlap_dp": "o:dp", "overlap_tp": "o:tp", "dp_replicate": "copies",
    "offload_weights": "off:w", "offload_activations": "off:a", "offload_optimizer": "off:o",
}  # fmt: skip


def reasons_table(reasons: dict[str, int], study: Study) -> Table:
    """Designs by reason in words."""
    counted = sorted(reasons.items(), key=lambda item: -item[1])
    rows = [[f"{count:,}", study.reason_meanings[name]] for name, count in counted]
    because = "because (one design may have several reasons)"
    return show.table(["cannot", because], rows, left=[because])


def label(name: str, value: Any) -> str:
    """What an axis is at a design, with its units."""
    from dse.designs import known_leaves, leaf_path

    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    units = known_leaves()[leaf_path(name)]["units"]
    return f"{value:g}" if units == "1" else show.quantity(float(value), units)
