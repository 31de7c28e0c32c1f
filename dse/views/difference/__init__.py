"""Differences between two results: specification, versions, catalogue, and numbers.

Designs are matched by their labels (axes, parts of the mapping), not by position: a further value of an axis leaves all
others matched. Numbers are compared by metric over the common designs. A part of a total that an earlier version
included in another part is compared as the sum of both.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from dse.designs.leaves import known_leaves, short_name
from dse.doors.study import Study
from dse.errors import InputError
from dse.spec.space import flat
from dse.sweep.results.files import open_results
from dse.sweep.results.schema import version
from dse.views.difference.matching import MatchedDesigns, match
from dse.views.difference.side import Side

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
class Change:
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
    """The best design of one of the results, on both sides (first and second)."""

    labels: dict[str, Any]
    objective: Pair  #: objective on either side, None where it is absent
    feasible: Pair
    reasons: Pair  #: reasons of infeasibility by side
    parts: dict[str, Pair]  #: parts of the total of the objective, or of the first total, by side


@dataclasses.dataclass(frozen=True)
class Included:
    """A part of a total that one side lacks, because an earlier version included it in another part."""

    part: str
    within: str  #: the other part; compared is the sum of both
    side: int  #: 0 or 1, the side that lacks it


@dataclasses.dataclass(frozen=True)
class Difference:
    """Differences between two results; a pair has the values of the first and the second."""

    circumstances: dict[str, Pair]
    specification: dict[str, Pair]  #: key of the specification → its values
    entries: dict[str, Pair]  #: catalogue entry → digests of its files, None where unused
    values: dict[str, Pair]  #: leaf without an axis → its values
    designs: Pair  #: numbers of designs
    common: int  #: number of common designs
    unmatched: Pair  #: designs with ambiguous labels
    only: tuple[list[dict[str, Any]], list[dict[str, Any]]]  #: labels of the first designs on one side only
    only_count: tuple[int, int]
    metrics: tuple[Change, ...]  #: changed metrics, the largest change first
    compared: int  #: number of common metrics
    only_metrics: tuple[list[str], list[str]]
    included: tuple[Included, ...]  #: relative changes of their sums up to :data:`ROUNDING` are ignored
    feasibility: dict[str, dict[str, Any]]  #: ``became_feasible`` and ``became_infeasible``: count, reasons
    mappings: int  #: points with another best mapping
    objective: Pair
    winners: tuple[Winner | None, Winner | None]  #: best design of either side

    @property
    def winner_changed(self) -> bool:
        """Whether the best designs differ."""
        first, second = self.winners
        return (first and first.labels) != (second and second.labels)

    @property
    def same(self) -> bool:
        """Whether both have the same designs with the same numbers."""
        counts = (*self.only_count, *self.unmatched, len(self.metrics), self.mappings, *map(len, self.only_metrics))
        return not (any(counts) or self.winner_changed or any(one["count"] for one in self.feasibility.values()))


def compare(first: str | Path, second: str | Path, tolerance: float = 0.0) -> Difference:
    """Compare two results files design by design.

    Args:
        first: file of ``dse run`` or ``dse search``, or one written from it by xarray.
        second: another file.
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
        raise InputError(
            str(second), f"results of {kinds[1]}", f"results of {kinds[0]}, as {first}", "compare results of one kind"
        )
    return _difference(sides, tolerance)


def _read(path: str | Path) -> Side:
    """Results of a file in memory; it is closed before another one is opened."""
    with open_results(path) as results:
        return Side(str(path), results.load())


