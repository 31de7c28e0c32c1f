"""The step side of the calibration: the few numbers of each software stack, from measured training steps.

Every stack has the same kinds of numbers. One is drawn around a value that all stacks share, which is fitted too
and is what a stack without measurements gets (a hierarchical prior; Gelman et al., Bayesian Data Analysis, chapter 5):
``z = shared + own`` in prior spreads. All rows of all stacks are fitted at once, on the designs chosen for them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dse.calibrate.fit import MOVED, Parameter, folds
from dse.design import replace
from dse.evaluate import evaluate
from dse.validate import Comparison, compare_predictions, is_timed, step_time

#: What a step can tell of a stack, with what is believed before any step is seen.
PARAMETERS = (
    Parameter("software.matrix_slowdown", 1.15, 0.15, 0.7),
    Parameter("software.elementwise_slowdown", 1.2, 0.3, 0.5),
    Parameter("software.flash_slowdown", 1.0, 0.3, 0.3),
    Parameter("software.host_time", 5e-4, 0.6),
    Parameter("software.communication_slowdown", 1.2, 0.4, 0.5),
    Parameter("software.dp_overlap", 0.8, 0.2, 0.0, 1.0),
    Parameter("software.backward_tp_overlap", 0.5, 0.5, 0.0, 1.0),
    Parameter("software.cp_overlap", 0.8, 0.3, 0.0, 1.0),
    Parameter("software.pp_overlap", 0.5, 0.5, 0.0, 1.0),
    Parameter("software.step_overhead", 5e-3, 1.0),
)  # fmt: skip
