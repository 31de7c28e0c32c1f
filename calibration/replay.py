"""Measurements replayed on rows left out: how fast regret falls in the order of ``dse measure``, and at random.

A source is left out of the fits. Some of its configurations are a decision: which has the highest utilisation? Each may
be measured, which reveals what its row says; then the belief is updated and the best chosen anew. Regret is the
logarithm of the best utilisation among them over that of the one chosen, both as measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.left_out import StepFit, linear, place
from dse.doors import TRAINING
from dse.lab.decide.worth import Belief, MeasurementCandidate, measurement_value
from dse.lab.fits.step_priors import fitted_as
from dse.lab.fits.step_rows import StepRows, rows_of
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import compare_predictions
from dse.measured.decisions.evidence import RUN_DEVIATION
from dse.measured.names import Lookup
from dse.measured.uncertainty.distance import MeasuredPlaces, distance_levels
from dse.measured.uncertainty.posterior import Choice, Posterior, posterior
from dse.measured.uncertainty.rows import choice_of

#: Designs of a decision, decisions of a source, random orders of each.
DESIGNS, DECISIONS, ORDERS = 8, 40, 10

#: Largest ratio of two predictions of a decision.
NEAR = 1.25


class Rows(NamedTuple):
    """Configurations of a source that was left out."""

    source: str
    choices: list[Choice]
    predicted: np.ndarray  #: log utilisation, without the source
    measured: np.ndarray  #: log utilisation


#: Fewest configurations of a source.
_LEAST = 8


def left_out(tables: Sequence[str | Path]) -> list[Rows]:
    """The largest source of each publisher of dense steps, predicted without it; the one with most rows first."""
    lookup = Lookup()
    cases = [case for path in tables for case in read_cases(path)]
    rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.kernel_families)
    fit = StepFit.of(rows)
    near, size = linear(fit.problem, fit.whole), Counter(map(str, rows.sources))
    largest: dict[str, str] = {}
    for source, count in size.most_common():
        if count >= _LEAST:
            largest.setdefault(source.partition("_")[0].partition(" ")[0], source)
    found = []
    for source in largest.values():
        part = rows.sources == source
        errors = fit.problem.residuals(near.solve(~part, fit.whole.z).z)
        found.append(_of_source(source, rows, part, errors))
    return found


def _of_source(source: str, rows: StepRows, part: np.ndarray, errors: np.ndarray) -> Rows:
    """Configurations of a source; ``errors``: of every row, log(predicted / measured) of the step time."""
    places = [place(c, fitted_as(c.prediction.stack)) for c in rows.compared]
    known = MeasuredPlaces.from_places(p for p, out in zip(places, part, strict=True) if not out)
    members = np.flatnonzero(part)
    choices = [
        choice_of(rows.compared[i].prediction, str(i))._replace(
            levels=distance_levels(places[i], known, is_new_source=True)
        )
        for i in members
    ]
    metrics = [rows.compared[i].prediction.metrics for i in members]
    measured = np.log([m["mfu"] * m["step_time"] for m in metrics]) - rows.measured[members]
    return Rows(source, choices, measured - errors[members], measured)


class Decision(NamedTuple):
    """Some of them, to choose from."""

    belief: Belief
    runs: list[MeasurementCandidate]
    changes: np.ndarray  #: measured over predicted, logarithm
    regrets: np.ndarray  #: of choosing each

    @property
    def regret(self) -> float:
        """Regret of what is believed to be best before any measurement."""
        return float(self.regrets[self.belief.best_design])


#: Picks one of the runs that are left.
Pick = Callable[[Belief, Sequence[MeasurementCandidate]], int]


def by_worth(belief: Belief, runs: Sequence[MeasurementCandidate]) -> int:
    """The run that lowers the expected loss most; where none does, that which tells the designs apart best."""
    return max(range(len(runs)), key=lambda i: (measurement_value(belief, runs[i]), np.ptp(belief.slope(runs[i]))))


def as_believed(belief: Belief, runs: Sequence[MeasurementCandidate]) -> int:
    """The run of the design that is believed to be best among those left."""
    return int(np.argmin([belief.losses[int(one.name)] for one in runs]))


def at_random(rng: np.random.Generator) -> Pick:
    """Any of them."""
    return lambda _, runs: int(rng.integers(len(runs)))


def replayed(decision: Decision, pick: Pick) -> np.ndarray:
    """Regret before any measurement, and after each [measurements + 1]."""
    belief, left, found = decision.belief, list(range(len(decision.runs))), [decision.regret]
    while left:
        place = left.pop(pick(belief, [decision.runs[i] for i in left]))
        belief = belief.after_measurement(decision.runs[place], float(decision.changes[place]))
        found.append(float(decision.regrets[belief.best_design]))
    return np.array(found)


def decisions(rows: Rows, known: Posterior, rng: np.random.Generator) -> Iterator[Decision]:
    """Random decisions between configurations predicted near each other."""
    for _ in range(DECISIONS):
        pivot = rows.predicted[rng.integers(len(rows.predicted))]
        near = np.flatnonzero(np.abs(rows.predicted - pivot) <= 0.5 * np.log(NEAR))
        if len(near) >= 3:
            yield decision(rows, known, rng.permutation(near)[:DESIGNS])


def decision(rows: Rows, known: Posterior, members: np.ndarray) -> Decision:
    """The decision between some configurations of a source."""
    effects = {key: effect[members] for key, effect in known.effects.items() if effect[members].any()}
    own = known._replace(logs=rows.predicted[members], effects=effects)
    runs = [
        MeasurementCandidate(
            str(i), "run", {key: float(e[i]) for key, e in effects.items() if e[i]}, RUN_DEVIATION, 1.0
        )
        for i in range(len(members))
    ]
    measured = rows.measured[members]
    return Decision(
        Belief.from_posterior(own, True), runs, measured - rows.predicted[members], measured.max() - measured
    )


class Curves(NamedTuple):
    """Mean regret of a source's decisions by number of measurements, in each order."""

    source: str
    rows: int
    decisions: int
    regret: Mapping[str, np.ndarray]  #: order → its curve

    def needed(self, order: str, share: float) -> float:
        """Measurements after which a share of the first regret is left; NaN where there was none."""
        return crossing(self.regret[order], share)


