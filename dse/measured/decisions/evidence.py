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

import numpy as np

from dse.designs import leaf, leaves_of
from dse.doors import Study
from dse.errors import InputError
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import Comparison, compare_predictions, step_time
from dse.measured.kinds import KINDS
from dse.measured.uncertainty.parts import figure_of
from dse.measured.uncertainty.posterior import DRAWS, Choice, Posterior, factor_draws, normal_draws, posterior
from dse.measured.uncertainty.rows import choice_of
from dse.types import Design

#: Standard deviation of the log of a run that is repeated: clocks and congestion.
RUN_DEVIATION = 0.02

#: Measured over predicted from which a run is rather a mistake of its unit.
_MAX_RATIO = 10.0

#: Source of rows of traces that ``dse trace`` wrote.
_DSE_TRACE_SOURCE = "profile dse-trace"

#: Records of a design that no time depends on: a row states none of them.
_TIMELESS_RECORDS = ("system.accelerator.made", "system.prices", "system.emissions", "system.reliability")


class Evidence(NamedTuple):
    """Measured figures of designs."""

    choices: list[Choice]
    metrics: list[str]
    measured: np.ndarray  #: logarithm, of SI values [rows]


class PosteriorUpdate(NamedTuple):
    """Change of a posterior by measured rows."""

    shift: np.ndarray  #: of the expected log metric [designs]
    correction: np.ndarray  #: of its draws [designs, draws]; its mean is ``shift``
    deviations: np.ndarray  #: standard deviation of the log metric after them [designs]
    n_design_rows: int  #: rows of the designs themselves


def compared_rows(tables: Sequence[str | Path], where: str) -> list[Comparison]:
    """Compare measured times and rates of tables with their predictions, each once.

    Args:
        tables: CSV files.
        where: option that names them, for messages.

    Returns:
        Comparisons without a skip.

    Raises:
        InputError: without a row that can be predicted, for rows of predictions, and for values off by a factor of 10.
    """
    cases = [case for path in tables for case in read_cases(path)]
    comparisons = compare_predictions(predict_cases(cases))
    usable = (c for c in comparisons if c.skip is None and not c.duplicate)
    rows = [c for c in usable if c.prediction.stack and _is_time_or_rate(c)]
    if not rows:
        reason = next((f" ({c.skip})" for c in comparisons if c.skip), "")
        raise InputError(
            where,
            f"no row that can be predicted{reason}",
            "measured steps or figures of serving",
            "dse validate lists skipped rows",
        )
    if any(c.source == _DSE_TRACE_SOURCE for c in rows):
        raise InputError(
            where,
            "the trace of a prediction",
            "traces and logs of runs",
            "leave out what dse trace wrote: it would narrow spreads without a measurement",
        )
    for c in rows:
        if not 1.0 / _MAX_RATIO < (times := c.measured / c.predicted) < _MAX_RATIO:
            figure_name, got = (
                f"{c.source}: {c.metric}",
                f"{times:.3g} times the predicted {c.predicted:.3g} (SI units)",
            )
            raise InputError(figure_name, got, f"within a factor of {_MAX_RATIO:g}", "check the value and its unit")
    return rows


def _is_time_or_rate(c: Comparison) -> bool:
    """Return True for a compared time or rate, which memory, power and room of a cache do not tell."""
    study = KINDS[c.prediction.case.kind].study
    figure = figure_of(c.metric, study)
    return figure not in (None, "memory") and (bool(study.residuals) or figure == "step")


def figure_of_row(c: Comparison) -> tuple[str, float]:
    """Return (metric, measured value in SI units) that a compared row tells of: of training the step time.

    Args:
        c: a comparison without a skip.
    """
    study = KINDS[c.prediction.case.kind].study
    return (c.metric, c.measured) if study.residuals else (study.objective, step_time(c))


def read_evidence(tables: Sequence[str | Path], study: Study) -> Evidence:
    """Read tables of measured rows as evidence, with the logarithms of their figures.

    Args:
        tables: CSV files.
        study: of the designs.

    Returns:
        The evidence.

    Raises:
        InputError: for rows of another study.
    """
    rows = compared_rows(tables, "--measured")
    if any(KINDS[c.prediction.case.kind].study is not study for c in rows):
        raise InputError("--measured", "rows of another kind", f"rows of {study.name}", "name a table of these alone")
    figures = [figure_of_row(c) for c in rows]
    values = np.log([value for _, value in figures])
    choices = [choice_of(c.prediction, f"row {i}") for i, c in enumerate(rows)]
    return Evidence(choices, [name for name, _ in figures], values)


def gain_of(effects: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the gain ``G`` by which errors of rows tell of factors [factors, rows].

    Args:
        effects: ``C`` [rows, factors].
        noise: standard deviation of what no factor explains [rows].
    """
    gain: np.ndarray = effects.T @ np.linalg.inv(effects @ effects.T + np.diag(noise**2))
    return gain


def condition(prior: Posterior, evidence: Evidence) -> PosteriorUpdate:
    """Return the change of a posterior of designs by measured rows."""
    matches = [
        next((i for i, choice in enumerate(prior.choices) if _takes_same_time(choice, row)), None)
        for row in evidence.choices
    ]
    errors, effects = np.zeros(len(matches)), [dict[str, float]() for _ in matches]
    for metric in dict.fromkeys(evidence.metrics):
        rows = [j for j, name in enumerate(evidence.metrics) if name == metric]
        joint = posterior([*prior.choices, *(evidence.choices[j] for j in rows)], metric, prior.study)
        for row_index, j in enumerate(rows, len(prior.choices)):
            i = row_index if matches[j] is None else matches[j]
            errors[j] = evidence.measured[j] - joint.logs[i]
            effects[j] = {key: float(effect[i]) for key, effect in joint.effects.items() if effect[i]}
    keys = list(dict.fromkeys([*prior.effects, *(key for row_effects in effects for key in row_effects)]))
    row_matrix = np.array([[row_effects.get(key, 0.0) for key in keys] for row_effects in effects])
    design_matrix = prior.effects_of(keys)
    gain = gain_of(row_matrix, np.full(len(errors), RUN_DEVIATION))
    reduced_matrix = design_matrix @ (np.eye(len(keys)) - gain @ row_matrix)
    noise = RUN_DEVIATION * np.array([normal_draws(f"run {j}") for j in range(len(errors))])
    residuals = (
        errors[:, None] - row_matrix @ np.array([factor_draws(key) for key in keys]).reshape(len(keys), DRAWS) - noise
    )
    deviations = np.sqrt(np.maximum((reduced_matrix * design_matrix).sum(axis=1), 0.0))
    return PosteriorUpdate(
        design_matrix @ gain @ errors,
        design_matrix @ gain @ residuals,
        deviations,
        sum(match is not None for match in matches),
    )


def _takes_same_time(first: Choice, second: Choice) -> bool:
    """Return True where stack, chip and all leaves are equal but records of money, carbon and failures."""
    if (first.stack, first.accelerator) != (second.stack, second.accelerator):
        return False
    first_values, second_values = dict(_timed_leaves(first.design)), dict(_timed_leaves(second.design))
    return first_values.keys() == second_values.keys() and all(
        np.isclose(first_values[k], second_values[k], rtol=1e-5) for k in first_values
    )


def _timed_leaves(design: Design) -> Iterator[tuple[str, float]]:
    """Yield (full path, value) of the leaves of a design that a time may depend on."""
    for path in leaves_of(design):
        if not path.startswith(_TIMELESS_RECORDS) and (value := leaf(design, path)) is not None:
            yield path, float(value)
