"""Designs of a results dataset as flat columns, from which figures of single mappings choose rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np
import xarray as xr

from dse.designs.leaves import is_of_workload
from dse.doors.studies import of_metrics
from dse.doors.study import Study
from dse.errors import InputError
from dse.io.quantities import setting
from dse.views.plot.style import HEADINGS, heading, pair

#: Coordinates of mappings and numbers of designs, which make no groups.
_NO_LABELS = {"mapping", "design", "index", "sequence_parallel", "overlap_dp", "overlap_tp", "precision", "placement"}

#: Bit of ``infeasible_reason`` for too little memory.
_MEMORY = 1


class Columns(NamedTuple):
    """Designs of a dataset, one flat array per variable."""

    study: Study
    time: np.ndarray  # first total of the study
    slowness: np.ndarray  # ranking: the objective, or with different workloads the time per token
    memory: np.ndarray
    beside: np.ndarray  # second metric
    feasible: np.ndarray  # and with known time and memory
    memory_alone: np.ndarray  # infeasible by memory only
    parts: dict[str, np.ndarray]  # parts of the time
    labels: dict[str, np.ndarray]  # heading → distinguishing values
    units: dict[str, str]  # heading → units of its values
    group: tuple[str, ...]  # headings of the labels of a group, whose best design is shown
    capacity: float  # bytes of device memory; 0 where unknown or different between designs
    ends: dict[str, np.ndarray]  # ends of 80 % intervals that the results hold: time_low, time_high, memory_low, …


def columns(results: xr.Dataset) -> tuple[Columns, str]:
    """Designs of a dataset, and a title; of a grid with mappings those of the point with the fastest design."""
    results = single_designs(results)
    study = check(results)
    point = best_point(results)
    results = results.isel(point)
    total, shape = study.totals[0], results[study.totals[0]]

    def of_all(name: str) -> np.ndarray:
        return flat(results, name, shape)

    moving = [
        str(name) for name, values in results.coords.items()
        if values.dims and set(values.dims) <= set(shape.dims) and name not in HEADINGS
        and (name not in _NO_LABELS or name in set(shape.dims) - {"mapping", "design"})
    ]  # fmt: skip
    named = {heading(name): name for name in moving}
    named |= {HEADINGS[name]: name for name in HEADINGS if name in results and results[name].dims}
    memory, reason = of_all(study.memory), of_all("infeasible_reason") if "infeasible_reason" in results else None
    time, slow = of_all(total), of_all(study.objective)
    if study.rate in results and _has_unlike_work(results, shape.dims):
        with np.errstate(divide="ignore"):
            slow = 1.0 / of_all(study.rate)
    known = np.isfinite([time, slow, memory]).all(axis=0) & (time >= 0.0) & (slow >= 0.0)
    at = ", ".join(pair(name, _at_point(results[name])) for name in point if name in results.coords)
    title = str(results.attrs.get("title", ""))
    return Columns(
        study=study,
        time=time,
        slowness=slow,
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
            for what, metric in (("time", total), ("memory", study.memory)) for end in ("low", "high")
            if f"{metric}_{end}" in results
        },
    ), f"{title} ({at})" if at else title


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


def flat(results: xr.Dataset, name: str, shape: xr.DataArray) -> np.ndarray:
    """Values of a variable of every design, shaped like ``shape``, as a flat array."""
    whole = results.variables[name].set_dims(dict(shape.sizes)).transpose(*shape.dims)  # faster than with indices
    return np.ravel(whole.values)


def is_work(coordinate: xr.DataArray) -> bool:
    """Whether an axis changes the workload rather than the system."""
    return is_of_workload(str(coordinate.attrs.get("path", "")))


def _has_unlike_work(results: xr.Dataset, dims: Iterable[Hashable]) -> bool:
    """Whether designs along these dimensions have different workloads."""
    return any(is_work(values) for values in results.coords.values() if values.dims and set(values.dims) <= set(dims))


def slowness(results: xr.Dataset) -> xr.DataArray:
    """Minimised value of the fastest design: inverse tokens/s, since steps of different workloads do not compare."""
    study = of_metrics(results)
    return -results[study.rate] if study.rate in results else results[study.objective]


def best_point(results: xr.Dataset) -> dict[str, int]:
    """Position of the fastest feasible design along the orthogonal axes, where each point has many mappings."""
    if results.sizes.get("mapping", 1) == 1:
        return {}
    study = of_metrics(results)
    orthogonal = [str(d) for d in results[study.totals[0]].dims if d != "mapping"]
    if not orthogonal:
        return {}
    unlike = any(is_work(results[name]) for name in orthogonal if name in results.coords)
    kept = (slowness(results) if unlike else results[study.objective]).where(results.feasible)
    if not bool(kept.notnull().any()):
        return dict.fromkeys(orthogonal, 0)
    return {str(d): int(i) for d, i in kept.argmin(...).items() if d in orthogonal}
