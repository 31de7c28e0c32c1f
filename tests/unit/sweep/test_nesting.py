"""Which axes are the inner product, and that every nest numbers the same designs."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from dse.equations import recording
from dse.sweep import execute, plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.nesting import Dependence, Inner, Nest, axis_dependence, choose_inner, cost_per_design
from dse.sweep.engine.options import option_axes
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

AXES = MAPPING_AXES + 'memory.bandwidth = ["1 TB/s", "2 TB/s", "3 TB/s"]\nmemory.capacity = ["1 GB", "30 GB"]'


def test_equations_are_counted_by_the_axes_they_depend_on():
    def model(a, b, c):
        return (a + 1.0) * b, jnp.sin(c) * 2.0, c + a

    counted, _ = recording.trace(model, 1.0, 1.0, 1.0)
    found = axis_dependence(counted, [0, 1, 2])
    assert found.counts == {0b001: 1, 0b011: 1, 0b100: 2, 0b101: 1}
    assert found.outputs == {0b011, 0b100, 0b101}
    assert found.passed == {(0b001, 0b011): 1, (0b100, 0b100): 1}, "what is used once more, and where"
    assert axis_dependence(counted, [0, None, 2]).counts == {0b001: 2, 0b100: 2, 0b101: 1}
    assert axis_dependence(counted, [0, 1, 2], counted.outputs[1:2]).counts == {0b100: 2}, "what a goal does not need"


def dependence(counts, goals=(), passed=()):
    """Equations by the axes that they depend on, these as tuples."""
    bits = lambda axes: sum(1 << axis for axis in axes)  # noqa: E731
    passed = {(bits(axes), bits(users)): n for axes, users, n in passed}
    return Dependence({bits(axes): n for axes, n in counts.items()}, passed, frozenset(map(bits, goals)))


def test_work_is_shared_where_one_level_counts():
    found = dependence({(): 9, (0,): 40, (1,): 7, (0, 1): 3})
    assert cost_per_design(found, Inner(), {1: 20}) == 3 * 50
    assert cost_per_design(found, Inner((1,)), {1: 20}) == 3 * 40 / 20 + 10 + 8
    assert cost_per_design(found, Inner((1,)), {1: 20}, 0.5) == 2 * cost_per_design(found, Inner((1,)), {1: 20})


def test_parts_share_what_depends_on_one_of_them():
    counts = {(0,): 40, (0, 1): 100, (0, 2): 50, (0, 1, 2): 6}
    joined = dependence(counts, [(0, 1, 2)], [((0, 1), (0, 1, 2), 3), ((0, 2), (0, 2), 9)])
    sizes = {1: 10, 2: 20}
    assert (
        cost_per_design(joined, Inner((1,), (2,)), sizes)
        == (3 * 40 + 10 * 100 + 20 * 50 + 200 * 6 + 10 * 8 * 3) / 200 + 8
    )
    assert choose_inner(joined, sizes) == Inner((1,), (2,))
    del counts[0, 1, 2]
    apart = dependence(counts, [(0, 1), (0, 2)])
    assert choose_inner(apart, sizes) == Inner((1,), (2,), separable=True)
    assert choose_inner(apart, sizes, unsplit_axes=(1, 2)) == Inner((1,), (2,))


def test_chosen_axes_reach_little_and_short_products_are_flat():
    found = dependence({(0,): 1000, (0, 1): 10, (0, 2): 500, (0, 3): 20}, [(0, 1, 2, 3)])
    assert (
        set(choose_inner(found, {1: 4, 2: 64, 3: 8}).first) == {1, 3} or choose_inner(found, {1: 4, 2: 64, 3: 8}).second
    )
    assert choose_inner(found, {1: 2, 3: 2}) == Inner()


def test_the_model_keeps_what_reaches_most_outside():
    engine = SweepEngine(plan(sweep(AXES))[0])
    inner = {path for axis in engine.full_nest.inner_axes for path in engine.full_nest.axes[axis]}
    assert "mapping.overlap_dp" in inner and not inner & {"mapping.tp", "mapping.pp", "mapping.micro_batch"}
    capacities = "memory.capacity = { from = '1 GB', to = '60 GB', count = 60 }"
    nest = SweepEngine(plan(sweep(f"{AXES.rpartition(chr(10))[0]}\n{capacities}"))[0]).score_nest(by_point=False)
    parts = [{path for axis in part for path in nest.axes[axis]} for part in nest.inner[:2]]
    assert {"system.accelerator.memory.capacity"} in parts


def test_capacity_stays_apart_from_what_takes_time():
    """In a billion designs no score needs both, and no reason."""
    engine = SweepEngine(plan(Path(__file__).parents[3] / "sweeps" / "billion_designs.toml")[0])
    nest = engine.score_nest(by_point=False)
    parts = [{path for axis in part for path in nest.axes[axis]} for part in nest.inner[:2]]
    assert nest.inner.separable and {"system.accelerator.memory.capacity"} in parts


NESTS = [
    Inner(), Inner((0,)), Inner((0, 1)), Inner((2, 5)), Inner((1, 3), (0, 2)), Inner((5,), (0, 1)),
    Inner((0, 5), (1,), separable=True), Inner((2, 3, 4, 5, 6)), Inner((3, 6), (2, 4, 5)),
    Inner((1,), (0, 5, 6), separable=True),
]  # fmt: skip


@pytest.mark.parametrize("inner", NESTS)
def test_every_nest_numbers_the_same_designs(inner):
    grid, _ = plan(sweep(AXES))
    nest = Nest(grid, inner)
    outer, inner = np.divmod(np.arange(nest.n_outer * nest.n_inner), nest.n_inner)
    is_mapping = nest.mask[outer % nest.n_mask_rows, nest.mask_columns(nest.inner_axes)[inner]]
    assert nest.mask.any(axis=1).all(), "a place without a mapping"
    index = nest.design_index(outer[is_mapping], inner[is_mapping])
    np.testing.assert_array_equal(np.sort(index), np.arange(grid.n_designs))
    values, digits = grid.values(index), np.unravel_index(outer[is_mapping], nest.outer_shape)
    for columns, digit in zip(nest.outer_columns(), digits, strict=True):
        for path, column in columns.items():
            np.testing.assert_array_equal(values[path], column[digit])
    columns = nest.columns_along(nest.inner_axes)
    for path, column in grid.table.options.items():
        if path in columns:
            np.testing.assert_array_equal(column[grid.locate(index)[1]], columns[path][inner[is_mapping]])


@pytest.mark.parametrize("inner", NESTS)
def test_lines_begin_where_their_outer_indices_do(inner):
    nest = Nest(plan(sweep(AXES))[0], inner)
    first = [nest.line_start(line) for line in range(nest.n_lines + 1)]
    assert (first[0], first[-1]) == (0, nest.n_outer) and (np.diff(first) > 0).all()
    for lines in (1, 2, nest.grid.table.n_rows, nest.n_lines):
        starts = range(nest.n_lines - lines + 1)
        assert nest.max_outer_in(lines) == max(first[start + lines] - first[start] for start in starts)


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
        for inner in NESTS:
            if keep in ("all", "best") and (inner.separable or {0, 1} & {*inner.first, *inner.second}):
                continue
            nest = Nest(plan(spec)[0], inner)
            for name in ("full_nest", "_joint_nest"):
                monkeypatch.setattr(SweepEngine, name, nest)
            found.append(execute(spec, output=False, keep=keep, chunk=900, study=toy.STUDY))
        for dataset, summary in found[1:]:
            xr.testing.assert_allclose(dataset, found[0][0], rtol=1e-6)
            assert (summary.reasons, summary.n_feasible) == (found[0][1].reasons, found[0][1].n_feasible)
