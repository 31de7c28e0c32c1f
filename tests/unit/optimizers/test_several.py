"""Several objectives: what is told as best is the end of the front, and never above it."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from dse.io.quantities import displayed_value
from dse.optimizers import execute, pareto
from dse.optimizers.progress import BestValue, SearchProgress
from tests.unit.optimizers.toy import CONTINUOUS, MAPPING_AXES, search
from tests.unit.sweep import toy

TWO = '[objective]\nminimize = ["step_time", "peak_memory"]'


@pytest.fixture(scope="module")
def progress() -> list[SearchProgress]:
    return []


@pytest.fixture(scope="module")
def found(progress):
    """Results and outcome of two methods."""
    spec = search(
        MAPPING_AXES + CONTINUOUS, more=TWO, search='method = ["evolution", "random"]\nevaluations = 320\nseeds = 2'
    )
    return execute(spec, False, study=toy.STUDY, progress=progress.append)


def objectives_of(results):
    return np.stack([results.front_step_time.values, results.front_peak_memory.values], axis=1)


def test_the_designs_that_are_told_are_the_ends_of_the_front_and_some_between(found):
    results, outcome = found
    front = objectives_of(results)
    first, last = outcome.front[0], outcome.front[-1]
    assert first.best_in == ("step_time",) and last.best_in == ("peak_memory",)
    assert displayed_value(first.objectives[0], "s") == displayed_value(front[:, 0].min(), "s")
    assert displayed_value(last.objectives[1], "B") == displayed_value(front[:, 1].min(), "B")
    assert all(not one.best_in for one in outcome.front[1:-1]) and 2 < len(outcome.front) <= 12
    every = {tuple(row) for row in front.tolist()}
    assert {one.objectives for one in outcome.front} <= every
    assert all(one.metrics["step_time"] == pytest.approx(one.objectives[0]) for one in outcome.front)


def test_nothing_that_is_told_of_the_front_reads_as_equal_or_worse(found):
    read = [
        (displayed_value(one.objectives[0], "s"), displayed_value(one.objectives[1], "B")) for one in found[1].front
    ]
    for (time, memory), (later, less) in itertools.pairwise(read):
        assert later > time and less < memory
    assert len(read) <= found[1].front_distinct <= found[1].front_size == len(objectives_of(found[0]))


def test_the_best_of_each_objective_is_that_of_the_front(found):
    results, outcome = found
    least = objectives_of(results).min(axis=0)
    assert outcome.best == pytest.approx(dict(zip(("step_time", "peak_memory"), least.tolist(), strict=True)))
    assert json.loads(results.attrs["best"]) == outcome.best
    assert all(np.all(np.array(one.best) >= least * (1 - 1e-6)) for one in outcome.fronts.values())
    assert {one.gap for one in outcome.designs} == {one.gap_unpolished for one in outcome.designs} == {None}


def test_the_front_has_what_the_polish_has_found(found):
    """No design that the file holds beats the front, the best of each seed among them."""
    results, _ = found
    front = objectives_of(results)
    assert len(pareto.front(front)) == len(front)
    seeds = np.stack([results.step_time.values.ravel(), results.peak_memory.values.ravel()], axis=1)
    joined = pareto.front(np.concatenate([front, seeds]).astype(np.float32))
    assert len(joined) == len(front)


def test_histories_are_of_each_objective(found):
    results, outcome = found
    for name, text, units in (("best_objective", "step_time", "s"), ("best_objective_2", "peak_memory", "B")):
        variable = results[name]
        assert variable.attrs == {"units": units, "long_name": f"best feasible {text} so far"}
        best = variable.sel(searcher="evolution").values
        assert np.all(np.diff(best[:, np.isfinite(best).all(axis=0)], axis=1) <= 0.0)
        assert np.nanmin(variable.values) >= outcome.best[text] * (1 - 1e-6)


def test_the_file_says_how_far_each_method_has_come(found):
    results, outcome = found
    assert results.designs_on_front.values.tolist() == [one.size for one in outcome.fronts.values()]
    volumes = results.hypervolume.values
    assert np.all((volumes > 0.0) & (volumes <= 1.0))
    front = objectives_of(results).astype(float)
    bound, ideal = pareto.reference(front), front.min(axis=0)
    whole = pareto.hypervolume(front, bound) / np.prod(bound - ideal)
    assert volumes.max() <= whole * (1 + 1e-6)
    assert "front" in results.attrs["seeds_seek"]


def test_progress_tells_the_front_and_the_best_of_each(found, progress):
    last = [state for state in progress if state.method == "evolution"][-1]
    assert last.front_size > 0 and last.best <= np.nanmin(found[0].best_objective.sel(searcher="evolution")) * 1.00001
    assert "on the front, best step time" in str(last) and "best peak memory" in str(last)
    none = dataclasses.replace(last, best=None, others=(BestValue("peak_memory", None, "B"),), front_size=0)
    assert str(none).endswith("designs/s, none feasible yet")


def test_one_objective_has_no_front():
    results, outcome = execute(
        search(MAPPING_AXES, search='method = "random"\nevaluations = 64\nseeds = 1'), False, study=toy.STUDY
    )
    assert outcome.front == () and outcome.fronts == {} and outcome.designs[0].gap == 0.0
    assert outcome.best["step_time"] == outcome.designs[0].objectives[0]
    assert not {"best_objective_2", "hypervolume", "designs_on_front"} & set(results.variables)


def test_shares_of_the_box():
    one, other = np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[1.0, 2.0]])
    # The box goes from (1, 1) to a tenth beyond (2, 2).
    assert pareto.shares([one, other]) == pytest.approx([(1.44 - 1.0) / 1.44, 1.2 * 0.2 / 1.44])
    assert pareto.shares([np.zeros((0, 2))]) == [None]
    assert pareto.shares([np.ones((5, 4))]) == [None]
    assert pareto.reference(np.array([[-4.0, 1.0], [-2.0, 3.0]])) == pytest.approx([-1.8, 3.3])
