"""The model as operations of a browser: each does what NumPy's does, and Node runs the model as Python does."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dse
from dse.doors import STUDIES, ScalarFunction
from dse.doors.scalars.operations import PLAIN, WITH_PARAMETERS
from dse.errors import InputError
from dse.lab import page
from dse.lab.page.program import PageProgram, model_of
from tests.unit.lab.page.designs import assert_same, figures, near, plain, start

NODE = shutil.which("node")
MACHINE = Path(page.__file__).parent / "assets" / "machine.js"

#: Runs a program of the input at its designs, one by one and along both axes.
RUNNER = """
const text = (value) => JSON.stringify(value, (_, one) => (typeof one === "number" && !Number.isFinite(one)
  ? String(one) : one));
const { program, rows, grid } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const machine = new Machine(program);
const single = rows.map((row) => Array.from(machine.at(row)));
const all = program.outputs.map((_, i) => i), maps = (grid ?? []).map(({ base, x, y }) => {
  const axis = (one) => new Map(Object.entries(one).map(([i, values]) => [Number(i), Float32Array.from(values)]));
  return machine.over(base, all, { x: axis(x), y: axis(y) }).map((values) => Array.from(values));
});
console.log(text({ single, maps }));
"""


def run(program: PageProgram, rows: Any, grid: Any = None) -> dict[str, Any]:
    """Outputs of a program in Node: of each row, and of grids [output][y, x]."""
    if not NODE:
        pytest.skip("no Node, which runs JavaScript without a browser, is installed")
    asked = json.dumps({"program": program.as_dict(), "rows": np.asarray(rows, float).tolist(), "grid": grid})
    script = MACHINE.read_text(encoding="utf-8") + RUNNER
    done = subprocess.run([NODE, "-e", script], input=asked, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    return json.loads(done.stdout)


#: Operation → a function of two numbers that has it.
OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: jnp.abs(a),
    "sign": lambda a, b: jnp.sign(a),
    "sqrt": lambda a, b: jnp.sqrt(jnp.abs(a)),
    "exp": lambda a, b: jnp.exp(a),
    "exp2": lambda a, b: jnp.exp2(a),
    "log": lambda a, b: jnp.log(jnp.abs(b)),
    "log1p": lambda a, b: jnp.log1p(jnp.abs(b)),
    "expm1": lambda a, b: jnp.expm1(a),
    "tanh": lambda a, b: jnp.tanh(a),
    "pow": lambda a, b: jnp.abs(b) ** a,
    "square": lambda a, b: lax.square(a),
    "floor": lambda a, b: jnp.floor(a),
    "ceil": lambda a, b: jnp.ceil(a),
    "rem": lambda a, b: lax.rem(a, b),
    "clamp": lambda a, b: lax.clamp(-1.0, a, 1.5),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: (a > 0) & (b > 0),
    "or": lambda a, b: (a > 0) | (b > 0),
    "xor": lambda a, b: (a > 0) ^ (b > 0),
    "not": lambda a, b: ~(a > 0),
    "is_finite": lambda a, b: jnp.isfinite(a / jnp.floor(b)),
    "select_n": lambda a, b: jnp.where(a > b, a, b),
    "stop_gradient": lambda a, b: lax.stop_gradient(a),
    "round": lambda a, b: jnp.round(a),
    "round away": lambda a, b: lax.round(a, lax.RoundingMethod.AWAY_FROM_ZERO),
    "integer_pow": lambda a, b: a**5 + (1.0 + jnp.abs(b)) ** -3,
    "to whole": lambda a, b: (a * 10.0).astype(jnp.int32),
    "to number": lambda a, b: a.astype(jnp.int32).astype(jnp.float32) * 0.5,
    "to truth": lambda a, b: a.astype(bool),
    "truth to whole": lambda a, b: (a > b).astype(jnp.int32) * 6 + (b > 0).astype(jnp.int32),
    "whole to truth": lambda a, b: a.astype(jnp.int32).astype(bool),
    "bitcast": lambda a, b: lax.bitcast_convert_type(
        lax.bitcast_convert_type(a, jnp.int32) & lax.bitcast_convert_type(b, jnp.int32), jnp.float32
    ),
    "bits": lambda a, b: (a.astype(jnp.int32) | 5) ^ ~b.astype(jnp.int32),
    "whole select": lambda a, b: jnp.where(a > b, a.astype(jnp.int32), b.astype(jnp.int32)),
    "whole compare": lambda a, b: (a.astype(jnp.int32) >= 2) & (b.astype(jnp.int32) < 3) & (a.astype(jnp.int32) != 1),
    "whole arithmetic": lambda a, b: (
        lax.div(a.astype(jnp.int32) * 7 - 3, b.astype(jnp.int32) + 11)
        - lax.max(a.astype(jnp.int32), b.astype(jnp.int32))
    ),
}

#: Numbers where roundings, signs and halves matter.
ROWS = np.float32(
    [[a, b] for a in (-2.5, -1.0, -0.3, 0.0, 0.5, 1.0, 1.5, 2.5, 7.0, 1e7) for b in (-3.0, -0.7, 1.0, 2.0, 8.5)]
)


def test_every_operation_is_that_of_numpy():
    def all_of_them(a, b):
        return [of(a, b) for of in OPERATIONS.values()], None

    found = ScalarFunction(all_of_them, None).operations(1.0, 1.0)
    assert found is not None
    program = PageProgram(found, 2)
    outputs = np.array([[plain(one) for one in row] for row in run(program, ROWS)["single"]])
    for i, name in enumerate(OPERATIONS):
        wanted = [float(found.to_function()(list(row))[0][i]) for row in ROWS]
        np.testing.assert_allclose(outputs[:, i], wanted, rtol=3e-7, atol=1e-37, err_msg=name)


def test_every_operation_of_python_has_one_here_or_is_lowered():
    rest = {"add_any", "copy", "one_minus_square", "log2"}  # of slopes, or of newer versions of JAX
    named = {name.partition(" ")[0] for name in OPERATIONS} | {"convert_element_type", "bitcast_convert_type"}
    assert {*PLAIN, *WITH_PARAMETERS} - rest <= named


def test_what_varies_along_axes_is_what_single_designs_give():
    def function(a, b, c):
        return [jnp.where(a > b, a * c, b - c), (a > 1.0).astype(jnp.int32) * 4, b * 2.0, c + 1.0, a / b], None

    found = ScalarFunction(function, None).operations(1.0, 1.0, 1.0)
    x, y = np.linspace(0.5, 3.0, 1100), np.array([0.7, 1.3, 2.0])
    grid = [{"base": [1.0, 1.0, 5.0], "x": {0: x.tolist()}, "y": {1: y.tolist()}}]
    rows = [[a, b, 5.0] for b in y for a in x]
    given = run(PageProgram(found, 3), rows, grid)
    np.testing.assert_array_equal(np.array(given["maps"][0]).T, np.array(given["single"]))


def test_a_model_with_another_operation_is_refused_in_four_parts():
    def bent(stated):
        metrics = STUDIES["training"].evaluate(stated)
        return jnp.sin(metrics.step_time)

    study = dataclasses.replace(
        STUDIES["training"], name="bent", shortfalls=lambda stated, metrics: {dse.types.Infeasible.memory: bent(stated)}
    )
    with pytest.warns(dse.errors.Notice), pytest.raises(InputError, match="page"):
        model_of(study, start("training"))


@pytest.mark.parametrize("kind", ["training", "serving"])
def test_figures_are_those_of_python(kind):
    design = start(kind)
    model = model_of(STUDIES[kind], design)
    rows = near(design, model.paths, 24, seed=1)
    x, y = (model.paths.index(path) for path in ("mapping.tp", "system.accelerator.memory.bandwidth"))
    axes = {"x": {x: [1.0, 2.0, 4.0, 8.0]}, "y": {y: [1e12, 3e12, 9e12]}}
    base = rows[0].astype(float).tolist()
    points = np.array([[*base]] * 12)
    points[:, x], points[:, y] = axes["x"][x] * 3, np.repeat(axes["y"][y], 4)
    given = run(model.program, [*rows, *points], [{"base": base, **axes}])
    found = given["single"][: len(rows)]
    single = np.array(given["single"][len(rows) :], str)
    assert (single == np.array(given["maps"][0], str).T).all()
    places = model.outputs["metrics"]
    ours = {name: np.array([plain(row[place]) for row in found]) for name, place in places.items()}
    theirs = figures(kind, design, model.paths, rows)
    assert_same(kind, ours, theirs)
    assert theirs["feasible"].any() and not theirs["feasible"].all()
