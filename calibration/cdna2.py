"""Kernels of CDNA 2 by whole steps on Frontier, one number, and the errors of steps that a fit has not seen.

The stack of these steps has values of its code base and of another stack on ROCm, so that what the chip's kernels reach
is all that is fitted: one factor of the rates of products and of flash attention, at which the logarithms of predicted
over measured step times have the mean 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.designs import leaf, replace
from dse.measured.comparison import compare
from dse.measured.prediction import evaluate_many
from dse.types import Design

#: Steps of Dash et al. 2023 (arXiv 2312.12705), in the mappings of their launch scripts.
TABLE = Path("tests/published/frontier_2023.csv")
#: Models whose steps the catalogue is fitted to, all but one.
FITTED = ("GPT-22B", "GPT-175B")

#: Leaves that the factor scales: products, and attention.
RATES = tuple(f"system.accelerator.kernels.{name}_efficiency" for name in ("matrix", "flash"))
#: Newton steps, each with a slope by this change of the logarithm of the factor.
_ROUNDS, _CHANGE = 5, 0.02


class Step(NamedTuple):
    """A measured step."""

    design: Design
    seconds: float
    utilisation: float  #: share of the peak rate, with recompute


class Unseen(NamedTuple):
    """A step that a fit has not seen."""

    efficiency: float  #: of products, as fitted to the other steps
    error: float  #: predicted over measured time, less 1


@functools.cache
def steps(table: Path = TABLE) -> Mapping[str, Step]:
    """The measured steps of a table of hardware FLOP rates: model → step."""
    step_by_model = {}
    for comparison in compare([table]):
        design, measurement = comparison.prediction.chosen, comparison.measurement
        utilisation = measurement.value / float(design.system.accelerator.matrix_rate.fp16)
        step_by_model[measurement.row.get("model")] = Step(design, comparison.measured, utilisation)
    return step_by_model


def log_errors(models: Iterable[str], factor: float = 1.0) -> np.ndarray:
    """Logarithms of predicted over measured step times of models, with the rates of the catalogue times a factor."""
    chosen = [steps()[model] for model in models]
    designs = [
        replace(step.design, {path: factor * float(leaf(step.design, path)) for path in RATES}) for step in chosen
    ]
    return np.log(evaluate_many(designs)["step_time"] / [step.seconds for step in chosen])


@functools.cache
def fitted_factor(models: tuple[str, ...] = FITTED) -> float:
    """The factor of the catalogue's rates by which the mean log error of some models is 0.

    1 where the catalogue has the fit to them.
    """
    log_factor = 0.0
    for _ in range(_ROUNDS):
        error, next_error = (float(np.mean(log_errors(models, math.exp(log_factor + d)))) for d in (0.0, _CHANGE))
        log_factor -= error * _CHANGE / (next_error - error)
    return math.exp(log_factor)


@functools.cache
def unseen_steps() -> Mapping[str, Unseen]:
    """What the fit to all other models makes of the step of each: model → step."""
    unseen_by_model = {}
    for model, step in steps().items():
        factor = fitted_factor(tuple(other for other in steps() if other != model))
        (error,) = log_errors([model], factor)
        unseen_by_model[model] = Unseen(factor * float(leaf(step.design, RATES[0])), math.expm1(error))
    return unseen_by_model
