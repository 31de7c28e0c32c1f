"""``dse list``: all names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Json
from dse.cli.status import NOTHING_FEASIBLE, report_errors


class Kind(StrEnum):
    """Kinds of names."""

    leaves = "leaves"
    metrics = "metrics"
    axes = "axes"
    constraints = "constraints"
    columns = "columns"


@report_errors
def names(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="Part of a name or of its meaning, or a whole name with * and ?.")
    ] = "",
    serving: Annotated[bool, typer.Option("--serving", help="Metrics of serving alone.")] = False,
    as_json: Json = False,
) -> int:
    """List all names, with unit, meaning, bounds and default.

    Leaves of a design, metrics, axes of sweeps, names of constraints and objectives, columns of tables. Exit status 1
    when nothing matches.
    """
    from dse.listing import listing
    from dse.studies import STUDIES

    found = listing(kind, pattern, [STUDIES["serving"]] if serving else list(STUDIES.values()))
    if as_json:
        show.document([dict(zip(found.columns, row, strict=True)) for row in found.rows])
        return 0 if found.rows else NOTHING_FEASIBLE
    out = show.console()
    out.print(Text(found.what))
    if not found.rows:
        show.note(f"nothing matches {pattern!r}; dse list {kind} shows them all")
        return NOTHING_FEASIBLE
    out.print()
    prose = [column for column in ("meaning", "allowed", "values", "where it is empty") if column in found.columns]
    show.print_table(out, found.columns, found.rows, left=found.columns, prose=prose, spare=["path"])
    return 0
