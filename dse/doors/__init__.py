"""The doors into the model, and what is known of each kind of study behind them.

The room answers what a design takes: the metrics of a training step (``evaluation.py``), of an engine that serves
(``serving.py``) and of two pools that serve together (``pools.py``), as pure functions of scalars. The same functions
are recorded as lists of equations here, by which designs with plain numbers are evaluated without JAX.

A :class:`Study` is what is known of a door: its function, record of metrics, reasons, objective, options that change
nothing. Sweeps, searches and reports ask it and import no door. The room knows designs and the model; what is shown of
a study is in :mod:`dse.views.studies`.

Start with ``evaluation.py`` for the doors, and with ``study.py`` for what stands behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.doors.equations import Equations
    from dse.doors.folding import fold
    from dse.doors.pools import serve_pools
    from dse.doors.recording import trace as trace
    from dse.doors.scalars import ScalarFunction, evaluate, serve
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
    "Equations",
    "ScalarFunction",
    "Study",
    "cache_capacity",
    "evaluate",
    "fold",
    "serve",
    "serve_pools",
    "step_time",
    "study_of_metrics",
]
