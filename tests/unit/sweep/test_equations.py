"""A function as equations: the same values, nothing twice, nothing that is not needed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dse
from dse.doors import TRAINING
from dse.doors.evaluation import evaluate
from dse.equations import recording
from dse.equations.equation import merged_equations
from dse.io.environment import double_precision
from dse.sweep import execute, plan
from dse.types.metrics import CARBON, MONEY, RUN
from tests.panel import design
from tests.programs import metrics_of
from tests.unit.sweep import toy
from tests.unit.sweep.toy import sweep


def test_equal_equations_are_merged_and_unneeded_ones_left_out():
    def model(a, b):
        jnp.sin(a)
        return jnp.exp(a) * b, jnp.where(b > 0.0, jnp.exp(a), 0.0), jnp.where(b > 0.0, jnp.exp(a), 0.0)

    found, _ = recording.trace(model, 1.0, 2.0)
    assert sorted(e.primitive.name for e in found.equations) == ["exp", "gt", "mul", "select_n"]
    np.testing.assert_array_equal(found(1.5, -1.0), jnp.stack(model(1.5, -1.0)))


def of_every_kind(a, b):
    """Operators with numbers of Python, of NumPy and of JAX on either side, functions of JAX, and an array."""
    some = [2 * a, b - 1.5, 1 / a, a**2, a**b, -b, a % b, a // b, abs(a)]
    some += [np.float32(3.0) * a.astype(np.float32), b + jnp.asarray(2.0, a.dtype) * jnp.asarray(0.5)]
    chosen = jnp.where((a < b) & ~(b >= 1) | (a == 2.0) | (b != 2.0), some[0], 7.0) + jnp.int32(3).astype(a.dtype)
    summed = jax.vmap(lambda c: c * a + b)(jnp.arange(3).astype(a.dtype)).sum()
    return some, chosen, summed, 1.0, (a > 1.0).astype(jnp.int32) + 2


@pytest.mark.parametrize(("function", "inputs", "double"), [
    (of_every_kind, (1.5, 2.0), True), (of_every_kind, (1.5, 2.0), False),
    (evaluate, (design("dense, eager attention"),), False),
], ids=["operators, double", "operators", "training"])  # fmt: skip
def test_what_is_recorded_is_what_jax_traces(function, inputs, double):
    def plain(found):
        def read(atom):
            return atom if isinstance(atom, int) else np.asarray(atom.value).tolist()

        return [(e.primitive.name, str(sorted(e.parameters.items())), *map(read, e.inputs)) for e in found.equations]

    with double_precision(double):
        inputs = jax.tree.map(np.float64 if double else np.float32, inputs)
        traced = jax.jit(function).trace(*inputs)
        found, structure = recording.trace(function, *inputs)
    assert plain(found) == plain(merged_equations(traced.jaxpr))
    assert structure == jax.tree.structure(traced.out_info)


def test_a_model_recorded_once_is_included_at_other_inputs_with_the_equations_of_a_call():
    runs = []

    def model(a, b):
        runs.append(a)
        return {"product": a * b, "same": b, "number": 3.0}

    def program(model, scale):
        return lambda a, b: (scale * model(a, b)["product"], model(b, a)["same"], model(a, b)["number"])

    included = recording.once(model)
    for scale in (2.0, 5.0):
        found, structure = recording.trace(program(included, scale), 1.5, 4.0)
        direct, expected = recording.trace(program(model, scale), 1.5, 4.0)
        assert [e.primitive.name for e in found.equations] == [e.primitive.name for e in direct.equations]
        assert structure == expected
        np.testing.assert_array_equal(found(1.5, 4.0), [scale * 6.0, 1.5, 3.0])
    assert len(runs) == 1 + 2 * 3, "once for all programs, where direct calls run it each time"
    assert float(included(2.0, 4.0)["product"]) == 8.0, "numbers are not recorded"


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_signs_of_zero_differ(zero):
    found, _ = recording.trace(lambda a: (a + 0.0, a + (-0.0)), 1.0)
    assert len(found.equations) == 2
    np.testing.assert_array_equal(np.signbit(found(zero)), np.signbit([zero + 0.0, zero + -0.0]))


def test_functions_called_twice_keep_their_inputs_apart():
    twice = jax.jit(lambda a: 2.0 * a)
    found, _ = recording.trace(lambda a, b: (twice(a) - twice(b), twice(a) + twice(b)), 1.0, 1.0)
    assert len(found.equations) == 4
    np.testing.assert_array_equal(found(3.0, 1.0), [4.0, 8.0])


def test_outputs_may_be_inputs_and_constants():
    table = jnp.arange(3.0)
    found, _ = recording.trace(lambda a: (a, 2.0, table), 1.0)
    assert [np.asarray(value).tolist() for value in found(5.0)] == [5.0, 2.0, [0.0, 1.0, 2.0]]


@jax.custom_jvp
def forward_rule(a):
    return jnp.sin(a)


forward_rule.defjvp(lambda primals, tangents: (forward_rule(primals[0]), 5.0 * tangents[0]))


@jax.custom_vjp
def backward_rule(a):
    return jnp.sin(a)


backward_rule.defvjp(lambda a: (backward_rule(a), None), lambda kept, slope: (7.0 * slope,))

CALLS = {
    "softplus": lambda a, b: jax.nn.softplus(a) * jax.nn.softplus(b),
    "custom_jvp": lambda a, b: forward_rule(a) + forward_rule(b),
    "custom_vjp": lambda a, b: backward_rule(a) - backward_rule(b),
    "cond": lambda a, b: lax.cond(a > b, lambda: jnp.exp(a), lambda: 2.0 * b),
    "while": lambda a, b: lax.while_loop(lambda c: c < 10.0, lambda c: c + jnp.abs(a) + 0.1, b),
    "fori_loop": lambda a, b: lax.fori_loop(0, 3, lambda i, c: c * a + i, b),
}


@pytest.mark.parametrize("function", CALLS.values(), ids=CALLS)
def test_functions_that_are_called_are_passed_on(function):
    found, _ = recording.trace(function, 1.0, 2.0)
    outer, inner = jnp.linspace(0.1, 3.0, 4), jnp.linspace(-1.0, 2.0, 3)
    nested = jax.vmap(jax.vmap(lambda a, b: found(a, b)[0], (None, 0)), (0, None))
    expected = [[function(a, b) for b in inner] for a in outer]
    np.testing.assert_allclose(jax.jit(nested)(outer, inner), expected, rtol=2e-6)


@pytest.mark.parametrize(("name", "slope"), [("custom_jvp", 5.0), ("custom_vjp", 7.0)])
def test_own_rules_of_differentiation_stay(name, slope):
    found, _ = recording.trace(CALLS[name], 1.0, 2.0)
    assert float(jax.grad(lambda a: found(a, 2.0)[0])(1.0)) == slope


def test_effects_stay_each_in_its_place(capfd):
    @jax.jit
    def says(a):
        jax.debug.print("at {a}", a=a)
        return a + 1.0

    found, _ = recording.trace(lambda a: says(a) * says(a), 1.0)
    assert float(found(3.0)[0]) == 16.0
    jax.effects_barrier()
    assert capfd.readouterr().out == "at 3.0\nat 3.0\n"


@pytest.mark.filterwarnings("ignore::dse.errors.Notice")  # of a model that NumPy cannot evaluate
def test_a_sweep_prints_calls_and_differs_in_nothing(capfd):
    def model(design):
        jax.debug.print("tp = {tp}", tp=design.mapping.tp)
        metrics = toy.evaluate(design)
        zero = backward_rule(forward_rule(jax.nn.softplus(design.mapping.tp))) * 0.0
        return dataclasses.replace(metrics, step_time=metrics.step_time + zero)

    study = dataclasses.replace(toy.STUDY, evaluate=model)
    spec = sweep('tp = [1, 2]\nmicro_batch = [1, 2]\nrecompute = ["none", "full"]')
    found, summary = execute(spec, output=False, study=study, chunk=8)
    jax.effects_barrier()
    printed = capfd.readouterr().out.splitlines()
    expected, _ = execute(spec, output=False, study=toy.STUDY, chunk=8)
    np.testing.assert_array_equal(found.step_time, expected.step_time)
    assert {"tp = 1.0", "tp = 2.0"} <= set(printed) and len(printed) >= summary.n_designs


def test_the_model_is_the_same():
    base = jax.tree.map(np.float32, plan(sweep())[0].base)
    found, _ = recording.trace(dse.evaluate, base)
    for own, theirs in zip(found(*jax.tree.leaves(base)), jax.tree.leaves(metrics_of(base)), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5)  # each equation rounds by itself
    # The model shares rates and routes itself, so what is merged is less than it was; what is left must not grow:
    # 2,913, 200 for aligned domains, meshes, hybrid sharding and links that two dimensions share, 100 for pipelines
    # whose ends hold a layer less, 50 for recompute operator by operator and messages of copies of their own, 30
    # for polling and what a stack lacks, 30 for recipes of narrow formats, 12 for units that scale blocks and run
    # what is left in 16 bits, 2 for the exchange of a core that runs again, 7 for matrices that are gathered one by
    # one and the pace of the slowest stage, 16 for bridges that members share, 6 for heads that kernels pad, 7 for
    # rings over one link, 11 for a head that is gathered by itself and inputs that are gathered again where outputs
    # are kept, 60 for the steps of a ring: 42 for their sums, an operator, and 18 for their windows and kernels, 10 for
    # a rate at the clock that is none where units cannot multiply a precision or scale its blocks, 2 for voltages of
    # clocks far above the nominal one, 4 for shares of rates that a chip sustains in training.
    # Sweeps that ask for neither money nor carbon nor runs with failures do without these.
    optional = TRAINING.group(MONEY) | TRAINING.group(CARBON) | TRAINING.group(RUN)

    def plain(design):
        return {name: value for name, value in vars(dse.evaluate(design)).items() if name not in optional}

    plainly, _ = recording.trace(plain, base)
    assert len(plainly.equations) <= 3_511
    assert len(found.equations) <= 3_511 + 110 + 349  # the last of energy: the clock that is reached
    assert len(found.equations) < 0.62 * len(jax.make_jaxpr(dse.evaluate)(base).eqns)
