"""Differences between two results: specification, versions, catalogue, and numbers.

Designs are matched by their labels (axes, parts of the mapping), not by position: a further value of an axis leaves all
others matched. Numbers are compared by metric over the common designs. A part of a total that an earlier version
included in another part is compared as the sum of both. ``side.py`` has one result as rows, ``matching.py`` joins the
rows of two by their labels.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from dse.designs import all_leaves, short_name
from dse.doors import Study
from dse.errors import InputError
from dse.spec.space import flat
from dse.sweep import open_results
from dse.sweep.results.schema import version
from dse.views.difference.matching import MatchedDesigns, match
from dse.views.difference.side import Side
from dse.views.studies import presentation_of

#: Attributes of a file on its computation, besides specification and catalogue.
CIRCUMSTANCES = (
    "study",
    "code_version",
    "code_digest",
    "model",
    "jax_version",
    "device",
    "dtype",
    "any_option",
    "keep",
    "methods",
)

#: Relative rounding of single precision, where a sum of parts is compared with what was computed as one part.
ROUNDING = 1e-6

Pair = tuple[Any, Any]


@dataclasses.dataclass(frozen=True)
class MetricChange:
    """Change of one metric over the common designs, relative to the first result."""

    metric: str
    units: str
    changed: int  #: designs with another value
    largest: float  #: relative change of largest size; NaN where none is relative to a value
    median: float  #: relative change of all designs with values on both sides
    from_zero: int  #: designs whose value was 0 before, or is missing on one side
    at: dict[str, Any]  #: labels of the design with the largest change


@dataclasses.dataclass(frozen=True)
class Winner:
    """Best design of one of the two results, as pairs (first, second)."""

    labels: dict[str, Any]
    objective: Pair  #: objective on either side, None where it is absent
    feasible: Pair
    reasons: Pair  #: reasons of infeasibility by side
    parts: dict[str, Pair]  #: parts of the total of the objective, or of the first total, by side


@dataclasses.dataclass(frozen=True)
class IncludedPart:
    """A part of a total that one side lacks, because an earlier version included it in another part."""

    part: str
    within: str  #: the other part; compared is the sum of both
    side: int  #: 0 or 1, the side that lacks it


@dataclasses.dataclass(frozen=True)
class Difference:
    """Differences between two results, as pairs (first, second)."""

    circumstances: dict[str, Pair]
    specification: dict[str, Pair]  #: key of the specification → its values
    entries: dict[str, Pair]  #: catalogue entry → digests of its files, None where unused
    values: dict[str, Pair]  #: leaf without an axis → its values
    designs: Pair  #: numbers of designs
    common: int  #: number of common designs
    unmatched: Pair  #: designs with ambiguous labels
    only: tuple[list[dict[str, Any]], list[dict[str, Any]]]  #: labels of the first designs on one side only
    only_count: tuple[int, int]
    metrics: tuple[MetricChange, ...]  #: changed metrics, the largest change first
    compared: int  #: number of common metrics
    only_metrics: tuple[list[str], list[str]]
    included: tuple[IncludedPart, ...]  #: relative changes of their sums up to :data:`ROUNDING` are ignored
    feasibility: dict[str, dict[str, Any]]  #: ``became_feasible`` and ``became_infeasible``: count, reasons
    mappings: int  #: points with another best mapping
    objective: Pair
    winners: tuple[Winner | None, Winner | None]  #: best design of either side

    @property
    def winner_changed(self) -> bool:
        """True if the two results have different best designs."""
        first, second = self.winners
        return (first and first.labels) != (second and second.labels)

    @property
    def same(self) -> bool:
        """True if both results have the same designs with the same numbers, up to the tolerance, and the same best."""
        counts = (*self.only_count, *self.unmatched, len(self.metrics), self.mappings, *map(len, self.only_metrics))
        return not (any(counts) or self.winner_changed or any(entry["count"] for entry in self.feasibility.values()))


def compare(first: str | Path | xr.Dataset, second: str | Path | xr.Dataset, tolerance: float = 0.0) -> Difference:
    """Compare two results design by design, matched by their labels.

    Args:
        first: file of ``dse run`` or ``dse search``, one written from it by xarray, or an open dataset of it.
        second: others.
        tolerance: largest relative change ``|b - a| / |a|`` of a number that is ignored.

    Returns:
        The difference; ``same`` is true if all designs and numbers are equal.

    Raises:
        InputError: for other files, or for one of training and one of serving.

    >>> import tempfile
    >>> import dse
    >>> folder = tempfile.mkdtemp()
    >>> for name in ("before", "after"):
    ...     _ = dse.run("sweeps/megatron_1t_4096_a100.toml", f"{folder}/{name}.nc", keep="top:3")
    >>> compare(f"{folder}/before.nc", f"{folder}/after.nc").same
    True
    """
    sides = _read(first), _read(second)
    kinds = [str(side.attrs.get("study", side.study.name)) for side in sides]
    if kinds[0] != kinds[1]:
        file, other = sides[0].file, sides[1].file
        raise InputError(
            other, f"results of {kinds[1]}", f"results of {kinds[0]}, as {file}", "compare results of one kind"
        )
    return _difference(sides, tolerance)


def _read(results: str | Path | xr.Dataset) -> Side:
    """Return results in memory; a file is closed."""
    if isinstance(results, xr.Dataset):
        return Side("a dataset", results.load())
    with open_results(results) as opened:
        return Side(str(results), opened.load())


def _difference(sides: tuple[Side, Side], tolerance: float) -> Difference:
    """Compare two loaded results; a part that one side lacks is first added on the other to what includes it."""
    included = _included_parts(sides)
    for part in included:
        sides[1 - part.side].add_up(part.part, part.within)
    sums = {part.within: max(tolerance, ROUNDING) for part in included}
    matched = match(sides)
    rows = (matched.first, matched.second)
    shared = [name for name in sides[0].metrics if name in sides[1].metrics]
    changes = [_metric_change(name, sides, rows, sums.get(name, tolerance)) for name in shared]
    return Difference(
        circumstances=_pairs([_circumstances(side) for side in sides]),
        specification=_pairs([_specification(side) for side in sides]),
        entries=_entries(sides),
        values=_values(sides),
        designs=(len(sides[0].rows), len(sides[1].rows)),
        common=len(matched.first),
        unmatched=matched.unmatched,
        only=(sides[0].first_labels(matched.only[0]), sides[1].first_labels(matched.only[1])),
        only_count=(len(matched.only[0]), len(matched.only[1])),
        metrics=tuple(sorted(filter(None, changes), key=_sort_key, reverse=True)),
        compared=len(shared),
        only_metrics=(sides[0].metrics_not_in(sides[1]), sides[1].metrics_not_in(sides[0])),
        included=included,
        feasibility=_feasibility(sides, rows),
        mappings=_other_mappings(sides, rows),
        objective=(sides[0].objective, sides[1].objective),
        winners=(_winner(sides, matched, 0), _winner(sides, matched, 1)),
    )


def _included_parts(sides: tuple[Side, Side]) -> tuple[IncludedPart, ...]:
    """Return the parts that one side alone has and the other side's version counts within another part."""
    return tuple(
        IncludedPart(part, total, side)
        for side, (side_without, side_with) in enumerate((sides, sides[::-1]))
        for part, total in presentation_of(side_with.study).divided_from.items()
        if part in side_with.metrics and part not in side_without.metrics
        if total in side_with.metrics and total in side_without.metrics and side_without.is_undivided(total)
    )


