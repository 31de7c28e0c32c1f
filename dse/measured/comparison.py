"""Predictions beside measurements: ``predict`` a table, ``validate`` it, and the error by source and metric."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.designs import calibrated
from dse.doors.study import Study
from dse.doors.study_serving import SERVING
from dse.doors.study_training import TRAINING
from dse.io import outputs
from dse.measured import (
    Measurement,
    Prediction,
    Skip,
    chiplets,
    columns,
    energy,
    kernels,
    predict_cases,
    read_cases,
    read_table,
    serving,
    uncertainty,
)
from dse.measured.names import accelerator_of
from dse.measured.prediction import peak_rate
from dse.measured.roofline import REFUSED
from dse.measured.serving_rows import has_energy
from dse.measured.uncertainty import Interval

#: Metrics that ``predict`` adds as ``pred_<metric>`` columns.
PREDICTED = (
    "step_time", "tokens_per_second", "tokens_per_second_per_device", "peak_memory", "peak_memory_state",
    "peak_memory_activations", "mfu", "mfu_causal", "hfu",
)  # fmt: skip

Report = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One measured figure beside its prediction, both in SI; ``skip`` says why it is not compared."""

    measurement: Measurement
    prediction: Prediction
    measured: float = math.nan
    predicted: float = math.nan
    baseline: float = math.nan  #: what the source's one constant MFU predicts
    skip: Skip | None = None
    duplicate: bool = False  #: the configuration's kind of figure is compared by another row

    @property
    def source(self) -> str:
        """Who measured it."""
        return self.measurement.row.source

    @property
    def metric(self) -> str:
        """Our name of the metric."""
        return self.measurement.meaning.metric

    @property
    def error(self) -> float:
        """Signed relative error, a fraction."""
        return self.predicted / self.measured - 1.0

    @property
    def is_refused(self) -> bool:
        """Whether the figure is not believed: it is predicted, stands beside the others, and counts for nothing."""
        return self.skip is not None and self.skip.reason == REFUSED and not self.duplicate

    @property
    def baseline_error(self) -> float:
        """The same of the constant-MFU baseline."""
        return self.baseline / self.measured - 1.0


class Predicted(NamedTuple):
    """What became of the rows of a table."""

    rows: int
    predicted: int
    skipped: dict[str, int]  #: rows by reason, with what is particular to them
    misspelt: dict[str, str]  #: columns that are not read → the column that seems to be meant

    @property
    def counts(self) -> dict[str, Any]:
        """The same for machines to read."""
        return {"n": self.rows, "predicted": self.predicted, "skipped": self.skipped, "misspelt": self.misspelt}


def predict(cases_path: str | Path, output: str | Path, intervals: bool = False, force: bool = False) -> Predicted:
    """Predict every row of a table and write it with the columns added; a bad row never stops the file.

    Adds ``pred_<metric>`` (SI), ``completed`` (what the row left open, with the value taken), ``pred_note``
    and ``skipped`` (why there is no prediction).

    Args:
        cases_path: CSV file, gzipped or not; what a table of steps may hold: :data:`dse.measured.columns.READ`.
        output: CSV file to write.
        intervals: add ``pred_<metric>_low`` and ``_high``, between which times, rates and peak memory lie in 80 % of
            cases.
        force: replace an output that dse has not written.

    Returns:
        How many rows there are and were predicted, why others were skipped, and columns that seem to be misspelt.

    Raises InputError for a table that cannot be read, and for an output that may not be replaced.

    >>> import tempfile
    >>> found = predict("tests/published/narayanan_2021.csv", f"{tempfile.mkdtemp()}/predicted.csv")
    >>> found.predicted, found.rows
    (16, 16)
    """
    return predict_lines(cases_path, output, intervals, force)[0]


def predict_lines(
    cases_path: str | Path, output: str | Path, intervals: bool = False, force: bool = False
) -> tuple[Predicted, list[dict[str, Any]]]:
    """:func:`predict`, and the lines that it writes: column → text, empty where there is none."""
    outputs.checked(output, force, [cases_path])
    reader = _reader(cases_path)
    predictions = reader(cases_path) if reader else predict_cases(read_cases(cases_path, measured=False))
    rows = _predicted_rows(predictions, half_widths(predictions) if intervals else None)
    lines = [line for _, line in sorted(rows, key=lambda item: item[0])]
    _write(output, lines, force)
    skipped = Counter(line["skipped"] for line in lines if line["skipped"])
    wrong = {} if reader else columns.misspelt(read_table(cases_path)[0])
    return Predicted(len(lines), len(lines) - skipped.total(), dict(skipped), wrong), lines


