"""Small sweeps by NumPy: what is kept of them is what compiled programs keep."""

import jax
import numpy as np
import pytest

import dse
from dse.sweep import execute, plan
from dse.sweep.engine import engine
from dse.sweep.engine.clock import CompileClock
from dse.sweep.engine.engine import SweepEngine
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

AXES = MAPPING_AXES + 'memory.bandwidth = ["1 TB/s", "2 TB/s"]\nmemory.capacity = ["1 kB", "30 GB", "90 GB"]'
MORE = '[objective]\nminimize = ["step_time", "peak_memory"]\n[output]\nhistogram = 12\n'


def both_ways(monkeypatch, run):
    """What ``run`` gives by NumPy, then by compiled programs."""
    plain = run()
    monkeypatch.setattr(engine, "MAX_NUMPY_DESIGNS", 0)
    return plain, run()


@pytest.mark.parametrize(
    "mode, platform",
    [*((mode, "cpu") for mode in ("all", "feasible", "best", "top:7", "pareto")), ("all", "gpu"), ("pareto", "gpu")],
)
def test_every_mode_keeps_the_same(monkeypatch, mode, platform):
    """By programs of processors, and by those of cards, which a processor runs as well."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)

    def run():
        return execute(sweep(AXES, more=MORE), output=False, keep=mode, chunk=700, study=toy.STUDY)

    (plain, told), (compiled, expected) = both_ways(monkeypatch, run)
    assert (told.n_programs == 0) and (told.n_feasible, told.reasons) == (expected.n_feasible, expected.reasons)
    for kind in (lambda found: found, dse.overview):
        found, wanted = kind(plain), kind(compiled)
        assert set(found.variables) == set(wanted.variables)
        for name, variable in wanted.variables.items():
            if variable.dtype.kind == "f":
                np.testing.assert_allclose(found[name], variable, rtol=1e-6, err_msg=str(name))
            else:
                np.testing.assert_array_equal(found[name], variable, err_msg=str(name))


@pytest.mark.parametrize("keep", ["best", "top:50", "pareto", "all"])
def test_designs_that_violate_several_constraints_are_infeasible(monkeypatch, keep):
    """All constraints have one bit of the reason: twice that bit is none of them."""
    bounds = ["step_time < '16 s'", "step_time < '20 s'", "peak_memory < '3 GB'"]
    text = f"{MORE}[constraints]\nall = {bounds}\n"

    def run():
        return execute(sweep(AXES, more=text), output=False, keep=keep, study=toy.STUDY)

    (plain, told), (compiled, expected) = both_ways(monkeypatch, run)
    assert (told.n_feasible, told.reasons) == (expected.n_feasible, expected.reasons)
    assert told.n_feasible > 0 and told.reasons["constraint"] > 0.1 * told.n_designs
    np.testing.assert_allclose(plain["step_time"], compiled["step_time"], rtol=1e-6)


def test_a_small_sweep_compiles_nothing_and_a_larger_one_does(monkeypatch):
    grid, _ = plan(sweep(AXES), study=toy.STUDY)
    compiled = CompileClock.read()[2]
    execute(grid, output=False, keep="top:3")
    assert CompileClock.read()[2] == compiled and SweepEngine(grid).by_numpy
    monkeypatch.setattr(engine, "MAX_NUMPY_DESIGNS", grid.n_designs - 1)
    assert not SweepEngine(grid).by_numpy
    assert SweepEngine(grid, by_numpy=True).by_numpy


def test_the_standard_sweep_compiles_nothing():
    """With whichever JAX this is: an operation that NumPy lacks would be a warning, and programs of some seconds."""
    compiled = CompileClock.read()[2]
    _, told = execute("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3")
    assert told.n_feasible and told.seconds["compile"] == 0.0 and CompileClock.read()[2] == compiled


def test_small_sweeps_are_evaluated_by_numpy_whatever_the_device(monkeypatch):
    """Programs take a GPU as long to compile."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    grid, compiled = plan(sweep(AXES), study=toy.STUDY)[0], CompileClock.read()[2]
    assert SweepEngine(grid).by_numpy
    execute(grid, output=False, keep="top:3")
    assert CompileClock.read()[2] == compiled
    monkeypatch.setattr(engine, "MAX_NUMPY_DESIGNS", grid.n_designs - 1)
    assert not SweepEngine(grid).by_numpy
