"""The doors into the model, and what is known of each kind of study behind them.

They answer what one design does: ``evaluate`` for a training step, ``serve`` for an engine that serves, ``serve_pools``
for pools of prompts and answers. ``evaluation.py``, ``serving.py`` and ``pools.py`` are pure functions of a design in
JAX; the equations that :mod:`dse.equations` records of them are run on plain numbers, in milliseconds.

A :class:`Study` says what others compute with a kind of design: its function, record of metrics, reasons, objective,
options that change nothing. Specifications, sweeps and searches ask the study and import no door; what is shown of a
study is in :mod:`dse.views.studies`. Start with ``evaluation.py``, which is short, then ``study.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.doors.pools import serve_pools
    from dse.doors.scalars import evaluate, serve
    from dse.doors.serving import cache_capacity, step_time
    from dse.doors.studies import STUDIES, study_of_metrics
    from dse.doors.study import Study
    from dse.doors.study_serving import SERVING
    from dse.doors.study_training import TRAINING
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "SERVING",
    "STUDIES",
    "TRAINING",
    "Study",
    "cache_capacity",
    "evaluate",
    "serve",
    "serve_pools",
    "step_time",
    "study_of_metrics",
]
