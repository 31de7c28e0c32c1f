"""``dse diff``: differences between two results."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.designs import SHORT
from dse.cli.options import Json
from dse.cli.status import report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.views.difference import Difference, MetricChange, Pair, Winner

#: Exit status for different results, as of ``diff``.
DIFFERENT = 1

#: Maximum rows of a printed table; ``--json`` has all of them.
_SHOWN = 16

#: Checksums, and their displayed digits.
_DIGEST, _DIGITS = re.compile("[0-9a-f]{64}"), 12

#: Maximum length of a value of the specification.
_LONGEST = 60


@report_errors
def diff(
    first: Annotated[Path, typer.Argument(metavar="A.nc", help="Results of dse run or dse search.")],
    second: Annotated[Path, typer.Argument(metavar="B.nc", help="Results that are compared with them.")],
    tolerance: Annotated[
        float, typer.Option(metavar="SHARE", help="Relative changes of numbers up to this do not count.")
    ] = 0.0,
    as_json: Json = False,
) -> int:
    """Show what changed between two results, or two versions of dse.

    Specification, catalogue and versions; designs in one alone; by how much each metric changed over the designs in
    both; what became feasible or ceased to be; whether another design is the best, and which parts of its time moved.

    Exit status: 0 when designs and numbers are equal; 1 when they differ; 2 for bad input.
    """
    if not 0.0 <= tolerance < math.inf:
        raise InputError("--tolerance", f"{tolerance:g}", "a share of 0 or more", "write --tolerance 1e-6")
    from dse.views.difference import compare

    found = compare(first, second, tolerance)
    if as_json:
        show.document({"first": str(first), "second": str(second), "same": found.same, **_as_dict(found)})
    else:
        _print(show.console(), first, second, found)
    return 0 if found.same else DIFFERENT


def _as_dict(found: Difference) -> dict[str, Any]:
    return dataclasses.asdict(found) | {"winner_changed": found.winner_changed}


def _print(out: Console, first: Path, second: Path, found: Difference) -> None:
    out.print(Text(f"A  {first}\nB  {second}"), soft_wrap=True)
    for title, pairs in (
        ("computed with", found.circumstances),
        ("specification", found.specification),
        ("catalogue entries", _entries(found.entries)),
        ("values that no axis moves", found.values),
    ):
        _print_pairs(out, title, pairs)
    _print_designs(out, found)
    _print_metrics(out, found)
    _print_feasibility(out, found)
    _print_winners(out, found)
    out.print()
    out.print(Text(_verdict(found), "bold"), soft_wrap=True)


def _verdict(found: Difference) -> str:
    if found.same:
        return "the same designs with the same numbers"
    return f"not the same: {len(found.metrics)} of {show.counted(found.compared, 'metric')} changed"


def _entries(entries: dict[str, Pair]) -> dict[str, Pair]:
    """Changes of entries instead of digests."""
    words = {(True, True): ("as it was", "another file"), (True, False): ("used", "–"), (False, True): ("–", "used")}
    return {name: words[pair[0] is not None, pair[1] is not None] for name, pair in entries.items()}


def _print_pairs(out: Console, title: str, pairs: dict[str, Pair]) -> None:
    if not pairs:
        return
    show.heading(out, title)
    rows = [[name, *map(_short, pair)] for name, pair in [*pairs.items()][:_SHOWN]]
    show.print_table(out, ["", "A", "B"], rows, left=["", "A", "B"], prose=["A", "B"])
    _print_rest(out, len(pairs), "")


def _print_rest(out: Console, count: int, what: str) -> None:
    if count > _SHOWN:
        out.print(Text(f"… {count - _SHOWN:,} more{what}: --json has them all"))


def _short(value: Any) -> str:
    """A value of the specification, shortened."""
    text = "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    if _DIGEST.fullmatch(text):
        return text[:_DIGITS]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _print_designs(out: Console, found: Difference) -> None:
    from dse.views.difference import ROUNDING

    show.heading(out, f"designs: {found.designs[0]:,} in A, {found.designs[1]:,} in B, {found.common:,} in both")
    for side, count, some in zip("AB", found.only_count, found.only, strict=True):
        if count:
            out.print(Text(f"{count:,} in {side} alone, such as {_labels(some[0])}"), soft_wrap=True)
    if any(found.unmatched):
        counts = f"{found.unmatched[0]:,} of A and {found.unmatched[1]:,} of B"
        out.print(Text(f"{counts} cannot be distinguished by the labels of both", "yellow"), soft_wrap=True)
    for one in found.included:
        lacks, has = "AB"[one.side], "BA"[one.side]
        text = f"{lacks} includes {one.part} in {one.within}: compared with the sum of both in {has}"
        out.print(Text(f"{text}; changes up to {ROUNDING:g} are rounding"), soft_wrap=True)
    if found.mappings:
        out.print(Text(f"another best mapping at {show.counted(found.mappings, 'point')}"))
    for side, names in zip("AB", found.only_metrics, strict=True):
        if names:
            out.print(Text(f"metrics in {side} alone: {', '.join(names)}"), soft_wrap=True)


def _labels(labels: dict[str, Any]) -> str:
    """Distinguishing labels of a design, in one line."""
    return ", ".join(f"{SHORT.get(name, name)} {show.setting(value)}" for name, value in labels.items())


def _change(value: float) -> str:
    """A relative change, formatted."""
    if not math.isfinite(value):
        return "from 0 or none"
    if abs(value) >= 10.0:
        return f"× {1.0 + value:.3g}"
    return f"{100.0 * value:+.2g} %" if 0.0 < abs(value) < 1e-4 else f"{100.0 * value:+.2f} %"


def _print_metrics(out: Console, found: Difference) -> None:
    if not found.metrics:
        return
    compared = show.counted(found.compared, "metric")
    show.heading(out, f"{len(found.metrics)} of {compared} changed, over the designs in both")
    rows = [_row(change) for change in found.metrics[:_SHOWN]]
    columns = ["metric", "largest", "median", "designs", "largest at"]
    show.print_table(out, columns, rows, left=["metric", "largest at"], prose=["largest at"])
    _print_rest(out, len(found.metrics), " metrics")


def _row(change: MetricChange) -> list[str]:
    median = "" if math.isnan(change.median) else _change(change.median)
    return [change.metric, _change(change.largest), median, f"{change.changed:,}", _labels(change.at)]


def _print_feasibility(out: Console, found: Difference) -> None:
    meanings = {"became_feasible": "can run in B and not in A", "became_infeasible": "can run in A and not in B"}
    for name, words in meanings.items():
        one = found.feasibility[name]
        if one["count"]:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in one["reasons"].items())
            show.heading(out, f"{one['count']:,} {words}{f': {reasons}' if reasons else ''}")


def _print_winners(out: Console, found: Difference) -> None:
    winners = dict(zip("AB", found.winners, strict=True))
    if not any(winners.values()):
        return
    if not found.winner_changed and not found.metrics:
        return
    kept = "the best design is the same" if not found.winner_changed else "another design is the best"
    show.heading(out, f"{kept}, by {_objective(found)}")
    shown = [("A and B", found.winners[0])] if not found.winner_changed else [*winners.items()]
    for side, winner in shown:
        out.print(
            Text(f"best of {side}: {'none can run' if winner is None else _labels(winner.labels)}"), soft_wrap=True
        )
        if winner is not None:
            _print_winner(out, winner)


def _objective(found: Difference) -> str:
    first, second = found.objective
    return first if first == second else f"{first} in A, {second} in B"


def _print_winner(out: Console, winner: Winner) -> None:
    """Print where the objective of a design changed, by part, the largest change first."""
    for side, feasible, reasons in zip("AB", winner.feasible, winner.reasons, strict=True):
        if feasible is None:
            out.print(Text(f"  not among the designs of {side}"))
        elif not feasible:
            out.print(Text(f"  cannot run in {side}: {', '.join(reasons)}"))
    moved = {name: pair for name, pair in winner.parts.items() if None not in pair and pair[0] != pair[1]}
    if None in winner.objective:
        return
    rows = [["  in all", *_moved(winner.objective)]]
    order = sorted(moved.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    rows += [[f"  {name}", *_moved(pair)] for name, pair in order]
    show.print_table(out, ["", "A", "B", "change"], rows, left=[""])


def _moved(pair: Pair) -> list[str]:
    before, after = pair
    return [f"{before:.6g}", f"{after:.6g}", _change(after / before - 1.0 if before else math.inf)]
