"""Results as a flat table: one row per design, one column per axis, metric or part."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.errors import InputError
from dse.io.quantities import counted, counted_units, scale, setting
from dse.spec import search, sweep
from dse.spec.space import NAMED
from dse.sweep.results.layout import are_designs
from dse.sweep.results.schema import SPECIFICATION, cautions
from dse.views.headings import IN_PER_CENT, MORE_IS_BETTER
from dse.views.plot.designs import check, flat, front, is_search, nothing_feasible, single_designs
from dse.views.plot.ranking import expression_values

if TYPE_CHECKING:
    import xarray as xr

    from dse.doors.study import Study
    from dse.spec.search import Interval
    from dse.spec.sweep import SweepSpec

#: Coordinates that number designs.
_NUMBERS = {"mapping", "design", "index", "searcher", "seed"}

#: Variables of feasibility.
_STATUS = ("feasible", "infeasible_reason")

#: Seconds of a day, the unit of longer times.
_DAY = 86400.0

#: Number of best designs by the objective that a page always has.
_BEST = 1_000

#: Maximum number of values of an axis with colours.
_COLOURS = range(2, 9)


@dataclasses.dataclass(frozen=True)
class Column:
    """One value per design."""

    name: str
    label: str  #: heading
    about: str  #: one line
    kind: str  #: ``axis``, ``metric`` or ``status``
    values: np.ndarray  #: float32, or positions in ``texts``
    units: str = "1"  #: SI units of the values
    factor: float = 1.0  #: from these to the displayed units
    shown: str = ""  #: name of the displayed units
    texts: tuple[str, ...] = ()  #: values of an axis as users write them
    known: np.ndarray | None = None  #: values of an axis in the results
    path: str = ""  #: leaf or catalogue name of an axis
    better: str = ""  #: of a metric: ``less`` or ``more``


@dataclasses.dataclass(frozen=True)
class DesignTable:
    """Designs of a page."""

    results: xr.Dataset  #: single designs of the results
    study: Study
    spec: SweepSpec | None  #: specification of the results, if still valid
    intervals: tuple[Interval, ...]  #: continuous axes of a search
    rows: np.ndarray  #: positions of the designs in the flattened first total
    columns: tuple[Column, ...]
    start: dict[str, str]  #: initial columns along ``x``, ``y`` and ``colour``
    facts: tuple[tuple[str, str], ...]  #: common values: (name, value)
    notes: tuple[str, ...]  #: notes, a sentence each

    @property
    def size(self) -> int:
        """Number of designs."""
        return len(self.rows)

    @property
    def title(self) -> str:
        """Title of the results."""
        return str(self.results.attrs.get("title", "")) or "Designs"

    def column(self, name: str) -> Column:
        """A column by its name."""
        return next(column for column in self.columns if column.name == name)


def build(results: xr.Dataset, points: int) -> DesignTable:
    """The table of at most ``points`` designs of results."""
    of_search = is_search(results)
    results = single_designs(results)
    study = check(results)
    spec, intervals, why = _specification(results, of_search)
    total = results[study.totals[0]]
    metrics = dict(_metrics(results, study, spec))
    rows = np.flatnonzero(np.isfinite(metrics[study.totals[0]].values))
    if not len(rows):
        raise nothing_feasible()
    start = _start(metrics, study, spec)
    notes = [*cautions(results.attrs), *([why] if why else [])]
    if missing := int(np.count_nonzero(are_designs(results))) - len(rows):
        notes.append(f"{counted(missing, 'point')} of the sweep without a design that can run: left out.")
    if len(rows) > points:
        notes.append(
            f"{len(rows):,} designs are too many for one page: these are the Pareto front, the best and an even sample."
        )
        rows = _thinned(rows, flat(results, "feasible", total).astype(bool), metrics, start, points)
    axes, facts = _axes(results, total, rows)
    found = {name: dataclasses.replace(column, values=column.values[rows]) for name, column in metrics.items()}
    columns = (*axes, *map(_scaled, found.values()), *_status(results, study, rows))
    return DesignTable(
        results,
        study,
        spec,
        intervals,
        rows,
        columns,
        start | {"colour": _colour(axes, study)},
        tuple(facts),
        tuple(notes),
    )


def _specification(results: xr.Dataset, of_search: bool) -> tuple[SweepSpec | None, tuple[Interval, ...], str]:
    """Specification of the results, its continuous axes, and the reason without one."""
    if SPECIFICATION not in results.attrs:
        return None, (), "These results carry no specification: lines to paste are not known."
    text, file = str(results.attrs[SPECIFICATION]), "specification of the results"
    try:
        if not of_search:
            return sweep.from_text(text, file), (), ""
        found = search.from_text(text, file)
        return found.sweep, found.intervals, ""
    except InputError as error:
        return None, (), f"Lines to paste are not known: {error}"


# Metrics


def _metrics(results: xr.Dataset, study: Study, spec: SweepSpec | None) -> Iterator[tuple[str, Column]]:
    """Metrics of the results, and objectives that are expressions, of all designs."""
    total = results[study.totals[0]]
    objectives = spec.objectives if spec else ()
    senses = {one.expression.text: "less" if one.sign > 0.0 else "more" for one in objectives}
    for name, variable in results.data_vars.items():
        if name in _STATUS or "path" in variable.attrs or not set(variable.dims) <= set(total.dims):
            continue
        if variable.dtype.kind in "fiu":
            yield str(name), _metric(str(name), flat(results, str(name), total), variable.attrs, senses)
    for one in objectives:
        values = expression_values(results, one.expression, total)
        if one.expression.text not in results and values is not None:
            about = {"long_name": f"objective: {one.expression.text}", "units": one.expression.units}
            yield one.expression.text, _metric(one.expression.text, values, about, senses)


def _metric(name: str, values: np.ndarray, attrs: dict[str, Any], senses: dict[str, str]) -> Column:
    better = senses.get(name) or ("more" if any(word in name for word in MORE_IS_BETTER) else "less")
    return Column(
        name,
        name.replace("_", " "),
        str(attrs.get("long_name", name)),
        "metric",
        values.astype(np.float32, copy=False),
        units=str(attrs.get("units", "1")),
        better=better,
    )


def _scaled(column: Column) -> Column:
    """The column with its displayed units."""
    if column.name in IN_PER_CENT:
        return dataclasses.replace(column, factor=100.0, shown="%")
    sizes = np.abs(column.values[np.isfinite(column.values) & (column.values != 0.0)])
    middle = float(np.median(sizes)) if len(sizes) else 0.0
    factor, shown = (1.0 / _DAY, "days") if column.units == "s" and middle > _DAY else scale(middle, column.units)
    return dataclasses.replace(column, factor=factor, shown=counted_units(column.name, shown))


def _start(metrics: dict[str, Column], study: Study, spec: SweepSpec | None) -> dict[str, str]:
    """The two initial metrics: the objectives, or else the study's trade-off."""
    wanted = [one.expression.text for one in spec.objectives] if spec else []
    wanted += [*study.trade] if study.trade and len(wanted) < 2 else []
    wanted += [study.objective, study.memory, *metrics]
    x, y, *_ = (name for name in dict.fromkeys(wanted) if name in metrics)
    return {"x": x, "y": y}