#: Orders of measurements.
WORTH, BELIEVED, RANDOM = "dse measure", "best first", "random"


def crossing(curve: np.ndarray, share: float) -> float:
    """Where a curve, linear between its points, last exceeds a share of its beginning."""
    aim = share * curve[0]
    above = np.flatnonzero(curve > aim)
    if not curve[0] > 0.0 or above[-1] + 1 == len(curve):
        return float("nan")
    last = int(above[-1])
    return last + float((curve[last] - aim) / (curve[last] - curve[last + 1]))


def curves(rows: Rows, seed: int = 0) -> Curves | None:
    """Curves of a source; None for one whose decisions are right before any measurement."""
    rng = np.random.default_rng(seed)
    listed = list(decisions(rows, posterior(rows.choices, "mfu", TRAINING), rng))
    if not any(one.regret for one in listed):
        return None
    picks: dict[str, list[Pick]] = {WORTH: [by_worth], BELIEVED: [as_believed], RANDOM: [at_random(rng)] * ORDERS}
    mean = {
        name: np.mean([_whole(replayed(one, pick)) for one in listed for pick in orders], axis=0)
        for name, orders in picks.items()
    }
    return Curves(rows.source, len(rows.choices), len(listed), mean)


def together(found: Sequence[Curves]) -> Curves:
    """The mean of sources, each with the same weight: regret as a share of the first."""
    regret = {
        name: np.mean([one.regret[name] / one.regret[name][0] for one in found], axis=0) for name in found[0].regret
    }
    return Curves("all", sum(one.rows for one in found), sum(one.decisions for one in found), regret)


def _whole(found: np.ndarray) -> np.ndarray:
    """A curve as long as that of the largest decision."""
    return np.pad(found, (0, DESIGNS + 1 - len(found)), mode="edge")
