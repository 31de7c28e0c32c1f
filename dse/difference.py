"""What changed between two results: what was asked, what it was computed with, and what came out.

Designs are matched by their labels (axes, parts of the mapping), not by their place in a file: one more value of an
axis leaves all others where they were. Numbers are compared metric by metric, over the designs that both have.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse import toml
from dse.designs import known_leaves, short_name
from dse.errors import InputError
from dse.spec.sweep import flat
from dse.studies import of_metrics
from dse.study import Study
from dse.sweep.results.files import open_results
from dse.sweep.results.schema import version
from dse.types import choice_name

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

#: Attributes of a file that tell what its numbers were computed with, beside specification and catalogue.
CIRCUMSTANCES = (
    "study", "code_version", "code_digest", "model", "jax_version", "device", "dtype", "any_option", "keep", "methods",
)  # fmt: skip

#: Coordinates that number designs; by these nothing is matched.
_NUMBERS = ("mapping", "design", "index")

#: Designs of one side alone that are named.
_NAMED = 10

Pair = tuple[Any, Any]


@dataclasses.dataclass(frozen=True)
class Change:
    """How one metric changed over the designs that both results have; relative to the first of them."""

    metric: str
    units: str
    changed: int  #: designs whose value is another
    largest: float  #: relative change, by its size; NaN where no change has a value to be relative to
    median: float  #: relative change, of all designs with a value on both sides
    from_zero: int  #: designs whose value was 0 and no longer is, or has become or ceased to be missing
    at: dict[str, Any]  #: labels of the design with the largest change


@dataclasses.dataclass(frozen=True)
class Winner:
    """The best design of one of the results, in both of them: sides are the first and the second."""

    labels: dict[str, Any]
    objective: Pair  #: its objective on either side, None where it is not there
    feasible: Pair
    reasons: Pair  #: why it cannot run, by side
    parts: dict[str, Pair]  #: of the total that the objective is, or of the first total; by side


@dataclasses.dataclass(frozen=True)
class Difference:
    """What two results differ in. A pair holds what the first and the second say."""

    circumstances: dict[str, Pair]
    specification: dict[str, Pair]  #: key of the specification → what it says there
    entries: dict[str, Pair]  #: catalogue entry → digests of its files, None where it is not used
    values: dict[str, Pair]  #: leaf that no axis moves → its values
    designs: Pair  #: how many there are
    common: int  #: in both
    unmatched: Pair  #: whose labels do not tell them apart from others on the other side
    only: tuple[list[dict[str, Any]], list[dict[str, Any]]]  #: the first that are on one side alone, by labels
    only_count: tuple[int, int]
    metrics: tuple[Change, ...]  #: those that changed, the largest change first
    compared: int  #: metrics that both have
    only_metrics: tuple[list[str], list[str]]
    feasibility: dict[str, dict[str, Any]]  #: ``became_feasible`` and ``became_infeasible``: count, reasons
    mappings: int  #: points whose best mapping is another, where one was kept of each
    objective: Pair
    winners: tuple[Winner | None, Winner | None]  #: the best design of either side

    @property
    def winner_changed(self) -> bool:
        """Whether the best designs are not the same one."""
        first, second = self.winners
        return (first and first.labels) != (second and second.labels)

    @property
    def same(self) -> bool:
        """Whether both have the same designs with the same numbers, whatever they were computed with."""
        counts = (*self.only_count, *self.unmatched, len(self.metrics), self.mappings, *map(len, self.only_metrics))
        return not (any(counts) or self.winner_changed or any(one["count"] for one in self.feasibility.values()))


def compare(first: str | Path, second: str | Path, tolerance: float = 0.0) -> Difference:
    """What changed from one results file to another.

    Args:
        first: file of ``dse run`` or ``dse search``, or one that xarray has written of such.
        second: another.
        tolerance: relative changes of numbers up to this do not count.

    Returns:
        The difference; ``same`` where the designs and all their numbers are.

    Raises InputError for what is no results file, or where one is of training and the other of serving.
    """
    sides = _read(first), _read(second)
    kinds = [str(side.attrs.get("study", side.study.name)) for side in sides]
    if kinds[0] != kinds[1]:
        raise InputError(
            str(second), f"results of {kinds[1]}", f"results of {kinds[0]}, as {first}", "compare results of one kind"
        )
    return _difference(sides, tolerance)


def _read(path: str | Path) -> _Side:
    """The results in a file, all of them: it is closed before another is opened."""
    with open_results(path) as results:
        return _Side(str(path), results.load())


def _difference(sides: tuple[_Side, _Side], tolerance: float) -> Difference:
    matched = _match(sides)
    places = (matched.first, matched.second)
    shared = [name for name in sides[0].metrics if name in sides[1].metrics]
    changes = [_change(name, sides, places, tolerance) for name in shared]
    return Difference(
        circumstances=_pairs([_circumstances(side) for side in sides]),
        specification=_pairs([_specification(side) for side in sides]),
        entries=_entries(sides),
        values=_values(sides),
        designs=(sides[0].count, sides[1].count),
        common=len(matched.first),
        unmatched=matched.unmatched,
        only=(sides[0].some(matched.only[0]), sides[1].some(matched.only[1])),
        only_count=(len(matched.only[0]), len(matched.only[1])),
        metrics=tuple(sorted(filter(None, changes), key=_size, reverse=True)),
        compared=len(shared),
        only_metrics=(sides[0].beyond(sides[1]), sides[1].beyond(sides[0])),
        feasibility=_feasibility(sides, places),
        mappings=_other_mappings(sides, places),
        objective=(sides[0].objective, sides[1].objective),
        winners=(_winner(sides, matched, 0), _winner(sides, matched, 1)),
    )


def _size(change: Change) -> tuple[bool, float]:
    return bool(change.from_zero) and not np.isfinite(change.largest), abs(np.nan_to_num(change.largest))


# --- one side ---------------------------------------------------------------------------------------------


class _Side:
    """Results as rows: a design, or a point with its best mapping, a row."""

    def __init__(self, file: str, results: xr.Dataset) -> None:
        self.file, self.results, self.attrs = file, results, results.attrs
        if "feasible" not in results:
            raise InputError(file, "no variable 'feasible'", "results of dse run or dse search", "give another file")
        self.shape = results.feasible
        self.count = int(self.shape.size)

    @functools.cached_property
    def study(self) -> Study:
        """What kind of study it is of."""
        return of_metrics(self.results.data_vars)

    def column(self, name: str) -> np.ndarray:
        """A variable row by row."""
        return self.results[name].broadcast_like(self.shape).transpose(*self.shape.dims).values.reshape(-1)

    @functools.cached_property
    def keys(self) -> list[str]:
        """Names of the labels that designs are matched by."""
        coords = self.results.coords.items()
        return [str(n) for n, v in coords if n not in _NUMBERS and set(v.dims) <= set(self.shape.dims)]

    def _along(self) -> list[str]:
        dims = set(self.shape.dims)
        return [str(name) for name, values in self.results.data_vars.items() if set(values.dims) == dims]

    @functools.cached_property
    def metrics(self) -> list[str]:
        """Names of what is compared as numbers."""
        own = {"feasible", "infeasible_reason", *self.parts}
        return [name for name in self._along() if name not in own and self.results[name].dtype.kind in "fiu"]

    @functools.cached_property
    def parts(self) -> list[str]:
        """Names of the parts of the best mapping of each point."""
        return [name for name in self._along() if "path" in self.results[name].attrs]

    def beyond(self, other: _Side) -> list[str]:
        """Metrics that the other side lacks."""
        return sorted(set(self.metrics) - set(other.metrics))

    def some(self, rows: np.ndarray) -> list[dict[str, Any]]:
        """The labels of the first of these rows."""
        return [self.labels(int(row)) for row in rows[:_NAMED]]

    def labels(self, row: int) -> dict[str, Any]:
        """What tells a row apart, parts of its mapping too."""
        varied = [name for name in self.keys if self.results[name].dims]
        at = np.unravel_index(row, self.shape.shape)
        place = dict(zip(self.shape.dims, at, strict=True))
        found = {}
        for name in [*varied, *self.parts]:
            values = self.results[name]
            found[name] = values.values[tuple(place[dim] for dim in values.dims)].item()
        return found

    def stated(self, name: str) -> dict[str, Any]:
        """An attribute that is a JSON document, nothing where it is not there."""
        try:
            found = json.loads(self.attrs.get(name, "{}"))
        except (TypeError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """The specification, nothing where the file has none that can be read."""
        try:
            return toml.parsed(str(self.attrs.get("specification", "")), self.file)
        except InputError:
            return {}

    @property
    def objective(self) -> str:
        """What the best design has the least, or most, of."""
        return str(self.attrs.get("objective", "")) or self.study.objective

    @functools.cached_property
    def best(self) -> int | None:
        """The row of the best design, None where none can run or the file does not tell."""
        listed = str(self.attrs.get("best_designs", "")).split()
        if listed and listed[0].isdecimal():
            rows = self._rows_of(int(listed[0]))
            return int(rows[0]) if len(rows) else None
        return None if listed or self.objective not in self.metrics else self._best_of_all()

    def _rows_of(self, index: int) -> np.ndarray:
        """Rows of a design by its index in the sweep."""
        if "index" in self.results.coords:
            return np.flatnonzero(self.column("index") == index)
        if "mapping" not in self.shape.dims:
            index //= max(int(self.attrs.get("designs", 0)) // max(self.count, 1), 1)
        return np.flatnonzero(np.arange(self.count) == index)

    def _best_of_all(self) -> int | None:
        stated = self.document.get("objective", {})
        sign = -1.0 if isinstance(stated, dict) and "maximize" in stated and "minimize" not in stated else 1.0
        values = np.where(self.column("feasible").astype(bool), sign * self.column(self.objective), np.inf)
        return int(np.argmin(values)) if np.isfinite(values).any() else None

    def reasons(self, rows: np.ndarray) -> dict[str, int]:
        """Why designs cannot run: reason → how many of these rows."""
        if "infeasible_reason" not in self.results:
            return {}
        flags = self.results["infeasible_reason"].attrs
        masks, names = np.atleast_1d(flags.get("flag_masks", ())), str(flags.get("flag_meanings", "")).split()
        bits = self.column("infeasible_reason")[rows].astype(np.int64)
        counts = {name: int(np.count_nonzero(bits & int(mask))) for name, mask in zip(names, masks, strict=False)}
        return {name: count for name, count in counts.items() if count}


# --- what was asked, and with what ------------------------------------------------------------------------


def _pairs(sides: list[dict[str, Any]]) -> dict[str, Pair]:
    """Name → (first, second) of what is not the same; None where a side has none."""
    first, second = sides
    return {
        name: (first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    }  # fmt: skip


def _circumstances(side: _Side) -> dict[str, Any]:
    stated = {name: str(side.attrs[name]) for name in CIRCUMSTANCES if name in side.attrs}
    return stated | {"catalog_digest": str(side.attrs.get("catalog_digest", "")), "dse_schema": version(side.attrs)}


def _specification(side: _Side) -> dict[str, Any]:
    """Dotted keys of the specification but for title and output."""
    asked = {key: value for key, value in side.document.items() if key not in ("title", "output")}
    return dict(flat(asked))


def _entries(sides: tuple[_Side, _Side]) -> dict[str, Pair]:
    """Catalogue entries with other files, or on one side alone, where both tell theirs."""
    stated = [side.stated("catalog_entries") for side in sides]
    return _pairs(stated) if all(stated) else {}


def _values(sides: tuple[_Side, _Side]) -> dict[str, Pair]:
    """Leaves of the designs that both state and no axis moves, where they are not the same."""
    stated = [side.stated("base_design") for side in sides]
    varied = [side.results[name] for side in sides for name in (*side.keys, *side.parts)]
    moved = {values.attrs.get("path") for values in varied if values.dims}
    both = [path for path in stated[0] if path in stated[1] and path not in moved]
    return _pairs([{_short(path): side[path] for path in both} for side in stated])


def _short(path: str) -> str:
    return short_name(path) if path in known_leaves() else path


# --- which designs are the same ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Matched:
    first: np.ndarray  #: rows of the first side, as many as of the second: the same designs
    second: np.ndarray
    only: tuple[np.ndarray, np.ndarray]
    unmatched: tuple[int, int]


def _match(sides: tuple[_Side, _Side]) -> _Matched:
    """Rows with the same labels.

    What a side does not name is what its designs have in common; what is one value on each side, a bandwidth that was
    changed say, is no label but a difference of the specifications.
    """
    import pandas as pd

    names = list(dict.fromkeys([*sides[0].keys, *sides[1].keys]))
    columns = [{name: _label_column(side, name, other) for name in names} for side, other in (sides, sides[::-1])]
    common = [name for name in names if _tells_apart([one[name] for one in columns])]
    tables = [pd.DataFrame({n: one[n] for n in common} | {"row": np.arange(side.count)})
              for one, side in zip(columns, sides, strict=True)]
    for name in common:
        if tables[0][name].dtype.kind != tables[1][name].dtype.kind:
            tables = [table.assign(**{name: table[name].astype(str)}) for table in tables]
    if not common:
        common = ["row"]
    alike = [table.duplicated(common, keep=False).to_numpy() for table in tables]
    return _joined([table[~twice] for table, twice in zip(tables, alike, strict=True)], common,
                   (int(alike[0].sum()), int(alike[1].sum())))


def _tells_apart(columns: list[np.ndarray | None]) -> bool:
    """Whether a label is known on both sides and is not one value on each."""
    known = [column for column in columns if column is not None]
    return len(known) == len(columns) and not all((column == column[:1]).all() for column in known)


def _joined(tables: list[pd.DataFrame], common: list[str], unmatched: tuple[int, int]) -> _Matched:
    import pandas as pd

    first, second = (table[common].assign(**{f"row_{i}": table["row"]}) for i, table in enumerate(tables))
    found = pd.merge(first, second, on=common, how="outer", indicator=True)
    rows = {kind: found[found["_merge"] == kind].sort_values("row_1" if kind == "right_only" else "row_0")
            for kind in ("both", "left_only", "right_only")}
    return _Matched(
        first=rows["both"]["row_0"].to_numpy(int),
        second=rows["both"]["row_1"].to_numpy(int),
        only=(rows["left_only"]["row_0"].to_numpy(int), rows["right_only"]["row_1"].to_numpy(int)),
        unmatched=unmatched,
    )


def _label_column(side: _Side, name: str, other: _Side) -> np.ndarray | None:
    """A label of every row; of one that only the other side names, the value that all designs here have."""
    if name in side.keys:
        values = side.column(name)
        return values.astype(float) if values.dtype.kind in "fiub" else values.astype(str)
    path = other.results[name].attrs.get("path", "")
    value = side.stated("base_design").get(path)
    if not isinstance(value, int | float) or path not in known_leaves():
        return None
    enum = known_leaves()[path].get("enum")
    if enum and other.results[name].dtype.kind not in "fiub":
        return np.full(side.count, choice_name(enum(int(value))))
    return np.full(side.count, float(value))


# --- what came out ----------------------------------------------------------------------------------------


def _change(
    name: str, sides: tuple[_Side, _Side], places: tuple[np.ndarray, np.ndarray], tolerance: float
) -> Change | None:
    """How a metric changed; None where it did not."""
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


def _feasibility(sides: tuple[_Side, _Side], places: tuple[np.ndarray, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Designs that can run on one side alone, with the reasons of the other."""
    before, after = (side.column("feasible")[rows].astype(bool) for side, rows in zip(sides, places, strict=True))
    gained, lost = ~before & after, before & ~after
    return {
        "became_feasible": {"count": int(gained.sum()), "reasons": sides[0].reasons(places[0][gained])},
        "became_infeasible": {"count": int(lost.sum()), "reasons": sides[1].reasons(places[1][lost])},
    }


