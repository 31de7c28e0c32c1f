"""Designs of results as data frames and Parquet files: a design a row, in SI units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dse.errors import InputError
from dse.io import install_extra, outputs
from dse.sweep.results import schema
from dse.sweep.results.indexing import NUMBERS
from dse.sweep.results.rows import DesignRows
from dse.sweep.results.singles import flat


def data_frame(rows: DesignRows) -> pd.DataFrame:
    """Return all designs as a data frame: axes and parts of the mapping that are no fixed values, then metrics.

    Texts are categories. ``attrs["units"]`` has the SI units of its columns.
    """
    designs = np.flatnonzero(rows.are_designs)
    numbers = [str(name) for name, values in rows.results.coords.items() if schema.is_number_of_name(values.attrs)]
    names = [*(n for n in NUMBERS if n in rows.results.variables and n != "design"), *rows.labels, *numbers]
    names = [name for name in names if rows.is_along(name)]
    names += [str(name) for name in rows.results.data_vars if rows.is_along(str(name)) and str(name) not in names]
    frame = pd.DataFrame({name: _column(rows, name, designs) for name in names})
    frame.attrs["units"] = units(rows.results, names)
    return frame


def _column(rows: DesignRows, name: str, designs: np.ndarray) -> Any:
    """Return the values [design] of a variable, texts as categories."""
    variable = rows.results.variables[name]
    if variable.dtype.kind not in "UO":
        return rows.column(name)[designs]
    texts, codes = np.unique(np.asarray(variable.values).astype(str), return_inverse=True)
    positions = xr.Variable(variable.dims, codes.reshape(variable.shape))
    return pd.Categorical.from_codes(flat(positions, rows.feasible)[designs], texts.tolist())


def units(results: xr.Dataset, names: list[str]) -> dict[str, str]:
    """Return name → SI units of variables, without those of texts."""
    variables = {name: results.variables[name] for name in names}
    return {
        n: str(variable.attrs.get("units", "1")) for n, variable in variables.items() if variable.dtype.kind not in "UO"
    }


def best_table(rows: DesignRows, count: int, by: str | None) -> pd.DataFrame:
    """Return the best designs as a data frame, numbered from 1: labels that differ between them, and main metrics.

    ``attrs["common"]`` has the labels that all of them share, ``attrs["units"]`` the SI units of the columns.

    Args:
        rows: designs.
        count: of rows, at most; there are fewer where fewer designs can run.
        by: metric; None for the first objective.
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise InputError("table", repr(count), "a number of designs from 1", "write results.dse.table(10)")
    scores = rows.scores(by)
    best = np.lexsort((np.arange(len(scores)), scores))[:count]  # of equals the first row first
    best = best[np.isfinite(scores[best])]
    columns = {name: rows.column(name)[best] for name in rows.labels}
    labels = {name: values for name, values in columns.items() if len(best) == 1 or (values != values[0]).any()}
    main = [name for name in rows.study.main_metrics if name in rows.metrics]
    objective = str(rows.results.attrs.get("objective", ""))
    first = by if by is not None else objective if objective in rows.metrics else rows.study.objective
    metrics = {name: rows.column(name)[best] for name in dict.fromkeys([first, *main]) if name in rows.metrics}
    numbers = {name: rows.column(name)[best] for name in NUMBERS if name in rows.dims}
    frame = pd.DataFrame(numbers | labels | metrics, index=pd.RangeIndex(1, len(best) + 1, name="rank"))
    frame.attrs["units"] = units(rows.results, [*numbers, *labels, *metrics])
    frame.attrs["common"] = {name: values[0].item() for name, values in columns.items() if name not in labels}
    return frame


def write_parquet(rows: DesignRows, path: str | Path, force: bool = False) -> None:
    """Write all designs as a Parquet file that is whole or not there, with units in the metadata of its columns.

    Args:
        rows: designs.
        path: of the file.
        force: replace a file that dse has not written.

    Raises:
        InputError: without pyarrow, and where the file must not be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(
            "to_parquet", "pyarrow is not installed", "an installation with the extra parquet", install_extra("parquet")
        ) from None
    frame = data_frame(rows)
    frame_units = frame.attrs.pop("units")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    fields = []
    for field in table.schema:
        about = rows.results.variables[field.name].attrs
        texts = {name: str(about[name]) for name in ("long_name", "path") if name in about}
        units_of_column = {"units": frame_units[field.name]} if field.name in frame_units else {}
        fields.append(field.with_metadata(units_of_column | texts))
    attributes = {name: _plain(value) for name, value in rows.results.attrs.items()}
    fixed = {str(n): values.item() for n, values in rows.results.coords.items() if not values.dims}
    metadata = {b"dse": json.dumps({"attributes": attributes, "fixed": fixed}).encode()}
    table = table.cast(pa.schema(fields, {**(table.schema.metadata or {}), **metadata}))
    with outputs.replacing(path, force) as partial:
        pq.write_table(table, partial)


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
