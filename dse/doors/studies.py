"""The kinds of studies there are, and which of them a specification or a dataset is of."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping
from typing import Any

from dse.doors.study import Study
from dse.doors.study_serving import SERVING
from dse.doors.study_training import TRAINING
from dse.errors import ELSEWHERE, plain

#: All of them by name; training is meant where nothing else is said.
STUDIES: dict[str, Study] = {study.name: study for study in (TRAINING, SERVING)}


def metric_of_other_study(name: str, study: Study) -> tuple[str, Study] | None:
    """Return our name of a metric and the other kind of study that has it, from our name or another tool's.

    Args:
        name: of a metric.
        study: kind of study that should have it.

    Returns:
        (name, study); None where ``study`` itself has the metric, where no study has it, and for a study of one's own.

    >>> metric_of_other_study("ttft", TRAINING), metric_of_other_study("throughput", TRAINING)
    (('time_to_first_token', Study('serving')), None)
    """
    names = (name, *ELSEWHERE.get(plain(name), ()))
    if study.name not in STUDIES or any(candidate in study.units for candidate in names):
        return None
    return next(
        ((candidate, other) for other in STUDIES.values() for candidate in names if candidate in other.units), None
    )


def study_of_document(document: Mapping[str, Any]) -> Study:
    """Return the kind of study of a parsed specification: serving where it has a section of that name."""
    return SERVING if SERVING.name in document else TRAINING


def study_of_metrics(names: Container[Hashable]) -> Study:
    """Return the first kind of study whose first total is among metric names, else training."""
    return next((study for study in STUDIES.values() if study.totals[0] in names), TRAINING)
