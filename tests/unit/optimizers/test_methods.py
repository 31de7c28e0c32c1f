"""Every method on a small space of the real model whose optimum is known, against random search."""

import inspect

import jax
import numpy as np
import pytest

from dse.optimizers import space as spaces
from dse.optimizers.driver import METHODS, driver
from dse.optimizers.judging import weights_of
from dse.optimizers.polish import polish
from dse.spec.search import BATCHES, METHOD_OPTIONS
from dse.sweep.engine.engine import SweepEngine
from tests.unit.optimizers.small import best_of, searched, small_problem
from tests.unit.optimizers.toy import CONTINUOUS, MAPPING_AXES, toy_problem

EVALUATIONS = 1500


@pytest.fixture(scope="module")
def task():
    return small_problem()


@pytest.fixture(scope="module")
def optimum(task):
    """The least step time of all, by enumeration."""
    metrics, objectives = SweepEngine(task.grid).designs(np.arange(task.grid.n_designs))
    return np.where(metrics.feasible, objectives[0], np.inf).min()


def gaps(task, name, optimum):
    """Gap to the optimum by seed after the same evaluations."""
    return best_of(searched(task, name, EVALUATIONS)) / optimum - 1.0


@pytest.fixture(scope="module")
def by_chance(task, optimum):
    return gaps(task, "random", optimum)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "random"])
def test_no_method_is_worse_than_random(name, task, optimum, by_chance):
    found = gaps(task, name, optimum)
    assert np.all(found > -1e-5)
    margin = 0.02 if name == "nsga2" else 0.0
    assert np.median(found) <= np.median(by_chance) + margin


def test_the_polish_ends_where_no_neighbour_is_better():
    task = toy_problem(MAPPING_AXES + CONTINUOUS, search='method = "random"')
    one = driver(task, "random")
    one.advance(0, 1)
    weights, start = weights_of(task.spec.seeds, 1), jax.device_get(one.best)
    found, evaluations, _ = polish(task, start, weights)
    assert np.all(found.value <= start.value * (1 + 1e-6)) and np.all(evaluations > 0)
    near, _ = jax.jit(jax.vmap(lambda p: spaces.neighbours(task.space, p, 1e-3)))(found.point)
    around = task.evaluate(near)
    times = np.where(around.violation == 0.0, around.objectives[..., 0], np.inf)
    assert np.all(times >= found.value[:, None] * (1 - 1e-5))
    again = polish(task, found, weights).best
    assert np.array_equal(again.point.digits, found.point.digits)


def test_methods_do_without_anything_to_choose():
    task = toy_problem("tp = [2]", search=f"method = {list(METHODS)}\nseeds = 2")
    for name in METHODS:
        one = driver(task, name)
        one.advance(0, 2)
        assert np.all(np.asarray(one.best.point.digits) == 0), name


def test_every_method_says_what_it_is_and_has_the_options_of_specifications():
    for name, method in METHODS.items():
        assert method.name == name and method.about
        assert set(BATCHES) & set(method.defaults)
        known = inspect.signature(method.make).parameters
        assert [option for option in known if option in method.defaults] == list(method.defaults)
    assert list(METHODS) == list(METHOD_OPTIONS)
