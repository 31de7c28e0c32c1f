"""Designs of results as flat rows: whatever was kept of them, and by a sweep or a search."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from dse.doors import Study, study_of_metrics
from dse.doors.study import more_is_better
from dse.errors import InputError, unknown_name
from dse.sweep.results import schema
from dse.sweep.results.indexing import NUMBERS, with_index
from dse.sweep.results.layout import are_designs
from dse.sweep.results.ranking import is_work, ranking, valid_objectives
from dse.sweep.results.singles import flat, flat_values, is_search, nothing_feasible, single_designs


def is_metric(variable: xr.DataArray) -> bool:
    """Return True for numbers that are no labels and do not follow from labels."""
    is_label = "path" in variable.attrs or "axis" in variable.attrs or schema.is_number_of_name(variable.attrs)
    return variable.dtype.kind == "f" and not is_label


class DesignRows:
    """Designs of a dataset, numbered along its dimensions as ``feasible`` has them.

    Attributes:
        results: the dataset, that of a search along ``design``.
        study: kind of the study.
        feasible: ``feasible`` along all dimensions of the designs.
    """

    def __init__(self, results: xr.Dataset) -> None:
        self.results = with_index(single_designs(results)) if is_search(results) else results
        if "feasible" not in self.results.variables:
            raise InputError(
                "results",
                "no variable 'feasible'",
                "a dataset of dse.run or dse.open_results",
                "keep feasible when you choose variables: results[['step_time', 'feasible']]",
            )
        self.study: Study = study_of_metrics(self.results.variables)
        feasible = self.results["feasible"]
        if feasible.dtype.kind != "b":  # where() of xarray makes truth values objects: a design left out cannot run
            self.results = self.results.assign(feasible=(feasible.dims, feasible.values == 1, feasible.attrs))
        self.feasible = self.results["feasible"]

    @property
    def dims(self) -> tuple[str, ...]:
        """Dimensions of the designs."""
        return tuple(map(str, self.feasible.dims))

    @property
    def can_run(self) -> np.ndarray:
        """Truth values [row]: the design is feasible."""
        values: np.ndarray = np.ravel(self.feasible.values)
        return values

    @property
    def are_designs(self) -> np.ndarray:
        """Truth values [row]: there is a design, of a structure that has all these parts of a mapping."""
        return are_designs(self.results)

    def column(self, name: str) -> np.ndarray:
        """Return the values [row] of a variable."""
        return flat_values(self.results, name, self.feasible)

    def is_along(self, name: str) -> bool:
        """Return True for a variable along dimensions of the designs, of which it has some or all, or none."""
        dims = self.results.variables[name].dims
        return (bool(dims) or not self.dims) and set(dims) <= set(self.dims)

    @property
    def labels(self) -> list[str]:
        """Names of the axes and parts of the mapping that have a value a design, without fixed values."""
        return [
            name
            for name, variable in ((str(name), variable) for name, variable in self.results.variables.items())
            if self.is_along(name)
            and name not in NUMBERS
            and (name in self.results.coords or "path" in variable.attrs)
            and not schema.is_number_of_name(variable.attrs)
        ]

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, and of the ends of their intervals, in the order of the dataset."""
        return [
            str(name)
            for name, variable in self.results.data_vars.items()
            if self.is_along(str(name)) and is_metric(variable)
        ]

    def scores(self, by: str | None, names: Iterable[str] = ()) -> np.ndarray:
        """Return scores [row], the best the least, infinite for designs that cannot run.

        Args:
            by: metric; None for the first objective of the results.
            names: labels of groups, whose designs alone are compared with each other.

        Raises:
            InputError: for a metric that the results lack, and for results without a feasible design.
        """
        if by is not None:
            if by not in self.metrics:
                raise unknown_name("by", by, self.metrics, "metrics of these results")
            values = self.sign(by) * self.column(by).astype(np.float64)
        else:
            total = self.study.totals[0]
            if total not in self.results.variables:
                raise InputError(
                    "results", f"no variable {total!r}", "a dataset with its metrics", "name one to rank by: by=…"
                )
            work = {str(name) for name, labels in self.results.coords.items() if labels.dims and is_work(labels)}
            values = flat(ranking(self.results, per_workload=work <= {*names}).scores.variable, self.feasible)
        scores = np.where(self.can_run & np.isfinite(values), values, np.inf)
        if not np.isfinite(scores).any():
            raise nothing_feasible()
        return scores

    def sign(self, metric: str) -> float:
        """Return 1 for a metric that is minimised, -1 for one that is maximised: as an objective says, or its name."""
        signs = {objective.expression.text: objective.sign for objective in valid_objectives(self.results)}
        return signs.get(metric, -1.0 if more_is_better(metric) else 1.0)

    def at(self, rows: np.ndarray) -> xr.Dataset:
        """Return the designs at rows along ``design``, in this order, with all their labels as coordinates."""
        positions = np.unravel_index(rows, self.feasible.shape) if self.dims else ()
        others = [name for name in self.results.variables if not {*self.results.variables[name].dims} <= {*self.dims}]
        kept = self.results.drop_vars(others)
        singles = kept.isel({d: xr.Variable("design", p) for d, p in zip(self.dims, positions, strict=True)})
        if not self.dims:
            singles = singles.expand_dims(design=len(rows))
        axes = [name for name, variable in singles.data_vars.items() if "path" in variable.attrs and variable.dims]
        return with_index(singles.set_coords(axes))
