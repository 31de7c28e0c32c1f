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
from dse.cli.options import Json
from dse.cli.status import report_errors
from dse.errors import InputError
from dse.views.words import SHORT

if TYPE_CHECKING:
    from rich.console import Console

    from dse.views import Difference
    from dse.views.difference import MetricChange, Pair, Winner

#: Exit status for different results, as of ``diff``.
DIFFERENT = 1

#: Maximum rows of a printed table; ``--json`` has all of them.
_MAX_ROWS = 16

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
    from dse.views import compare

    difference = compare(first, second, tolerance)
    if as_json:
        show.document({"first": str(first), "second": str(second), "same": difference.same, **_as_dict(difference)})
    else:
        _print(show.console(), first, second, difference)
    return 0 if difference.same else DIFFERENT


def _as_dict(difference: Difference) -> dict[str, Any]:
    """Return the JSON-ready dictionary of a difference, with ``winner_changed``."""
    return dataclasses.asdict(difference) | {"winner_changed": difference.winner_changed}


def _print(out: Console, first: Path, second: Path, difference: Difference) -> None:
    """Print a difference, section by section, and its summary."""
    out.print(Text(f"A  {first}\nB  {second}"), soft_wrap=True)
    for title, pairs in (
        ("computed with", difference.circumstances),
        ("specification", difference.specification),
        ("catalogue entries", _entries(difference.entries)),
        ("values that no axis moves", difference.values),
    ):
        _print_pairs(out, title, pairs)
    _print_designs(out, difference)
    _print_metrics(out, difference)
    _print_feasibility(out, difference)
    _print_winners(out, difference)
    out.print()
    out.print(Text(_verdict_text(difference), "bold"), soft_wrap=True)


def _verdict_text(difference: Difference) -> str:
    """Summarise a difference in one line: the same, or the number of changed metrics."""
    if difference.same:
        return "the same designs with the same numbers"
    return f"not the same: {len(difference.metrics)} of {show.counted(difference.compared, 'metric')} changed"


def _entries(entries: dict[str, Pair]) -> dict[str, Pair]:
    """Return catalogue entry → a word for each side ("used", "another file", "–") in place of its digests."""
    words = {(True, True): ("as it was", "another file"), (True, False): ("used", "–"), (False, True): ("–", "used")}
    return {name: words[first is not None, second is not None] for name, (first, second) in entries.items()}


def _print_pairs(out: Console, title: str, pairs: dict[str, Pair]) -> None:
    """Print a table of name, first and second value of the first ``_MAX_ROWS`` pairs; nothing for none."""
    if not pairs:
        return
    show.heading(out, title)
    rows = [[name, *map(_short_text, pair)] for name, pair in [*pairs.items()][:_MAX_ROWS]]
    show.print_table(out, ["", "A", "B"], rows, left=["", "A", "B"], prose=["A", "B"])
    _print_hidden_count(out, len(pairs), "")


def _print_hidden_count(out: Console, count: int, suffix: str) -> None:
    """Print how many of ``count`` rows the table leaves out, nothing where it has all."""
    if count > _MAX_ROWS:
        out.print(Text(f"… {count - _MAX_ROWS:,} more{suffix}: --json has them all"))


def _short_text(value: Any) -> str:
    """Format a value of the specification in at most about ``_LONGEST`` characters, "–" for None."""
    text = "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    if _DIGEST.fullmatch(text):
        return text[:_DIGITS]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _print_designs(out: Console, difference: Difference) -> None:
    """Print numbers of designs, those on one side only, and what the comparison had to assume."""
    from dse.views.difference import ROUNDING

    show.heading(
        out, f"designs: {difference.designs[0]:,} in A, {difference.designs[1]:,} in B, {difference.common:,} in both"
    )
    for side, count, examples in zip("AB", difference.only_count, difference.only, strict=True):
        if count:
            out.print(Text(f"{count:,} in {side} alone, such as {_labels_text(examples[0])}"), soft_wrap=True)
    if any(difference.unmatched):
        counts = f"{difference.unmatched[0]:,} of A and {difference.unmatched[1]:,} of B"
        out.print(Text(f"{counts} cannot be distinguished by the labels of both", "yellow"), soft_wrap=True)
    for part in difference.included:
        side_without, side_with = "AB"[part.side], "BA"[part.side]
        text = f"{side_without} includes {part.part} in {part.within}: compared with the sum of both in {side_with}"
        out.print(Text(f"{text}; changes up to {ROUNDING:g} are rounding"), soft_wrap=True)
    if difference.mappings:
        out.print(Text(f"another best mapping at {show.counted(difference.mappings, 'point')}"))
    for side, names in zip("AB", difference.only_metrics, strict=True):
        if names:
            out.print(Text(f"metrics in {side} alone: {', '.join(names)}"), soft_wrap=True)


