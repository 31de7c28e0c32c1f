"""Which axes are the inner product, and that every nest numbers the same designs."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from dse.doors import equations
from dse.sweep import execute, plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.nesting import Nest, axis_dependence, choose, option_axes, work
from tests.sweep import toy
from tests.sweep.toy import MAPPING_AXES, sweep

AXES = MAPPING_AXES + 'memory.bandwidth = ["1 TB/s", "2 TB/s", "3 TB/s"]\nmemory.capacity = ["1 GB", "30 GB"]'


def test_equations_are_counted_by_the_axes_they_depend_on():
    def model(a, b, c):
        return (a + 1.0) * b, jnp.sin(c) * 2.0, c + a

    counted, _ = equations.trace(model, 1.0, 1.0, 1.0)
    only = frozenset
    assert axis_dependence(counted, [0, 1, 2]) == {only([0]): 1, only([0, 1]): 1, only([2]): 2, only([0, 2]): 1}
    assert axis_dependence(counted, [0, None, 2]) == {only([0]): 2, only([2]): 2, only([0, 2]): 1}


def test_work_is_shared_where_one_level_counts():
    counts = {frozenset(): 9, frozenset([0]): 40, frozenset([1]): 7, frozenset([0, 1]): 3}
    assert work(counts, frozenset(), 1) == 8 * 50
    assert work(counts, frozenset([1]), 20) == 8 * 40 / 20 + 3


def test_chosen_axes_reach_little_and_short_products_are_flat():
    counts = {frozenset([0]): 1000, frozenset([0, 1]): 10, frozenset([0, 2]): 500, frozenset([0, 3]): 20}
    assert choose(counts, {1: 4, 2: 64, 3: 8}) == {1, 3}
    assert choose(counts, {1: 2, 3: 2}) == frozenset()


def test_the_model_keeps_what_reaches_most_outside():
    engine = SweepEngine(plan(sweep(AXES))[0])
    inner = {path for i in engine.full_nest.inner_options for path in engine.full_nest.options[i]}
    assert "mapping.overlap_dp" in inner and not inner & {"mapping.tp", "mapping.pp", "mapping.micro_batch"}
    nest = engine.score_nest(by_point=False)
    names = [nest.grid.dimensions[i].name for i in nest.inner_dimensions]
    assert names == ["memory_capacity"]


@pytest.mark.parametrize("dimensions", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("options", [(), (0, 3), (0, 1, 2, 3, 4)])
def test_every_nest_numbers_the_same_designs(dimensions, options):
    grid, _ = plan(sweep(AXES))
    nest = Nest(grid, dimensions, options)
    outer, inner = np.divmod(np.arange(nest.n_lines * nest.outer_a_line * nest.n_inner), nest.n_inner)
    digits = np.unravel_index(outer, nest.outer_shape)
    n_points = len(nest.outer_dimensions)
    is_mapping = nest.distinct[*digits[n_points:], inner % nest.distinct.shape[-1]]
    index = nest.design_index(outer[is_mapping], inner[is_mapping])
    np.testing.assert_array_equal(np.sort(index), np.arange(grid.n_designs))
    columns = nest.inner_columns()
    for path, column in grid.table.options.items():
        if path in columns:
            np.testing.assert_array_equal(column[grid.locate(index)[1]], columns[path][inner[is_mapping]])


def test_zipped_options_stay_one_axis():
    zipped = plan(sweep(more='[zip]\ngroups = [["overlap_dp", "overlap_tp"]]'))[0]
    assert len(option_axes(zipped)) == 1
    assert len(option_axes(plan(sweep())[0])) == 5


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_results_do_not_depend_on_the_nest(monkeypatch):
    spec = sweep(AXES, more='[objective]\nminimize = ["step_time", "peak_memory"]')
    for keep in ("all", "top:40", "best", "pareto"):
        found = []
        for dimensions, options in itertools.product([(), (1,)], [(), (3,), (0, 2, 4)]):
            points_stay_apart = keep in ("all", "best")
            nest = Nest(plan(spec)[0], () if points_stay_apart else dimensions, options)
            monkeypatch.setattr(SweepEngine, "_nests", (nest, nest))
            found.append(execute(spec, output=False, keep=keep, chunk=900, study=toy.STUDY))
        for dataset, summary in found[1:]:
            xr.testing.assert_allclose(dataset, found[0][0], rtol=1e-6)
            assert (summary.reasons, summary.n_feasible) == (found[0][1].reasons, found[0][1].n_feasible)