def _other_mappings(sides: tuple[_Side, _Side], places: tuple[np.ndarray, np.ndarray]) -> int:
    """Points that can run on both sides and whose best mappings are not the same."""
    shared = [name for name in sides[0].parts if name in sides[1].parts]
    if not shared:
        return 0
    run = [side.column("feasible")[rows].astype(bool) for side, rows in zip(sides, places, strict=True)]
    other = np.zeros(len(places[0]), bool)
    for name in shared:
        first, second = (side.column(name)[rows] for side, rows in zip(sides, places, strict=True))
        other |= first != second
    return int(np.count_nonzero(other & run[0] & run[1]))


def _winner(sides: tuple[_Side, _Side], matched: _Matched, of: int) -> Winner | None:
    """The best design of one side, on both."""
    row = sides[of].best
    if row is None:
        return None
    own = (matched.first, matched.second)
    at = np.flatnonzero(own[of] == row)
    rows = [row if side == of else (int(own[side][at[0]]) if len(at) else None) for side in (0, 1)]
    labels = sides[of].labels(row)
    for i, (side, place) in enumerate(zip(sides, rows, strict=True)):
        if place is not None and side.parts and side.labels(place) != labels:
            rows[i] = None  # the best mapping of this point is another one there
    told = [_told(side, place, sides[of].objective) for side, place in zip(sides, rows, strict=True)]
    names = [name for name in told[of]["parts"] if any(one["parts"].get(name) for one in told)]
    return Winner(
        labels=labels,
        objective=(told[0]["objective"], told[1]["objective"]),
        feasible=(told[0]["feasible"], told[1]["feasible"]),
        reasons=(told[0]["reasons"], told[1]["reasons"]),
        parts={name: (told[0]["parts"].get(name), told[1]["parts"].get(name)) for name in names},
    )


def _told(side: _Side, row: int | None, objective: str) -> dict[str, Any]:
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
    """The total whose parts tell why a design is best: the objective, or else the first of the study."""
    return objective if objective in study.totals else next(iter(study.totals), "")
