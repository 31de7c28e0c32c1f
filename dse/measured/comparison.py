"""Predictions and measurements: ``predict`` a table, ``validate`` it, errors by source and metric."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.designs import calibrated
from dse.doors.study_serving import SERVING
from dse.io import outputs
from dse.measured import columns, serving, steps
from dse.measured.cells import Cells
from dse.measured.kinds import KINDS, kind_of, predict_cases, read_cases
from dse.measured.names import accelerator_of
from dse.measured.prediction import Prediction, peak_rate
from dse.measured.roofline import REFUSED
from dse.measured.table import Measurement, Skip, read_table
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.rows import Spread, parts_of, spreads_of, study_of

Report = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One measured figure and its prediction, both in SI; ``skip``: reason not to compare them."""

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
        """Signed relative error, as a fraction."""
        return self.predicted / self.measured - 1.0

    @property
    def is_refused(self) -> bool:
        """Whether a rule excludes the figure as implausible; it is predicted, but in no statistic."""
        return self.skip is not None and self.skip.reason == REFUSED and not self.duplicate

    @property
    def baseline_error(self) -> float:
        """Signed relative error of the constant-MFU baseline, as a fraction."""
        return self.baseline / self.measured - 1.0


class Predicted(NamedTuple):
    """Result of predicting a table."""

    rows: int
    predicted: int
    skipped: dict[str, int]  #: reason with details → rows
    misspelt: dict[str, str]  #: unread column → column probably meant

    @property
    def counts(self) -> dict[str, Any]:
        """JSON-ready counts."""
        return {"n": self.rows, "predicted": self.predicted, "skipped": self.skipped, "misspelt": self.misspelt}


def predict(cases_path: str | Path, output: str | Path, intervals: bool = False, force: bool = False) -> Predicted:
    """Predict every row of a table and write it with further columns.

    A row that cannot be predicted is skipped, and its reason written. The further columns are ``pred_<metric>`` (SI),
    ``completed`` (open values of the row as completed), ``pred_note`` and ``skipped`` (the reason for
    no prediction).

    Args:
        cases_path: CSV file, gzipped or not; columns of tables of steps: :data:`dse.measured.columns.READ`.
        output: CSV file to write.
        intervals: add ``pred_<metric>_low`` and ``_high``, the 80 % intervals of times, rates and peak memory.
        force: replace an output that dse has not written.

    Returns:
        Numbers of rows, of predicted rows and of skipped rows by reason, and columns that seem to be misspelt.

    Raises:
        InputError: for a table that cannot be read, and for an output that may not be replaced.

    >>> import tempfile
    >>> found = predict("tests/published/narayanan_2021.csv", f"{tempfile.mkdtemp()}/predicted.csv")
    >>> found.predicted, found.rows
    (16, 16)
    """
    return predict_lines(cases_path, output, intervals, force)[0]


def predict_lines(
    cases_path: str | Path, output: str | Path, intervals: bool = False, force: bool = False
) -> tuple[Predicted, list[dict[str, Any]]]:
    """:func:`predict`, and the lines that it writes: column → text, empty without a value."""
    outputs.checked(output, force, [cases_path])
    predictions = predict_cases(read_cases(cases_path, measured=False))
    rows = _predicted_rows(predictions, spreads_of(predictions) if intervals else None)
    lines = [line for _, line in sorted(rows, key=lambda item: item[0])]
    write_lines(output, lines, force)
    skipped = Counter(line["skipped"] for line in lines if line["skipped"])
    known = read_table(cases_path)[0]
    wrong = columns.misspelt(known) if kind_of(known) is steps.KIND else {}
    return Predicted(len(lines), len(lines) - skipped.total(), dict(skipped), wrong), lines


