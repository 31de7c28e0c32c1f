"""Predictions and measurements: a table predicted, compared with its figures, errors by source and metric."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.designs import calibrated
from dse.doors import SERVING
from dse.io import outputs
from dse.measured import columns, serving, steps
from dse.measured.cells import Cells
from dse.measured.kinds import KINDS, kind_of, predict_cases, read_cases
from dse.measured.names import accelerator_of
from dse.measured.prediction import Prediction, peak_rate
from dse.measured.roofline import REFUSED
from dse.measured.table import Measurement, Skip, read_table
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.rows import RowPosterior, prediction_parts, row_posteriors, study_of

Report = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One measured figure and its prediction, both in SI, or the reason not to compare them."""

    measurement: Measurement
    prediction: Prediction
    measured: float = math.nan
    predicted: float = math.nan
    baseline: float = math.nan  #: prediction of the source's constant MFU
    skip: Skip | None = None
    duplicate: bool = False  #: whether another row compares this kind of figure of the configuration

    @property
    def source(self) -> str:
        """Source of the measurement."""
        return self.measurement.row.source

    @property
    def metric(self) -> str:
        """Name of the metric in dse."""
        return self.measurement.meaning.metric

    @property
    def error(self) -> float:
        """Signed relative error of the prediction, as a fraction."""
        return self.predicted / self.measured - 1.0

    @property
    def is_refused(self) -> bool:
        """True where the figure is implausible by a rule, so that it is predicted but in no statistic."""
        return self.skip is not None and self.skip.reason == REFUSED and not self.duplicate

    @property
    def baseline_error(self) -> float:
        """Signed relative error of the baseline, as a fraction."""
        return self.baseline / self.measured - 1.0


class TablePrediction(NamedTuple):
    """Counts of the rows, predictions and skips of a table, and its columns that seem to be misspelt."""

    rows: int
    predicted: int
    skipped: dict[str, int]  #: reason with details → rows
    misspelt: dict[str, str]  #: unread column → column probably meant
    kind: str  #: of the table: a name of :data:`dse.measured.KINDS`

    @property
    def counts(self) -> dict[str, Any]:
        """JSON-ready counts."""
        return {"n": self.rows, "predicted": self.predicted, "skipped": self.skipped, "misspelt": self.misspelt}


def predict_lines(
    cases_path: str | Path, intervals: bool = False, cells: Mapping[str, str] | None = None
) -> tuple[TablePrediction, list[dict[str, Any]]]:
    """Predict every row of a table.

    A row that cannot be predicted is skipped, and its line has the reason. Lines have the columns of the table, then
    ``pred_<metric>`` (SI), ``completed`` (open values of the row as completed), ``pred_note`` and ``skipped`` (the
    reason for no prediction).

    Args:
        cases_path: CSV file, gzipped or not; columns of tables of steps: :data:`dse.measured.columns.STEP_COLUMNS`.
        intervals: add ``pred_<metric>_low`` and ``_high``, the 80 % intervals of times, rates and peak memory.
        cells: column → text of cells that rows leave empty (:func:`dse.measured.filling.cells_of`).

    Returns:
        Numbers of rows, of predicted rows and of skipped rows by reason, and columns that seem to be misspelt; and by
        line column → text.

    Raises:
        InputError: for a table that cannot be read.

    >>> table, lines = predict_lines("tests/published/narayanan_2021.csv")
    >>> table.predicted, table.rows, lines[0]["skipped"]
    (16, 16, '')
    """
    predictions = predict_cases(read_cases(cases_path, measured=False, cells=cells))
    rows = _prediction_rows(predictions, row_posteriors(predictions) if intervals else None)
    lines = [line for _, line in sorted(rows, key=lambda item: item[0])]
    skipped = Counter(line["skipped"] for line in lines if line["skipped"])
    header = read_table(cases_path)[0]
    misspelt = columns.misspelt(header) if kind_of(header) is steps.KIND else {}
    counts = (len(lines), len(lines) - skipped.total(), dict(skipped), misspelt)
    return TablePrediction(*counts, kind_of(header).name), lines


