"""What ``dse search`` prints of a co-design: the chip, its best mappings, what it is short of."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from dse.cli import show

if TYPE_CHECKING:
    from dse.search.codesign.report import Report


def codesign(specification: Path, as_json: bool, any_option: bool = False, whole_stacks: bool = False) -> int:
    """Solve a specification with a section ``[codesign]`` and print the result."""
    from dse.search.codesign import report as codesign_report

    report = codesign_report.run(specification, any_option, whole_stacks)
    if as_json:
        print(json.dumps(report.as_dict(), allow_nan=False, default=str))
        return 0
    out = show.console()
    out.print(Text(report.title))
    for told in filter(None, (*report.notes, report.lacks)):
        out.print(Text(told, "yellow"), soft_wrap=True)
    for found in (_hardware(report), _workloads(report), _elasticities(report)):
        out.print(found)
    out.print(Text(f"held by: {'; '.join(report.active) or 'nothing'}"), soft_wrap=True)
    if report.whole_stacks:
        out.print(Text(_whole(report)), soft_wrap=True)
    starts = sum(math.isfinite(value) for value in report.starts)
    out.print(
        f"{report.objective}, geometric mean: {report.value:.5g}; {report.evaluations:,} evaluations, "
        f"{starts} of {len(report.starts)} starts with a mapping of every workload, {report.seconds:.1f} s"
    )
    return 0


def _whole(report: Report) -> str:
    """What whole numbers of stacks lose to the chip of continuous size, and which one is shown."""
    losses = {one["stacks"]: one["loss"] for one in report.whole_stacks}
    told = [f"{n:.0f} {'cannot be' if loss is None else f'loses {100 * loss:.2f} %'}" for n, loss in losses.items()]
    known = {n: loss for n, loss in losses.items() if loss is not None}
    shown = f"shown with {min(known, key=lambda n: known[n]):.0f}" if known else "shown as it is"
    return f"whole stacks, to the chip of continuous size: {', '.join(told)}; {shown}"


def _table(*columns: str) -> Table:
    table = Table(*columns)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _hardware(report: Report) -> Table:
    table = _table("leaf", "value", "units")
    for row in report.hardware:
        area = row.units == "m^2"
        table.add_row(row.name, f"{row.value * (1e6 if area else 1.0):.4g}", "mm2" if area else row.units)
    if report.cost is not None:
        table.add_row("die and memory", f"{report.cost:.0f}", "USD")
    return table


def _workloads(report: Report) -> Table:
    names = list(report.workloads[0].mapping)
    table = _table("workload", *names, "step", "MFU %")
    for row in report.workloads:
        cells = [str(row.mapping[name]) for name in names]
        table.add_row(row.workload, *cells, f"{row.metrics['step_time']:.3f} s", f"{100 * row.metrics['mfu']:.1f}")
    return table


def _elasticities(report: Report) -> Table:
    table = _table("1 % more", "objective %, mappings held", "mappings anew")
    for row in report.elasticities:
        table.add_row(row.leaf, *row.shown)
    return table
