"""Partial evaluation of equations: what known inputs make neutral goes, and nothing else changes by a bit."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.equations import fold, recording
from dse.sweep import plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.numpy_backend import evaluate_few
from dse.sweep.engine.point import equations_of, neutral_inputs
from dse.types.machine import Emissions, HostTiers, Prices, Reliability
from dse.types.network import Pods
from dse.types.software import ContextParallel, NanoBatches, Sharding, Slices, Spill, Tiers
from dse.types.workload import Convergence

X = jax.ShapeDtypeStruct((), jnp.float32)

#: (function of x and y, value of y, equations left)
RULES = {
    "times one": (lambda x, y: x * y, 1.0, 0),
    "times zero": (lambda x, y: jnp.sqrt(x) * y, 0.0, 0),
    "plus zero": (lambda x, y: y + x, 0.0, 0),
    "minus zero": (lambda x, y: x - y, 0.0, 0),
    "from zero": (lambda x, y: y - x, 0.0, 1),
    "over one": (lambda x, y: x / y, 1.0, 0),
    "over infinity": (lambda x, y: x / y, np.inf, 0),
    "zero over": (lambda x, y: y / x, 0.0, 0),
    "one over": (lambda x, y: y / x, 1.0, 1),
    "no less than minus infinity": (lambda x, y: jnp.maximum(x, -y), np.inf, 0),
    "at most infinity": (lambda x, y: jnp.minimum(x, y), np.inf, 0),
    "at least zero stays": (lambda x, y: jnp.maximum(x, y), 0.0, 1),
    "choice": (lambda x, y: jnp.where(y > 0.5, x, jnp.exp(x)), 1.0, 0),
    "choice of the same": (lambda x, y: jnp.where(x > 2.0, x * y, x), 1.0, 0),
    "and": (lambda x, y: jnp.where((x > 2.0) & (y > 0.0), x, y), 0.0, 0),
    "or": (lambda x, y: jnp.where((x > 2.0) | (y < 2.0), x, y), 1.0, 0),
    "or with what never is": (lambda x, y: jnp.where((x > 2.0) | (y > 2.0), x, 3.0), 1.0, 2),
    "equal after folding": (lambda x, y: jnp.exp(x * y) - jnp.exp(x + (y - 1.0)), 1.0, 2),
    "powers": (lambda x, y: x * jnp.exp2(y) ** 2, 0.0, 0),
    "integers": (lambda x, y: jnp.where(y > 0.0, 4, 0) | jnp.where(x > 1.0, 2, 0), 0.0, 2),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_are_those_of_arithmetic(name):
    function, value, left = RULES[name]
    whole, _ = recording.trace(function, X, X)
    found = fold(whole, {1: value})
    kept = [equation for equation in found.equations if equation.primitive.name != "convert_element_type"]
    assert len(kept) <= left, kept
    for x in (-3.5, 0.25, 1.0, 7.0):
        if name == "times zero" and x < 0.0:  # the root of it is no number
            continue
        expected = whole(jnp.float32(x), jnp.float32(value))
        assert np.asarray(found(jnp.float32(x), jnp.float32(value))[0]) == np.asarray(expected[0])


def test_nothing_known_changes_nothing():
    whole, _ = recording.trace(lambda x, y: jnp.sqrt(x) * y + jnp.exp(y), X, X)
    assert fold(whole, {}).equations == whole.equations


def test_effects_stay_in_their_order(capfd):
    def function(x, y):
        jax.debug.print("first {}", x * y)
        jax.debug.print("second {}", x)
        return x * y

    whole, _ = recording.trace(function, X, X)
    fold(whole, {1: 1.0})(jnp.float32(2.0), jnp.float32(1.0))
    jax.effects_barrier()
    assert capfd.readouterr().out.split() == ["first", "2.0", "second", "2.0"]


SWEEPS = Path(__file__).parents[3] / "sweeps"


@pytest.fixture(scope="module")
def dense():
    return SweepEngine(plan(SWEEPS / "megatron_1t_4096_a100.toml")[0])


def test_neutral_inputs_are_those_that_all_designs_share(dense):
    leaves = jax.tree.leaves((dense.grid.base, dense.grid.columns))
    known = dict(dense.program.neutral_inputs)
    assert len(known) > 30
    assert set(known.values()) == {0.0, 1.0}
    assert all(np.all(np.asarray(leaves[number]) == value) for number, value in known.items())


@pytest.mark.parametrize("name", ["megatron_1t_4096_a100", "llama3_70b_serving", "train_405b_money_carbon"])
def test_results_are_those_of_the_whole_list_to_the_bit(name):
    engine = SweepEngine(plan(SWEEPS / f"{name}.toml")[0])
    some = np.unique(np.linspace(0, engine.grid.n_designs - 1, 3000).astype(np.int64))
    by_known = [
        dataclasses.replace(engine.program, neutral_inputs=known) for known in ((), engine.program.neutral_inputs)
    ]
    expected, found = (evaluate_few(engine.grid.base, engine.grid.values(some), program=p) for p in by_known)
    for before, after in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(after, before)


#: Record of a design → equations of a dense sweep's scores that its neutral values leave.
FEATURES = {
    "system.prices": (Prices(), 0),
    "system.emissions": (Emissions(), 0),
    "system.host_tiers": (HostTiers(), 0),
    "system.reliability": (Reliability(), 2),  # stragglers and congestion of none are a factor of the size
    "system.scale_up.pods": (Pods(), 0),
    "workload.convergence": (Convergence(), 0),
    "mapping.nano": (NanoBatches(), 0),
    "mapping.slices": (Slices(), 0),
    "mapping.spill": (Spill(), 0),
    "mapping.tiers": (Tiers(), 0),
    "mapping.context": (ContextParallel(), 2),
    "mapping.sharding": (Sharding(), 6),  # ZeRO over all replicas, by a number that no group reaches
}


@pytest.mark.parametrize("path", FEATURES)
def test_a_feature_that_a_sweep_does_not_touch_costs_no_equation(dense, path):
    record, left = FEATURES[path]
    plain, featured = (_scores(dense, base) for base in (dense.grid.base, _with(dense.grid.base, path, record)))
    assert plain <= featured <= plain + left


def _scores(engine, base):
    """Equations of the scores of a sweep with this base."""
    known = neutral_inputs(base, engine.grid.columns)
    program = dataclasses.replace(engine.program, metrics=("feasible", "infeasible_reason"), neutral_inputs=known)
    return len(equations_of(program, jax.tree.structure((base, dict.fromkeys(engine.grid.columns, 0.0))))[0].equations)


def _with(record, path, value):
    name, _, rest = path.partition(".")
    return dataclasses.replace(record, **{name: _with(getattr(record, name), rest, value) if rest else value})


def test_one_die_costs_no_equation(monkeypatch):
    """Links between dies of a generated accelerator that has one."""
    engine = SweepEngine(plan(SWEEPS / "technology_nodes_training.toml")[0])
    with_links = _scores(engine, engine.grid.base)
    for module in ("rates", "operator_energy"):
        monkeypatch.setattr(f"dse.model.machine.{module}.die_links", lambda accelerator: None)
    equations_of.cache_clear()
    assert with_links == _scores(engine, engine.grid.base)
    equations_of.cache_clear()
