"""The model by NumPy is the model: every operation, every metric, and the second process traces nothing."""

import dataclasses
import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dse
from dse.designs import leaf, replace
from dse.designs.records import OF_EXPERTS, OPTIONAL
from dse.doors import STUDIES, evaluation
from dse.equations import ScalarFunction, recording, scalar_function
from dse.equations.primitives import PRIMITIVES
from dse.errors import Notice
from dse.io.environment import double_precision
from dse.types import Metrics, Packing
from dse.views.explanation import continuous_leaves
from dse.views.trace.step import schedule_step
from tests.programs import compiled, slopes_by_numpy

DESIGNS = {
    "dense": dict(workload="megatron-1t", system="selene", n_devices=3072, tp=8, pp=64, recompute="full"),
    "generated": dict(workload="llama-3-70b", system="gpu", tp=8, dp=8, recompute="full"),
    "cannot run": dict(workload="megatron-1t", system="selene", n_devices=84, tp=12, pp=7, dp=2, precision="fp8"),
}


@pytest.fixture(params=DESIGNS)
def design(request):
    return dse.design(**DESIGNS[request.param])


#: The model by XLA: designs of one structure share its program.
BY_XLA = compiled(evaluation.evaluate)


def test_metrics_are_those_of_compiled_programs(design):
    """To single precision; what is whole or true is equal."""
    quick = dse.evaluate(design)
    by_xla = jax.device_get(BY_XLA(design))
    assert isinstance(quick, Metrics)
    for name, value in vars(by_xla).items():
        assert getattr(quick, name) == pytest.approx(value, rel=3e-6, abs=1e-30), name
    assert quick.feasible == by_xla.feasible and quick.infeasible_reason == by_xla.infeasible_reason


def test_what_is_traced_goes_to_the_model(design):
    def step_time(clock):
        return dse.evaluate(jax.tree.map(lambda leaf: leaf * clock, design)).step_time

    assert isinstance(dse.evaluate(jax.tree.map(jnp.float32, design)).step_time, jax.Array)
    assert jax.make_jaxpr(step_time)(jnp.float32(1.0)).eqns


def everything(x, y):
    """Every operation that there is, of numbers of any sign."""
    whole, some = lax.convert_element_type(x, jnp.int32), x > y
    return {
        "arithmetic": x + y - x * y / (y + 3.0),
        "sign": -jnp.sign(x) + jnp.abs(y),
        "max": jnp.maximum(x, y),
        "min": jnp.minimum(x, y),
        "roots": jnp.sqrt(jnp.abs(x)),
        "exp": jnp.exp(y) + jnp.exp2(y) + jnp.expm1(y),
        "log": jnp.log(jnp.abs(x)) + jnp.log1p(jnp.abs(y)),
        "doublings": jnp.log2(jnp.abs(x)) + jnp.log2(jnp.abs(y)),
        "tanh": jnp.tanh(x),
        "slope of tanh": jax.grad(jnp.tanh)(0.05 * x),
        "power": jnp.abs(x) ** y,
        "square": jnp.square(x),
        "floor": jnp.floor(x) - jnp.ceil(y),
        "remainder": lax.rem(x, y),
        "clamp": lax.clamp(jnp.float32(-1.0), x, jnp.float32(1.0)),
        "even": lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        "away": lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
        "select": jnp.where(some, x, y),
        "whole": whole // 3,
        "powers": lax.integer_pow(x, 5) + lax.integer_pow(y, -3) + lax.integer_pow(x, 0),
        "compared": (x == y) | (x != y) & ~(x <= y) ^ (x >= y),
        "bits": lax.bitcast_convert_type(x, jnp.int32) & 255,
        "finite": jnp.isfinite(1.0 / (x - x)),
        "held": lax.stop_gradient(x),
        "infinite": y / (x - x),
        "too large": lax.convert_element_type(x * 1e30, jnp.int32),
        "nowhere": lax.convert_element_type((x - x) / (y - y), jnp.int32),
        "slope": jax.grad(lambda at: at**3 * y)(x),
    }


EVERYTHING = ScalarFunction(lambda x, y: (everything(x, y), None), None)
EVERYTHING_BY_XLA = jax.jit(everything)


