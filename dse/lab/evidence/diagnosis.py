"""A measured training step against the predicted one: the total with its interval, and the parts that a trace has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from dse.designs import catalog
from dse.errors import InputError
from dse.measured import TRACE_PARTS, Case, Comparison, Prediction, Skip, accelerator_of, predict_cases, steps
from dse.measured.comparison import compare_predictions, is_timed, step_time
from dse.measured.table import nonnegative_number
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.posterior import Choice
from dse.measured.uncertainty.rows import RowPosterior, prediction_parts, row_posteriors


class StepPart(NamedTuple):
    """A part of a step, s."""

    name: str
    measured: float | None  #: None where the profile has no parts
    predicted: float


class Diagnosis(NamedTuple):
    """A measured step and the predicted one, s."""

    source: str
    measured: float
    predicted: float
    interval: uncertainty.MetricInterval | None  #: 80 %
    parts: tuple[StepPart, ...]
    memory: tuple[float, float] | None  #: measured and predicted peak, B
    ran: Choice  #: the design that is said to have run
    note: str = ""

    @property
    def gap(self) -> float:
        """Measured minus predicted step time, s."""
        return self.measured - self.predicted

    @property
    def is_explained(self) -> bool:
        """True where the measured step lies within the interval of the prediction."""
        return self.interval is not None and self.interval.low <= self.measured <= self.interval.high


def diagnose(cases: Sequence[Case]) -> list[Diagnosis | Skip]:
    """Compare each configuration of training steps that has a measured time with its prediction.

    Args:
        cases: of :func:`dse.measured.read_cases`; rows of traces have columns of their parts.

    Returns:
        One diagnosis per configuration, in order, or why it was not predicted; configurations without a time left out.

    Raises:
        InputError: for rows of another kind, and where no configuration has a time.
    """
    if other_kinds := {case.kind for case in cases} - {steps.KIND.name}:
        raise InputError(
            "dse diagnose",
            f"rows of {' and '.join(sorted(other_kinds))}",
            "training steps",
            "compare others with dse validate --profile",
        )
    predictions = predict_cases(cases)
    comparisons = compare_predictions(predictions)
    posterior_by_id = row_posteriors(predictions)
    diagnoses = [
        _diagnosis(prediction, [c for c in comparisons if c.prediction is prediction], posterior_by_id)
        for prediction in predictions
    ]
    if not any(diagnoses):
        raise InputError("dse diagnose", "rows without a time of a step", "a step time or token rate", "add one")
    return [diagnosis for diagnosis in diagnoses if diagnosis is not None]


def _diagnosis(
    prediction: Prediction, comparisons: Sequence[Comparison], posterior_by_id: dict[int, RowPosterior]
) -> Diagnosis | Skip | None:
    """Return the diagnosis of one configuration, the skip of its prediction, or None without a measured time."""
    if prediction.skip is not None:
        return prediction.skip
    timed_comparison = next((c for c in comparisons if is_timed(c)), None)
    if timed_comparison is None:
        return None
    metrics, row = prediction.metrics, prediction.case.row
    predicted = metrics["step_time"]
    interval = uncertainty.interval(predicted, prediction_parts(prediction, "step_time", posterior_by_id))
    memory_comparison = next(
        (c for c in comparisons if c.metric == "peak_memory" and c.skip is None and not c.duplicate), None
    )
    measured = {name: 1e-3 * nonnegative_number(row, f"{column}_ms", 0.0) for name, (column, _) in TRACE_PARTS.items()}
    has_parts = any(measured.values())
    parts = tuple(
        StepPart(name, measured[name] if has_parts else None, sum(metrics[f"step_time_{part}"] for part in part_names))
        for name, (_, part_names) in TRACE_PARTS.items()
    )
    stages = float(prediction.chosen.mapping.pp)
    note = "of the slowest stage; a trace is of the stage of its rank" if has_parts and stages > 1.0 else ""
    return Diagnosis(
        row.get("url_or_repo_path") or row.source,
        step_time(timed_comparison),
        predicted,
        interval,
        parts,
        None if memory_comparison is None else (memory_comparison.measured, memory_comparison.predicted),
        _run_choice(prediction),
        note,
    )


def _run_choice(prediction: Prediction) -> Choice:
    """Return the design of a prediction as a choice ``ran`` with its names in the catalogue."""
    row, design = prediction.case.row, jax.tree.map(float, prediction.chosen)
    model = catalog.find("workload", row.get("model")) if row.get("model") else None
    return Choice("ran", design, prediction.stack, accelerator_of(row), model or "", row.get("system"))
