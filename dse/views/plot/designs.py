"""Designs of a results dataset as flat columns, from which figures of single mappings choose rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dse.doors import Study, study_of_metrics
from dse.errors import InputError
from dse.io import setting
from dse.sweep.results.ranking import ranking
from dse.sweep.results.schema import cautions, is_number_of_name
from dse.sweep.results.singles import flat_values, nothing_feasible, single_designs
from dse.views.plot.style import HEADINGS, heading, pair
from dse.views.studies import presentation_of

if TYPE_CHECKING:
    import xarray as xr

#: Coordinates of mappings and numbers of designs, which make no groups.
_NO_LABELS = {"mapping", "design", "index", "sequence_parallel", "overlap_dp", "overlap_tp", "precision", "placement"}

#: Bit of ``infeasible_reason`` for too little memory.
_MEMORY = 1


class Columns(NamedTuple):
    """Designs of a dataset as flat arrays [design], one per variable."""

    study: Study
    time: np.ndarray  # first total of the study
    scores: np.ndarray  # ranking, the best the least (dse.views.plot.ranking)
    objective: str  # of the ranking, in words
    memory: np.ndarray
    second_metric: np.ndarray  # second metric
    feasible: np.ndarray  # and with known time and memory
    memory_alone: np.ndarray  # infeasible by memory only
    parts: dict[str, np.ndarray]  # parts of the time
    labels: dict[str, np.ndarray]  # heading → distinguishing values
    units: dict[str, str]  # heading → units of its values
    group_headings: tuple[str, ...]  # headings of the labels of a group, whose best design is shown
    capacity: float  # bytes of device memory; 0 where unknown or different between designs
    cautions: list[str]  # what to know of the designs, a line each
    intervals: dict[str, np.ndarray]  # ends of 80 % intervals that the results hold: time, memory → [end, design]


def columns(results: xr.Dataset) -> tuple[Columns, str]:
    """Return the designs of a dataset as columns, of a grid those of the best point, and the title of a figure."""
    results = single_designs(results)
    study = check_results(results)
    point, work = best_point(results), work_of(results)
    results = results.isel(point)
    total, template = study.totals[0], results[study.totals[0]]

    def values_of(name: str) -> np.ndarray:
        return flat_values(results, name, template)

    axis_names = [
        str(name)
        for name, values in results.coords.items()
        if values.dims
        and set(values.dims) <= set(template.dims)
        and name not in HEADINGS
        and not is_number_of_name(values.attrs)
        and (name not in _NO_LABELS or name in set(template.dims) - {"mapping", "design"})
    ]
    name_by_heading = {heading(name): name for name in axis_names}
    name_by_heading |= {HEADINGS[name]: name for name in HEADINGS if name in results and results[name].dims}
    secondary = presentation_of(study).secondary_metric
    memory, reason = values_of(study.memory), values_of("infeasible_reason") if "infeasible_reason" in results else None
    time, ranked = values_of(total), ranking(results)
    scores = ranked.scores.values.ravel()
    is_finite = np.isfinite([time, scores, memory]).all(axis=0) & (time >= 0.0)
    point_text = ", ".join(pair(name, _point_text(results[name])) for name in point if name in results.coords)
    return Columns(
        study=study,
        time=time,
        scores=scores,
        objective=ranked.objective,
        memory=memory,
        second_metric=values_of(secondary.metric) if secondary else np.zeros(template.size),
        feasible=values_of("feasible").astype(bool) & is_finite,
        memory_alone=np.zeros(template.size, bool) if reason is None else (reason == _MEMORY) & is_finite,
        parts={part: values_of(name) for name, part in study.parts(total).items() if name in results},
        labels={title: values_of(name) for title, name in name_by_heading.items()},
        units={title: str(results[name].attrs.get("units", "1")) for title, name in name_by_heading.items()},
        group_headings=(*map(heading, axis_names), *(n for n in ("tp", "pp") if n in name_by_heading)),
        capacity=max(float(results.attrs.get("memory_capacity_bytes", 0.0)), 0.0) or capacity(memory, reason),
        intervals={
            quantity: np.array([values_of(f"{metric}_low"), values_of(f"{metric}_high")])
            for quantity, metric in (("time", total), ("memory", study.memory))
            if f"{metric}_low" in results
        },
        cautions=cautions(results.attrs),
    ), full_title(results, point_text, work)


def work_of(results: xr.Dataset) -> str:
    """Return a line on what each step or request of all designs works on."""
    fixed = {
        str(values.attrs["path"]): values.values.item()
        for values in results.variables.values()
        if not values.dims and "path" in values.attrs
    }
    return study_of_metrics(results).work(fixed)


def full_title(results: xr.Dataset, point_text: str = "", work: str | None = None) -> str:
    """Return the title of results with ``point_text`` in brackets, and the common workload in a line below."""
    title = str(results.attrs.get("title", ""))
    lines = (f"{title} ({point_text})" if point_text else title, work_of(results) if work is None else work)
    return "\n".join(filter(None, lines))


def interval_distances(results: xr.Dataset, name: str, rows: np.ndarray) -> np.ndarray | None:
    """Return the distances of a metric to its 80 % interval's ends [2, rows], None where absent."""
    ends = [f"{name}_{end}" for end in ("low", "high")]
    if not set(ends) <= set(results.variables):
        return None
    middle, low, high = (flat_values(results, variable, results[name])[rows] for variable in (name, *ends))
    return np.maximum(np.nan_to_num([middle - low, high - middle]), 0.0)


