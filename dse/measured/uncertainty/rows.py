"""What the intervals of predicted rows follow from: the posterior of their designs, as of any other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dse.doors import Study
from dse.measured.kinds import KINDS
from dse.measured.names import Lookup, accelerator_of
from dse.measured.prediction import Prediction
from dse.measured.uncertainty import distance, parts as uncertainty
from dse.measured.uncertainty.posterior import Choice, Posterior, posteriors


class RowPosterior(NamedTuple):
    """Position of a prediction in the posteriors of its figures."""

    posteriors: dict[str, Posterior]  #: kind of figure → posterior of some designs
    position: int  #: which of them it is


#: Designs of one posterior: each has factors of its own.
_DESIGNS_PER_BATCH = 200


def row_posteriors(predictions: Iterable[Prediction]) -> dict[int, RowPosterior]:
    """Return ``id`` of a prediction → its place in the posteriors, without predictions without a design or stack."""
    stack_predictions = [p for p in predictions if p.skip is None and p.design is not None and p.stack]
    lookup, posterior_by_id = Lookup(), dict[int, RowPosterior]()
    for study in dict.fromkeys(map(study_of, stack_predictions), None):
        study_predictions = [p for p in stack_predictions if study_of(p) is study]
        for start in range(0, len(study_predictions), _DESIGNS_PER_BATCH):
            batch = study_predictions[start : start + _DESIGNS_PER_BATCH]
            posterior_by_figure = _posteriors([_choice_at_distance(p, lookup) for p in batch], study)
            posterior_by_id |= {id(p): RowPosterior(posterior_by_figure, index) for index, p in enumerate(batch)}
    return posterior_by_id


def _posteriors(choices: Sequence[Choice], study: Study) -> dict[str, Posterior]:
    """Return kind of figure → posterior of one metric of it."""
    metrics = dict[str, str]()
    for name in study.residuals or ("step_time", "energy_per_step"):
        metrics.setdefault(uncertainty.figure_of(name, study) or "", name)
    posterior_by_metric = posteriors(choices, [*metrics.values(), study.memory], study)
    return {figure: posterior_by_metric[name] for figure, name in metrics.items()} | {
        "memory": posterior_by_metric[study.memory]
    }


def choice_of(prediction: Prediction, name: str) -> Choice:
    """Return the design of a predicted row as a choice.

    Args:
        prediction: with a design.
        name: of the choice.
    """
    row = prediction.case.row
    return Choice(name, prediction.chosen, prediction.stack, accelerator_of(row), row.get("model"), row.get("system"))


def _choice_at_distance(prediction: Prediction, lookup: Lookup) -> Choice:
    """Return the design of a predicted row as a choice at the distance of the row's source."""
    choice = choice_of(prediction, "")
    is_new = not lookup.is_measured(choice.stack, prediction.case.row.source)
    levels = distance.design_levels(choice.stack, choice.accelerator, choice.design, choice.model, is_new)
    return choice._replace(levels=levels)


def prediction_parts(prediction: Prediction, metric: str, posterior_by_id: dict[int, RowPosterior]) -> dict[str, float]:
    """Return part → standard deviation in a metric's log error, {} without a stack or interval."""
    figure = uncertainty.figure_of(metric, study_of(prediction))
    if (row_posterior := posterior_by_id.get(id(prediction))) is None or figure is None:
        return {}
    return row_posterior.posteriors[figure].parts(row_posterior.position)


def study_of(prediction: Prediction) -> Study:
    """Return the study of the kind of table that a prediction is of."""
    return KINDS[prediction.case.kind].study
