"""Datasets of results: shown with the cautions of their designs, and with fixed values among the labels of ``sel``.

xarray cuts attributes to one line and folds them away, where nobody reads what limits the designs above.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import xarray as xr

from dse.errors import LAYOUT, visible
from dse.sweep.results.schema import cautions
from dse.sweep.results.selecting import without_fixed

#: Style of the cautions of a dataset in a notebook.
_STYLE = "border-left: 4px solid #c8440a; background: #fff4ec; color: #1a1a1a; padding: .4em .8em; margin-bottom: .6em"


class CautionedDataset(xr.Dataset):
    """A dataset whose representation ends, and in notebooks begins, with its attribute ``cautions``."""

    __slots__ = ()

    def sel(
        self,
        indexers: Mapping[Any, Any] | None = None,
        method: str | None = None,
        tolerance: Any = None,
        drop: bool = False,
        **labels: Any,
    ) -> Any:
        """Return the selection of :meth:`xarray.Dataset.sel`; labels of fixed values must be these values."""
        if indexers is None:
            return super().sel(without_fixed(self, labels), method, tolerance, drop)
        return super().sel(without_fixed(self, indexers), method, tolerance, drop, **labels)

    def __repr__(self) -> str:
        """Return the representation of xarray, then the cautions, a line each."""
        lines = [f"    {line}" for line in cautions(self.attrs)]
        text = "\n".join([super().__repr__(), *(["Cautions:", *lines] if lines else [])])
        return visible(text, LAYOUT)

    def _repr_html_(self) -> str:
        """Return the cautions in a box above xarray's representation."""
        items = "".join(f"<li>{escape(line)}</li>" for line in cautions(self.attrs))
        box = f'<div style="{_STYLE}"><b>Cautions</b><ul style="margin: 0">{items}</ul></div>' if items else ""
        return visible(f"{box}{super()._repr_html_()}", LAYOUT)


CautionedDataset.__name__ = xr.Dataset.__name__  # xarray shows it


def with_cautions(dataset: xr.Dataset) -> CautionedDataset:
    """Return the same dataset, shown with its cautions; what a terminal would obey or hide is escaped."""
    data = {name: dataset.variables[name] for name in dataset.data_vars}
    cautioned = CautionedDataset(data, dataset.coords, dataset.attrs)
    cautioned.encoding = dataset.encoding
    return cautioned