def _sort_key(change: MetricChange) -> tuple[bool, float]:
    """Return the key that sorts changes by absolute size, those without a relative change as infinite."""
    return bool(change.from_zero) and not np.isfinite(change.largest), abs(np.nan_to_num(change.largest))


# Inputs


def _pairs(sides: list[dict[str, Any]]) -> dict[str, Pair]:
    """Return name → (first, second) where the two differ, None where a side has none."""
    first, second = sides
    return {
        name: (first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    }


def _circumstances(side: Side) -> dict[str, Any]:
    """Return attribute → text on how a file was computed, with catalogue digest and schema."""
    values = {name: str(side.attrs[name]) for name in CIRCUMSTANCES if name in side.attrs}
    return values | {"catalog_digest": str(side.attrs.get("catalog_digest", "")), "dse_schema": version(side.attrs)}


def _specification(side: Side) -> dict[str, Any]:
    """Return dotted key → value of the specification, without title and output."""
    entries = {key: value for key, value in side.document.items() if key not in ("title", "output")}
    return dict(flat(entries))


def _entries(sides: tuple[Side, Side]) -> dict[str, Pair]:
    """Return catalogue entry → digests on both sides where they differ, empty unless both files state them."""
    catalog_entries = [side.json_attribute("catalog_entries") for side in sides]
    return _pairs(catalog_entries) if all(catalog_entries) else {}


def _values(sides: tuple[Side, Side]) -> dict[str, Pair]:
    """Return short name of a leaf without an axis → values on both sides, where both state it and they differ."""
    base_designs = [side.json_attribute("base_design") for side in sides]
    varied = [side.results[name] for side in sides for name in (*side.keys, *side.parts)]
    varied_paths = {values.attrs.get("path") for values in varied if values.dims}
    shared_paths = [path for path in base_designs[0] if path in base_designs[1] and path not in varied_paths]
    return _pairs([{_short(path): side[path] for path in shared_paths} for side in base_designs])


def _short(path: str) -> str:
    """Return the short name of a leaf's path, another path as it is."""
    return short_name(path) if path in all_leaves() else path


# Outputs


def _metric_change(
    name: str, sides: tuple[Side, Side], rows_by_side: tuple[np.ndarray, np.ndarray], tolerance: float
) -> MetricChange | None:
    """Return the change of a metric over the common designs, by row on each side; None if within ``tolerance``."""
    first, second = (column.astype(float) for column in _columns(name, sides, rows_by_side))
    is_finite = np.isfinite(first) & np.isfinite(second)
    relative_change = np.full(len(first), np.nan)
    np.divide(second - first, np.abs(first), out=relative_change, where=is_finite & (first != 0.0))
    is_equal = (first == second) | (np.isnan(first) & np.isnan(second))
    is_incomparable = ~is_equal & (~is_finite | (first == 0.0))
    change_sizes = np.nan_to_num(np.abs(relative_change))
    changed = int(np.count_nonzero((change_sizes > tolerance) | is_incomparable))
    if not changed:
        return None
    is_relative = change_sizes.max(initial=0.0) > tolerance
    largest_row = int(np.argmax(change_sizes if is_relative else is_incomparable))
    changes_from_value = relative_change[is_finite & (first != 0.0)]
    return MetricChange(
        metric=name,
        units=str(sides[0].results[name].attrs.get("units", "1")),
        changed=changed,
        largest=float(relative_change[largest_row]),
        median=float(np.median(changes_from_value)) if len(changes_from_value) else float("nan"),
        from_zero=int(np.count_nonzero(is_incomparable)),
        at=sides[0].labels(int(rows_by_side[0][largest_row])),
    )


def _columns(name: str, sides: tuple[Side, Side], rows_by_side: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """Return a variable of the common designs [design], of each side."""
    return [side.column(name)[rows] for side, rows in zip(sides, rows_by_side, strict=True)]


def _feasibility(sides: tuple[Side, Side], rows_by_side: tuple[np.ndarray, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Return ``became_feasible`` and ``became_infeasible`` → number and reasons of common designs."""
    first, second = (column.astype(bool) for column in _columns("feasible", sides, rows_by_side))
    gained, lost = ~first & second, first & ~second
    return {
        "became_feasible": {"count": int(gained.sum()), "reasons": sides[0].reasons(rows_by_side[0][gained])},
        "became_infeasible": {"count": int(lost.sum()), "reasons": sides[1].reasons(rows_by_side[1][lost])},
    }


def _other_mappings(sides: tuple[Side, Side], rows_by_side: tuple[np.ndarray, np.ndarray]) -> int:
    """Count the common points that are feasible on both sides with different best mappings."""
    shared = [name for name in sides[0].parts if name in sides[1].parts]
    if not shared:
        return 0
    is_other = np.zeros(len(rows_by_side[0]), bool)
    for name in shared:
        first, second = _columns(name, sides, rows_by_side)
        is_other |= first != second
    first, second = (column.astype(bool) for column in _columns("feasible", sides, rows_by_side))
    return int(np.count_nonzero(is_other & first & second))


def _winner(sides: tuple[Side, Side], matched: MatchedDesigns, winner_side: int) -> Winner | None:
    """Return the best design of side ``winner_side`` with its values on both sides, None where it has no best."""
    row = sides[winner_side].best
    if row is None:
        return None
    other = 1 - winner_side
    matched_rows = (matched.first, matched.second)
    labels = sides[winner_side].labels(row)
    other_row = next(iter(matched_rows[other][matched_rows[winner_side] == row].tolist()), None)
    if other_row is not None and sides[other].parts and sides[other].labels(other_row) != labels:
        other_row = None  # this point has another best mapping there
    summaries = [_summary(sides[winner_side], row, sides[winner_side].objective)]
    summaries.insert(other, _summary(sides[other], other_row, sides[winner_side].objective))
    first, second = summaries
    names = [name for name in summaries[winner_side]["parts"] if first["parts"].get(name) or second["parts"].get(name)]
    return Winner(
        labels=labels,
        objective=(first["objective"], second["objective"]),
        feasible=(first["feasible"], second["feasible"]),
        reasons=(first["reasons"], second["reasons"]),
        parts={name: (first["parts"].get(name), second["parts"].get(name)) for name in names},
    )


def _summary(side: Side, row: int | None, objective: str) -> dict[str, Any]:
    """Return objective, feasibility, reasons (names) and parts of the design in a row; None and empty without a row."""
    if row is None:
        return {"objective": None, "feasible": None, "reasons": [], "parts": {}}
    total = total_of(side.study, objective)
    names = [name for name in side.study.parts(total) if name in side.metrics]
    return {
        "objective": float(side.column(objective)[row]) if objective in side.metrics else None,
        "feasible": bool(side.column("feasible")[row]),
        "reasons": [*side.reasons(np.array([row]))],
        "parts": {name: float(side.column(name)[row]) for name in names},
    }


def total_of(study: Study, objective: str) -> str:
    """Return the total whose parts explain the best design.

    Args:
        study: study of the results.
        objective: metric by which designs are ranked.

    Returns:
        The objective if it is a total, else the first total of the study; "" without one.
    """
    return objective if objective in study.totals else next(iter(study.totals), "")
