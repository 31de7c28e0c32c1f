"""Output of ``dse search`` for a co-design: the chip, its best mappings, its active limits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dse.cli import show

if TYPE_CHECKING:
    from dse.optimizers.codesign.report import Report


def codesign(specification: Path, as_json: bool, **options: Any) -> int:
    """Solve a specification with a section ``[codesign]`` and print the result; see :class:`CodesignOptions`."""
    from dse.optimizers.codesign import run as codesign_run

    _, report = codesign_run.perform(specification, codesign_run.CodesignOptions(**options))
    if as_json:
        show.document(report.as_dict(), indent=None, default=str)
        return 0
    out = show.console()
    out.print(Text(report.title))
    for text in filter(None, (*report.notes, report.lacks)):
        out.print(Text(text, "yellow"), soft_wrap=True)
    for columns, rows in (_hardware(report), _workloads(report), _elasticities(report)):
        out.print()
        show.print_table(out, columns, rows, left=columns[:1])
    out.print()
    out.print(Text(f"active limits: {'; '.join(report.active) or 'nothing'}"), soft_wrap=True)
    if report.whole_stacks:
        out.print(Text(_whole(report)), soft_wrap=True)
    starts = sum(math.isfinite(value) for value in report.starts)
    out.print(
        f"{report.objective}, geometric mean: {report.value:.5g}; {show.counted(report.evaluations, 'evaluation')} in "
        f"{show.seconds(report.seconds)}; {starts} of {len(report.starts)} starts have a mapping of every workload"
    )
    if report.finished:
        out.print(Text(f"finished by a run on {report.finished} (--fresh solves it again)"), soft_wrap=True)
    if report.output:
        out.print(Text(str(report.output)), soft_wrap=True)
    return 0


def _whole(report: Report) -> str:
    """Losses of whole numbers of memory stacks against the continuous size, and the one shown."""
    losses = {one["stacks"]: one["loss"] for one in report.whole_stacks}
    each = [f"{n:.0f} {'is infeasible' if loss is None else f'loses {100 * loss:.2f} %'}" for n, loss in losses.items()]
    known = {n: loss for n, loss in losses.items() if loss is not None}
    shown = f"shown with {min(known, key=lambda n: known[n]):.0f} stacks" if known else "shown with the continuous size"
    return f"whole memory stacks, compared with the chip of continuous size: {', '.join(each)}; {shown}"


#: Headings and cells.
Listed = tuple[list[str], list[list[str]]]


def _hardware(report: Report) -> Listed:
    rows = [[row.name, show.setting(row.value, row.units)] for row in report.hardware]
    if report.cost is not None:
        rows.append(["cost of making one", f"{report.cost:,.0f} USD"])
    return ["leaf", "value"], rows


def _workloads(report: Report) -> Listed:
    names = list(report.workloads[0].mapping)
    rows = [
        [
            row.workload,
            *(str(row.mapping[name]) for name in names),
            show.seconds(row.metrics["step_time"]),
            f"{100 * row.metrics['mfu']:.1f}",
        ]
        for row in report.workloads
    ]
    return ["workload", *names, "step", "MFU %"], rows


def _elasticities(report: Report) -> Listed:
    columns = ["1 % more", "objective %, same mappings", "with the best mappings anew"]
    return columns, [[row.leaf, *row.shown] for row in report.elasticities]