def coverage(compared: Sequence[Comparison]) -> list[dict[str, Any]]:
    """By source, and of all: measured times and rates that were predicted, the share within 80 % intervals.

    The calibration may have seen these rows; what its intervals hold of unseen ones, ``dse calibrate`` tells.
    """
    timed = [c for c in compared if is_timed(c)]
    widths = half_widths({id(c.prediction): c.prediction for c in timed}.values())
    held: dict[str, list[bool]] = {}
    for c in timed:
        within = abs(math.log(c.predicted / c.measured)) <= widths.get(id(c.prediction), 0.0)
        held.setdefault(c.source, []).append(within)
    for c in compared:
        study = _study_of(c.prediction)
        if c.skip is None and c.metric in study.residuals:
            width = uncertainty.residual_half_width(c.prediction.stack, c.metric, study) or 0.0
            held.setdefault(c.source, []).append(abs(math.log(c.predicted / c.measured)) <= width)
    everything = {"all": [flag for flags in held.values() for flag in flags]} if held else {}
    by_source = dict(sorted(held.items())) | everything
    return [{"source": s, "n": len(flags), "coverage": sum(flags) / len(flags)} for s, flags in by_source.items()]


def validate(
    paths: str | Path | Sequence[str | Path], output: str | Path | None = None, intervals: bool = False,
    force: bool = False,
) -> Report:  # fmt: skip
    """Compare predictions with what the tables measured.

    Args:
        paths: one CSV file or several, gzipped or not.
        output: CSV file to write, one line a measured figure: the row's own columns, then ``table``,
            ``metric_compared``, ``measured``, ``predicted``, ``error``, ``baseline_error``, ``completed``,
            ``pred_note`` and ``skipped``; None for none.
        intervals: the report has the :func:`coverage` of the predictions' intervals too.
        force: replace a file that dse has not written.

    Returns:
        Errors by source and metric (``rows``) and by metric alone (``all``), as fractions: see :func:`report`.

    Raises InputError for a table that cannot be read, and for an output that may not be replaced.

    >>> found = validate("tests/published/narayanan_2021.csv")
    >>> found["all"]["step_time"]["predicted"], found["all"]["step_time"]["mape"] < 0.05
    (16, True)
    """
    if output is not None:
        outputs.checked(output, force, [paths] if isinstance(paths, str | Path) else paths)
    compared = compare(paths)
    if output is not None:
        _write(output, [_compared_row(c) for c in compared], force)
    return report(compared) | ({"coverage": coverage(compared)} if intervals else {})


def compare(paths: str | Path | Sequence[str | Path]) -> list[Comparison]:
    """Every measured figure of the tables, in order, beside its prediction.

    A configuration counts once per kind of figure: a time before a rate before a FLOP count.
    """
    listed = [paths] if isinstance(paths, str | Path) else paths
    readers = {path: _reader(path) for path in listed}
    cases = [case for path, reader in readers.items() if reader is None for case in read_cases(path)]
    predictions = predict_cases(cases) if cases else []
    predictions += [prediction for path, reader in readers.items() if reader for prediction in reader(path)]
    return compare_predictions(predictions)


def _reader(path: str | Path) -> Callable[[str | Path], list[Prediction]] | None:
    """What predicts a table of kernels, of energy, of serving or of bills; None for one of training steps."""
    own = (kernels, energy, serving, chiplets)
    return next((kind.predict_table for kind in own if kind.is_table(path)), None)


def compare_predictions(predictions: Iterable[Prediction]) -> list[Comparison]:
    """Every measured figure of configurations that were predicted."""
    return _with_baseline([c for prediction in predictions for c in _compare_case(prediction)])


def _compare_case(prediction: Prediction) -> list[Comparison]:
    measured = prediction.case.measurements
    best: dict[str, Measurement] = {}
    for m in sorted(measured, key=_rank, reverse=True):
        best[m.meaning.kind] = m
    found = []
    for m in measured:
        skip = m.skip or prediction.skip
        if m is not best[m.meaning.kind]:
            counted = Skip("counted once", f"by {best[m.meaning.kind].name}")
            found.append(Comparison(m, prediction, duplicate=True, skip=counted))
        elif prediction.skip or (m.skip and m.skip.reason != REFUSED):
            found.append(Comparison(m, prediction, skip=skip))
        else:
            predicted = metric_value(prediction, m.meaning.metric)
            found.append(Comparison(m, prediction, _measured(m, prediction), predicted, skip=skip))
    return found


def _rank(measurement: Measurement) -> tuple[bool, int]:
    return measurement.skip is not None, measurement.meaning.rank


def metric_value(prediction: Prediction, metric: str) -> float:
    """A predicted metric, NaN for one of energy that the row has none of.

    ``peak_memory_state`` is weights, gradients and optimiser state of the layers.
    """
    if metric == "peak_memory_state":
        return sum(prediction.metrics[f"peak_memory_{part}"] for part in ("weights", "gradients", "optimizer"))
    return prediction.metrics.get(metric, math.nan) if metric in energy.METRICS else prediction.metrics[metric]


