"""What is shown of each kind of study: headings of tables, names of short answers, notes and numbers in words.

Tables, figures and explanations ask :func:`presentation_of` a study. The study itself, what computes, is in
:mod:`dse.doors` and knows nothing of it. Start with :class:`~dse.views.studies.presentation.Presentation`, which
``training`` and ``serving`` fill in.
"""

from __future__ import annotations

from dse.doors import SERVING, TRAINING, Study
from dse.views.studies import serving, training
from dse.views.studies.presentation import MetricColumn, Presentation

__all__ = ["PRESENTATIONS", "MetricColumn", "Presentation", "presentation_of"]

#: Record of metrics → what is shown of the studies that have them; further kinds of studies may be added.
PRESENTATIONS: dict[type, Presentation] = {
    TRAINING.metrics: training.PRESENTATION,
    SERVING.metrics: serving.PRESENTATION,
}


def presentation_of(study: Study) -> Presentation:
    """Return what is shown of a kind of study, empty where nothing is declared for its metrics.

    Args:
        study: kind of study.
    """
    return PRESENTATIONS.get(study.metrics, Presentation())