def check_results(results: xr.Dataset, *extra: str) -> Study:
    """Return the study of results; raise where they lack a variable that figures need.

    Args:
        results: dataset of a results file.
        extra: further required variables.

    Returns:
        The study of the results.

    Raises:
        InputError: for a missing variable, and for results without a design.
    """
    study = study_of_metrics(results)
    secondary = presentation_of(study).secondary_metric
    second_metric = secondary.metric if secondary else study.objective
    required = tuple(dict.fromkeys((study.totals[0], study.objective, study.memory, second_metric, "feasible", *extra)))
    for name in required:
        if name not in results:
            got = f"no variable {name!r}"
            raise InputError("results", got, ", ".join(required), "use results that dse run wrote")
    if not results[study.totals[0]].size:
        raise nothing_feasible()
    return study


def _point_text(coordinate: xr.DataArray) -> str:
    """Format the value of an axis that has a single position."""
    return setting(coordinate.item(), str(coordinate.attrs.get("units", "1")))


def capacity(memory: np.ndarray, reason: np.ndarray | None) -> float:
    """Return the memory capacity in bytes, between the largest design that fits and the smallest that does not.

    0 where these are more than 2 % apart.
    """
    if reason is None:
        return 0.0
    too_large = (reason & _MEMORY) != 0
    fits, not_fits = np.fmax.reduce(memory[~too_large], initial=0.0), memory[too_large].min(initial=np.inf)
    return float(fits + not_fits) / 2.0 if fits <= not_fits < 1.02 * fits else 0.0


def front(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the indices of the Pareto-optimal points of two minimised values, ascending by the first.

    Args:
        first: values [point].
        second: values [point].
    """
    order = np.lexsort((second, first))
    lowest = np.minimum.accumulate(second[order])
    better = np.concatenate([[True], second[order][1:] < lowest[:-1]])[: len(order)]
    return order[better]


def best_point(results: xr.Dataset) -> dict[str, int]:
    """Return axis → index of the best feasible design along the axes other than the mapping, empty without any."""
    if results.sizes.get("mapping", 1) == 1:
        return {}
    other_axes = [str(d) for d in results[study_of_metrics(results).totals[0]].dims if d != "mapping"]
    if not other_axes:
        return {}
    scores = ranking(results).scores.where(results.feasible)
    if not bool(scores.notnull().any()):
        return dict.fromkeys(other_axes, 0)
    return {str(d): int(i) for d, i in scores.argmin(...).items() if d in other_axes}
