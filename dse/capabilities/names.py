"""``dse list``: all names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from dse.errors import plain, unknown_name
from dse.reports import Column, Line, Option, Report, Table, capability
from dse.reports.report import NOTHING_FEASIBLE

if TYPE_CHECKING:
    from dse.doors import Study

#: Columns whose cells may be wrapped, and the column that is left out first.
_PROSE, _SPARE = ("meaning", "allowed", "values", "where it is empty", "what"), "path"


#: Kinds of names (:data:`dse.capabilities.listing.KINDS`).
_KINDS = ("leaves", "metrics", "axes", "constraints", "columns")


@capability("Manage", "list", path="names")
def names(
    kind: Annotated[str | None, Option(is_argument=True, metavar="|".join(_KINDS), choices=_KINDS)] = None,
    pattern: Annotated[str, Option(is_argument=True, metavar="[PATTERN]")] = "",
    serving: bool = False,
) -> Report:
    """List all names, with unit, meaning, bounds and default.

    Without a kind it prints the number of names of each. Leaves of a design, metrics, axes of sweeps, names of
    constraints and objectives, columns of tables. Exit status 1 when nothing matches.

    Args:
        kind: What to list [default: how many there are of each].
        pattern: Part of a name or of its meaning, or a whole name with * and ?.
        serving: Metrics of serving alone.
    """
    from dse.capabilities.listing import listing
    from dse.doors import STUDIES

    studies = [STUDIES["serving"]] if serving else list(STUDIES.values())
    if kind is None:
        return _overview(studies)
    if kind not in _KINDS:
        problem = unknown_name("dse list kind", kind, _KINDS, "names")
        problem.fix = _catalogue_fix(kind) or problem.fix
        raise problem
    table = listing(kind, pattern, studies)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    if not rows:
        note = f"nothing matches {pattern!r}; {_suggestion(kind, pattern, studies)}"
        return Report([], notes=[note], status=NOTHING_FEASIBLE)
    columns = [Column(name, name, left=True, prose=name in _PROSE, spare=name == _SPARE) for name in table.columns]
    remarks = [Line(f"\n{table.note}")] if table.note else []
    return Report(rows, [Line(f"{table.what}\n"), Table("names", columns, rows), *remarks])


def _suggestion(kind: str, pattern: str, studies: Sequence[Study]) -> str:
    """Return a clause for a pattern without a match: a near name of this kind, one of another, or how to list them."""
    from dse.capabilities.listing import listing
    from dse.errors import ELSEWHERE, nearest, plain

    def names_of(kind: str) -> list[str]:
        return [name for row in listing(kind, studies=studies).rows for name in row[0].split(", ")]

    kind_names, dse_names = names_of(kind), ELSEWHERE.get(plain(pattern), ())
    matches = [name for name in dse_names if name in kind_names]
    for other in _KINDS if not matches else ():
        alike = () if dse_names else listing(other, pattern, studies).rows
        names_there = [name for name in dse_names if name in names_of(other)]
        names_there += [row[0] for row in alike if pattern in row[0]]
        if names_there:
            return f"{names_there[0]} is one of the {other}: dse list {other} {names_there[0]}"
    matches = matches or nearest(pattern, kind_names)
    return f"did you mean {' or '.join(matches)}?" if matches else f"dse list {kind} shows them all"


def _catalogue_fix(word: str) -> str:
    """Return the line that says how to list the kind of catalogue entry ``word`` names, "" where it names none."""
    from dse.designs.catalog import kinds

    kind_by_word = {plain(kind): kind for kind in kinds()}
    kind = kind_by_word.get(plain(word)) or kind_by_word.get(plain(word).removesuffix("s"))
    return f"names of the catalogue: dse catalog list {kind}" if kind else ""


def _overview(studies: Sequence[Study]) -> Report:
    """Return number and use of the names of each kind, and the commands that list them."""
    from dse.capabilities.listing import listing

    tables = {kind: listing(kind, studies=studies) for kind in _KINDS}
    rows = [{"kind": kind, "names": len(table.rows), "what": table.what} for kind, table in tables.items()]
    columns = [
        Column("kind", "kind", left=True), Column("names", "names", "{:,}".format),
        Column("what", "what", left=True, prose=True),
    ]  # fmt: skip
    return Report(rows, [Table("kinds", columns, rows), *map(Line, ("", *_USAGE_LINES))])


#: Commands that list names, with examples.
_USAGE_LINES = (
    "dse list leaves            all names of a kind",
    "dse list leaves memory     those with a word in their name or meaning",
    "dse list metrics 'cost_*'  those whose whole name fits",
    "dse catalog list           names of workloads, systems, accelerators and other entries",
)