def coverage(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the share of measured times and rates within the 80 % intervals, a record per source and one of all.

    Records have ``source``, ``n`` and ``coverage``; none for no such figures.

    The calibration may have used these rows; ``dse calibrate`` reports the coverage of unseen ones.
    """
    interval_comparisons = [
        c for c in comparisons if is_timed(c) or (c.skip is None and c.metric in study_of(c.prediction).residuals)
    ]
    spreads = row_posteriors({id(c.prediction): c.prediction for c in interval_comparisons}.values())
    hits_by_source: dict[str, list[bool]] = {}
    for c in interval_comparisons:
        half_width = uncertainty.half_width(prediction_parts(c.prediction, c.metric, spreads))
        hits_by_source.setdefault(c.source, []).append(abs(math.log(c.predicted / c.measured)) <= half_width)
    total_hits = {"all": [flag for flags in hits_by_source.values() for flag in flags]} if hits_by_source else {}
    hits_with_total = dict(sorted(hits_by_source.items())) | total_hits
    return [
        {"source": source, "n": len(flags), "coverage": sum(flags) / len(flags)}
        for source, flags in hits_with_total.items()
    ]


def compare(paths: str | Path | Sequence[str | Path], cells: Mapping[str, str] | None = None) -> list[Comparison]:
    """Compare the measured figures of tables with their predictions, training steps first, else in order.

    A configuration counts once per kind of figure: a time before a rate before a FLOP count.

    Args:
        paths: one CSV file, or several.
        cells: column → text, which fills cells that rows leave empty (:func:`dse.measured.filling.cells_of`).

    Returns:
        One comparison per measured figure, with its baseline; what cannot be predicted has the reason.

    Raises:
        InputError: for a file that cannot be read.

    >>> errors = report(compare("tests/published/narayanan_2021.csv"))
    >>> errors["all"]["step_time"]["predicted"], errors["all"]["step_time"]["mape"] < 0.05
    (16, True)
    """
    tables = [paths] if isinstance(paths, str | Path) else paths
    cases = [case for path in tables for case in read_cases(path, cells=cells)]
    cases.sort(key=lambda case: case.kind != steps.KIND.name)  # training steps first
    return compare_predictions(predict_cases(cases))


def compare_predictions(predictions: Iterable[Prediction]) -> list[Comparison]:
    """Compare the measured figures of predicted configurations with the predictions.

    Args:
        predictions: of :func:`dse.measured.predict_cases`.

    Returns:
        One comparison per measured figure, in order, with its baseline.
    """
    return _add_baselines([c for prediction in predictions for c in _compare_case(prediction)])


def _compare_case(prediction: Prediction) -> list[Comparison]:
    """Return a comparison per measured figure of a configuration, in order; further ones of a kind are duplicates."""
    figures = prediction.case.measurements
    best: dict[str, Measurement] = {}
    for m in sorted(figures, key=_rank, reverse=True):
        best[m.meaning.kind] = m
    comparisons = []
    for m in figures:
        skip = m.skip or prediction.skip
        if m is not best[m.meaning.kind]:
            duplicate_skip = Skip("counted once", f"by {best[m.meaning.kind].name}")
            comparisons.append(Comparison(m, prediction, duplicate=True, skip=duplicate_skip))
        elif prediction.skip or (m.skip and m.skip.reason != REFUSED):
            comparisons.append(Comparison(m, prediction, skip=skip))
        else:
            predicted = metric_value(prediction, m.meaning.metric)
            comparisons.append(Comparison(m, prediction, _measured_value(m, prediction), predicted, skip=skip))
    return comparisons


def _rank(measurement: Measurement) -> tuple[bool, int]:
    """Return the sort key of a figure, least for the one that counts: without a skip, then by rank."""
    return measurement.skip is not None, measurement.meaning.rank


def metric_value(prediction: Prediction, metric: str) -> float:
    """Return a predicted metric in SI units, NaN if the row has none.

    ``peak_memory_state``: weights, gradients, optimiser state; ``device_energy_per_step``: of a board, without hosts.
    """
    if metric == "device_energy_per_step":
        return prediction.metrics["device_power"] * prediction.metrics["step_time"]
    if metric == "peak_memory_state":
        return sum(prediction.metrics[f"peak_memory_{part}"] for part in ("weights", "gradients", "optimizer"))
    return prediction.metrics.get(metric, math.nan)


def _measured_value(measurement: Measurement, prediction: Prediction) -> float:
    """Return the measured figure as its metric of dse in SI units.

    Of a FLOP rate that is the step time behind it, of a rate of sequences the tokens.
    """
    meaning, metrics = measurement.meaning, prediction.metrics
    if meaning.flops:
        flops_ratio = metrics["hfu"] / metrics["mfu"] if meaning.flops == "hardware" else 1.0
        if Cells(measurement.row).text("attention_flops").lower() == "causal":
            flops_ratio *= metrics["mfu_causal"] / metrics["mfu"]
        return metrics["model_flops"] * flops_ratio / (measurement.value * float(prediction.chosen.system.n_devices))
    if meaning.per_sequence:
        return measurement.value * float(prediction.chosen.workload.seq_len)
    return measurement.value


def _add_baselines(comparisons: list[Comparison]) -> list[Comparison]:
    """Return the comparisons with the prediction of a constant per source, the median over its rows.

    The MFU for steps; for serving the figure over bytes by bandwidth, of each metric.
    """
    limits = {
        id(c): serving.bytes_over_bandwidth(c.prediction.chosen, c.metric)
        for c in comparisons
        if c.skip is None and c.metric in serving.METRICS and study_of(c.prediction) is SERVING
    }
    shares = {
        id(c): c.measured / limits[id(c)] if id(c) in limits else _measured_mfu(c)
        for c in comparisons
        if id(c) in limits or is_timed(c)
    }
    shares_by_group: dict[tuple[str, str], list[float]] = {}
    for c in comparisons:
        if id(c) in shares:
            shares_by_group.setdefault(_baseline_group(c), []).append(shares[id(c)])
    medians = {group: float(np.median(values)) for group, values in shares_by_group.items()}

    def baseline(c: Comparison) -> float:
        """Return the figure at the median share of its group."""
        median = medians[_baseline_group(c)]
        return limits[id(c)] * median if id(c) in limits else c.measured * _figure_ratio(c, median / shares[id(c)])

    return [dataclasses.replace(c, baseline=baseline(c)) if id(c) in shares else c for c in comparisons]


def _baseline_group(comparison: Comparison) -> tuple[str, str]:
    """Return the group of comparisons that share a constant: of a source, and of serving of a metric."""
    return comparison.source, "" if is_timed(comparison) else comparison.metric


def _measured_mfu(comparison: Comparison) -> float:
    """Return the MFU of the measured step time, as a fraction."""
    prediction = comparison.prediction
    return prediction.metrics["model_flops"] / (step_time(comparison) * peak_rate(prediction.chosen))


def is_timed(comparison: Comparison) -> bool:
    """Return True for a predicted time or rate of a step."""
    return comparison.skip is None and comparison.measurement.meaning.kind == "time"


def step_time(comparison: Comparison) -> float:
    """Return the measured step time of a timed comparison, s.

    Rates and utilisations are inversely proportional to it.
    """
    ratio = comparison.measured / comparison.predicted
    return comparison.prediction.metrics["step_time"] * _figure_ratio(comparison, 1.0 / ratio)


def _figure_ratio(comparison: Comparison, rate_ratio: float) -> float:
    """Return the ratio of a figure where rates have ``rate_ratio``: its inverse for a step time."""
    return 1.0 / rate_ratio if comparison.metric == "step_time" else rate_ratio


# The report


def report(comparisons: Iterable[Comparison]) -> Report:
    """Return JSON-ready errors by source and metric (``rows``) and by metric alone (``all``), as fractions.

    ``n``: measured figures, one per configuration and kind; ``duplicates``: further figures of the same kind;
    ``baseline_mape``: error of the source's constant MFU; ``refused``: skipped figures faster than a perfect roofline,
    with their errors, in no other statistic.
    """
    by_row: dict[tuple[str, str], list[Comparison]] = {}
    by_metric: dict[str, list[Comparison]] = {}
    for c in comparisons:
        by_row.setdefault((c.source, c.metric), []).append(c)
        by_metric.setdefault(c.metric, []).append(c)
    return {
        "rows": [{"source": source, "metric": m, **summary(group)} for (source, m), group in sorted(by_row.items())],
        "all": {metric: summary(group) for metric, group in sorted(by_metric.items())},
    }


def summary(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return counts and relative errors of comparisons, as fractions; None for statistics without a prediction."""
    distinct_figures = [c for c in comparisons if not c.duplicate]
    errors = np.array([c.error for c in distinct_figures if c.skip is None])
    refused_errors = np.array([c.error for c in distinct_figures if c.is_refused])
    baseline_errors = np.array(
        [c.baseline_error for c in distinct_figures if c.skip is None and math.isfinite(c.baseline)]
    )
    absolute_errors = np.abs(errors)
    return {
        "n": len(distinct_figures),
        "predicted": len(errors),
        "skipped": dict(Counter(c.skip.reason for c in distinct_figures if c.skip is not None)),
        "duplicates": len(comparisons) - len(distinct_figures),
        **_error_statistics(errors),
        "p90": _statistic_or_none(absolute_errors, lambda values: np.quantile(values, 0.9)),
        "baseline_mape": _statistic_or_none(np.abs(baseline_errors), np.mean),
        "refused": {"n": len(refused_errors), **_error_statistics(refused_errors)},
    }


def _error_statistics(errors: np.ndarray) -> dict[str, float | None]:
    """Return ``mape``, ``median_ape`` and ``bias``, mean and median absolute and mean error; None without errors."""
    absolute_errors = np.abs(errors)
    return {
        "mape": _statistic_or_none(absolute_errors, np.mean),
        "median_ape": _statistic_or_none(absolute_errors, np.median),
        "bias": _statistic_or_none(errors, np.mean),
    }


def _statistic_or_none(values: np.ndarray, statistic: Any) -> float | None:
    """Return a statistic (values → number) of some values, None where there are none."""
    return float(statistic(values)) if len(values) else None


# Tables out


def _prediction_rows(
    predictions: Iterable[Prediction], spreads: dict[int, RowPosterior] | None
) -> list[tuple[int, dict[str, Any]]]:
    """Return (line number, column → text) of every row of every configuration; without ``spreads`` no intervals."""
    return [(row.line, row.cells | _prediction_cells(p, spreads)) for p in predictions for row in p.case.rows]


def _prediction_cells(prediction: Prediction, spreads: dict[int, RowPosterior] | None) -> dict[str, Any]:
    """Return column → text of the metrics and remarks of a prediction; without ``spreads`` no intervals."""
    values: dict[str, str] = {}
    for metric in KINDS[prediction.case.kind].metrics(prediction.case):
        value = metric_value(prediction, metric) if prediction.skip is None else math.nan
        values[f"pred_{metric}"] = "" if math.isnan(value) else f"{value:.7g}"
        if math.isnan(value) or spreads is None:
            continue
        if bounds := uncertainty.interval(value, prediction_parts(prediction, metric, spreads)):
            values |= {f"pred_{metric}_{end}": f"{bound:.7g}" for end, bound in bounds._asdict().items()}
    return values | remark_cells(prediction, prediction.skip)


def remark_cells(prediction: Prediction, skip: Skip | None) -> dict[str, str]:
    """Return column → text of remarks: completed values, notes, values out of range, and the reason of a skip."""
    completed = " ".join(f"{name}={value}" for name, value in prediction.completed.items() if value)
    remarks = {
        "completed": completed,
        "pred_note": prediction.note,
        "outside": "; ".join(values_out_of_range(prediction)),
    }
    return remarks | {"skipped": str(skip) if skip else ""}


def values_out_of_range(prediction: Prediction) -> list[str]:
    """Return texts on the values of a predicted row beyond its stack's calibration; [] without a design or stack."""
    if prediction.design is None or not prediction.stack:
        return []
    lookup = calibrated.lookup_of(prediction.design, prediction.metrics)
    return calibrated.uncalibrated_quantities(prediction.stack, lookup, accelerator_of(prediction.case.row))


def comparison_line(comparison: Comparison) -> dict[str, Any]:
    """Return column → text of a comparison: the row's own cells, figures, errors and remarks.

    These are ``table``, ``metric_compared``, ``measured``, ``predicted``, ``error``, ``baseline_error``, ``completed``,
    ``pred_note``, ``outside`` and ``skipped``.
    """

    def text(value: float) -> str:
        return f"{value:.7g}" if math.isfinite(value) else ""

    row = comparison.measurement.row
    return row.cells | {
        "table": row.file,
        "metric_compared": comparison.metric,
        "measured": text(comparison.measured),
        "predicted": text(comparison.predicted),
        "error": text(comparison.error),
        "baseline_error": text(comparison.baseline_error),
        **remark_cells(comparison.prediction, comparison.skip),
    }


def write_lines(path: str | Path, rows: list[dict[str, Any]], force: bool) -> None:
    """Write rows as CSV with columns in order of first appearance.

    Args:
        path: file to write.
        rows: column → text.
        force: replace a file that dse has not written.
    """
    header = list(dict.fromkeys(column for row in rows for column in row if column))
    with outputs.replacing(path, force) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
