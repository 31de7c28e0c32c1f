"""``dse bench``: how fast it is, here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dse.cli import show
from dse.cli.status import report_errors


@report_errors
def bench(
    starts: Annotated[bool, typer.Option(help="Also time fresh processes, cold and warm.")] = True,
    docs: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write the page of results.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure rates and start-up times of the standard sweep."""
    from dse import bench as benchmarks

    measured = benchmarks.bench(starts=starts)
    if docs:
        docs.parent.mkdir(parents=True, exist_ok=True)
        docs.write_text(benchmarks.page(measured))
    if as_json:
        show.document(measured)
    else:
        rows = [[name, f"{value:,.4g}" if isinstance(value, float) else str(value)] for name, value in measured.items()]
        show.console().print(show.table(["", "measured"], rows, left=[""]))
