"""Measured kernels and collectives as arrays, and their times and powers by the formulas of the model.

Each figure of a row is one :class:`Kernel` with its kind, device and numbers. All kernels of one kind on one device are
predicted in one call. What cannot be predicted raises :class:`dse.measured.table.Skip` with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.measured.kernels.formulas import FORMULAS, device_of, predict, times
from dse.measured.kernels.kernel import METRICS, POWER, TIME, Kernel
from dse.measured.kernels.platforms import PLATFORMS
from dse.measured.kernels.readers import kind_of, read
from dse.measured.prediction import Prediction, TableKind
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, unless_skipped

__all__ = [
    "FORMULAS", "KIND", "METRICS", "PLATFORMS", "POWER", "TIME", "Kernel", "device_of", "kind_of", "predict", "read",
    "times",
]  # fmt: skip


def cases(columns: Sequence[str], rows: list[Row]) -> list[Case]:
    """Measured kernels of a table, in order, as cases with all their measurements."""
    kind, found = kind_of(columns), list[Case]()
    for row in rows:
        try:
            found += [_case(row, together) for together in _by_case(read(row, kind))]
        except Skip as skip:
            found.append(_case(row, skip))
    return found


def _by_case(kernels: list[Kernel]) -> list[list[Kernel]]:
    """Kernels of a row grouped by run, with time and power of one run together."""
    cases: list[list[Kernel]] = []
    for kernel in kernels:
        if cases and kernel.metric not in {one.metric for one in cases[-1]}:
            cases[-1].append(kernel)
        else:
            cases.append([kernel])
    return cases


def _case(row: Row, kernels: list[Kernel] | Skip) -> Case:
    known = [] if isinstance(kernels, Skip) else kernels
    measured = {kernel.metric: kernel.measured for kernel in known} or {TIME: float("nan")}
    figures = (Measurement(row, name, Meaning(name, name), value) for name, value in measured.items())
    return Case((row,), tuple(figures), "kernels", kernels)


def _predict(known: Sequence[tuple[Case, list[Kernel]]], _: Study) -> list[Prediction]:
    """Time, and power where measured, of every case."""
    found = iter(predict([kernel for _, kernels in known for kernel in kernels]))
    return [_prediction(case, {kernel.metric: next(found) for kernel in kernels}) for case, kernels in known]


def _prediction(case: Case, values: dict[str, float | Skip]) -> Prediction:
    skip = next((value for value in values.values() if isinstance(value, Skip)), None)
    metrics = {name: value for name, value in values.items() if not isinstance(value, Skip)}
    return Prediction(case, skip=skip) if skip else Prediction(case, metrics=metrics)


KIND = TableKind(
    "kernels",
    TRAINING,
    lambda columns: bool(kind_of(columns)),
    cases,
    lambda case, _: unless_skipped(case.known),
    _predict,
    lambda case: [m.name for m in case.measurements],
)
