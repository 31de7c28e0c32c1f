"""Sweeps as columns of designs, and designs that the engine of their stack launches, which plans and pools propose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.sweep import Grid, labelled_designs
from dse.sweep.results.summary import named_designs
from dse.tools.runs import ENGINE_DEGREES, engine_degrees, engine_fault, engine_runs, evaluate_by_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dse.types import Design


class SweptDesigns(NamedTuple):
    """Designs of a sweep with their metrics and labels, without an index or a file."""

    grid: Grid
    columns: dict[str, np.ndarray]  #: metric, axis or part of the mapping → values [designs]
    launched: np.ndarray  #: whether the engine of the stack launches it; True for stacks without one [designs]

    @property
    def size(self) -> int:
        """Number of designs."""
        return self.launched.size

    @property
    def indices(self) -> np.ndarray:
        """Index of each design in the sweep [designs]."""
        return self.columns["index"]

    def pick(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return those of some columns that the designs have."""
        return {name: self.columns[name] for name in names if name in self.columns}

    def take(self, rows: np.ndarray) -> SweptDesigns:
        """Return the designs at rows, or where a mask is True."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return SweptDesigns(self.grid, columns, self.launched[rows])

    def leaf_values(self) -> dict[str, np.ndarray]:
        """Return path → values [designs] of the leaves that the sweep varies, empty without designs."""
        return self.grid.values(self.indices) if self.size else {}

    def designs(self, rows: np.ndarray) -> list[Design]:
        """Return the designs at rows, with plain numbers as leaves."""
        return [design for _, design, *_ in named_designs(self.grid, self.indices[rows].tolist())]


def swept_designs(grid: Grid, keep: str | None = None) -> SweptDesigns:
    """Evaluate the designs of a grid.

    Args:
        grid: designs of one study.
        keep: which of them, by default what the specification says.

    Returns:
        Columns of the designs, those of a product of axes in the order of its dimensions.
    """
    labelled = labelled_designs(grid, keep=keep)
    dims, template, _ = labelled.data[next(name for name in grid.spec.metrics if name in labelled.data)]

    def expanded(variable: Any) -> np.ndarray:
        """Return values with all dimensions, those that the variable lacks of length 1."""
        order = sorted(range(len(variable.dims)), key=lambda i: dims.index(variable.dims[i]))
        lengths = {variable.dims[i]: variable.values.shape[i] for i in order}
        return np.transpose(variable.values, order).reshape([lengths.get(dim, 1) for dim in dims])

    def column(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(values, template.shape).reshape(-1)

    variables = {name: expanded(v) for name, v in (labelled.coords | labelled.data).items() if {*v.dims} <= {*dims}}
    columns = {name: column(values) for name, values in variables.items()}
    columns.setdefault("index", np.arange(template.size))
    is_launched = _launch_mask(variables, grid) if grid.spec.study.name == "serving" else np.array(True)
    return SweptDesigns(grid, columns, column(is_launched))


def _engine_labels(variables: dict[str, np.ndarray], grid: Grid) -> dict[str, np.ndarray]:
    """Return stack and degrees that rules of engines read, by name: values of the sweep, else those of its base."""
    swept = {name: variables[name] for name in ("software", *ENGINE_DEGREES) if name in variables}
    return {name: np.array(value) for name, value in engine_degrees(grid.base).items()} | swept


def _launch_mask(variables: dict[str, np.ndarray], grid: Grid) -> np.ndarray:
    """Return whether the engine of a stack launches a mapping, over the dimensions of stack and degrees."""
    labels = _engine_labels(variables, grid)
    values = dict(zip(labels, np.broadcast_arrays(*labels.values()), strict=True))
    is_launched = evaluate_by_mapping({name: label.reshape(-1) for name, label in values.items()}, engine_runs)
    return np.reshape(is_launched, values["software"].shape).astype(bool)


def only_launched(swept: SweptDesigns, where: str) -> SweptDesigns:
    """Return the designs that engines launch.

    Args:
        swept: designs of serving.
        where: what states their mappings.

    Returns:
        The designs that their engines launch.

    Raises:
        InputError: where there are designs, none is launched, and the engine names the fault of the first.
    """
    if swept.size and not swept.launched.any():
        labels = _engine_labels({name: values[0] for name, values in swept.columns.items()}, swept.grid)
        degrees = {name: label.item() for name, label in labels.items()}
        if fault := engine_fault(degrees.pop("software"), degrees):
            raise InputError(where, *fault)
    return swept.take(swept.launched)