@pytest.mark.parametrize("x", [-7.5, -0.5, 0.5, 2.5, 1e9])
@pytest.mark.parametrize("y", [-3.25, 0.75, 11.0])
def test_every_operation_is_that_of_xla(x, y):
    found, _ = EVERYTHING(x, y)
    expected = EVERYTHING_BY_XLA(np.float32(x), np.float32(y))
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name] == pytest.approx(np.asarray(value)[()], rel=2e-6, nan_ok=True), name


@functools.cache
def smooth():
    """The operations that have slopes, each alone."""
    shapes = jax.eval_shape(everything, jnp.float32(1.0), jnp.float32(1.0))
    return {name: lambda at, name=name: everything(*at)[name] for name, of in shapes.items() if of.dtype == jnp.float32}


@jax.jit
def slopes_by_jax(at):
    return {name: jax.grad(one)(at) for name, one in smooth().items()}


@functools.cache
def all_by_numpy():
    return {name: slopes_by_numpy(one) for name, one in smooth().items()}


@pytest.mark.parametrize("x", [-7.5, -0.5, 0.0, 0.5, 1.0, 2.5])
@pytest.mark.parametrize("y", [-3.25, 0.5, 1.0, 11.0])
def test_every_slope_is_that_of_jax(x, y):
    """One operation at a time, at ties too; what is infinite or no number is so for both."""
    expected = slopes_by_jax((jnp.float32(x), jnp.float32(y)))
    assert len(expected) >= 20
    for name, function in all_by_numpy().items():
        _, slopes = function((x, y))
        # 1 - tanh^2 cancels: what is left has the rounding of numbers near one
        assert slopes == pytest.approx(tuple(map(float, expected[name])), rel=2e-6, abs=2e-7, nan_ok=True), name


SLOW = pytest.mark.slow
KINDS = [
    ("dense", "float64", 1e-10),
    *(
        pytest.param(name, precision, rounding, marks=SLOW)
        for name in DESIGNS
        for precision, rounding in (("float32", 3e-5), ("float64", 1e-10))
        if name != "dense"
    ),
]


@pytest.mark.parametrize("name, precision, rounding", KINDS)
def test_slopes_of_the_model_are_those_of_jax(name, precision, rounding):
    """Elasticities by every continuous leaf, of many designs at once as of one."""
    design = dse.design(**DESIGNS[name])
    with double_precision(precision == "float64"):
        values = {path: leaf(design, path) for path in continuous_leaves(design)}
        values = {path: np.dtype(precision).type(value) for path, value in values.items() if value}

        def log_time(values, design):
            return jnp.log(evaluation.evaluate(replace(design, values)).step_time)

        plain = jax.tree.map(np.dtype(precision).type, design)
        expected = jax.grad(equations_of(log_time, values, plain))(values, plain)
        function = ScalarFunction(lambda *given: ((log_time(*given), given[0]), None), None)
        (found, _), _, slopes = function.slopes(0, values, design)
        many = {path: np.full(3, value) for path, value in values.items()}
        (at_once, _), alike = function.batch_slopes(0, 3, many, design)
        assert at_once.tolist() == [float(found)] * 3
        for path, value in values.items():
            assert alike[path].dtype == precision and set(alike[path].tolist()) == {float(slopes[path])}
            by_jax = float(expected[path] * value)
            assert slopes[path] * value == pytest.approx(by_jax, rel=rounding, abs=rounding), path


def equations_of(function, *arguments):
    """The same function in a form that JAX differentiates in seconds."""
    found, _ = recording.trace(function, *arguments)
    return lambda *given: found(*jax.tree.leaves(given))[0]


#: Designs that together can have every record that some have and others lack.
STRUCTURES = {
    "generated": ("llama-3-70b", "gpu"), "sparse": ("glm-5", "eos"), "recurrent": ("minimax-text-01", "frontier"),
}  # fmt: skip

#: Records that must be told something, beside those that come with a workload or a chip.
TOLD = {"workload.packing": Packing(document=2048.0)}


