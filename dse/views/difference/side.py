"""One side of a comparison: results as rows."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.doors import Study, study_of_metrics
from dse.errors import InputError
from dse.io import toml
from dse.sweep.results.layout import are_designs
from dse.sweep.results.schema import DERIVED
from dse.sweep.results.singles import flat_values

if TYPE_CHECKING:
    import xarray as xr

#: Coordinates that number designs, not used for matching.
_INDEX_COORDINATES = ("mapping", "design", "index")

#: Maximum number of listed designs of one side only.
_MAX_LISTED = 10


class Side:
    """One of two compared results as rows: a design per row, or a point with its best mapping."""

    def __init__(self, file: str, results: xr.Dataset) -> None:
        self.file, self.results, self.attrs = file, results, results.attrs
        if "feasible" not in results:
            raise InputError(file, "no variable 'feasible'", "results of dse run or dse search", "give another file")
        self.template = results.feasible
        self.count = int(self.template.size)
        self.rows = np.flatnonzero(are_designs(results))  #: rows with a design

    @functools.cached_property
    def study(self) -> Study:
        """Study of the results."""
        return study_of_metrics(self.results.data_vars)

    def column(self, name: str) -> np.ndarray:
        """Return a variable by row [row], broadcast along the dimensions that it lacks."""
        return flat_values(self.results, name, self.template)

    @functools.cached_property
    def keys(self) -> list[str]:
        """Names of the labels that identify designs, without those that follow from others."""
        return [name for name in self._label_names() if name not in self.derived]

    @functools.cached_property
    def derived(self) -> set[str]:
        """Names of the labels that follow from others, as the batch of a workload of the catalogue."""
        return {name for name in self._label_names() if DERIVED in self.results[name].attrs}

    def _label_names(self) -> list[str]:
        """Return the names of all coordinates of designs, without indices."""
        coords = self.results.coords.items()
        return [str(n) for n, v in coords if n not in _INDEX_COORDINATES and set(v.dims) <= set(self.template.dims)]

    def _design_variables(self) -> list[str]:
        """Return the names of the variables along all dimensions of designs."""
        dims = set(self.template.dims)
        return [str(name) for name, values in self.results.data_vars.items() if set(values.dims) == dims]

    @functools.cached_property
    def metrics(self) -> list[str]:
        """Names of the numeric variables per design, without feasibility and parts of mappings."""
        other_names = {"feasible", "infeasible_reason", *self.parts}
        return [
            name
            for name in self._design_variables()
            if name not in other_names and self.results[name].dtype.kind in "fiu"
        ]

    @functools.cached_property
    def parts(self) -> list[str]:
        """Names of the leaves of the best mapping that are stored per point."""
        return [name for name in self._design_variables() if "path" in self.results[name].attrs]

    def is_undivided(self, name: str) -> bool:
        """Return True if an earlier version wrote this part: its description is not the study's of now."""
        return str(self.results[name].attrs.get("long_name", "")) != self.study.long_names[name]

    def add_up(self, part: str, total: str) -> None:
        """Replace a part and a total by their sum, under the name of the total."""
        total_values = (self.results[total] + self.results[part]).assign_attrs(self.results[total].attrs)
        self.results = self.results.assign({total: total_values.variable}).drop_vars(part)
        self.__dict__.pop("metrics", None)  # the names before the sum, if they were read

    def metrics_not_in(self, other: Side) -> list[str]:
        """Return the names of metrics that the other side lacks, in order of the alphabet."""
        return sorted(set(self.metrics) - set(other.metrics))

    def first_labels(self, rows: np.ndarray) -> list[dict[str, Any]]:
        """Return name of an axis or mapping part → label, of each of the first ``_MAX_LISTED`` of these rows."""
        return [self.labels(int(row)) for row in rows[:_MAX_LISTED]]

    def labels(self, row: int) -> dict[str, Any]:
        """Return label → value of a row: of the axes that vary, and of the parts of its mapping."""
        varied = [name for name in self.keys if self.results[name].dims]
        indices = np.unravel_index(row, self.template.shape)
        index_by_dim = dict(zip(self.template.dims, indices, strict=True))
        label_values = {}
        for name in [*varied, *self.parts]:
            values = self.results[name]
            label_values[name] = values.values[tuple(index_by_dim[dim] for dim in values.dims)].item()
        return label_values

    def json_attribute(self, name: str) -> dict[str, Any]:
        """Return a JSON attribute of the file, empty where absent or invalid."""
        try:
            parsed = json.loads(self.attrs.get(name, "{}"))
        except (TypeError, ValueError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """Specification of the results, empty where it cannot be read."""
        try:
            return toml.parse(str(self.attrs.get("specification", "")), self.file)
        except InputError:
            return {}

    @property
    def objective(self) -> str:
        """Name of the metric that ranks the designs."""
        return str(self.attrs.get("objective", "")) or self.study.objective

    @functools.cached_property
    def best(self) -> int | None:
        """Row of the best design, or None if none is feasible or the file does not state it."""
        best_designs = str(self.attrs.get("best_designs", "")).split()
        if best_designs and best_designs[0].isdecimal():
            rows = self._rows_of(int(best_designs[0]))
            return int(rows[0]) if len(rows) else None
        return None if best_designs or self.objective not in self.metrics else self._best_of_all()

    def _rows_of(self, index: int) -> np.ndarray:
        """Return the rows of a design by its index in the sweep, empty where it is not stored."""
        if "index" in self.results.coords:
            return np.flatnonzero(self.column("index") == index)
        if "mapping" not in self.template.dims:
            index //= max(int(self.attrs.get("places", self.attrs.get("designs", 0))) // max(self.count, 1), 1)
        return np.flatnonzero(np.arange(self.count) == index)

    def _best_of_all(self) -> int | None:
        """Return the feasible row with the best objective, or None without one."""
        objective = self.document.get("objective", {})
        sign = -1.0 if isinstance(objective, dict) and "maximize" in objective and "minimize" not in objective else 1.0
        values = np.where(self.column("feasible").astype(bool), sign * self.column(self.objective), np.inf)
        return int(np.argmin(values)) if np.isfinite(values).any() else None

    def reasons(self, rows: np.ndarray) -> dict[str, int]:
        """Return reason of infeasibility → number of these rows, without zeros; empty where not stored."""
        if "infeasible_reason" not in self.results:
            return {}
        flags = self.results["infeasible_reason"].attrs
        masks, names = np.atleast_1d(flags.get("flag_masks", ())), str(flags.get("flag_meanings", "")).split()
        bits = self.column("infeasible_reason")[rows].astype(np.int64)
        counts = {name: int(np.count_nonzero(bits & int(mask))) for name, mask in zip(names, masks, strict=False)}
        return {name: count for name, count in counts.items() if count}
