"""``dse list``: all names."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Json
from dse.cli.status import NOTHING_FEASIBLE, report_errors

if TYPE_CHECKING:
    from dse.study import Study


class Kind(StrEnum):
    """Kinds of names."""

    leaves = "leaves"
    metrics = "metrics"
    axes = "axes"
    constraints = "constraints"
    columns = "columns"


@report_errors
def names(
    kind: Annotated[
        Kind | None, typer.Argument(help="What to list.", show_default="how many there are of each")
    ] = None,
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="Part of a name or of its meaning, or a whole name with * and ?.")
    ] = "",
    serving: Annotated[bool, typer.Option("--serving", help="Metrics of serving alone.")] = False,
    as_json: Json = False,
) -> int:
    """List all names, with unit, meaning, bounds and default.

    Without a kind it tells how many names there are of each. Leaves of a design, metrics, axes of sweeps, names of
    constraints and objectives, columns of tables. Exit status 1 when nothing matches.
    """
    from dse.listing import listing
    from dse.studies import STUDIES

    studies = [STUDIES["serving"]] if serving else list(STUDIES.values())
    if kind is None:
        return _overview(studies, as_json)
    found = listing(kind, pattern, studies)
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


def _overview(studies: Sequence[Study], as_json: bool) -> int:
    """How many names of each kind there are, what they are for, and how to see them."""
    from dse.listing import listing

    found = {kind: listing(kind, studies=studies) for kind in Kind}
    if as_json:
        show.document([{"kind": kind, "names": len(one.rows), "what": one.what} for kind, one in found.items()])
        return 0
    out = show.console()
    rows = [(kind, f"{len(one.rows):,}", one.what) for kind, one in found.items()]
    show.print_table(out, ("kind", "names", "what"), rows, left=("kind", "what"), prose=("what",))
    out.print()
    for line in _WAYS:
        out.print(Text(line), soft_wrap=True)
    return 0


#: How to see names, with examples.
_WAYS = (
    "dse list leaves            all names of a kind",
    "dse list leaves memory     those with a word in their name or meaning",
    "dse list metrics 'cost_*'  those whose whole name fits",
    "dse catalog list           names of workloads, systems, accelerators and whatever else has a file",
)