def _thinned(
    rows: np.ndarray, feasible: np.ndarray, metrics: dict[str, Column], start: dict[str, str], points: int
) -> np.ndarray:
    """At most ``points`` rows: the front, the best by the first objective, and an even sample of the rest."""
    able = rows[feasible[rows]]
    first, second = (
        metrics[start[way]].values[able] * (1.0 if metrics[start[way]].better == "less" else -1.0) for way in "xy"
    )
    chosen = able[np.concatenate([front(first, second), np.argsort(first, kind="stable")[: min(_BEST, points // 2)]])]
    chosen = np.unique(chosen)[:points]
    rest = np.setdiff1d(rows, chosen, assume_unique=True)
    every = np.linspace(0, len(rest) - 1, points - len(chosen)).astype(np.int64)
    return np.union1d(chosen, rest[every])


# Axes and status


def _axes(results: xr.Dataset, total: xr.DataArray, rows: np.ndarray) -> tuple[list[Column], list[tuple[str, str]]]:
    """Columns of axes with several values, and common values."""
    columns, facts = [], []
    for name, variable in results.variables.items():
        is_axis = "path" in variable.attrs or (name in results.coords and name not in _NUMBERS)
        if not is_axis or not set(variable.dims) <= set(total.dims):
            continue
        column = _axis(str(name), flat(results, str(name), total)[rows], variable.attrs)
        if len(column.texts) == 1:
            facts.append((column.label, column.texts[0]))
        else:
            columns.append(column)
    return columns, facts


def _axis(name: str, values: np.ndarray, attrs: dict[str, Any]) -> Column:
    """An axis as positions in its values."""
    values = values.astype(str) if values.dtype.kind == "O" else values
    known, codes = np.unique(values, return_inverse=True)
    units = str(attrs.get("units", "1"))
    path = str(attrs.get("path", ""))
    texts = tuple(setting(value.item(), units) for value in known)
    factor, shown = (1.0, "")
    if known.dtype.kind in "iuf" and units != "1":
        factor, shown = scale(float(np.median(known)), units)
    return Column(
        name,
        name.replace("_", " "),
        str(attrs.get("long_name", name)),
        "axis",
        codes.reshape(-1),
        units=units,
        factor=factor,
        shown=shown,
        texts=texts,
        known=known,
        path=path,
    )


def _status(results: xr.Dataset, study: Study, rows: np.ndarray) -> Iterator[Column]:
    """Reasons of infeasibility in words; "" for feasible designs."""
    total = results[study.totals[0]]
    bits = flat(results, "infeasible_reason", total)[rows] if "infeasible_reason" in results else None
    feasible = flat(results, "feasible", total)[rows].astype(bool)
    codes = np.where(feasible, 0, -1) if bits is None else np.where(feasible, 0, bits)
    known, positions = np.unique(codes, return_inverse=True)
    texts = tuple(_reason(int(code), study) for code in known)
    yield Column("status", "status", "whether it can run, or why not", "status", positions.reshape(-1), texts=texts)


def _reason(bits: int, study: Study) -> str:
    if bits <= 0:
        return "" if bits == 0 else "cannot run"
    return "; ".join(study.reason_meanings[name] for name in study.reasons_in(bits)) or "cannot run"


def _colour(axes: list[Column], study: Study) -> str:
    """Axis of the initial colours: names, else tp, else any with few values, else the study's rate."""
    few = [column for column in axes if len(column.texts) in _COLOURS]
    names = [column.name for column in few if column.known is not None and column.known.dtype.kind == "U"]
    catalogue = [name for name in ("accelerator", *NAMED) if name in {column.path for column in few}]
    wanted = [*catalogue, *(c.name for c in few if c.name == "tp"), *names, *(c.name for c in few)]
    return wanted[0] if wanted else study.totals[0]
