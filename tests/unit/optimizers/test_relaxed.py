"""The relaxed gradient: slopes along axes, chains and schedules of optax, and limits that bind."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.errors import InputError
from dse.optimizers import space as spaces
from dse.optimizers.judging import Judgement, logarithm
from dse.optimizers.methods import relaxed
from dse.optimizers.methods.base import Fitness
from dse.spec.search import METHOD_OPTIONS, OPTIMIZERS, SCHEDULES
from tests.unit.optimizers.toy import CONTINUOUS, MAPPING_AXES, search, toy_problem

BANDWIDTH = '"power.clock" = { from = "800 MHz", to = "1400 MHz", count = 7 }\n'


@pytest.fixture(scope="module")
def task():
    return toy_problem(MAPPING_AXES + CONTINUOUS + BANDWIDTH, search='method = "relaxed"\nseeds = 2')


def targets(space):
    """Leaves of the continuous axes at a third of their way, on the axis's own scale."""
    return spaces.real_values(space, jnp.full(len(space.paths), 1.0 / 3.0))


def bowl(space, points, wanted, limit=jnp.inf):
    """Fitness of ``ln f = sum of ln(leaf / wanted)^2``, with a violation above ``limit`` of the first leaf."""

    def logarithm_of(values):
        return sum(jnp.log(values[path] / wanted[path]) ** 2 for path in space.paths)

    values = spaces.values(space, points)
    reals = {path: values[path] for path in space.paths}
    first = space.paths[0]

    def lagrangian(reals, multiplier):
        excess = jnp.maximum(jnp.log(reals[first] / limit), 0.0)
        return logarithm_of(reals) + multiplier * excess, excess

    def fitness(multiplier):
        slopes, excess = jax.vmap(jax.grad(lagrangian, has_aux=True))(reals, multiplier)
        all_slopes = {path: slopes.get(path, jnp.zeros(len(multiplier))) for path in spaces.leaf_paths(space)}
        return Fitness(Judgement(excess, jnp.exp(jax.vmap(logarithm_of)(reals))), all_slopes)

    return fitness


def run(space, n_steps, limit=jnp.inf, **options):
    """The state after steps on the bowl."""
    method = relaxed.searcher(**METHOD_OPTIONS["relaxed"] | {"starts": 8, "steps": 100} | options)
    wanted = targets(space)

    def step(state, key):
        state, points = method.propose(key, state, space)
        multiplier, _ = method.penalty(state)
        return method.update(key, state, space, points, bowl(space, points, wanted, limit)(multiplier)), None

    keys = jax.random.split(jax.random.key(1), n_steps)
    state, _ = jax.jit(lambda: jax.lax.scan(step, method.init(jax.random.key(0), space), keys))()
    return state


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [*((name, "exponential") for name in OPTIMIZERS), *(("adam", name) for name in SCHEDULES if name != "exponential")],
)
def test_every_chain_of_optax_finds_the_bottom_of_a_bowl(task, optimizer, schedule):
    state = run(task.space, 200, optimizer=optimizer, schedule=schedule)
    assert float(state.best.value.min()) == pytest.approx(1.0, abs=0.01)
    assert np.all(np.isfinite(state.cube)) and np.all((state.cube >= 0.0) & (state.cube <= 1.0))


def test_a_limit_that_binds_is_met_and_gets_a_price(task):
    """The bottom lies beyond the limit: the best designs stand just within it."""
    path = task.space.paths[0]
    limit = 0.9 * targets(task.space)[path]
    state = run(task.space, 300, limit=limit)
    value = np.asarray(spaces.values(task.space, state.best.points)[path])
    assert np.all(np.asarray(state.best.violation) == 0.0)
    assert np.all(value <= limit) and value.max() > 0.97 * limit
    assert float(state.multiplier.max()) > relaxed.VIOLATION_WEIGHT


def test_slopes_along_axes_are_differences_of_the_model(task):
    """Along continuous axes and lists of hardware: central differences of the logarithm of the objective."""
    space = task.space
    points = spaces.sample(space, jax.random.key(0), (64,))
    _, by_leaf = task.slopes(points)
    along = np.asarray(jax.vmap(lambda p, s: relaxed.slopes_along(space, p, s))(points, by_leaf))
    cube = np.asarray(spaces.encode(space, points))
    assert along.shape == cube.shape

    def difference(axis, step):
        ends = [np.clip(cube + sign * step * np.eye(cube.shape[1])[axis], 1e-6, 1.0 - 1e-6) for sign in (-1, 1)]
        found = [task.evaluate(spaces.decode(space, jnp.asarray(end, jnp.float32))) for end in ends]
        logs = [np.asarray(logarithm(one.objectives[:, 0])) for one in found]
        return (logs[1] - logs[0]) / (ends[1] - ends[0])[:, axis]

    n_discrete = len(space.cube_coordinates)
    clock = [space.names[i] for i in space.cube_coordinates].index("power_clock")
    for axis, step in ((clock, 1.0 / 7.0), (n_discrete, 0.01), (n_discrete + 1, 0.01)):
        inner = (cube[:, axis] > 1.5 * step) & (cube[:, axis] < 1.0 - 1.5 * step)
        np.testing.assert_allclose(along[inner, axis], difference(axis, step)[inner], rtol=0.1, atol=0.01)


def test_a_prediction_follows_logarithms_of_positive_leaves():
    """By hand: slope 2 at 3 is 6 a factor of e; leaves that are 0 at an end change linearly."""
    slopes = {"x": jnp.float32(2.0), "y": jnp.float32(0.5), "z": jnp.float32(9.0)}
    start, end = {"x": jnp.float32(3.0), "y": jnp.float32(0.0)}, {"x": jnp.float32(3.0 * np.e), "y": jnp.float32(4.0)}
    assert float(relaxed.predicted_change(slopes, start, end)) == pytest.approx(6.0 + 2.0)
    assert float(relaxed.predicted_change(slopes, start, end, origin=end)) == pytest.approx(relaxed.STEEPEST + 2.0)


@pytest.mark.parametrize(("option", "known"), [("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)])
def test_bad_chains_are_refused_by_what_there_is(option, known):
    with pytest.raises(InputError) as refused:
        search(search=f'method = "relaxed"\n[search.relaxed]\n{option} = "newton"')
    assert all(name in str(refused.value) for name in known)