def with_records(workload, system):
    """A design with every record that takes defaults, where it has not its own; those of experts come with them."""
    design = dse.design(workload, system)
    for path, record in OPTIONAL.items() - OF_EXPERTS.items():
        needed = [
            field
            for field in dataclasses.fields(record)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
        if leaf(design, path) is None and (path in TOLD or not needed):
            design = replace(design, {path: TOLD[path] if path in TOLD else record()})
    return design


def test_structures_have_every_record():
    assert {
        path for names in STRUCTURES.values() for path in OPTIONAL if leaf(with_records(*names), path) is not None
    } == OPTIONAL.keys()


def unknown_primitives(function, *arguments):
    """Primitives of a function that NumPy does not evaluate here."""
    found, _ = recording.trace(function, *jax.tree.map(np.float32, arguments))
    return {one.primitive.name for one in found.equations} - PRIMITIVES.keys()


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("names", STRUCTURES)
def test_no_design_falls_back(study, names):
    """With whichever JAX this is."""
    study = STUDIES[study]
    assert not unknown_primitives(study.evaluate, study.complete(with_records(*STRUCTURES[names])))


@pytest.mark.parametrize("study", STUDIES)
def test_no_design_without_records_falls_back(study):
    study = STUDIES[study]
    design = study.complete(dse.design("megatron-1t", "selene"))
    assert not unknown_primitives(lambda one: (study.evaluate(one), study.bounds(one)), design)


def test_explanations_and_traces_of_a_step_do_not_fall_back():
    """Nor would co-design, whose slopes are of the same operations; a fallback is a warning, here an error."""
    design = dse.design("llama-3-70b", "gpu", tp=4, pp=2)
    assert dse.explain(design).elasticities and schedule_step(design).total > 0.0


SLOWER = r"'sin' of JAX .* compiles instead, which takes .* half a minute .* figures are the same"


@pytest.mark.parametrize("made_from", [None, "sine"])
def test_operations_of_another_kind_are_left_to_jax_and_told(made_from):
    function = ScalarFunction(lambda x: ({"sine": 2.0 * jnp.sin(x)}, "beside"), made_from)
    with pytest.warns(Notice, match=SLOWER) as told:
        found, beside = function(1.0)
        function(2.0)
    assert len(told) == 1
    assert float(found["sine"]) == pytest.approx(2.0 * np.sin(1.0)) and beside == "beside"


def test_slopes_of_operations_of_another_kind_are_left_to_jax():
    function = ScalarFunction(lambda x, y: ((y * jnp.sin(x["at"]), y), "beside"), None)
    with pytest.warns(Notice, match=SLOWER):
        (value, _), beside, slope = function.slopes(0, {"at": 1.0}, 2.0)
    assert (float(value), beside) == (pytest.approx(2.0 * np.sin(1.0)), "beside")
    assert slope == {"at": pytest.approx(2.0 * np.cos(1.0))}
    _, slope = function.batch_slopes(0, 2, {"at": np.array([0.0, 1.0])}, 2.0)
    assert slope["at"] == pytest.approx([2.0, 2.0 * np.cos(1.0)])


SNIPPET = """
import jax
traced = []
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: traced.append(event))
import dse
design = dse.design("gpt-3-13b", "selene", n_devices=16, tp=8, pp=2, recompute="full")
print(dse.evaluate(design).step_time, dse.explain(design).elasticities)
results = dse.run("small.toml", output=False)
print(results.step_time.values.tobytes().hex())
print(sum("compile" in event and "time_sec" not in event for event in traced))
"""


@pytest.mark.slow
def test_a_second_process_has_it_all(small_sweep):
    """From Python as from the command line: README's snippet traces and compiles once."""
    told = []
    for _ in range(2):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        environment |= {"DSE_CACHE": str(small_sweep.parent / "kept"), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", SNIPPET],
            cwd=small_sweep.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout.splitlines())
    assert told[0][:-1] == told[1][:-1]
    assert int(told[0][-1]) > 0 and int(told[1][-1]) == 0


def test_models_of_others_are_not_kept(monkeypatch):
    def kept(*_):
        raise AssertionError

    monkeypatch.setattr(scalar_function.cache, "get_or_compute", kept)
    assert ScalarFunction(lambda x: (2.0 * x, "beside"), None)(3.0) == (6.0, "beside")
