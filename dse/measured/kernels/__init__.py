"""Measured kernels and collectives as arrays, and their times and powers by the model's own formulas.

A row becomes one :class:`Kernel` a figure: what ran, where, and its numbers. All kernels of one kind on one device
are predicted in one call. What cannot be predicted raises :class:`dse.measured.table.Skip` with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dse.measured.kernels.formulas import FORMULAS, device_of, predict, times
from dse.measured.kernels.kernel import METRICS, POWER, TIME, Kernel
from dse.measured.kernels.platforms import PLATFORMS
from dse.measured.kernels.readers import kind_of, read
from dse.measured.prediction import Prediction
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, read_table

__all__ = [
    "FORMULAS", "METRICS", "PLATFORMS", "POWER", "TIME", "Kernel", "device_of", "is_table", "kind_of", "predict",
    "predict_table", "read", "times",
]  # fmt: skip


def is_table(path: str | Path) -> bool:
    """Whether a file is a table of measured kernels."""
    return bool(kind_of(read_table(path)[0]))


def predict_table(path: str | Path) -> list[Prediction]:
    """A prediction of every measured kernel of a table, in order; each is a case, with all that was measured of it."""
    columns, rows = read_table(path)
    kind = kind_of(columns)
    cases: list[tuple[Row, list[Kernel] | Skip]] = []
    for row in rows:
        try:
            cases += [(row, together) for together in _by_case(read(row, kind))]
        except Skip as skip:
            cases.append((row, skip))
    found = iter(predict([kernel for _, kernels in cases if isinstance(kernels, list) for kernel in kernels]))
    return [
        Prediction(_case(row, []), skip=kernels) if isinstance(kernels, Skip) else _prediction(row, kernels, found)
        for row, kernels in cases
    ]


def _by_case(kernels: list[Kernel]) -> list[list[Kernel]]:
    """Kernels of a row, those together of which time and power are those of one run."""
    cases: list[list[Kernel]] = []
    for kernel in kernels:
        if cases and kernel.metric not in {one.metric for one in cases[-1]}:
            cases[-1].append(kernel)
        else:
            cases.append([kernel])
    return cases


def _case(row: Row, kernels: list[Kernel]) -> Case:
    measured = {kernel.metric: kernel.measured for kernel in kernels} or {TIME: float("nan")}
    return Case((row,), tuple(Measurement(row, name, Meaning(name, name), value) for name, value in measured.items()))


def _prediction(row: Row, kernels: list[Kernel], found: Iterator[float | Skip]) -> Prediction:
    case, values = _case(row, kernels), {kernel.metric: next(found) for kernel in kernels}
    skip = next((value for value in values.values() if isinstance(value, Skip)), None)
    metrics = {name: value for name, value in values.items() if not isinstance(value, Skip)}
    return Prediction(case, skip=skip) if skip else Prediction(case, metrics=metrics)
