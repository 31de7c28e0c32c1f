r"""Measured rows as evidence in a decision: what is believed of its designs after them.

A row of one of the designs tells of all that is not known of it, a row of another one of what both have in common. With
errors ``e`` (measured over predicted, logarithm), effects ``C`` of the factors of
:class:`dse.measured.uncertainty.posterior.Posterior` on the rows and noise ``n`` of a run,

.. math:: E[z \mid e] = G e, \quad \mathrm{Cov}[z \mid e] = I - G C, \quad G = C^\top (C C^\top + n^2 I)^{-1},

and a draw ``z`` of before becomes one of after as ``z + G (e - C z - n \varepsilon)`` (Matheron's rule: Journel and
Huijbregts, *Mining Geostatistics*, 1978).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from dse.doors.study import Study
from dse.errors import InputError
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import Comparison, compare_predictions, step_time
from dse.measured.kinds import KINDS
from dse.measured.uncertainty.parts import figure_of
from dse.measured.uncertainty.posterior import DRAWS, Choice, Posterior, draws_of, normal, posterior
from dse.measured.uncertainty.rows import choice_of
from dse.types import Design

#: Standard deviation of the log of a run that is repeated: clocks and congestion.
RUN = 0.02

#: Measured over predicted from which a run is rather a mistake of its unit.
_FAR = 10.0

#: Source of rows of traces that ``dse trace`` wrote.
_PREDICTED = "profile dse-trace"

#: Records of a design that no time depends on: a row states none of them.
_UNTIMED = (".system.accelerator.made", ".system.prices", ".system.emissions", ".system.reliability")


class Evidence(NamedTuple):
    """Measured figures of designs."""

    choices: list[Choice]
    metrics: list[str]
    measured: np.ndarray  #: logarithm, of SI values [rows]


class Conditioned(NamedTuple):
    """What measured rows change of a posterior."""

    shift: np.ndarray  #: of the expected log metric [designs]
    correction: np.ndarray  #: of its draws [designs, draws]; its mean is ``shift``
    deviations: np.ndarray  #: standard deviation of the log metric after them [designs]
    own: int  #: rows of the designs themselves


def compared_rows(tables: Sequence[str | Path], where: str) -> list[Comparison]:
    """Measured times and rates of tables with their predictions, each once; InputError without any."""
    cases = [case for path in tables for case in read_cases(path)]
    every = compare_predictions(predict_cases(cases))
    usable = (c for c in every if c.skip is None and not c.duplicate)
    found = [c for c in usable if c.prediction.stack and _tells(c)]
    if not found:
        reason = next((f" ({c.skip})" for c in every if c.skip), "")
        raise InputError(
            where,
            f"no row that can be predicted{reason}",
            "measured steps or figures of serving",
            "dse validate lists skipped rows",
        )
    if any(c.source == _PREDICTED for c in found):
        raise InputError(
            where,
            "the trace of a prediction",
            "traces and logs of runs",
            "leave out what dse trace wrote: it would narrow spreads without a measurement",
        )
    for c in found:
        if not 1.0 / _FAR < (times := c.measured / c.predicted) < _FAR:
            at, got = f"{c.source}: {c.metric}", f"{times:.3g} times the predicted {c.predicted:.3g} (SI units)"
            raise InputError(at, got, f"within a factor of {_FAR:g}", "check the value and its unit")
    return found


def _tells(c: Comparison) -> bool:
    """Whether a compared row is a time or rate: memory, power and room of a cache tell nothing of these."""
    study = KINDS[c.prediction.case.kind].study
    figure = figure_of(c.metric, study)
    return figure not in (None, "memory") and (bool(study.residuals) or figure == "step")


def figure_of_row(c: Comparison) -> tuple[str, float]:
    """The metric that a compared row tells of, and its measured value in SI units: of training the step time."""
    study = KINDS[c.prediction.case.kind].study
    return (c.metric, c.measured) if study.residuals else (study.objective, step_time(c))


def read(tables: Sequence[str | Path], study: Study) -> Evidence:
    """The evidence of tables of measured rows; InputError for rows of another study."""
    found = compared_rows(tables, "--measured")
    if any(KINDS[c.prediction.case.kind].study is not study for c in found):
        raise InputError("--measured", "rows of another kind", f"rows of {study.name}", "name a table of these alone")
    figures = [figure_of_row(c) for c in found]
    values = np.log([value for _, value in figures])
    choices = [choice_of(c.prediction, f"row {i}") for i, c in enumerate(found)]
    return Evidence(choices, [name for name, _ in figures], values)


def gain_of(effects: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """``G``, by which errors of rows tell of factors [factors, rows].

    Args:
        effects: ``C`` [rows, factors].
        noise: standard deviation of what no factor explains [rows].
    """
    found: np.ndarray = effects.T @ np.linalg.inv(effects @ effects.T + np.diag(noise**2))
    return found


def conditioned(known: Posterior, evidence: Evidence) -> Conditioned:
    """What measured rows change of a posterior of designs."""
    place = [next((i for i, one in enumerate(known.choices) if _same(one, row)), None) for row in evidence.choices]
    errors, effects = np.zeros(len(place)), [dict[str, float]() for _ in place]
    for metric in dict.fromkeys(evidence.metrics):
        rows = [j for j, name in enumerate(evidence.metrics) if name == metric]
        both = posterior([*known.choices, *(evidence.choices[j] for j in rows)], metric, known.study)
        for at, j in enumerate(rows, len(known.choices)):
            i = at if place[j] is None else place[j]
            errors[j] = evidence.measured[j] - both.logs[i]
            effects[j] = {key: float(effect[i]) for key, effect in both.effects.items() if effect[i]}
    keys = list(dict.fromkeys([*known.effects, *(key for one in effects for key in one)]))
    of_rows = np.array([[one.get(key, 0.0) for key in keys] for one in effects])
    of_designs = np.zeros((len(known.logs), len(keys)))
    of_designs[:, : len(known.effects)] = known.matrix
    gain = gain_of(of_rows, np.full(len(errors), RUN))
    after = of_designs @ (np.eye(len(keys)) - gain @ of_rows)
    noise = RUN * np.array([normal(f"run {j}") for j in range(len(errors))])
    left = errors[:, None] - of_rows @ np.array([draws_of(key) for key in keys]).reshape(len(keys), DRAWS) - noise
    deviations = np.sqrt(np.maximum((after * of_designs).sum(axis=1), 0.0))
    return Conditioned(
        of_designs @ gain @ errors, of_designs @ gain @ left, deviations, sum(one is not None for one in place)
    )


def _same(one: Choice, other: Choice) -> bool:
    """Whether two designs take the same time: equal in all but records of money, carbon and failures."""
    if (one.stack, one.accelerator) != (other.stack, other.accelerator):
        return False
    left, right = dict(_timed(one.design)), dict(_timed(other.design))
    return left.keys() == right.keys() and all(np.isclose(left[k], right[k], rtol=1e-5) for k in left)


def _timed(design: Design) -> Iterator[tuple[str, float]]:
    for path, value in jax.tree_util.tree_leaves_with_path(design):
        if not (name := jax.tree_util.keystr(path)).startswith(_UNTIMED):
            yield name, float(value)
