"""Searches serve any kind of study unchanged."""

import dataclasses

import numpy as np
import pytest

from dse.doors import TRAINING
from dse.optimizers import execute
from dse.spec import search as spec
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.grid import compose
from tests.toy_study import ANSWERING
from tests.unit.optimizers.toy import text

AXES = """
tp = "divisors"
pp = [1, 2]
micro_batch = [1, 2, 4]
recompute = ["none", "full"]
"""


def test_another_kind_of_study_is_searched():
    """Its own objective, metrics, units and reasons; the best design is that of all."""
    asked = spec.from_text(text(AXES, search="evaluations = 640\nseeds = 2"), study=ANSWERING)
    found, outcome = execute(asked, output=False)
    grid = compose.build(asked.sweep)
    metrics, (latency,) = SweepEngine(grid).designs(np.arange(grid.n_designs))
    assert outcome.objectives == ("latency",)
    assert outcome.designs[0].objectives[0] == pytest.approx(latency[np.asarray(metrics.feasible)].min(), rel=1e-6)
    assert found.latency.units == "s" and "step_time" not in found
    assert set(outcome.designs[0].metrics) == set(asked.sweep.metrics)
    assert set(outcome.reasons) <= set(ANSWERING.reason_bits)


def test_a_study_in_place_of_the_specifications_has_its_metrics():
    other = dataclasses.replace(TRAINING, name="stand-in")
    assert spec.from_text(text(AXES), study=other).sweep.study is other
