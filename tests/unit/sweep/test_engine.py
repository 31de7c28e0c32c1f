"""Decoding on the device, nested against flat against one by one, and how often anything compiles."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse.designs import replace
from dse.doors import TRAINING
from dse.sweep import execute, plan
from dse.sweep.engine.clock import CompileClock
from dse.sweep.engine.decoding import decode
from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SHORT, SweepEngine
from dse.sweep.engine.nesting import Inner, Nest
from dse.sweep.engine.tables import device_tables
from tests.programs import compiled
from tests.unit.sweep import toy
from tests.unit.sweep.toy import sweep

ORTHOGONAL = 'workload = ["gpt-3-125m", "gpt-3-350m"]\nmemory.bandwidth = ["1 TB/s", "2 TB/s", "3 TB/s"]\n'
SMALL = 'tp = [1, 2]\npp = [1, 2]\nrecompute = ["none", "full"]\noverlap_dp = [false, true]\n' + ORTHOGONAL


@settings(max_examples=50, deadline=None)
@given(radices=st.lists(st.integers(1, 2**29), min_size=1, max_size=5), data=st.data())
def test_device_decodes_as_the_host_does(radices, data):
    total = np.prod([*map(int, radices)], dtype=object)
    start = data.draw(st.integers(0, total - 1))
    digits, rest = [], start
    for radix in reversed(radices):
        rest, digit = divmod(rest, radix)
        digits.append(digit)
    start_digits = jnp.array(digits[::-1], jnp.int32)
    found = np.stack(decode(start_digits, jnp.array(radices, jnp.int32), 64))
    for offset in (0, 1, 31, 63):
        rest, expected = (start + offset) % int(total), []
        for radix in reversed(radices):
            rest, digit = divmod(rest, radix)
            expected.append(digit)
        assert found[:, offset].tolist() == expected[::-1]


def test_start_digits_are_exact_beyond_any_integer():
    grid, _ = plan(sweep(SMALL))
    grid = dataclasses.replace(grid, dimensions=grid.dimensions * 40)  # 6**40 points
    outer = grid.n_outer - 1
    assert outer > 2**63
    options = Inner(tuple(range(len(grid.shape), len(grid.shape) + len(grid.table.options))))
    nest = Nest(grid, options)
    outer = nest.n_outer - 1
    assert outer > 2**63
    assert nest.start_digits(outer) == [size - 1 for size in (*grid.shape, nest.n_mask_rows)]


def one_by_one(grid, model):
    """Metrics of every design of a grid through plain calls, in order."""
    paths = [axis.key for dimension in grid.dimensions for axis in dimension.axes]
    found = []
    for index in range(grid.n_designs):
        digits, column = grid.locate(np.array([index]))
        values = {p: c[digits[-1, 0]] for p, c in grid.table.degrees.items()}
        values |= {p: c[column[0]] for p, c in grid.table.options.items()}
        for dimension, digit in zip(grid.dimensions, digits[:, 0], strict=False):
            values |= {p: c[digit] for p, c in dimension.columns.items()}
        found.append(model(replace(grid.base, {p: jnp.float32(v) for p, v in values.items()})))
    assert paths
    return jax.tree.map(lambda *leaves: np.array(leaves), *found)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("study", [toy.STUDY, TRAINING], ids=["toy", "model"])
def test_nested_is_flat_is_one_by_one(study):
    spec = sweep(SMALL)
    grid, _ = plan(spec, study=study)
    dataset, _ = execute(spec, output=False, study=study)
    flat, _ = SweepEngine(grid).designs(np.arange(grid.n_designs))
    expected = one_by_one(grid, compiled(study.evaluate))
    for name in dataset.data_vars:
        nested = dataset[name].values.reshape(-1)
        np.testing.assert_allclose(nested, getattr(expected, name), rtol=3e-6, err_msg=name)
        np.testing.assert_allclose(nested, getattr(flat, name), rtol=3e-6, err_msg=name)


@pytest.mark.usefixtures("compiled")
def test_one_program_serves_all_chunks_and_other_sweeps_of_the_same_axes():
    execute(sweep(), output=False, study=toy.STUDY, chunk=1000)
    traces, compiled = len(toy.TRACES), CompileClock.read()[2]
    _, summary = execute(sweep(), output=False, study=toy.STUDY, chunk=1000)
    other = "n_layers = 12\nn_heads = 12\nn_kv_heads = 12\nffn_hidden = 48\nglobal_batch = 48"
    _, changed = execute(sweep(workload=other, system="n_devices = 48"), output=False, study=toy.STUDY, chunk=1000)
    assert summary.n_designs > 2000 and changed.n_designs != summary.n_designs
    assert (summary.n_programs, changed.n_programs) == (0, 0)
    assert (len(toy.TRACES), CompileClock.read()[2]) == (traces, compiled)


@pytest.mark.usefixtures("compiled")
def test_two_workloads_of_one_sweep_share_a_program():
    _, summary = execute(sweep("tp = [1, 2]\n" + ORTHOGONAL), output=False, study=toy.STUDY, chunk=7)
    assert summary.n_programs == 1


def test_constant_options_are_no_columns():
    grid, _ = plan(sweep("tp = [1, 2]\nprecision = ['fp16']\nrecompute = ['none', 'full']"))
    assert list(grid.table.options) == ["mapping.recompute"]
    assert grid.base.mapping.precision == 3


def test_chunks_are_as_long_for_any_grid_of_the_same_options():
    engines = [SweepEngine(plan(sweep(system=f"n_devices = {n}"), study=toy.STUDY)[0]) for n in (2, 8, 16)]
    (inner,) = {engine.full_nest.inner for engine in engines}
    lengths = {engine.length(engine.full_nest, CHUNK_FULL) for engine in engines}
    assert inner != Inner() and lengths == {CHUNK_SHORT // engines[0].full_nest.scores_per_outer}


def test_catalogue_names_set_every_leaf_less_what_is_said_apart():
    spec = sweep(
        'system = ["selene", "eos"]\ntp = [1, 2]\n"scale_up.bandwidth" = ["1 TB/s", "2 TB/s"]',
        system='memory.capacity = "50 GB"',
    )
    grid, _ = plan(spec)
    grid = plan(sweep('accelerator = ["a100-sxm-80gb", "h100-sxm-80gb"]\nsystem = ["selene", "eos"]\ntp = [1]'))[0]
    by_name = {dimension.name: set(dimension.columns) for dimension in grid.dimensions}
    assert not by_name["accelerator"] & by_name["system"]
    assert "system.accelerator.vector_rate" in by_name["accelerator"]
    assert "system.scale_out.bandwidth" in by_name["system"] and "software.host_time" in by_name["system"]
    assert device_tables(Nest(grid), grid.columns).outer[0].keys() == by_name["accelerator"]
    grid, _ = plan(spec)
    system, bandwidth = grid.dimensions
    assert "system.scale_up.bandwidth" not in system.columns and "system.scale_up.domain" in system.columns
    assert "system.accelerator.memory.capacity" not in system.columns
    assert grid.base.system.accelerator.memory.capacity == np.float32(50e9)
    assert list(bandwidth.columns) == ["system.scale_up.bandwidth"]


@pytest.mark.slow
def test_fused_outputs_agree_with_plain_ones():
    code = """
import sys
import jax
import numpy as np
from dse.sweep import plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.scores import DesignIndices
from tests.unit.sweep import toy
grid, _ = plan(toy.sweep())
engine = SweepEngine(grid, by_numpy=False)
metrics, _ = engine.full(0, grid.table.n_rows)
at, place, inner = engine.full_nest.mappings_of(np.arange(grid.table.n_rows))
where = DesignIndices(place, inner, engine.full_nest.factor_sizes)
sys.stdout.buffer.write(np.stack([m.select(where).astype(np.float32) for m in jax.tree.leaves(metrics)]).tobytes())
"""
    found = []
    for environment in (os.environ | {"XLA_FLAGS": ""}, {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
        found.append(np.frombuffer(done.stdout, np.float32))
    assert found[0].size > 100_000
    np.testing.assert_allclose(*found, rtol=3e-6)
