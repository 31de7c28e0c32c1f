"""Results as a flat table: one row per design, one column per axis, metric or part."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.doors.study import more_is_better
from dse.errors import InputError
from dse.io import counted, setting
from dse.io.quantities import counted_units, scale
from dse.spec.space import CATALOGUE_KEYS
from dse.sweep.results.layout import are_designs
from dse.sweep.results.ranking import expression_values
from dse.sweep.results.schema import SPECIFICATION, cautions, is_number_of_name
from dse.sweep.results.singles import flat_values, nothing_feasible, single_designs
from dse.sweep.results.specification import specification_of
from dse.views.plot.designs import check_results, front
from dse.views.words import IN_PER_CENT

if TYPE_CHECKING:
    import xarray as xr

    from dse.doors import Study
    from dse.spec import SweepSpec
    from dse.spec.search import Interval

#: Coordinates that are indices of designs.
_NUMBERS = {"mapping", "design", "index", "searcher", "seed"}

#: Variables of feasibility.
_STATUS = ("feasible", "infeasible_reason")

#: Seconds of a day, the unit of longer times.
_DAY = 86400.0

#: Count of best designs by the objective that a page always has.
_BEST = 1_000

#: Counts of values of an axis with colours.
_COLOURS = range(2, 9)


@dataclasses.dataclass(frozen=True)
class PageColumn:
    """One value per design."""

    name: str
    label: str  #: heading
    about: str  #: one line
    kind: str  #: ``axis``, ``metric`` or ``status``
    values: np.ndarray  #: float32, or positions in ``texts``
    units: str = "1"  #: SI units of the values
    factor: float = 1.0  #: from these to the displayed units
    display_units: str = ""  #: name of the displayed units
    texts: tuple[str, ...] = ()  #: values of an axis as users write them
    distinct_values: np.ndarray | None = None  #: values of an axis in the results
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
    columns: tuple[PageColumn, ...]
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

    def column(self, name: str) -> PageColumn:
        """Return a column by its name; StopIteration where there is none."""
        return next(column for column in self.columns if column.name == name)


def build(results: xr.Dataset, points: int) -> DesignTable:
    """Return the table of at most ``points`` designs of results.

    Args:
        results: of a sweep or search.
        points: maximum count of designs.
    """
    spec, intervals, why = _specification(results)
    results = single_designs(results)
    study = check_results(results)
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
        rows = _thin(rows, flat_values(results, "feasible", total).astype(bool), metrics, start, points)
    axes, facts = _axes(results, total, rows)
    page_columns = {name: dataclasses.replace(column, values=column.values[rows]) for name, column in metrics.items()}
    columns = (*axes, *map(_with_units, page_columns.values()), *_status(results, study, rows))
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


def _specification(results: xr.Dataset) -> tuple[SweepSpec | None, tuple[Interval, ...], str]:
    """Return the specification of the results, its continuous axes, and the reason where there is none."""
    if SPECIFICATION not in results.attrs:
        return None, (), "These results carry no specification: lines to paste are not known."
    try:
        return *specification_of(results), ""
    except InputError as error:
        return None, (), f"Lines to paste are not known: {error}"


# Metrics


def _metrics(results: xr.Dataset, study: Study, spec: SweepSpec | None) -> Iterator[tuple[str, PageColumn]]:
    """Yield (name, column) of the metrics of the results, and of objectives that are expressions, of all designs."""
    total = results[study.totals[0]]
    objectives = spec.objectives if spec else ()
    senses = {objective.expression.text: "less" if objective.sign > 0.0 else "more" for objective in objectives}
    for name, variable in results.data_vars.items():
        if name in _STATUS or "path" in variable.attrs or not set(variable.dims) <= set(total.dims):
            continue
        if variable.dtype.kind in "fiu":
            yield str(name), _metric(str(name), flat_values(results, str(name), total), variable.attrs, senses)
    for objective in objectives:
        values = expression_values(results, objective.expression, total)
        if objective.expression.text not in results and values is not None:
            about = {"long_name": f"objective: {objective.expression.text}", "units": objective.expression.units}
            yield objective.expression.text, _metric(objective.expression.text, values, about, senses)


def _metric(name: str, values: np.ndarray, attrs: dict[str, Any], senses: dict[str, str]) -> PageColumn:
    """Return the column of a metric in SI units; ``senses``: name of an objective → ``less`` or ``more``."""
    better = senses.get(name) or ("more" if more_is_better(name) else "less")
    return column_of(name, "metric", values.astype(np.float32, copy=False), attrs, better=better)


def column_of(name: str, kind: str, values: np.ndarray, attrs: Mapping[str, Any], **fields: Any) -> PageColumn:
    """Return a column with the heading, line, units and path of a variable.

    Args:
        name: of the variable.
        kind: ``axis`` or ``metric``.
        values: of the column.
        attrs: of the variable.
        **fields: further fields of the column.
    """
    about, units = str(attrs.get("long_name", name)), str(attrs.get("units", "1"))
    return PageColumn(
        name, name.replace("_", " "), about, kind, values, units=units, path=str(attrs.get("path", "")), **fields
    )


def _with_units(column: PageColumn) -> PageColumn:
    """Return the column with its displayed units and the factor to them."""
    if column.name in IN_PER_CENT:
        return dataclasses.replace(column, factor=100.0, display_units="%")
    sizes = np.abs(column.values[np.isfinite(column.values) & (column.values != 0.0)])
    middle = float(np.median(sizes)) if len(sizes) else 0.0
    factor, units = (1.0 / _DAY, "days") if column.units == "s" and middle > _DAY else scale(middle, column.units)
    return dataclasses.replace(column, factor=factor, display_units=counted_units(column.name, units))


def _start(metrics: dict[str, PageColumn], study: Study, spec: SweepSpec | None) -> dict[str, str]:
    """Return ``x`` and ``y`` → name of a metric: the objectives, or else the study's front."""
    names = [objective.expression.text for objective in spec.objectives] if spec else []
    names += [*study.front_axes] if study.front_axes and len(names) < 2 else []
    names += [study.objective, study.memory, *metrics]
    x, y, *_ = (name for name in dict.fromkeys(names) if name in metrics)
    return {"x": x, "y": y}


