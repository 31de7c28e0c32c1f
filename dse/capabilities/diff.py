"""``dse.diff``: differences between two results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.results import file_or_dataset, results_name
from dse.errors import InputError
from dse.io import counted, setting
from dse.reports import Column, Line, Option, Report, Table, capability, caution, heading
from dse.reports.tables import Section, Style
from dse.views.words import SHORT

if TYPE_CHECKING:
    from dse.views import Difference
    from dse.views.difference import Pair, Winner

#: Exit status for different results, as of ``diff``.
_DIFFERENT = 1

#: Rows of a table that are always shown; its detail has all.
_MOST = 4

#: Checksums, and their displayed digits; maximum length of a value of the specification.
_DIGEST, _DIGITS, _LONGEST = re.compile("[0-9a-f]{64}"), 12, 60


@capability("Show", local="compares files of this machine")
def diff(
    first: Annotated[Any, Option(is_argument=True, metavar="A.nc", terminal=Path)],
    second: Annotated[Any, Option(is_argument=True, metavar="B.nc", terminal=Path)],
    tolerance: Annotated[float, Option(metavar="SHARE")] = 0.0,
) -> Report:
    """Show what changed between two results, or two versions of dse.

    Specification, catalogue and versions; designs in one alone; by how much each metric changed over the designs in
    both; what became feasible or ceased to be; whether another design is the best, and which parts of its time moved.

    Exit status: 0 when designs and numbers are equal; 1 when they differ; 2 for bad input.

    Args:
        first: Results of dse run or dse search.
        second: Results that are compared with them.
        tolerance: Relative changes of numbers up to this do not count.
    """
    if not 0.0 <= tolerance < math.inf:
        raise InputError("--tolerance", f"{tolerance:g}", "a share of 0 or more", "write --tolerance 1e-6")
    from dse.views import compare

    sides = file_or_dataset(first, "A.nc"), file_or_dataset(second, "B.nc")
    names = [results_name(side) for side in sides]
    difference = compare(*sides, tolerance)
    same = difference.same
    document = {"first": names[0], "second": names[1], "same": same, **vars(difference)}
    document |= {"winner_changed": difference.winner_changed}
    files = Line("A  {}\nB  {}".format(*names), Style.verbatim)
    return Report(document, [files, *_sections(difference)], status=0 if same else _DIFFERENT)


def _sections(difference: Difference) -> Iterator[Section]:
    """Yield a difference: whether there is one, then what was asked, of which designs, and what came of it."""
    yield heading(_verdict_text(difference))
    for title, name, pairs in (
        ("computed with", "circumstances", difference.circumstances),
        ("specification", "specification", difference.specification),
        ("catalogue entries", "entries", _entries(difference.entries)),
        ("values that no axis moves", "values", difference.values),
    ):
        columns = [
            Column(title, "name", left=True),
            Column("A", "first", _short_text, left=True, prose=True),
            Column("B", "second", _short_text, left=True, prose=True),
        ]
        rows = [{"name": key, "first": pair[0], "second": pair[1]} for key, pair in pairs.items()]
        yield from _table(name, columns, rows)
    yield from _designs(difference)
    yield from _metrics(difference)
    yield from _feasibility(difference)
    yield from _winners(difference)


def _verdict_text(difference: Difference) -> str:
    """Summarise a difference in one line: the same, or the number of changed metrics."""
    if difference.same:
        return "the same designs with the same numbers"
    return f"not the same: {len(difference.metrics)} of {counted(difference.compared, 'metric')} changed"


def _table(name: str, columns: Sequence[Column], rows: Sequence[Any], more: Sequence[Column] = ()) -> Iterator[Section]:
    """Yield the table of the first rows, and as a detail that of all of them, with more columns; nothing for none."""
    if rows:
        yield Table(name, columns, rows[:_MOST])
    if len(rows) > _MOST:
        yield Line(f"… {len(rows) - _MOST:,} more: --show {name}")
    if rows and (more or len(rows) > _MOST):
        yield Table(f"all_{name}", [*columns, *more], rows, show=name)


def _entries(entries: dict[str, Pair]) -> dict[str, Pair]:
    """Return catalogue entry → a word for each side ("used", "another file", "–") in place of its digests."""
    words = {(True, True): ("as it was", "another file"), (True, False): ("used", "–"), (False, True): ("–", "used")}
    return {name: words[first is not None, second is not None] for name, (first, second) in entries.items()}


def _short_text(value: Any) -> str:
    """Format a value of the specification in at most about ``_LONGEST`` characters."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if _DIGEST.fullmatch(text):
        return text[:_DIGITS]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


