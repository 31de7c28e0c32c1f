"""The jobs that fit the catalogue: kernels with links, power limits with clocks, and engines that serve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration import engine_residuals, engines, kernel_tables, kernels, power
from dse.lab.fits.jobs import Errors, FitJob


def _kernels(found: Sequence[kernels.FittedJob]) -> Errors:
    rows: list[list[str | int | float]] = [
        [f"{one.slug}.{one.name}", len(one.values), sum(v.fitted for v in one.values.values()), job.median_error]
        for job in found
        for one in kernel_tables.tables(job)
    ]
    return Errors(["table", "parameters", "told by the rows", "median error of the fit"], rows)


def _power(found: Sequence[power.FittedChip]) -> Errors:
    rows: list[list[str | int | float]] = [
        [one.slug, len(one.unseen), *(float(np.mean(np.abs(np.expm1(e)))) for e in (one.fit.errors, one.unseen))]
        for one in found
    ]
    return Errors(["chip", "figures", "error", "unseen"], rows)


def _engines(found: Sequence[engines.FittedEngine]) -> Errors:
    header = ["source", "metric", "figures", "median error", "mean", "unseen median", "unseen mean"]
    header += ["deployment left out", "mean", "source left out", "mean"]
    held = engine_residuals.held(engines.open_errors(found))["all"]
    note = f"80 % intervals hold {held.unseen:.1%} of the unseen figures, {held.foreign:.1%} of sources left out"
    return Errors(header, engines.errors_by_metric(found), note)


#: Kind of table → its job.
JOBS = {
    "kernels": FitJob(
        lambda tables, folds, _: kernels.calibrate(kernels.read_kernels(tables), folds),
        kernel_tables.document,
        kernel_tables.revisions,
        _kernels,
    ),
    "energy": FitJob(lambda tables, *_: power.calibrate(tables), power.document, power.revisions, _power),
    "serving": FitJob(
        engines.calibrate, engines.document, engines.revisions, _engines, lambda _: True, engines.covered
    ),
}