def _measured(measurement: Measurement, prediction: Prediction) -> float:
    """The measured figure in our metric: FLOP rates become the step time they were computed from."""
    meaning, metrics = measurement.meaning, prediction.metrics
    if meaning.flops:
        repeated = metrics["hfu"] / metrics["mfu"] if meaning.flops == "hardware" else 1.0
        return metrics["model_flops"] * repeated / (measurement.value * float(prediction.chosen.system.n_devices))
    if meaning.per_sequence:
        return measurement.value * float(prediction.chosen.workload.seq_len)
    return measurement.value


def _with_baseline(compared: list[Comparison]) -> list[Comparison]:
    """Adds what one constant a source, the median of those its rows imply, would have predicted.

    Of steps it is the MFU, of serving what the figure is over bytes by bandwidth.
    """
    compared = _with_bytes(compared)
    implied: dict[str, list[float]] = {}
    for c in compared:
        if is_timed(c):
            implied.setdefault(c.source, []).append(_measured_mfu(c))
    constant = {source: float(np.median(values)) for source, values in implied.items()}
    return [_baseline(c, constant[c.source]) if is_timed(c) else c for c in compared]


def _with_bytes(compared: list[Comparison]) -> list[Comparison]:
    """The same with the baseline of serving."""
    served = [c for c in compared if c.skip is None and _study_of(c.prediction) is SERVING]
    served = [c for c in served if c.metric in serving.METRICS]
    plain = {id(c): serving.bytes_over_bandwidth(c.prediction.chosen, c.metric) for c in served}
    ratios: dict[tuple[str, str], list[float]] = {}
    for c in served:
        ratios.setdefault((c.source, c.metric), []).append(c.measured / plain[id(c)])
    constant = {key: float(np.median(values)) for key, values in ratios.items()}
    return [
        dataclasses.replace(c, baseline=constant[c.source, c.metric] * plain[id(c)]) if id(c) in plain else c
        for c in compared
    ]


def is_timed(compared: Comparison) -> bool:
    """Whether a figure is a time or a rate that was predicted."""
    return compared.skip is None and compared.measurement.meaning.kind == "time"


def step_time(compared: Comparison) -> float:
    """Measured step time of a timed comparison: rates and utilisations scale inversely with it."""
    ratio = compared.measured / compared.predicted
    return compared.prediction.metrics["step_time"] * (ratio if compared.metric == "step_time" else 1.0 / ratio)


def _measured_mfu(compared: Comparison) -> float:
    prediction = compared.prediction
    return prediction.metrics["model_flops"] / (step_time(compared) * peak_rate(prediction.chosen))


def _baseline(compared: Comparison, mfu: float) -> Comparison:
    faster = mfu / _measured_mfu(compared)
    value = compared.measured * (1.0 / faster if compared.metric == "step_time" else faster)
    return dataclasses.replace(compared, baseline=value)


# The report


def report(compared: Iterable[Comparison]) -> Report:
    """Errors by source and metric (``rows``) and by metric alone (``all``), as fractions; JSON-ready.

    ``n`` counts measured figures, each configuration once per kind; ``duplicates`` are its other figures
    of the same kind. ``baseline_mape`` is the error of the source's constant MFU. ``refused`` are those of the skipped
    that beat a perfect roofline, with their errors, which are in none of the others.
    """
    by_row: dict[tuple[str, str], list[Comparison]] = {}
    by_metric: dict[str, list[Comparison]] = {}
    for c in compared:
        by_row.setdefault((c.source, c.metric), []).append(c)
        by_metric.setdefault(c.metric, []).append(c)
    return {
        "rows": [{"source": s, "metric": m, **summary(group)} for (s, m), group in sorted(by_row.items())],
        "all": {metric: summary(group) for metric, group in sorted(by_metric.items())},
    }


def summary(compared: Sequence[Comparison]) -> dict[str, Any]:
    """Counts and error statistics of some comparisons; None where nothing was predicted."""
    counted = [c for c in compared if not c.duplicate]
    errors = np.array([c.error for c in counted if c.skip is None])
    refused = np.array([c.error for c in counted if c.is_refused])
    baseline = np.array([c.baseline_error for c in counted if c.skip is None and math.isfinite(c.baseline)])
    size = np.abs(errors)
    return {
        "n": len(counted),
        "predicted": len(errors),
        "skipped": dict(Counter(c.skip.reason for c in counted if c.skip is not None)),
        "duplicates": len(compared) - len(counted),
        **_errors(errors),
        "p90": _or_none(size, lambda values: np.quantile(values, 0.9)),
        "baseline_mape": _or_none(np.abs(baseline), np.mean),
        "refused": {"n": len(refused), **_errors(refused)},
    }


