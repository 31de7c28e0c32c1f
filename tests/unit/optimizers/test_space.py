"""Laws of the space: onto the valid mappings and nothing else, representatives, neighbours, exact size."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.optimizers import space as spaces
from dse.optimizers.space import Point
from dse.sweep import from_text, plan
from tests.conftest import full_size
from tests.unit.optimizers.toy import CONTINUOUS, MAPPING_AXES, text, toy_problem

WORKLOADS = MAPPING_AXES + "global_batch = [16, 32, 48]\nn_devices = [8, 16]\nseq_len = [32, 64]\n"


@pytest.fixture(scope="module", params=["mapping", "joint", "continuous"])
def task(request):
    axes = {"mapping": MAPPING_AXES, "joint": WORKLOADS, "continuous": WORKLOADS + CONTINUOUS}[request.param]
    return toy_problem(axes)


def sampled(task, n=500, seed=0):
    return spaces.sample(task.space, jax.random.key(seed), (n,))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def designs_of(grid):
    """Digits of every design of a grid."""
    digits, column = grid.locate(np.arange(grid.n_designs))
    options = grid.table.options
    radices = [len(np.unique(values)) for values in options.values()]
    return set(map(tuple, np.stack([*digits, *np.unravel_index(column, radices)], axis=1).tolist()))


def test_every_coordinate_decodes_to_a_design_and_every_design_is_reached():
    task = toy_problem()
    every = np.array(list(itertools.product(*map(range, task.space.radices))), np.int32)
    points = jax.jit(spaces.from_coordinates)(task.space, every, np.zeros((len(every), 0), np.float32))
    assert set(map(tuple, np.asarray(points.digits).tolist())) == designs_of(task.grid)


def test_the_size_is_that_of_the_sweeps_grid():
    task = toy_problem()
    assert task.space.size == task.grid.n_designs == len(designs_of(task.grid))


def test_the_size_counts_for_each_shape_its_own_mappings():
    sizes = itertools.product((16, 32, 48), (8, 16), (32, 64))
    axes = [f"{MAPPING_AXES}global_batch = [{b}]\nn_devices = [{n}]\nseq_len = [{s}]" for b, n, s in sizes]
    each = [plan(from_text(text(one).split("[search]")[0]))[0] for one in axes]
    task = toy_problem(WORKLOADS)
    assert task.space.n_designs == sum(grid.n_designs for grid in each) < task.grid.n_designs


def test_continuous_axes_make_the_space_infinite():
    assert toy_problem(MAPPING_AXES + CONTINUOUS).space.size == float("inf")


def test_sampled_and_decoded_points_are_their_own_representatives(task):
    cube = jax.random.uniform(jax.random.key(1), (500, task.space.n_cube), minval=-0.2, maxval=1.2)
    for points in (sampled(task), spaces.decode(task.space, cube)):
        assert same(spaces.canonical(task.space, points), points)


def test_decoded_points_divide_what_they_must(task):
    found = {path: np.asarray(v) for path, v in spaces.values(task.space, sampled(task)).items()}

    plain = {"system.n_devices": 16, "workload.global_batch": 32}

    def value(name):
        return found.get(name, np.float32(plain.get(name, 1)))

    tp, pp, dp = (value(f"mapping.{name}") for name in ("tp", "pp", "dp"))
    batch, micro, v = value("workload.global_batch"), value("mapping.micro_batch"), value("mapping.virtual_stages")
    assert np.all(tp * pp * dp == value("system.n_devices"))
    assert np.all(batch % (dp * micro) == 0)
    assert np.all(-8 % (pp * v) <= 2)  # loss and embedding may count as layers
    assert np.all(8 % tp == 0)
    assert np.all((v == 1) | ((pp > 1) & (batch / (dp * micro) % pp == 0)))
    assert np.all((value("mapping.sequence_parallel") == 0) | (tp > 1))
    assert np.all((value("mapping.zero_stage") == 0) | (dp > 1))


def test_the_middle_of_a_cell_decodes_to_its_design(task):
    points = sampled(task)
    again = spaces.decode(task.space, spaces.encode(task.space, points))
    assert np.array_equal(again.digits, points.digits)
    assert np.allclose(again.reals, points.reals)


def test_continuous_axes_reach_both_ends():
    space = toy_problem(MAPPING_AXES + CONTINUOUS).space
    low, high = (spaces.real_values(space, jnp.full(2, end)) for end in (0.0, 1.0))
    path = "system.accelerator.memory."
    assert np.allclose([low[path + "bandwidth"], high[path + "bandwidth"]], [1e12, 3e12])
    assert np.allclose([low[path + "capacity"], high[path + "capacity"]], [40 * 2**30, 80 * 2**30])
    middle = spaces.real_values(space, jnp.full(2, 0.5))
    assert np.allclose(middle[path + "bandwidth"], np.sqrt(3) * 1e12)
    assert np.allclose(middle[path + "capacity"], 60 * 2**30)


def test_neighbours_are_designs_one_step_away_and_symmetric(task):
    near = jax.jit(jax.vmap(lambda p: spaces.neighbours(task.space, p, 0.25)))
    points = sampled(task, full_size(15, 60))
    points = points._replace(reals=jnp.round(points.reals * 4.0) / 4.0)
    found, exact = near(points)
    assert found.digits.shape[1] == task.space.n_directions
    assert np.all(exact.sum(axis=1) > 0)
    back, is_exact = near(jax.tree.map(lambda a: a.reshape(exact.size, a.shape[-1]), found))
    back = jax.tree.map(lambda a: np.asarray(a).reshape(*exact.shape, *a.shape[1:]), back)
    digits, reals = (np.asarray(a)[:, None, None] for a in points)
    mine = np.all(back.digits == digits, axis=-1) & np.all(np.abs(back.reals - reals) < 1e-6, axis=-1)
    returns = np.any(mine & np.asarray(is_exact).reshape(mine.shape), axis=2)
    assert np.all(returns[np.asarray(exact)])


def test_neighbours_connect_all_designs():
    task = toy_problem('tp = "divisors"\npp = "divisors"\nmicro_batch = "divisors"\nrecompute = ["none", "full"]')
    near = jax.jit(jax.vmap(lambda p: spaces.neighbours(task.space, p)))
    seen = {tuple(np.asarray(sampled(task, 1).digits[0]).tolist())}
    fresh = set(seen)
    while fresh:
        digits = np.zeros((task.space.n_designs, len(task.space.sizes)), np.int32)
        digits[: len(fresh)] = sorted(fresh)
        digits[len(fresh) :] = digits[0]
        found, _ = near(Point(digits, np.zeros((len(digits), 0), np.float32)))
        fresh = set(map(tuple, np.asarray(found.digits).reshape(-1, digits.shape[1]).tolist())) - seen
        seen |= fresh
    assert len(seen) == task.space.n_designs


def test_every_design_may_be_sampled():
    task = toy_problem('tp = [1, 2]\npp = [1, 2]\nrecompute = ["none", "full"]\noverlap_tp = [false, true]')
    digits, counts = np.unique(np.asarray(sampled(task, 8000).digits), axis=0, return_counts=True)
    assert len(digits) == task.space.n_designs
    assert counts.min() > 0.7 * counts.mean()
