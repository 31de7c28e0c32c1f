"""Measured kernels and collectives as arrays, and their times and powers by the formulas of the model.

Each figure of a row is one :class:`Kernel` with its kind, device and numbers. All kernels of one kind on one device are
predicted in one call. What cannot be predicted raises :class:`dse.measured.table.Skip` with the reason. ``readers`` has
rows to kernels, ``devices`` what they run on (``kernels.toml``), ``formulas`` kernels to seconds and watts: the start.
"""

from __future__ import annotations

from collections.abc import Sequence

from dse.doors import TRAINING, Study
from dse.measured.kernels.devices import PLATFORMS, device_of as device_of
from dse.measured.kernels.formulas import FORMULAS, predict, times_or_powers as times_or_powers
from dse.measured.kernels.kernel import METRICS, POWER, TIME, Kernel
from dse.measured.kernels.readers import kind_of, read
from dse.measured.prediction import TableKind
from dse.measured.table import Case, Row, Skip, unnamed_figure

__all__ = [
    "FORMULAS", "KIND", "METRICS", "PLATFORMS", "POWER", "TIME", "Kernel", "kind_of", "predict", "read",
]  # fmt: skip


def kernel_cases(rows: list[Row]) -> list[Case]:
    """Return the measured kernels of a table as cases, in order, with all their measurements."""
    kind, cases = kind_of(rows[0].cells), list[Case]()
    for row in rows:
        try:
            cases += [_case(row, run_kernels) for run_kernels in _group_by_run(read(row, kind))]
        except Skip as skip:
            cases.append(Case((row,), (unnamed_figure(row, TIME),), "kernels", skip))
    return cases


def _group_by_run(kernels: list[Kernel]) -> list[list[Kernel]]:
    """Return the kernels of a row by run, with time and power of one run together."""
    runs: list[list[Kernel]] = []
    for kernel in kernels:
        if runs and kernel.metric not in {run_kernel.metric for run_kernel in runs[-1]}:
            runs[-1].append(kernel)
        else:
            runs.append([kernel])
    return runs


def _case(row: Row, kernels: list[Kernel]) -> Case:
    """Return a row as a case with the measured time or power of its kernels."""
    figures = tuple(unnamed_figure(row, kernel.metric, kernel.measured) for kernel in kernels)
    return Case((row,), figures, "kernels", kernels)


def _predict(configurations: Sequence[tuple[Case, list[Kernel]]], _: Study) -> list[dict[str, float] | Skip]:
    """Predict time in s, and power in W where measured, of every case, in order; or the first skip among them."""
    values = iter(predict([kernel for _, kernels in configurations for kernel in kernels]))
    outcomes = [{kernel.metric: next(values) for kernel in kernels} for _, kernels in configurations]
    return [next((value for value in case.values() if isinstance(value, Skip)), case) for case in outcomes]  # type: ignore[misc]


KIND = TableKind("kernels", TRAINING, _predict, read=kernel_cases)