def _difference(sides: tuple[Side, Side], tolerance: float) -> Difference:
    included = _included(sides)
    for one in included:
        sides[1 - one.side].add_up(one.part, one.within)
    sums = {one.within: max(tolerance, ROUNDING) for one in included}
    matched = match(sides)
    places = (matched.first, matched.second)
    shared = [name for name in sides[0].metrics if name in sides[1].metrics]
    changes = [_change(name, sides, places, sums.get(name, tolerance)) for name in shared]
    return Difference(
        circumstances=_pairs([_circumstances(side) for side in sides]),
        specification=_pairs([_specification(side) for side in sides]),
        entries=_entries(sides),
        values=_values(sides),
        designs=(len(sides[0].rows), len(sides[1].rows)),
        common=len(matched.first),
        unmatched=matched.unmatched,
        only=(sides[0].some(matched.only[0]), sides[1].some(matched.only[1])),
        only_count=(len(matched.only[0]), len(matched.only[1])),
        metrics=tuple(sorted(filter(None, changes), key=_size, reverse=True)),
        compared=len(shared),
        only_metrics=(sides[0].beyond(sides[1]), sides[1].beyond(sides[0])),
        included=included,
        feasibility=_feasibility(sides, places),
        mappings=_other_mappings(sides, places),
        objective=(sides[0].objective, sides[1].objective),
        winners=(_winner(sides, matched, 0), _winner(sides, matched, 1)),
    )


def _included(sides: tuple[Side, Side]) -> tuple[Included, ...]:
    """Parts that one side alone has, where the other side has the part that included them in earlier versions."""
    return tuple(
        Included(part, within, side)
        for side, (lacks, has) in enumerate((sides, sides[::-1]))
        for part, within in has.study.divided_from.items()
        if part in has.metrics and part not in lacks.metrics
        if within in has.metrics and within in lacks.metrics and lacks.is_undivided(within)
    )


def _size(change: Change) -> tuple[bool, float]:
    return bool(change.from_zero) and not np.isfinite(change.largest), abs(np.nan_to_num(change.largest))


# Inputs


