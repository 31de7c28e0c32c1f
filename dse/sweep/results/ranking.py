"""What the designs of a dataset are ranked by: the objective that the results state, as in tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.designs import all_leaves
from dse.designs.leaves import is_of_workload
from dse.designs.records import PLAIN_EXPERTS
from dse.doors import study_of_metrics
from dse.errors import InputError
from dse.sweep.results.schema import SPECIFICATION
from dse.sweep.results.singles import flat_values
from dse.sweep.results.specification import specification_of
from dse.types import choice_name

if TYPE_CHECKING:
    import xarray as xr

    from dse.spec import Expression, Objective


class Ranking(NamedTuple):
    """Scores of all designs, the best the lowest, and the objective in words."""

    objective: str
    scores: xr.DataArray  # along the dimensions of the first total of the study


def ranking(results: xr.Dataset, per_workload: bool = False) -> Ranking:
    """Return scores of the designs of results, the best lowest, by the first objective of their specification.

    Unlike workloads are ranked by the study's rate in place of its default objective, which the least work would win.
    Without a valid specification, and without the terms of its objective, the study's default objective ranks.

    Args:
        results: with the first total of their study.
        per_workload: only designs of the same workload are compared.
    """
    study = study_of_metrics(results)
    template = results[study.totals[0]]
    first = next(iter(valid_objectives(results)), None)
    text = first.expression.text if first else study.objective
    unlike = not per_workload and text == study.objective and has_unlike_work(results, template.dims)
    if unlike and study.rate in results:
        return Ranking(_spaced_name(study.rate), _as_template(-flat_values(results, study.rate, template), template))
    values = expression_values(results, first.expression, template) if first else None
    if first is None or values is None:
        default_values = flat_values(results, study.objective, template)
        return Ranking(_spaced_name(study.objective), _as_template(default_values, template))
    return Ranking(_spaced_name(text), _as_template(first.sign * values, template))


def ranking_variables(results: xr.Dataset) -> list[str]:
    """Return the data variables of results that their ranking reads."""
    names = _variable_names(results)
    read = [names[name] for first in valid_objectives(results)[:1] for name in first.expression.names if name in names]
    return [name for name in dict.fromkeys([*read, study_of_metrics(results).objective]) if name in results.data_vars]


def objectives_of(results: xr.Dataset) -> tuple[Objective, ...]:
    """Return the objectives of the specification of results, none without a specification.

    Raises:
        InputError: for a specification that is no longer valid.
    """
    return specification_of(results).spec.objectives if SPECIFICATION in results.attrs else ()


def valid_objectives(results: xr.Dataset) -> tuple[Objective, ...]:
    """Return the objectives of the specification of results; none without one, and with one that is no longer valid."""
    try:
        return objectives_of(results)
    except InputError:
        return ()


def _variable_names(results: xr.Dataset) -> dict[str, str]:
    """Return path of a leaf, or name of a metric → name of its variable in the results."""
    return {str(values.attrs.get("path", name)): str(name) for name, values in results.variables.items()}


def expression_values(results: xr.Dataset, expression: Expression, template: xr.DataArray) -> np.ndarray | None:
    """Evaluate an expression at all designs [design], None where results lack one of its names.

    Names of an enumeration count as its codes, as in the evaluation of a sweep.

    Args:
        results: dataset of a results file.
        expression: of leaves and metrics.
        template: array along all dimensions of the designs, which sets their order.
    """
    names, fixed = _variable_names(results), {**PLAIN_EXPERTS, **_base_design(results)}
    if not set(expression.names) <= {*names, *fixed}:
        return None

    def lookup(name: str) -> Any:
        return _codes(name, flat_values(results, names[name], template)) if name in names else fixed[name]

    with np.errstate(divide="ignore", invalid="ignore"):  # designs without a step
        return np.broadcast_to(np.asarray(expression(lookup), float), template.size)


def _codes(path: str, values: np.ndarray) -> np.ndarray:
    """Return the values of a leaf as numbers: codes for names of an enumeration, NaN for other texts."""
    enum = all_leaves().get(path, {}).get("enum")
    if enum is None or values.dtype.kind in "biuf":
        return values
    codes = {choice_name(choice): float(choice) for choice in enum}
    labels, places = np.unique(values.astype(str), return_inverse=True)
    return np.array([codes.get(str(label), np.nan) for label in labels])[places.reshape(values.shape)]


def _base_design(results: xr.Dataset) -> dict[str, float]:
    """Return full path → value of the leaves that no axis varies, empty where absent or invalid."""
    try:
        leaves = json.loads(str(results.attrs.get("base_design", "{}")))
    except (ValueError, RecursionError):
        return {}
    return leaves if isinstance(leaves, dict) else {}


def _spaced_name(text: str) -> str:
    """Return a name with spaces for underscores."""
    return text.replace("_", " ")


def _as_template(values: np.ndarray, template: xr.DataArray) -> xr.DataArray:
    """Return flat values [design] with the dimensions and labels of another array."""
    import xarray as xr

    return xr.DataArray(values.reshape(template.shape), template.coords, template.dims)


def is_work(coordinate: xr.DataArray) -> bool:
    """Return True for an axis of a leaf of the workload."""
    return is_of_workload(str(coordinate.attrs.get("path", "")))


def has_unlike_work(results: xr.Dataset, dims: Iterable[Any]) -> bool:
    """Return True if designs along these dimensions have different workloads."""
    return any(is_work(values) for values in results.coords.values() if values.dims and set(values.dims) <= set(dims))
