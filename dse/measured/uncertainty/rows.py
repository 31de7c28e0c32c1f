"""What the intervals of predicted rows follow from: distance of their designs, spread of their stacks' parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.measured import Prediction
from dse.measured.kinds import KINDS
from dse.measured.names import Lookup, accelerator_of
from dse.measured.uncertainty import distance
from dse.measured.uncertainty import parts as uncertainty


class Spread(NamedTuple):
    """What the width of a prediction's intervals follows from, whatever the metric."""

    at: distance.Levels  #: levels at which it differs from measured rows
    step: float  #: standard deviation of its log step time over its stack's parameters; 0 in serving


def spreads_of(predictions: Iterable[Prediction]) -> dict[int, Spread]:
    """``id`` of each prediction with a stack → its spread."""
    known = [p for p in predictions if p.skip is None and p.design is not None and p.stack]
    steps = [p for p in known if study_of(p) is TRAINING]
    found = uncertainty.deviations([p.chosen for p in steps], [uncertainty.uncertainty_of(p.stack) for p in steps])
    deviations = {id(p): float(deviation) for p, deviation in zip(steps, found, strict=True)}
    lookup = Lookup()
    return {id(p): Spread(_levels_of(p, lookup), deviations.get(id(p), 0.0)) for p in known}


def _levels_of(prediction: Prediction, lookup: Lookup) -> distance.Levels:
    row, stack = prediction.case.row, prediction.stack
    is_new = not lookup.is_measured(stack, row.source)
    return distance.levels_of(stack, accelerator_of(row), prediction.chosen, row.get("model"), is_new)


def parts_of(prediction: Prediction, metric: str, spreads: dict[int, Spread]) -> dict[str, float]:
    """Parts of the log error of a metric (:func:`uncertainty.parts_of`); none without a stack."""
    if (spread := spreads.get(id(prediction))) is None:
        return {}
    study = study_of(prediction)
    return uncertainty.parts_of(metric, prediction.chosen, prediction.stack, spread.at, study, spread.step)


def study_of(prediction: Prediction) -> Study:
    """The study of a row."""
    return KINDS[prediction.case.kind].study