def _labels_text(labels: dict[str, Any]) -> str:
    """Format the labels of a design in one line: axis → value as ``tp 8, pp 4``."""
    return ", ".join(f"{SHORT.get(name, name)} {show.setting(value)}" for name, value in labels.items())


def _change_text(value: float) -> str:
    """Format a relative change (0.1 is 10 % more): in per cent, as a factor from 1000 %, in words where not finite."""
    if not math.isfinite(value):
        return "from 0 or none"
    if abs(value) >= 10.0:
        return f"× {1.0 + value:.3g}"
    return f"{100.0 * value:+.2g} %" if 0.0 < abs(value) < 1e-4 else f"{100.0 * value:+.2f} %"


def _print_metrics(out: Console, difference: Difference) -> None:
    """Print a table of the changed metrics, nothing for none."""
    if not difference.metrics:
        return
    compared = show.counted(difference.compared, "metric")
    show.heading(out, f"{len(difference.metrics)} of {compared} changed, over the designs in both")
    rows = [_metric_row(change) for change in difference.metrics[:_MAX_ROWS]]
    columns = ["metric", "largest", "median", "designs", "largest at"]
    show.print_table(out, columns, rows, left=["metric", "largest at"], prose=["largest at"])
    _print_hidden_count(out, len(difference.metrics), " metrics")


def _metric_row(change: MetricChange) -> list[str]:
    """Return the cells of a changed metric: name, largest and median change, designs, labels of the largest."""
    median = "" if math.isnan(change.median) else _change_text(change.median)
    return [change.metric, _change_text(change.largest), median, f"{change.changed:,}", _labels_text(change.at)]


def _print_feasibility(out: Console, difference: Difference) -> None:
    """Print how many designs became feasible or infeasible, and their reasons by number."""
    meanings = {"became_feasible": "can run in B and not in A", "became_infeasible": "can run in A and not in B"}
    for name, words in meanings.items():
        change = difference.feasibility[name]
        if change["count"]:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in change["reasons"].items())
            show.heading(out, f"{change['count']:,} {words}{f': {reasons}' if reasons else ''}")


def _print_winners(out: Console, difference: Difference) -> None:
    """Print the best designs of both sides, or one where it is the same; nothing where it did not change at all."""
    winners = dict(zip("AB", difference.winners, strict=True))
    if not any(winners.values()):
        return
    if not difference.winner_changed and not difference.metrics:
        return
    title = "the best design is the same" if not difference.winner_changed else "another design is the best"
    show.heading(out, f"{title}, by {_objective_text(difference)}")
    winner_by_side = [("A and B", difference.winners[0])] if not difference.winner_changed else [*winners.items()]
    for side, winner in winner_by_side:
        out.print(
            Text(f"best of {side}: {'none can run' if winner is None else _labels_text(winner.labels)}"), soft_wrap=True
        )
        if winner is not None:
            _print_winner(out, winner)


def _objective_text(difference: Difference) -> str:
    """Return the name of the objective, or both with their sides where they differ."""
    first, second = difference.objective
    return first if first == second else f"{first} in A, {second} in B"


def _print_winner(out: Console, winner: Winner) -> None:
    """Print on which sides a best design cannot run, and its objective by part on both, the largest change first."""
    for side, feasible, reasons in zip("AB", winner.feasible, winner.reasons, strict=True):
        if feasible is None:
            out.print(Text(f"  not among the designs of {side}"))
        elif not feasible:
            out.print(Text(f"  cannot run in {side}: {', '.join(reasons)}"))
    changed_parts = {name: pair for name, pair in winner.parts.items() if None not in pair and pair[0] != pair[1]}
    if None in winner.objective:
        return
    rows = [["  in all", *_change_cells(winner.objective)]]
    order = sorted(changed_parts.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    rows += [[f"  {name}", *_change_cells(pair)] for name, pair in order]
    show.print_table(out, ["", "A", "B", "change"], rows, left=[""])


def _change_cells(pair: Pair) -> list[str]:
    """Return the cells of a pair of numbers: both, and the relative change."""
    first, second = pair
    return [f"{first:.6g}", f"{second:.6g}", _change_text(second / first - 1.0 if first else math.inf)]