def _designs(difference: Difference) -> Iterator[Section]:
    """Yield numbers of designs, those on one side only, and what the comparison had to assume."""
    from dse.views.difference import ROUNDING

    first, second = difference.designs
    yield heading(f"designs: {first:,} in A, {second:,} in B, {difference.common:,} in both")
    for side, count, examples in zip("AB", difference.only_count, difference.only, strict=True):
        if count:
            yield Line(f"{count:,} in {side} alone, such as {_labels_text(examples[0])}")
    if any(difference.unmatched):
        counts = f"{difference.unmatched[0]:,} of A and {difference.unmatched[1]:,} of B"
        yield caution(f"{counts} cannot be distinguished by the labels of both")
    for part in difference.included:
        side_without, side_with = "AB"[part.side], "BA"[part.side]
        text = f"{side_without} includes {part.part} in {part.within}: compared with the sum of both in {side_with}"
        yield Line(f"{text}; changes up to {ROUNDING:g} are rounding")
    if difference.mappings:
        yield Line(f"another best mapping at {counted(difference.mappings, 'point')}")
    for side, names in zip("AB", difference.only_metrics, strict=True):
        if names:
            yield Line(f"metrics in {side} alone: {', '.join(names)}")


def _labels_text(labels: Mapping[str, Any]) -> str:
    """Format the labels of a design in one line: axis → value as ``tp 8, pp 4``."""
    return ", ".join(f"{SHORT.get(name, name)} {setting(value)}" for name, value in labels.items())


def _change_text(value: float) -> str:
    """Format a relative change (0.1 is 10 % more): in per cent, as a factor from 1000 %, in words where not finite."""
    if not math.isfinite(value):
        return "from 0 or none"
    if abs(value) >= 10.0:
        return f"× {1.0 + value:.3g}"
    return f"{100.0 * value:+.2g} %" if 0.0 < abs(value) < 1e-4 else f"{100.0 * value:+.2f} %"


def _metrics(difference: Difference) -> Iterator[Section]:
    """Yield the table of the changed metrics, nothing for none."""
    columns = [
        Column("changed metric", "metric", left=True),
        Column("largest", "largest", _change_text),
        Column("median", "median", lambda value: "" if math.isnan(value) else _change_text(value)),
        Column("designs", "changed", "{:,}".format),
    ]
    place = Column("largest at", "at", _labels_text, left=True, prose=True)
    yield from _table("metrics", columns, difference.metrics, [place])


def _feasibility(difference: Difference) -> Iterator[Section]:
    """Yield how many designs became feasible or infeasible, and their reasons by number."""
    meanings = {"became_feasible": "can run in B and not in A", "became_infeasible": "can run in A and not in B"}
    for name, words in meanings.items():
        change = difference.feasibility[name]
        if change["count"]:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in change["reasons"].items())
            yield heading(f"{change['count']:,} {words}{f': {reasons}' if reasons else ''}")


def _winners(difference: Difference) -> Iterator[Section]:
    """Yield the best designs of both sides, or one where it is the same; nothing where it did not change at all."""
    changed, winners = difference.winner_changed, difference.winners
    if not any(winners) or not (changed or difference.metrics):
        return
    title = "another design is the best" if changed else "the best design is the same"
    first, second = difference.objective
    yield heading(f"{title}, by {first if first == second else f'{first} in A, {second} in B'}")
    for side, winner in zip("AB", winners, strict=True) if changed else (("A and B", winners[0]),):
        yield Line(f"best of {side}: {'none can run' if winner is None else _labels_text(winner.labels)}")
        if winner is not None:
            yield from _winner(side, winner)


def _winner(winner_side: str, winner: Winner) -> Iterator[Section]:
    """Yield on which sides a best design cannot run, and its objective by part on both, the largest change first."""
    for side, feasible, reasons in zip("AB", winner.feasible, winner.reasons, strict=True):
        if feasible is None:
            yield Line(f"  not among the designs of {side}")
        elif not feasible:
            yield Line(f"  cannot run in {side}: {', '.join(reasons)}")
    if None in winner.objective:
        return
    changed = [(name, pair) for name, pair in winner.parts.items() if None not in pair and pair[0] != pair[1]]
    changed.sort(key=lambda part: -abs(part[1][1] - part[1][0]))
    rows = [
        {"part": name, "first": pair[0], "second": pair[1], "change": pair[1] / pair[0] - 1.0 if pair[0] else math.inf}
        for name, pair in [("in all", winner.objective), *changed]
    ]
    columns = [
        Column("part", "part", left=True),
        Column("A", "first", "{:.6g}".format),
        Column("B", "second", "{:.6g}".format),
        Column("change", "change", _change_text),
    ]
    yield from _table(f"best_of_{winner_side.replace(' ', '_')}", columns, rows)
