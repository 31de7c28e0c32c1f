"""The model as operations of a browser: Node runs the model as Python does.

What each operation does is tested with the table of primitives (``tests/unit/equations/test_primitives.py``).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import dse
from dse.doors import STUDIES
from dse.equations import ScalarFunction
from dse.errors import InputError
from dse.lab.page.program import PageProgram, model_of
from tests.unit.lab.page.designs import assert_same, figures, machine_script, near, plain, start

NODE = shutil.which("node")

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
    script = machine_script(program.kernels) + RUNNER
    done = subprocess.run([NODE, "-e", script], input=asked, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    return json.loads(done.stdout)


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
