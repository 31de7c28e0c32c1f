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
    from dse.doors import Study


class NameKind(StrEnum):
    """Kinds of names."""

    leaves = "leaves"
    metrics = "metrics"
    axes = "axes"
    constraints = "constraints"
    columns = "columns"


@report_errors
def names(
    kind: Annotated[
        NameKind | None, typer.Argument(help="What to list.", show_default="how many there are of each")
    ] = None,
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="Part of a name or of its meaning, or a whole name with * and ?.")
    ] = "",
    serving: Annotated[bool, typer.Option("--serving", help="Metrics of serving alone.")] = False,
    as_json: Json = False,
) -> int:
    """List all names, with unit, meaning, bounds and default.

    Without a kind it prints the number of names of each. Leaves of a design, metrics, axes of sweeps, names of
    constraints and objectives, columns of tables. Exit status 1 when nothing matches.
    """
    from dse.cli.listing import listing
    from dse.doors import STUDIES

    studies = [STUDIES["serving"]] if serving else list(STUDIES.values())
    if kind is None:
        return _overview(studies, as_json)
    table = listing(kind, pattern, studies)
    if as_json:
        show.document([dict(zip(table.columns, row, strict=True)) for row in table.rows])
        return 0 if table.rows else NOTHING_FEASIBLE
    out = show.console()
    if not table.rows:
        show.note(f"nothing matches {pattern!r}; {_suggestion(kind, pattern, studies)}")
        return NOTHING_FEASIBLE
    out.print(Text(table.what))
    out.print()
    prose = [column for column in ("meaning", "allowed", "values", "where it is empty") if column in table.columns]
    show.print_table(out, table.columns, table.rows, left=table.columns, prose=prose, spare=["path"])
    return 0


def _suggestion(kind: str, pattern: str, studies: Sequence[Study]) -> str:
    """Return a clause for a pattern without a match: a near name of this kind, one of another, or how to list them."""
    from dse.cli.listing import listing
    from dse.errors import ELSEWHERE, nearest, plain

    def names_of(kind: str) -> list[str]:
        return [name for row in listing(kind, studies=studies).rows for name in row[0].split(", ")]

    kind_names, dse_names = names_of(kind), ELSEWHERE.get(plain(pattern), ())
    matches = [name for name in dse_names if name in kind_names]
    for other in NameKind if not matches else ():
        other_matches = [name for name in dse_names if name in names_of(other)]
        other_matches = other_matches or [
            row[0] for row in listing(other, pattern, studies).rows if not dse_names and pattern in row[0]
        ]
        if other_matches:
            return f"{other_matches[0]} is one of the {other}: dse list {other} {other_matches[0]}"
    matches = matches or nearest(pattern, kind_names)
    return f"did you mean {' or '.join(matches)}?" if matches else f"dse list {kind} shows them all"


def other_names(word: str) -> str:
    """Return the line that says how to list the kind of catalogue entry ``word`` names, "" where it names none."""
    from dse.designs.catalog import kinds
    from dse.errors import plain

    kind_by_word = {plain(kind): kind for kind in kinds()}
    kind = kind_by_word.get(plain(word)) or kind_by_word.get(plain(word).removesuffix("s"))
    return f"names of the catalogue: dse catalog list {kind}" if kind else ""


def _overview(studies: Sequence[Study], as_json: bool) -> int:
    """Print number and use of the names of each kind, and the commands that list them; return exit status 0."""
    from dse.cli.listing import listing

    tables = {kind: listing(kind, studies=studies) for kind in NameKind}
    if as_json:
        show.document([{"kind": kind, "names": len(table.rows), "what": table.what} for kind, table in tables.items()])
        return 0
    out = show.console()
    rows = [(kind, f"{len(table.rows):,}", table.what) for kind, table in tables.items()]
    show.print_table(out, ("kind", "names", "what"), rows, left=("kind", "what"), prose=("what",))
    out.print()
    for line in _USAGE_LINES:
        out.print(Text(line), soft_wrap=True)
    return 0


#: Commands that list names, with examples.
_USAGE_LINES = (
    "dse list leaves            all names of a kind",
    "dse list leaves memory     those with a word in their name or meaning",
    "dse list metrics 'cost_*'  those whose whole name fits",
    "dse catalog list           names of workloads, systems, accelerators and other entries",
)
