"""Output of designs: headings of axes, labels with units, counts by reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.cli import show
from dse.views.headings import SHORT as SHORT

if TYPE_CHECKING:
    from rich.console import Console

    from dse.doors import Study


def print_reasons(out: Console, reasons: dict[str, int], study: Study) -> None:
    """Print number of infeasible designs and meaning of each reason, most frequent first."""
    counted = sorted(reasons.items(), key=lambda item: -item[1])
    rows = [[f"{count:,}", study.reason_meanings[name]] for name, count in counted]
    reason_heading = "reason of infeasibility (a design may have several)"
    show.print_table(out, ["designs", reason_heading], rows, left=[reason_heading], prose=[reason_heading])


def label(name: str, value: Any) -> str:
    """Format the value of an axis, with the unit of its leaf for a number."""
    from dse.designs import all_leaves, leaf_path

    if isinstance(value, bool | str):
        return show.setting(value)
    return show.setting(value, all_leaves()[leaf_path(name)]["units"])
