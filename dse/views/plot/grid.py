"""Best mapping per point of a grid of machines, for figures along axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dse.doors import Study, study_of_metrics
from dse.errors import InputError
from dse.sweep.results.ranking import is_work, ranking
from dse.sweep.results.schema import cautions, is_number_of_name
from dse.sweep.results.singles import is_search, nothing_feasible
from dse.views.plot import designs
from dse.views.plot.style import heading, labels, pair

if TYPE_CHECKING:
    import xarray as xr


class Machines(NamedTuple):
    """Points of all axes other than the mapping, with their best mappings."""

    points: xr.Dataset  # variables along the axes; missing where nothing is feasible
    axes: tuple[str, ...]  # dimensions with several positions
    best_position: dict[str, int]  # the best machine
    title: str
    study: Study
    objective: str  # that ranks the machines, in words
    cautions: list[str]  # what to know of the designs, a line each
    parts: Mapping[str, str]  # variable → name of the part of the first total

    @property
    def time(self) -> xr.DataArray:
        """First total of the study: time of a step, or per output token."""
        return self.points[self.study.totals[0]]

    def slice_along(self, *axes: str) -> xr.Dataset:
        """Return the machines that differ from the best one along these axes only."""
        return self.points.isel({name: place for name, place in self.best_position.items() if name not in axes})

    def with_best_work(self) -> Machines:
        """Return the machines with the workload of the best one, without axes of the workload."""
        fixed = {name: self.best_position[name] for name in self.axes if is_work(self.points[name])}
        free_axes = tuple(name for name in self.axes if name not in fixed)
        position = {name: place for name, place in self.best_position.items() if name not in fixed}
        return self._replace(points=self.points.isel(fixed), axes=free_axes, best_position=position)

    def fixed_values_text(self, *axes: str) -> str:
        """Return a text of the values of the best machine along all axes but these, "" for none."""
        names = (name for name in self.axes if name not in axes)
        return ", ".join(
            pair(axis, text[self.best_position[name]])
            for name in names
            for axis, text in self._distinct_labels(name).items()
        )

    def tied_axes(self, name: str) -> list[str]:
        """Return the names of the axes that vary along the dimension ``name``, itself left out."""
        return [
            str(n)
            for n, values in self.points.coords.items()
            if values.dims == (name,) and n != name and not is_number_of_name(values.attrs)
        ]

    def heading(self, name: str) -> str:
        """Return the heading of an axis and of those tied to it."""
        return ", ".join(map(heading, [name, *self.tied_axes(name)]))

    def labels(self, name: str) -> list[str]:
        """Return the values along an axis as texts, with those of tied axes where needed to tell equal ones apart."""
        return list(map(", ".join, zip(*self._distinct_labels(name).values(), strict=True)))

    def _distinct_labels(self, name: str) -> dict[str, list[str]]:
        """Return axis → values as texts, of an axis and of tied axes that distinguish equal ones."""
        labels_by_axis = {name: labels(self.points[name])}
        for other in self.tied_axes(name):
            extended = labels_by_axis | {other: labels(self.points[other])}
            if _distinct_count(extended) > _distinct_count(labels_by_axis):
                labels_by_axis = extended
        return labels_by_axis

    def most_influential_axis(self, metric: str, except_for: tuple[str, ...] = ()) -> str | None:
        """Return the axis along which the mean logarithm of a metric has the widest span, None without axes."""
        import xarray as xr

        logarithm = xr.apply_ufunc(np.log, self.points[metric].where(self.points[metric] > 0))

        def span(name: str) -> float:
            means = logarithm.mean([d for d in logarithm.dims if d != name])
            return float(means.max() - means.min())

        return max((name for name in self.axes if name not in except_for), key=span, default=None)


def axes_of(results: xr.Dataset) -> tuple[str, ...]:
    """Return the names of axes with several positions, without the mapping; none for single designs and searches."""
    total = study_of_metrics(results).totals[0]
    if total not in results or "design" in results[total].dims or is_search(results):
        return ()
    return tuple(str(d) for d, size in results[total].sizes.items() if d != "mapping" and size > 1)


def machines(results: xr.Dataset) -> Machines:
    """Return the machines of a dataset with their best mappings; raise for no axes or nothing feasible."""
    study = designs.check_results(results)
    axes = axes_of(results)
    if not axes:
        raise InputError(
            "results",
            "no axes other than the mapping",
            "a grid: keep best or all, with one axis or more",
            "run the sweep with --keep best and an axis such as node or memory.bandwidth",
        )
    dims = results[study.totals[0]].dims
    metrics = [name for name, values in results.data_vars.items() if values.dims == dims and values.dtype.kind == "f"]
    points = results[[*metrics, "feasible"]].drop_vars(set(results.dims) - set(dims), errors="ignore").load()
    points = best_mappings(points)
    points = points.squeeze([d for d in points.dims if points.sizes[d] == 1], drop=True)
    points = points.where(points.feasible)
    if not bool(points[study.totals[0]].notnull().any()):
        raise nothing_feasible()
    points = points.assign_coords({name: np.arange(points.sizes[name]) for name in axes if name not in points.coords})
    ranked = ranking(points)
    if not bool(ranked.scores.notnull().any()):
        raise nothing_feasible()
    best = {str(name): int(place) for name, place in ranked.scores.argmin(...).items()}
    title = designs.full_title(results)
    parts = {name: part for name, part in study.parts(study.totals[0]).items() if name in points}
    return Machines(points, axes, best, title, study, ranked.objective, cautions(results.attrs), parts)


def best_mappings(results: xr.Dataset) -> xr.Dataset:
    """Return the results with the best feasible mapping per point, its leaves as variables."""
    if "mapping" not in results[study_of_metrics(results).totals[0]].dims:
        return results
    plain = results.reset_index("mapping") if "mapping" in results.indexes else results
    plain = plain.reset_coords([name for name, values in plain.coords.items() if "mapping" in values.dims])
    ranked = ranking(plain, per_workload=True).scores.where(plain.feasible, np.inf).fillna(np.inf)
    return plain.isel(mapping=ranked.argmin("mapping"))


def spread_positions(count: int, most: int, fixed: int) -> list[int]:
    """Return at most ``most`` evenly spread indices below ``count``, with ``fixed`` in place of its neighbour."""
    if count <= most:
        return list(range(count))
    places = np.unique(np.linspace(0, count - 1, most).round().astype(int))
    places[np.abs(places - fixed).argmin()] = fixed
    return places.tolist()


def _distinct_count(texts: Mapping[str, list[str]]) -> int:
    """Return the number of different combinations of the texts of several axes (axis → texts)."""
    return len(set(zip(*texts.values(), strict=True)))
