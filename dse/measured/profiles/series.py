"""Series of steps under the names that tools give them: Megatron-LM's golden values (JSON), exported CSV of W&B.

Names are rows of ``cells.toml`` (``series``). A chart that W&B exports has a column ``run - name`` for each run, with
its least and largest value; a history has a column for each name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dse.measured.profiles.run import CELL_ROWS, Figure, MeasuredRun

_SERIES: Mapping[str, Mapping[str, str]] = CELL_ROWS["series"]

#: Keys of a file of golden values, one of which it has.
GOLDEN_KEYS = ("iteration-time", "iteration_timing_avg")

_STEP = r"Step|_step|global_step|trainer/global_step|iteration"
_NAMES = "|".join(map(re.escape, sorted(_SERIES, key=len, reverse=True)))

#: The heading of an export: a column of steps and one of a known name.
SIGNATURE = re.compile(rf'^\ufeff?(?=.*(?:^|[," ])(?:{_NAMES})(?:[",]|$))(?:.*[,])?"?(?:{_STEP})"?(?:,|$)')

#: Runs of a chart and steps of a run that are read.
_MAX_RUNS, _MAX_STEPS = 64, 1_000_000


def golden_run(document: Mapping[str, Any]) -> MeasuredRun | None:
    """Return the run of golden values, None without a figure of a step."""
    run = MeasuredRun("megatron-lm", "steps", {})
    for name, row in _SERIES.items():
        for step, value in _golden_values(document.get(name)):
            _add(run, step, row, value)
    if not run.steps and (average := _number(document.get("iteration_timing_avg"))):
        run.steps, run.warm_up = {1: [Figure("iteration_time", average, "s")]}, 0
    return run if run.steps else None


def _golden_values(series: Any) -> Iterator[tuple[int, float]]:
    """Yield (step, value) of a series, whose values are a table by step, or a list from its first step on."""
    values = series.get("values") if isinstance(series, dict) else None
    if isinstance(values, list):
        first, interval = (int(_number(series.get(name)) or 1) for name in ("start_step", "step_interval"))
        values = {str(first + i * interval): value for i, value in enumerate(values[:_MAX_STEPS])}
    for step, value in values.items() if isinstance(values, dict) else ():
        if re.fullmatch(r"\d{1,12}", step, re.ASCII) and _number(value):
            yield int(step), _number(value)


def read(lines: Iterable[str]) -> list[MeasuredRun]:
    """Read the runs of an exported CSV, which are apart by their names; those without a figure of a step are none."""
    runs: dict[str, MeasuredRun] = {}
    columns: list[tuple[int, str, Mapping[str, str]]] = []
    step_column = 0
    for line in lines:
        cells = _cells(line)
        if SIGNATURE.search(line):
            step_column = next((i for i, cell in enumerate(cells) if re.fullmatch(_STEP, cell)), len(cells))
            columns = [(i, *found) for i, cell in enumerate(cells) if (found := _column(cell))][:_MAX_RUNS]
            continue
        number = cells[step_column].partition(".")[0] if step_column < len(cells) else ""
        if not re.fullmatch(r"\d{1,12}", number, re.ASCII):
            continue
        for i, name, row in columns:
            if i < len(cells) and (value := _number(cells[i])):
                run = runs.setdefault(name, MeasuredRun(row.get("tool", "wandb"), "steps", {}, part=len(runs)))
                _add(run, int(number), row, value)
    return [run for run in runs.values() if run.steps]


def _column(heading: str) -> tuple[str, Mapping[str, str]] | None:
    """Return (name of a run, row of a series) of a column, None for another one."""
    name, _, series = heading.rpartition(" - ")
    row = _SERIES.get(series) or _SERIES.get(heading)
    return (name if series in _SERIES else "", row) if row else None


def _add(run: MeasuredRun, step: int, row: Mapping[str, str], value: float) -> None:
    """Add a value of a series to a run, in place: of a step, or the largest where ``peak`` is stated."""
    figure = Figure(row["metric"], value, row["unit"])
    if row.get("peak"):
        run.peak(figure)
    elif len(run.steps) < _MAX_STEPS or step in run.steps:
        run.steps.setdefault(step, []).append(figure)


def _cells(line: str) -> list[str]:
    """Return the cells of a line of CSV, [] for a line that is none."""
    try:
        return next(csv.reader([line.lstrip("\ufeff")]), [])
    except csv.Error:
        return []


def _number(value: Any) -> float:
    """Return a number or its text where it is positive and finite, else 0."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return number if 0.0 < number < 1e15 else 0.0