def _errors(errors: np.ndarray) -> dict[str, float | None]:
    """Mean and median of their sizes, and their mean."""
    size = np.abs(errors)
    return {
        "mape": _or_none(size, np.mean), "median_ape": _or_none(size, np.median), "bias": _or_none(errors, np.mean)
    }  # fmt: skip


def _or_none(values: np.ndarray, statistic: Any) -> float | None:
    return float(statistic(values)) if len(values) else None


# Tables out


def half_widths(predictions: Iterable[Prediction]) -> dict[int, float]:
    """``id`` of each predicted step → half the width of the interval of its log step time."""
    steps = [
        p for p in predictions
        if p.skip is None and p.design is not None and p.stack and _study_of(p) is TRAINING
    ]  # fmt: skip
    found = uncertainty.half_widths([p.chosen for p in steps], [uncertainty.uncertainty_of(p.stack) for p in steps])
    return {id(p): float(half_width) for p, half_width in zip(steps, found, strict=True)}


def _predicted_rows(
    predictions: Iterable[Prediction], half_widths: dict[int, float] | None
) -> list[tuple[int, dict[str, Any]]]:
    """(line, cells) of every row of every configuration, with intervals where widths are given."""
    return [(row.line, row.cells | _predicted_cells(p, half_widths)) for p in predictions for row in p.case.rows]


def _predicted_cells(prediction: Prediction, half_widths: dict[int, float] | None) -> dict[str, Any]:
    values: dict[str, str] = {}
    for metric in _metrics(prediction):
        value = metric_value(prediction, metric) if prediction.skip is None else math.nan
        values[f"pred_{metric}"] = "" if math.isnan(value) else f"{value:.7g}"
        if math.isnan(value) or half_widths is None:
            continue
        if bounds := _interval(prediction, metric, value, half_widths.get(id(prediction))):
            values |= {f"pred_{metric}_{end}": f"{bound:.7g}" for end, bound in bounds._asdict().items()}
    return values | remarks_on(prediction, prediction.skip)


def _interval(prediction: Prediction, metric: str, value: float, half_width: float | None) -> Interval | None:
    """The interval of a predicted metric, where it has one."""
    study, software = _study_of(prediction), prediction.chosen.software
    if half_width is None and not study.residuals:
        return None
    return uncertainty.interval_of(metric, value, prediction.stack, software, half_width, study)


def _study_of(prediction: Prediction) -> Study:
    """The kind of study that a row is of."""
    return SERVING if serving.SIGN in prediction.case.row.cells else TRAINING


def _metrics(prediction: Prediction) -> Sequence[str]:
    """Metrics that a row of this kind of table gets columns of."""
    if energy.SIGN in prediction.case.row.cells and not has_energy(prediction.case.row):
        return energy.METRICS
    if _study_of(prediction) is SERVING:
        return serving.METRICS
    # Of a kernel what was measured.
    return [m.name for m in prediction.case.measurements if m.name in kernels.METRICS] or PREDICTED


def remarks_on(prediction: Prediction, skip: Skip | None) -> dict[str, str]:
    """Columns beside a prediction: what was completed, noted, out of range, and why it was skipped."""
    completed = " ".join(f"{name}={value}" for name, value in prediction.completed.items() if value)
    remarks = {"completed": completed, "pred_note": prediction.note, "outside": "; ".join(outside(prediction))}
    return remarks | {"skipped": str(skip) if skip else ""}


def outside(prediction: Prediction) -> list[str]:
    """In what a predicted row lies outside of the rows that its stack was fitted to."""
    if prediction.design is None or not prediction.stack:
        return []
    lookup = calibrated.lookup_of(prediction.design, prediction.metrics)
    return calibrated.beyond(prediction.stack, lookup, accelerator_of(prediction.case.row))


def _compared_row(compared: Comparison) -> dict[str, Any]:
    def text(value: float) -> str:
        return f"{value:.7g}" if math.isfinite(value) else ""

    row = compared.measurement.row
    return row.cells | {
        "table": row.file, "metric_compared": compared.metric, "measured": text(compared.measured),
        "predicted": text(compared.predicted), "error": text(compared.error),
        "baseline_error": text(compared.baseline_error),
        **remarks_on(compared.prediction, compared.skip),
    }  # fmt: skip


def _write(path: str | Path, rows: list[dict[str, Any]], force: bool) -> None:
    """Rows as CSV; columns in the order in which they first appear."""
    header = list(dict.fromkeys(column for row in rows for column in row if column))
    with outputs.replacing(path, force) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
