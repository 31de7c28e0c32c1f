"""``results.dse``: what plain xarray does not do on results, because it knows neither feasibility nor our index.

Nothing here needs JAX but :meth:`DesignAccessor.explain`, which evaluates a design again.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

import dse
from dse.errors import InputError
from dse.io.attachments import attachment
from dse.spec.expression import parse
from dse.sweep.reduce.winners import pareto_front
from dse.sweep.results import grouping, selecting, tables
from dse.sweep.results.cautioned import with_cautions
from dse.sweep.results.layout import OF_SEARCH, SINGLE
from dse.sweep.results.ranking import expression_values, valid_objectives
from dse.sweep.results.rows import DesignRows, is_metric
from dse.sweep.results.singles import is_search, nothing_feasible
from dse.sweep.results.specification import specification_of

if TYPE_CHECKING:
    import pandas as pd
    from xarray.core.groupby import DatasetGroupBy


@functools.cache
def register() -> None:
    """Give all datasets of xarray the attribute ``dse``."""
    xr.register_dataset_accessor("dse")(DesignAccessor)


class DesignAccessor:
    """The attribute ``dse`` of results of :func:`dse.run`, :func:`dse.open_results`, a search, or selections of them.

    Whatever was kept (``all feasible best pareto top:K``), names are those of axes, parts of the mapping and metrics of
    the dataset; of a search the designs are its front, else the best of each method and seed. Methods that need designs
    that can run raise InputError where there is none, and where the dataset lacks ``feasible``.

    >>> import dse
    >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False)
    >>> results.dse.table(3)[["tp", "pp", "micro_batch", "step_time"]].astype(int).values.tolist()
    [[8, 64, 1, 72], [8, 64, 1, 75], [16, 32, 2, 76]]
    """

    def __init__(self, results: xr.Dataset) -> None:
        self._results = results

    @property
    def _rows(self) -> DesignRows:
        """The designs, numbered."""
        return DesignRows(self._results)

    @property
    def report(self) -> Any:
        """Report (:class:`dse.reports.Report`) of results as :func:`dse.run` and :func:`dse.merge` returned them.

        Raises:
            InputError: for other datasets, selections of these included.

        >>> import dse
        >>> dse.run("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3").dse.report["n_designs"]
        34716
        """
        report = attachment(self._results)
        if report is None:
            allowed = "what dse.run or dse.merge returned, not a selection of it"
            raise InputError("report", "a dataset without one", allowed, "ask for it before selecting designs")
        return report

    def best(self, *names: str, by: str | None = None) -> xr.Dataset:
        """Return the best feasible design for each combination of labels.

        Args:
            *names: axes or parts of the mapping, the dimensions of what is returned; without any the best of all.
            by: metric that decides, the less or the more the better by its name; by default the first objective of
                the specification (unlike workloads are compared by the study's rate).

        Returns:
            Metrics, and the other labels of each design as variables. Where no design of a combination can run,
            metrics are NaN, labels 0 or "", and the number of the design (``mapping``, ``design``) is -1.

        Raises:
            InputError: for unknown names, and without a feasible design.

        >>> import dse
        >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False)
        >>> best = results.dse.best("tp", "pp")
        >>> best.sizes["tp"], int(best.step_time.sel(tp=8, pp=64)), int(best.micro_batch.sel(tp=8, pp=64))
        (6, 72, 1)
        """
        rows = self._rows
        if names:
            return with_cautions(grouping.best_by_group(rows, names, by))
        row = int(np.argmin(rows.scores(by)))
        positions = np.unravel_index(row, rows.feasible.shape) if rows.dims else ()
        return with_cautions(rows.results.isel(dict(zip(rows.dims, map(int, positions), strict=True))))

    def front(self, *metrics: str) -> xr.Dataset:
        """Return the Pareto front of metrics over all feasible designs.

        Args:
            *metrics: two or more, each minimised or maximised by its name; by default the objectives of the
                specification, or with fewer than two the objective and the memory of the study.

        Returns:
            The designs that no other dominates (as good in all metrics, better in one), one of equals, along
            ``design``, ordered by the first metric, the best first.

        Raises:
            InputError: for unknown metrics, fewer than two, and without a feasible design.

        >>> import dse
        >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False)
        >>> front = results.dse.front("step_time", "peak_memory")
        >>> bool((front.step_time.diff("design") > 0).all() and (front.peak_memory.diff("design") < 0).all())
        True
        """
        designs = self._rows
        names = dict.fromkeys(metrics or _objectives(designs))
        if len(names) < 2:
            raise InputError("front", ", ".join(names), "two metrics or more", "results.dse.front('step_time', 'mfu')")
        scores = np.stack([designs.scores(name) for name in names])
        rows = np.flatnonzero(np.isfinite(scores).all(axis=0))
        if not len(rows):
            raise nothing_feasible()
        return with_cautions(designs.at(rows[pareto_front(scores[:, rows], rows)]))

    def table(self, n: int = 10, by: str | None = None) -> pd.DataFrame:
        """Return the ``n`` best feasible designs as a table, the best first.

        Args:
            n: number of designs, fewer where fewer can run.
            by: metric that decides, as in :meth:`best`.

        Returns:
            A row a design, numbered from 1: the labels that differ between them (``attrs["common"]`` has the others),
            what decides, and the main metrics of the study, in SI units (``attrs["units"]``).
        """
        return tables.best_table(self._rows, n, by)

    def feasible(self) -> xr.Dataset:
        """Return the same dataset with NaN for the metrics of designs that cannot run.

        Minima and means of xarray are then those of designs: ``results.dse.feasible().step_time.min("mapping")``.
        Truth values, whole numbers and labels stay.

        >>> import dse
        >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False)
        >>> int(results.step_time.min()), int(results.dse.feasible().step_time.min())
        (64, 72)
        """
        results = self._results
        if is_search(results) and "violation" in results.variables:
            mask = results.variables["violation"] == 0.0
        else:
            mask = self._rows.feasible.variable
        masked = {
            name: variable.variable.where(mask).transpose(*mask.dims)
            for name, variable in results.data_vars.items()
            if is_metric(variable) and name not in _OF_SEARCHES and set(variable.dims) <= set(mask.dims)
        }
        return results.assign(masked)

    def groupby(self, *names: str) -> DatasetGroupBy:
        """Return xarray's groups of the feasible designs by several labels, for any of its reductions.

        Args:
            *names: axes, parts of the mapping.

        Returns:
            Groups of the metrics; reductions leave the dimensions along which none of the names lies. ``feasible`` is
            among them: its mean is the share of the designs that can run.

        >>> import dse
        >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False)
        >>> int(results.dse.groupby("tp", "pp").min().step_time.sel(tp=8, pp=64))
        72
        """
        rows = self._rows
        if not rows.dims:
            raise InputError("groupby", "one design", "results with several designs", "group before you select one")
        groups = [grouping.grouping(rows, name) for name in dict.fromkeys(names)]
        if not groups:
            raise InputError("groupby", "no name", ", ".join(rows.labels), "results.dse.groupby('tp', 'pp')")
        masked = DesignAccessor(rows.results).feasible()
        masked = masked[[*rows.metrics, "feasible"]].reset_index([d for d in SINGLE if d in masked.xindexes])
        labels = {}
        for group in groups:
            dims = group.codes.dims or rows.dims[:1]  # a fixed value is one group along any of them
            values = group.labels[group.codes.set_dims({d: masked.sizes[d] for d in dims}).values]
            if dims != (group.name,):
                labels[group.name] = xr.Variable(dims, values, group.attrs)
        return masked.drop_vars([*labels], errors="ignore").assign_coords(labels).groupby([g.name for g in groups])

    def query(self, expression: str) -> xr.Dataset:
        """Return the designs, feasible or not, for which an expression of leaves and metrics holds.

        Args:
            expression: in the language of constraints (:mod:`dse.spec.expression`), numbers in SI units or as texts
                with a unit: ``"tp == 8 and peak_memory < '60 GB' and feasible"``. Leaves may be fixed ones.

        Returns:
            The designs along ``design``, in the order of the dataset.

        Raises:
            InputError: for anything outside the language, and for leaves and metrics that the results lack.

        >>> import dse
        >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False)
        >>> small = results.dse.query("tp == 8 and peak_memory < 60e9 and feasible")
        >>> int(small.tp.min()), bool((small.peak_memory < 60e9).all()), bool(small.feasible.all())
        (8, True, True)
        """
        rows = self._rows
        parsed = parse(expression, "query", rows.study)
        if not parsed.is_comparison and parsed.text.strip() != "feasible":
            raise InputError("query", repr(expression), "a comparison: tp == 8", "compare it with a number")
        values = expression_values(rows.results, parsed, rows.feasible)
        if values is None:
            raise InputError(
                "query",
                ", ".join(parsed.names),
                "leaves and metrics of these results",
                "keep these variables in the dataset, or ask [output] of the specification for them",
            )
        return with_cautions(rows.at(np.flatnonzero((values != 0.0) & rows.are_designs)))

    def sel(self, **labels: Any) -> xr.Dataset:
        """Return the designs that have these labels: :meth:`xarray.Dataset.sel` with fixed values and moved axes too.

        Args:
            **labels: name → label, list of labels or slice. Names are those of axes, of parts of the mapping, of rows
                (``mapping=3``), of values that the specification fixes, and of axes zipped with others. A number may
                be a text with its unit.

        Raises:
            InputError: for an unknown name, a label that no design has, and another value than the fixed one.

        >>> import dse
        >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False)
        >>> results.dse.sel(precision="fp16", tp=8, pp=64).sizes["mapping"]
        576
        >>> results.dse.sel(precision="bf16")
        Traceback (most recent call last):
            ...
        dse.errors.InputError: sel: precision: got 'bf16'; allowed fp16, which all these designs have; ...
        """
        if is_search(self._results) and not set(labels) & {*OF_SEARCH}:
            return with_cautions(selecting.select(self._rows.results, labels))
        return selecting.select(self._results, labels)

    def explain(self, metric: str | None = None, **labels: Any) -> Any:
        """Explain a design of the results, rebuilt from the specification and its labels.

        Args:
            metric: of the elasticities, by default the study's objective.
            **labels: see :meth:`sel`; where they leave several designs, the best feasible one is explained.

        Returns:
            What :func:`dse.explain` returns, with today's catalogue and model; of a single design that cannot run with
            the reasons.

        Raises:
            InputError: for labels that no design has, and for results whose specification is no longer valid.

        >>> import dse
        >>> results = dse.run("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3")
        >>> int(results.dse.explain(design=0).metrics["step_time"])
        72
        """
        from dse.sweep.results.rebuilding import grid_of, singles_at

        rows = DesignRows(self.sel(**labels) if labels else self._results)
        designs = np.flatnonzero(rows.are_designs)
        if not len(designs):
            raise nothing_feasible()
        row = designs[0] if len(designs) == 1 else int(np.argmin(rows.scores(None)))
        single = rows.at(np.array([row]))
        grid = grid_of(single)
        continuous = {interval.path for interval in specification_of(single).intervals}
        (design,) = singles_at(single, np.array([0]), grid, continuous)
        return dse.explain(design, metric, grid.spec.study)

    def to_dataframe(self) -> pd.DataFrame:
        """Return all designs as a data frame, a design a row, in the order of the dataset.

        Returns:
            Labels and numbers of names that are no fixed values, then metrics; texts are categories.
            ``attrs["units"]`` has the SI units of the columns.
        """
        return tables.data_frame(self._rows)

    def to_parquet(self, path: str | Path, force: bool = False) -> None:
        """Write :meth:`to_dataframe` as a Parquet file that is whole or not there; needs the extra ``parquet``.

        The metadata of a column have its ``units`` and ``long_name``; ``dse`` of the file has, as JSON, the attributes
        of the results and the fixed values.

        Args:
            path: of the file.
            force: replace a file that dse has not written.

        Raises:
            InputError: without pyarrow, and where the file must not be written.
        """
        tables.write_parquet(self._rows, path, force)


#: Variables of a search that say how far it is, no metrics of designs.
_OF_SEARCHES = ("violation",)


def _objectives(rows: DesignRows) -> list[str]:
    """Return the metrics that are objectives, or those of the study where these are fewer than two."""
    texts = (objective.expression.text for objective in valid_objectives(rows.results))
    names = [text for text in texts if text in rows.metrics]
    return names if len(names) > 1 else [*(rows.study.front_axes or (rows.study.objective, rows.study.memory))]
