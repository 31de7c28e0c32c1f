"""What the intervals of predicted rows follow from: the posterior of their designs, as of any other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dse.doors.study import Study
from dse.measured.kinds import KINDS
from dse.measured.names import Lookup, accelerator_of
from dse.measured.prediction import Prediction
from dse.measured.uncertainty import distance
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.posterior import Choice, Posterior, posteriors


class Spread(NamedTuple):
    """Where what is not known of a prediction stands."""

    known: dict[str, Posterior]  #: kind of figure → posterior of some designs
    place: int  #: which of them it is


#: Designs of one posterior: each has factors of its own.
_AT_ONCE = 200


def spreads_of(predictions: Iterable[Prediction]) -> dict[int, Spread]:
    """``id`` of each prediction with a stack → its spread."""
    known = [p for p in predictions if p.skip is None and p.design is not None and p.stack]
    lookup, found = Lookup(), dict[int, Spread]()
    for study in dict.fromkeys(map(study_of, known), None):
        own = [p for p in known if study_of(p) is study]
        for start in range(0, len(own), _AT_ONCE):
            part = own[start : start + _AT_ONCE]
            of_figure = _posteriors([_placed(p, lookup) for p in part], study)
            found |= {id(p): Spread(of_figure, place) for place, p in enumerate(part)}
    return found


def _posteriors(choices: Sequence[Choice], study: Study) -> dict[str, Posterior]:
    """Kind of figure → posterior of a metric of it."""
    metrics = dict[str, str]()
    for name in study.residuals or ("step_time", "energy_per_step"):
        metrics.setdefault(uncertainty.figure_of(name, study) or "", name)
    found = posteriors(choices, [*metrics.values(), study.memory], study)
    return {figure: found[name] for figure, name in metrics.items()} | {"memory": found[study.memory]}


def choice_of(prediction: Prediction, name: str) -> Choice:
    """The design of a predicted row."""
    row = prediction.case.row
    return Choice(name, prediction.chosen, prediction.stack, accelerator_of(row), row.get("model"), row.get("system"))


def _placed(prediction: Prediction, lookup: Lookup) -> Choice:
    """The same at the distance of the row's source."""
    choice = choice_of(prediction, "")
    is_new = not lookup.is_measured(choice.stack, prediction.case.row.source)
    at = distance.levels_of(choice.stack, choice.accelerator, choice.design, choice.model, is_new)
    return choice._replace(at=at)


def parts_of(prediction: Prediction, metric: str, spreads: dict[int, Spread]) -> dict[str, float]:
    """Parts of the log error of a metric (:meth:`Posterior.parts`); none without a stack or for other metrics."""
    figure = uncertainty.figure_of(metric, study_of(prediction))
    if (spread := spreads.get(id(prediction))) is None or figure is None:
        return {}
    return spread.known[figure].parts(spread.place)


def study_of(prediction: Prediction) -> Study:
    """The study of a row."""
    return KINDS[prediction.case.kind].study
