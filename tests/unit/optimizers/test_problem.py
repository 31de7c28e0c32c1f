"""Evaluation for searchers: the sweep's own values, violation graded and 0 where feasible."""

import functools

import jax
import numpy as np
import pytest

from dse.doors import TRAINING
from dse.optimizers import space as spaces
from dse.optimizers.evaluation import Evaluator, padded_values
from dse.optimizers.functions import Penalty, evaluate
from dse.optimizers.judging import Evaluation, best_position, order
from dse.spec.expression import parse
from dse.sweep.engine.engine import SweepEngine
from tests.unit.optimizers.toy import CONTINUOUS, MAPPING_AXES, toy_problem

MORE = """
[constraints]
all = ["peak_memory <= '20 GiB'", "step_time <= 60 or tp > 2"]
[objective]
minimize = "step_time"
maximize = "peak_memory"
"""


@pytest.fixture(scope="module")
def task():
    return toy_problem(more=MORE)


def every_point(task):
    digits, column = task.grid.locate(np.arange(task.grid.n_designs))
    radices = task.space.sizes[task.space.row_digit + 1 :]
    digits = np.stack([*digits, *np.unravel_index(column, radices)], axis=1).astype(np.int32)
    return spaces.Point(digits, np.zeros((len(digits), 0), np.float32))


def test_evaluation_is_that_of_the_sweep(task):
    found = task.evaluate(every_point(task))
    metrics, objectives = SweepEngine(task.grid).designs(np.arange(task.grid.n_designs))
    assert np.allclose(found.objectives, np.stack(objectives, axis=1), rtol=1e-6)
    assert np.array_equal(found.reason, metrics.infeasible_reason)
    assert np.array_equal(np.asarray(found.violation) == 0.0, metrics.feasible)


@pytest.mark.parametrize(
    "axes, platform", [(MAPPING_AXES, "cpu"), (MAPPING_AXES + CONTINUOUS, "cpu"), (MAPPING_AXES + CONTINUOUS, "gpu")]
)
def test_numpy_judges_as_compiled_programs_do(monkeypatch, axes, platform):
    """Values, reasons and slopes of a search of few designs, for which nothing is compiled whatever the device."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    task = toy_problem(axes, more=MORE)
    points = jax.device_get(spaces.sample(task.space, jax.random.key(1), (2500,)))
    values = padded_values(task.space, points, 2048)
    few, many = (Evaluator(task.program, task.grid.base, 64, total) for total in (2500, None))
    assert few.by_numpy and not many.by_numpy and few.size == many.size == 2048
    for name, one, other in zip(Evaluation._fields, few(values, 2500)[0], many(values, 2500)[0], strict=True):
        np.testing.assert_allclose(one[:2500], other[:2500], rtol=2e-5, err_msg=name)
    some = {path: array[:2048] for path, array in values.items()}
    weights = np.tile(np.float32([0.3, 0.7]), (2048, 1))
    penalty = Penalty(weights, np.full(2048, 0.5, np.float32), np.full(2048, 2.0, np.float32))
    (one, slopes), (other, wanted) = (evaluator(some, 300, penalty) for evaluator in (few, many))
    np.testing.assert_allclose(one.violation[:300], other.violation[:300], rtol=2e-5)
    for path in wanted:
        scale = float(np.abs(wanted[path][:300]).max()) or 1.0
        np.testing.assert_allclose(slopes[path][:300], wanted[path][:300], atol=1e-4 * scale, err_msg=path)


def test_violation_grows_with_the_excess(task):
    points = every_point(task)
    found, metrics = task.evaluate(points), task.metrics(points)
    memory = metrics["peak_memory"]
    only_memory = np.asarray(found.reason) == task.study.reason_bits["constraint"]
    fits = metrics["step_time"] <= 60
    chosen = only_memory & fits
    assert chosen.sum() > 10
    by_memory = np.argsort(memory[chosen], kind="stable")
    assert np.all(np.diff(np.asarray(found.violation)[chosen][by_memory]) >= 0)


def test_one_point_is_evaluated_alike(task):
    point = spaces.sample(task.space, jax.random.key(0))
    one = jax.jit(functools.partial(evaluate, task.program, task.grid.base))(spaces.values(task.space, point))
    many = task.evaluate(jax.tree.map(lambda a: a[None], point))
    assert np.allclose(one.objectives, many.objectives[0], rtol=1e-6)
    assert np.allclose(one.violation, many.violation[0], rtol=1e-5)


def test_the_design_is_differentiable():
    task = toy_problem(MAPPING_AXES + '"memory.bandwidth" = { from = 1e12, to = 2e12, continuous = true }')
    point = spaces.sample(task.space, jax.random.key(0))

    def time(real):
        values = spaces.values(task.space, point._replace(reals=real))
        return evaluate(task.program, task.grid.base, values).objectives[0]

    slope = jax.grad(time)(point.reals)
    assert np.all(np.isfinite(slope)) and np.all(slope < 0)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("tp <= 8", {"tp": 8.0}, 0.0),
        ("tp <= 8", {"tp": 24.0}, 0.5),
        ("tp < 8", {"tp": 8.0}, 1e-6),
        ("not tp <= 8", {"tp": 24.0}, 0.0),
        ("tp <= 8 and pp <= 1", {"tp": 24.0, "pp": 3.0}, 1.0),
        ("tp <= 8 or pp <= 1", {"tp": 24.0, "pp": 2.0}, 1 / 3),
        ("not (tp <= 8 or pp <= 1)", {"tp": 24.0, "pp": 2.0}, 0.0),
        ("tp == 8", {"tp": 24.0}, 0.5),
        ("tp != 8", {"tp": 8.0}, 1e-6),
        ("1 <= tp <= 8", {"tp": 4.0}, 0.0),
    ],
)
def test_excess_of_comparisons(text, values, expected):
    expression = parse(text, "test", TRAINING)
    found = expression.excess(lambda path: np.float32(values[path.rpartition(".")[2]]))
    assert np.allclose(found, expected, rtol=1e-5)


def test_the_feasible_come_first_and_ties_go_to_the_lowest_digits():
    violation, value = np.float32([0.5, 0.0, 0.0, 0.0]), np.float32([0.0, 2.0, 1.0, 1.0])
    assert order(violation, value).tolist() == [2, 3, 1, 0]
    digits = np.int32([[0, 0], [0, 0], [1, 2], [1, 1]])
    assert int(best_position(violation, value, digits)) == 3


def test_few_designs_have_the_metrics_of_many(task):
    """The plain model says of some designs what the compiled program says of all, equal ones included."""
    points = every_point(task)
    some = jax.tree.map(lambda a: a[[5, 3, 5]], points)
    few, many = task.metrics(some), task.metrics(points)
    for name, column in many.items():
        assert few[name].dtype == column.dtype, name
        np.testing.assert_allclose(few[name], column[[5, 3, 5]], rtol=1e-6, err_msg=name)