def _pairs(sides: list[dict[str, Any]]) -> dict[str, Pair]:
    """Name → (first, second) where they differ; None where a side has none."""
    first, second = sides
    return {
        name: (first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    }


def _circumstances(side: Side) -> dict[str, Any]:
    stated = {name: str(side.attrs[name]) for name in CIRCUMSTANCES if name in side.attrs}
    return stated | {"catalog_digest": str(side.attrs.get("catalog_digest", "")), "dse_schema": version(side.attrs)}


def _specification(side: Side) -> dict[str, Any]:
    """Dotted keys of the specification without title and output."""
    asked = {key: value for key, value in side.document.items() if key not in ("title", "output")}
    return dict(flat(asked))


def _entries(sides: tuple[Side, Side]) -> dict[str, Pair]:
    """Catalogue entries with different files, or on one side only, if both sides state theirs."""
    stated = [side.stated("catalog_entries") for side in sides]
    return _pairs(stated) if all(stated) else {}


def _values(sides: tuple[Side, Side]) -> dict[str, Pair]:
    """Leaves without an axis that differ, where both sides state them."""
    stated = [side.stated("base_design") for side in sides]
    varied = [side.results[name] for side in sides for name in (*side.keys, *side.parts)]
    moved = {values.attrs.get("path") for values in varied if values.dims}
    both = [path for path in stated[0] if path in stated[1] and path not in moved]
    return _pairs([{_short(path): side[path] for path in both} for side in stated])


def _short(path: str) -> str:
    return short_name(path) if path in known_leaves() else path


# Outputs


def _change(
    name: str, sides: tuple[Side, Side], places: tuple[np.ndarray, np.ndarray], tolerance: float
) -> Change | None:
    """Change of a metric; None without one."""
    before, after = (side.column(name)[rows].astype(float) for side, rows in zip(sides, places, strict=True))
    known = np.isfinite(before) & np.isfinite(after)
    relative = np.full(len(before), np.nan)
    np.divide(after - before, np.abs(before), out=relative, where=known & (before != 0.0))
    strange = (~known & ~((np.isnan(before) & np.isnan(after)) | (before == after))) | (
        known & (before == 0.0) & (after != 0.0)
    )
    sizes = np.nan_to_num(np.abs(relative))
    changed = int(np.count_nonzero((sizes > tolerance) | strange))
    if not changed:
        return None
    at = int(np.argmax(sizes)) if sizes.max(initial=0.0) > tolerance else int(np.argmax(strange))
    with_value = relative[known & (before != 0.0)]
    return Change(
        metric=name,
        units=str(sides[0].results[name].attrs.get("units", "1")),
        changed=changed,
        largest=float(relative[at]),
        median=float(np.median(with_value)) if len(with_value) else float("nan"),
        from_zero=int(np.count_nonzero(strange)),
        at=sides[0].labels(int(places[0][at])),
    )


def _feasibility(sides: tuple[Side, Side], places: tuple[np.ndarray, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Designs feasible on one side only, with the reasons of the other."""
    before, after = (side.column("feasible")[rows].astype(bool) for side, rows in zip(sides, places, strict=True))
    gained, lost = ~before & after, before & ~after
    return {
        "became_feasible": {"count": int(gained.sum()), "reasons": sides[0].reasons(places[0][gained])},
        "became_infeasible": {"count": int(lost.sum()), "reasons": sides[1].reasons(places[1][lost])},
    }


def _other_mappings(sides: tuple[Side, Side], places: tuple[np.ndarray, np.ndarray]) -> int:
    """Number of points feasible on both sides with different best mappings."""
    shared = [name for name in sides[0].parts if name in sides[1].parts]
    if not shared:
        return 0
    run = [side.column("feasible")[rows].astype(bool) for side, rows in zip(sides, places, strict=True)]
    other = np.zeros(len(places[0]), bool)
    for name in shared:
        first, second = (side.column(name)[rows] for side, rows in zip(sides, places, strict=True))
        other |= first != second
    return int(np.count_nonzero(other & run[0] & run[1]))


def _winner(sides: tuple[Side, Side], matched: MatchedDesigns, of: int) -> Winner | None:
    """The best design of one side, on both sides."""
    row = sides[of].best
    if row is None:
        return None
    own = (matched.first, matched.second)
    at = np.flatnonzero(own[of] == row)
    rows = [row if side == of else (int(own[side][at[0]]) if len(at) else None) for side in (0, 1)]
    labels = sides[of].labels(row)
    for i, (side, place) in enumerate(zip(sides, rows, strict=True)):
        if place is not None and side.parts and side.labels(place) != labels:
            rows[i] = None  # this point has another best mapping there
    summaries = [_summary(side, place, sides[of].objective) for side, place in zip(sides, rows, strict=True)]
    names = [name for name in summaries[of]["parts"] if any(one["parts"].get(name) for one in summaries)]
    return Winner(
        labels=labels,
        objective=(summaries[0]["objective"], summaries[1]["objective"]),
        feasible=(summaries[0]["feasible"], summaries[1]["feasible"]),
        reasons=(summaries[0]["reasons"], summaries[1]["reasons"]),
        parts={name: (summaries[0]["parts"].get(name), summaries[1]["parts"].get(name)) for name in names},
    )


def _summary(side: Side, row: int | None, objective: str) -> dict[str, Any]:
    """Objective, feasibility and parts of a design on one side."""
    if row is None:
        return {"objective": None, "feasible": None, "reasons": [], "parts": {}}
    total = total_of(side.study, objective)
    names = [name for name in side.study.parts(total) if name in side.metrics] if total else []
    return {
        "objective": float(side.column(objective)[row]) if objective in side.metrics else None,
        "feasible": bool(side.column("feasible")[row]),
        "reasons": [*side.reasons(np.array([row]))],
        "parts": {name: float(side.column(name)[row]) for name in names},
    }


def total_of(study: Study, objective: str) -> str:
    """The total whose parts explain the best design: the objective, or else the first of the study."""
    return objective if objective in study.totals else next(iter(study.totals), "")
