"""Designs of a results dataset as flat columns, from which figures of single mappings choose rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from dse.doors.studies import of_metrics
from dse.doors.study import Study
from dse.errors import InputError
from dse.io.quantities import setting
from dse.sweep.results.schema import cautions
from dse.views.plot.ranking import flat, is_work, ranking
from dse.views.plot.style import HEADINGS, heading, pair

__all__ = [
    "Columns", "best_point", "capacity", "check", "columns", "flat", "front", "is_search", "is_work",
    "nothing_feasible", "single_designs", "titled", "whiskers", "work_of",
]  # fmt: skip

#: Coordinates of mappings and numbers of designs, which make no groups.
_NO_LABELS = {"mapping", "design", "index", "sequence_parallel", "overlap_dp", "overlap_tp", "precision", "placement"}

#: Bit of ``infeasible_reason`` for too little memory.
_MEMORY = 1


class Columns(NamedTuple):
    """Designs of a dataset, one flat array per variable."""

    study: Study
    time: np.ndarray  # first total of the study
    scores: np.ndarray  # ranking, the best the least (dse.views.plot.ranking)
    objective: str  # of the ranking, in words
    memory: np.ndarray
    beside: np.ndarray  # second metric
    feasible: np.ndarray  # and with known time and memory
    memory_alone: np.ndarray  # infeasible by memory only
    parts: dict[str, np.ndarray]  # parts of the time
    labels: dict[str, np.ndarray]  # heading → distinguishing values
    units: dict[str, str]  # heading → units of its values
    group: tuple[str, ...]  # headings of the labels of a group, whose best design is shown
    capacity: float  # bytes of device memory; 0 where unknown or different between designs
    cautions: list[str]  # what to know of the designs, a line each
    ends: dict[str, np.ndarray]  # ends of 80 % intervals that the results hold: time_low, time_high, memory_low, …


def columns(results: xr.Dataset) -> tuple[Columns, str]:
    """Designs of a dataset, and a title; of a grid with mappings those of the point with the best design."""
    results = single_designs(results)
    study = check(results)
    point, work = best_point(results), work_of(results)
    results = results.isel(point)
    total, shape = study.totals[0], results[study.totals[0]]

    def of_all(name: str) -> np.ndarray:
        return flat(results, name, shape)

    moving = [
        str(name)
        for name, values in results.coords.items()
        if values.dims
        and set(values.dims) <= set(shape.dims)
        and name not in HEADINGS
        and (name not in _NO_LABELS or name in set(shape.dims) - {"mapping", "design"})
    ]
    named = {heading(name): name for name in moving}
    named |= {HEADINGS[name]: name for name in HEADINGS if name in results and results[name].dims}
    memory, reason = of_all(study.memory), of_all("infeasible_reason") if "infeasible_reason" in results else None
    time, ranked = of_all(total), ranking(results)
    scores = ranked.scores.values.ravel()
    known = np.isfinite([time, scores, memory]).all(axis=0) & (time >= 0.0)
    at = ", ".join(pair(name, _at_point(results[name])) for name in point if name in results.coords)
    return Columns(
        study=study,
        time=time,
        scores=scores,
        objective=ranked.objective,
        memory=memory,
        beside=of_all(study.beside.metric) if study.beside else np.zeros(shape.size),
        feasible=of_all("feasible").astype(bool) & known,
        memory_alone=np.zeros(shape.size, bool) if reason is None else (reason == _MEMORY) & known,
        parts={name.removeprefix(f"{total}_"): of_all(name) for name in study.parts(total) if name in results},
        labels={title: of_all(name) for title, name in named.items()},
        units={title: str(results[name].attrs.get("units", "1")) for title, name in named.items()},
        group=(*map(heading, moving), *(n for n in ("tp", "pp") if n in named)),
        capacity=max(float(results.attrs.get("memory_capacity_bytes", 0.0)), 0.0) or capacity(memory, reason),
        ends={
            f"{what}_{end}": of_all(f"{metric}_{end}")
            for what, metric in (("time", total), ("memory", study.memory))
            for end in ("low", "high")
            if f"{metric}_{end}" in results
        },
        cautions=cautions(results.attrs),
    ), titled(results, at, work)


def work_of(results: xr.Dataset) -> str:
    """What each step or request of all designs works on, in one line, by the scalar coordinates of results."""
    fixed = {
        str(values.attrs["path"]): values.values.item()
        for values in results.variables.values()
        if not values.dims and "path" in values.attrs
    }
    return of_metrics(results).work(fixed)


def titled(results: xr.Dataset, at: str = "", work: str | None = None) -> str:
    """Title of results, with the point that is drawn, and in a line below it what all designs work on."""
    title = str(results.attrs.get("title", ""))
    lines = (f"{title} ({at})" if at else title, work_of(results) if work is None else work)
    return "\n".join(filter(None, lines))


def whiskers(results: xr.Dataset, name: str, at: np.ndarray, factor: float = 1.0) -> np.ndarray | None:
    """Distances of a metric's ends of the 80 % interval from it at some places [2, places]; None where not held."""
    ends = [f"{name}_{end}" for end in ("low", "high")]
    if not set(ends) <= set(results.variables):
        return None
    shape = results[name]
    middle, low, high = (flat(results, one, shape)[at] * factor for one in (name, *ends))
    return np.maximum(np.nan_to_num([middle - low, high - middle]), 0.0)