def coverage(compared: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Predicted measured times and rates, and the share within 80 % intervals, by source and in total.

    The calibration may have used these rows; ``dse calibrate`` reports the coverage of unseen ones.
    """
    kept = [c for c in compared if is_timed(c) or (c.skip is None and c.metric in study_of(c.prediction).residuals)]
    spreads = spreads_of({id(c.prediction): c.prediction for c in kept}.values())
    held: dict[str, list[bool]] = {}
    for c in kept:
        width = uncertainty.half_width(parts_of(c.prediction, c.metric, spreads))
        held.setdefault(c.source, []).append(abs(math.log(c.predicted / c.measured)) <= width)
    everything = {"all": [flag for flags in held.values() for flag in flags]} if held else {}
    by_source = dict(sorted(held.items())) | everything
    return [{"source": s, "n": len(flags), "coverage": sum(flags) / len(flags)} for s, flags in by_source.items()]


def validate(
    paths: str | Path | Sequence[str | Path],
    output: str | Path | None = None,
    intervals: bool = False,
    force: bool = False,
) -> Report:
    """Compare predictions with the measurements of tables.

    Args:
        paths: one CSV file or several, gzipped or not.
        output: CSV file to write, one line per measured figure: the row's own columns, then ``table``,
            ``metric_compared``, ``measured``, ``predicted``, ``error``, ``baseline_error``, ``completed``,
            ``pred_note`` and ``skipped``; None for none.
        intervals: add the :func:`coverage` of the intervals to the report.
        force: replace a file that dse has not written.

    Returns:
        Errors by source and metric (``rows``) and by metric alone (``all``), as fractions: see :func:`report`.

    Raises:
        InputError: for a table that cannot be read, and for an output that may not be replaced.

    >>> found = validate("tests/published/narayanan_2021.csv")
    >>> found["all"]["step_time"]["predicted"], found["all"]["step_time"]["mape"] < 0.05
    (16, True)
    """
    if output is not None:
        outputs.checked(output, force, [paths] if isinstance(paths, str | Path) else paths)
    compared = compare(paths)
    if output is not None:
        write_lines(output, [_compared_row(c) for c in compared], force)
    return report(compared) | ({"coverage": coverage(compared)} if intervals else {})


def compare(paths: str | Path | Sequence[str | Path]) -> list[Comparison]:
    """Measured figures of the tables with their predictions, in order.

    A configuration counts once per kind of figure: a time before a rate before a FLOP count.
    """
    listed = [paths] if isinstance(paths, str | Path) else paths
    cases = [case for path in listed for case in read_cases(path)]
    cases.sort(key=lambda case: case.kind != steps.KIND.name)  # training steps first
    return compare_predictions(predict_cases(cases))


def compare_predictions(predictions: Iterable[Prediction]) -> list[Comparison]:
    """Measured figures of predicted configurations."""
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
    """A predicted metric, NaN if the row has none.

    ``peak_memory_state``: weights, gradients, optimiser state; ``device_energy_per_step``: of a board, without hosts.
    """
    if metric == "device_energy_per_step":
        return prediction.metrics["device_power"] * prediction.metrics["step_time"]
    if metric == "peak_memory_state":
        return sum(prediction.metrics[f"peak_memory_{part}"] for part in ("weights", "gradients", "optimizer"))
    return prediction.metrics.get(metric, math.nan)


def _measured(measurement: Measurement, prediction: Prediction) -> float:
    """The measured figure in the metric of dse; FLOP rates become the step time behind them."""
    meaning, metrics = measurement.meaning, prediction.metrics
    if meaning.flops:
        counted = metrics["hfu"] / metrics["mfu"] if meaning.flops == "hardware" else 1.0
        if Cells(measurement.row).text("attention_flops").lower() == "causal":
            counted *= metrics["mfu_causal"] / metrics["mfu"]
        return metrics["model_flops"] * counted / (measurement.value * float(prediction.chosen.system.n_devices))
    if meaning.per_sequence:
        return measurement.value * float(prediction.chosen.workload.seq_len)
    return measurement.value


def _with_baseline(compared: list[Comparison]) -> list[Comparison]:
    """Adds the prediction of a constant per source, the median over its rows.

    The MFU for steps; for serving the figure over bytes by bandwidth.
    """
    compared = _with_bytes(compared)
    implied: dict[str, list[float]] = {}
    for c in compared:
        if is_timed(c):
            implied.setdefault(c.source, []).append(_measured_mfu(c))
    constant = {source: float(np.median(values)) for source, values in implied.items()}
    return [_baseline(c, constant[c.source]) if is_timed(c) else c for c in compared]


def _with_bytes(compared: list[Comparison]) -> list[Comparison]:
    """Adds the baseline of serving."""
    served = [c for c in compared if c.skip is None and study_of(c.prediction) is SERVING]
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
    """Whether the figure is a predicted time or rate."""
    return compared.skip is None and compared.measurement.meaning.kind == "time"


def step_time(compared: Comparison) -> float:
    """Measured step time of a timed comparison, s; rates and utilisations are inversely proportional to it."""
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

    ``n``: measured figures, one per configuration and kind; ``duplicates``: further figures of the same kind;
    ``baseline_mape``: error of the source's constant MFU; ``refused``: skipped figures faster than a perfect roofline,
    with their errors, in no other statistic.
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
    """Counts and error statistics of comparisons; None for statistics without a prediction."""
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
    """Mean and median absolute error, and mean error."""
    size = np.abs(errors)
    return {"mape": _or_none(size, np.mean), "median_ape": _or_none(size, np.median), "bias": _or_none(errors, np.mean)}


def _or_none(values: np.ndarray, statistic: Any) -> float | None:
    return float(statistic(values)) if len(values) else None


# Tables out


def _predicted_rows(
    predictions: Iterable[Prediction], spreads: dict[int, Spread] | None
) -> list[tuple[int, dict[str, Any]]]:
    """(line, cells) of every row of every configuration, with intervals if spreads are given."""
    return [(row.line, row.cells | _predicted_cells(p, spreads)) for p in predictions for row in p.case.rows]


def _predicted_cells(prediction: Prediction, spreads: dict[int, Spread] | None) -> dict[str, Any]:
    values: dict[str, str] = {}
    for metric in KINDS[prediction.case.kind].metrics(prediction.case):
        value = metric_value(prediction, metric) if prediction.skip is None else math.nan
        values[f"pred_{metric}"] = "" if math.isnan(value) else f"{value:.7g}"
        if math.isnan(value) or spreads is None:
            continue
        if bounds := uncertainty.interval(value, parts_of(prediction, metric, spreads)):
            values |= {f"pred_{metric}_{end}": f"{bound:.7g}" for end, bound in bounds._asdict().items()}
    return values | remarks_on(prediction, prediction.skip)


def remarks_on(prediction: Prediction, skip: Skip | None) -> dict[str, str]:
    """Columns of remarks: completed values, notes, values out of range, and the reason of a skip."""
    completed = " ".join(f"{name}={value}" for name, value in prediction.completed.items() if value)
    remarks = {"completed": completed, "pred_note": prediction.note, "outside": "; ".join(outside(prediction))}
    return remarks | {"skipped": str(skip) if skip else ""}


def outside(prediction: Prediction) -> list[str]:
    """Values of a predicted row out of the range of its stack's calibration."""
    if prediction.design is None or not prediction.stack:
        return []
    lookup = calibrated.lookup_of(prediction.design, prediction.metrics)
    return calibrated.beyond(prediction.stack, lookup, accelerator_of(prediction.case.row))


def _compared_row(compared: Comparison) -> dict[str, Any]:
    def text(value: float) -> str:
        return f"{value:.7g}" if math.isfinite(value) else ""

    row = compared.measurement.row
    return row.cells | {
        "table": row.file,
        "metric_compared": compared.metric,
        "measured": text(compared.measured),
        "predicted": text(compared.predicted),
        "error": text(compared.error),
        "baseline_error": text(compared.baseline_error),
        **remarks_on(compared.prediction, compared.skip),
    }


def write_lines(path: str | Path, rows: list[dict[str, Any]], force: bool) -> None:
    """Write rows as CSV: columns in order of first appearance."""
    header = list(dict.fromkeys(column for row in rows for column in row if column))
    with outputs.replacing(path, force) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