def _thin(
    rows: np.ndarray, feasible: np.ndarray, metrics: dict[str, PageColumn], start: dict[str, str], points: int
) -> np.ndarray:
    """Return at most ``points`` rows, sorted: the front, the best by the first objective, an even sample of others."""
    able = rows[feasible[rows]]
    first, second = (
        metrics[start[axis]].values[able] * (1.0 if metrics[start[axis]].better == "less" else -1.0) for axis in "xy"
    )
    chosen = able[np.concatenate([front(first, second), np.argsort(first, kind="stable")[: min(_BEST, points // 2)]])]
    chosen = np.unique(chosen)[:points]
    other_rows = np.setdiff1d(rows, chosen, assume_unique=True)
    sample = np.linspace(0, len(other_rows) - 1, points - len(chosen)).astype(np.int64)
    return np.union1d(chosen, other_rows[sample])


# Axes and status


def _axes(results: xr.Dataset, total: xr.DataArray, rows: np.ndarray) -> tuple[list[PageColumn], list[tuple[str, str]]]:
    """Return the columns of axes with several values, and (label, text) of those with one value."""
    columns, facts = [], []
    for name, variable in results.variables.items():
        is_axis = "path" in variable.attrs or (name in results.coords and name not in _NUMBERS)
        if not is_axis or is_number_of_name(variable.attrs) or not set(variable.dims) <= set(total.dims):
            continue
        column = _axis(str(name), flat_values(results, str(name), total)[rows], variable.attrs)
        if len(column.texts) == 1:
            facts.append((column.label, column.texts[0]))
        else:
            columns.append(column)
    return columns, facts


def _axis(name: str, values: np.ndarray, attrs: dict[str, Any]) -> PageColumn:
    """Return the column of an axis: positions in its distinct values."""
    values = values.astype(str) if values.dtype.kind == "O" else values
    distinct_values, codes = np.unique(values, return_inverse=True)
    units = str(attrs.get("units", "1"))
    is_quantity = distinct_values.dtype.kind in "iuf" and units != "1"
    factor, display_units = scale(float(np.median(distinct_values)), units) if is_quantity else (1.0, "")
    return column_of(
        name,
        "axis",
        codes.reshape(-1),
        attrs,
        factor=factor,
        display_units=display_units,
        texts=tuple(setting(value.item(), units) for value in distinct_values),
        distinct_values=distinct_values,
    )


def _status(results: xr.Dataset, study: Study, rows: np.ndarray) -> Iterator[PageColumn]:
    """Yield one column: the reasons of infeasibility in words, "" for feasible designs."""
    total = results[study.totals[0]]
    bits = flat_values(results, "infeasible_reason", total)[rows] if "infeasible_reason" in results else None
    feasible = flat_values(results, "feasible", total)[rows].astype(bool)
    codes = np.where(feasible, 0, -1) if bits is None else np.where(feasible, 0, bits)
    distinct_codes, positions = np.unique(codes, return_inverse=True)
    texts = tuple(_reason(int(code), study) for code in distinct_codes)
    yield PageColumn("status", "status", "whether it can run, or why not", "status", positions.reshape(-1), texts=texts)


def _reason(bits: int, study: Study) -> str:
    """Return the reasons in bits in words, "" for none."""
    if bits <= 0:
        return "" if bits == 0 else "cannot run"
    return "; ".join(study.reason_meanings[name] for name in study.reasons_in(bits)) or "cannot run"


def _colour(axes: list[PageColumn], study: Study) -> str:
    """Return the column of the initial colours: catalogue names, else tp, names, few values, the first total."""
    few = [column for column in axes if len(column.texts) in _COLOURS]
    names = [
        column.name for column in few if column.distinct_values is not None and column.distinct_values.dtype.kind == "U"
    ]
    catalogue = [name for name in ("accelerator", *CATALOGUE_KEYS) if name in {column.path for column in few}]
    candidates = [*catalogue, *(c.name for c in few if c.name == "tp"), *names, *(c.name for c in few)]
    return candidates[0] if candidates else study.totals[0]