def is_search(results: xr.Dataset) -> bool:
    """Whether a search wrote these results: best designs by method and seed, and a front."""
    return "searcher" in results.dims


def single_designs(results: xr.Dataset) -> xr.Dataset:
    """Results of a search as single designs: its front, or else the best of all methods and seeds."""
    if not is_search(results):
        return results
    front = {str(name): str(name).removeprefix("front_") for name in results if str(name).startswith("front_")}
    if front:
        found = results[list(front)].rename(front)
        found = found.assign(feasible=("design", np.ones(found.sizes["design"], bool)))
    else:
        best = results[[n for n, values in results.variables.items() if set(values.dims) == {"searcher", "seed"}]]
        found = best.assign(feasible=best.violation == 0.0).stack(design=("searcher", "seed"), create_index=False)
        total = of_metrics(found).totals[0]
        found = found.isel(design=np.unique(found[total], return_index=True)[1]) if total in found else found
    axes = [name for name, values in found.data_vars.items() if "axis" in values.attrs or "path" in values.attrs]
    return found.drop_vars(["searcher", "seed"], errors="ignore").set_coords(axes)


def check(results: xr.Dataset, *further: str) -> Study:
    """Study of the results. Figures need the variables of every sweep, and ``further``."""
    study = of_metrics(results)
    shown = study.beside.metric if study.beside else study.objective
    needed = tuple(dict.fromkeys((study.totals[0], study.objective, study.memory, shown, "feasible", *further)))
    for name in needed:
        if name not in results:
            given = f"no variable {name!r}"
            raise InputError("results", given, ", ".join(needed), "use results that dse run wrote")
    if not results[study.totals[0]].size:
        raise nothing_feasible()
    return study


def nothing_feasible() -> InputError:
    """InputError: no feasible design to draw."""
    return InputError(
        "results", "no feasible design", "one or more", "widen the sweep; dse run prints the reasons of infeasibility"
    )


def _at_point(coordinate: xr.DataArray) -> str:
    """Value of an axis with one remaining point."""
    return setting(coordinate.item(), str(coordinate.attrs.get("units", "1")))


def capacity(memory: np.ndarray, reason: np.ndarray | None) -> float:
    """Capacity between the largest design that fits and the smallest that does not; 0 where they are far apart."""
    if reason is None:
        return 0.0
    too_large = (reason & _MEMORY) != 0
    fits, not_fits = np.fmax.reduce(memory[~too_large], initial=0.0), memory[too_large].min(initial=np.inf)
    return float(fits + not_fits) / 2.0 if fits <= not_fits < 1.02 * fits else 0.0


def front(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Indices of the Pareto-optimal points of two minimised values, ascending by the first."""
    order = np.lexsort((second, first))
    lowest = np.minimum.accumulate(second[order])
    better = np.concatenate([[True], second[order][1:] < lowest[:-1]])[: len(order)]
    return order[better]


def best_point(results: xr.Dataset) -> dict[str, int]:
    """Position of the best feasible design along the orthogonal axes, where each point has many mappings."""
    if results.sizes.get("mapping", 1) == 1:
        return {}
    orthogonal = [str(d) for d in results[of_metrics(results).totals[0]].dims if d != "mapping"]
    if not orthogonal:
        return {}
    kept = ranking(results).scores.where(results.feasible)
    if not bool(kept.notnull().any()):
        return dict.fromkeys(orthogonal, 0)
    return {str(d): int(i) for d, i in kept.argmin(...).items() if d in orthogonal}
