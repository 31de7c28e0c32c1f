"""The table of primitives: every row in every column, against what JAX, differences, samples and a browser give."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest

from benchmarks.chromium import CHROMIUM, FLAGS
from dse.equations import rules
from dse.equations.operations import Operation, Operations, steps, walk
from dse.equations.primitives import (
    PRIMITIVES,
    CurveShape,
    RefusedPrimitiveError,
    numpy_function,
    primitive,
    range_function,
    slope_rules,
)
from dse.lab.page.program import PageProgram
from dse.lab.prove import forms
from dse.sweep.engine.gradients import _jax_operation
from dse.types.trees import tree_structure
from tests.unit.lab.page.designs import machine_script

#: Parameters with which primitives that have some are tested.
PARAMETERS = {
    "integer_pow": [(-3,), (-2,), (-1,), (0,), (1,), (2,), (3,), (5,)],
    "round": [(0,), (1,)],
    "bitcast_convert_type": [("int32",)],
    "convert_element_type": [("int32",), ("bool",), ("float32",)],
}
CASES = [(name, parameters) for name, row in PRIMITIVES.items() for parameters in PARAMETERS.get(name, [()])]
TRUTHS = ("and", "or", "xor", "not")

#: Cells that are left out on purpose: no model of the package needs them.
REFUSED = {
    ("is_finite", "range"), ("one_minus_square", "range"), ("rem", "range"), ("xor", "range"),
    ("bitcast_convert_type", "script"), ("stop_gradient", "script"), ("copy", "script"),
}  # fmt: skip

#: Numbers where roundings, signs, halves and ties matter.
NUMBERS = np.float32([-1e9, -7.5, -3.25, -1.0, -0.5, 0.5, 0.75, 1.0, 2.5, 11.0, 1e7])
N, TRIES = 300, 20


def n_inputs(name: str) -> int:
    """Count of inputs of a primitive; a selection has two cases."""
    value = PRIMITIVES[name].value
    if name == "select_n":
        return 3
    if isinstance(value, np.ufunc):
        return value.nin
    return len(inspect.signature(value).parameters) - len(PRIMITIVES[name].parameters)


def inputs_of(name: str, kind: str = "f") -> list[Any]:
    """Arrays of all combinations of numbers, as the inputs of a primitive on a kind."""
    values = [array.reshape(-1) for array in np.meshgrid(*[NUMBERS] * n_inputs(name))]
    if kind == "b":
        return [values[0] > 0.6, *values[1:]] if name == "select_n" else [value > 0.6 for value in values]
    if name in ("sqrt", "log", "log2", "log1p", "pow"):
        values[0] = abs(values[0])
    return [np.clip(value, -1e4, 1e4).astype(np.int32) for value in values] if kind == "i" else values


def kind_of(name: str) -> str:
    return "b" if name in (*TRUTHS, "select_n") else "f"


def test_rows_have_all_columns_but_those_left_out():
    has = {
        (name, column): bool(cell)
        for name, row in PRIMITIVES.items()
        for column, cell in (("range", row.rises or row.range), ("script", row.script))
    }
    assert {cell for cell, there in has.items() if not there} == REFUSED
    assert {name for name, row in PRIMITIVES.items() if row.parameters} == PARAMETERS.keys()


def test_a_cell_that_is_left_out_is_refused_by_name_and_use():
    for name, use in (("sin", "value"), ("rem", "range")):
        with pytest.raises(
            RefusedPrimitiveError, match=f"^the table of primitives has no {use} of '{name}'$"
        ) as refused:
            range_function(name, ())
        assert refused.value.primitive == name


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_values_are_those_of_jax(name, parameters):
    """To the bit where they are rounded to the nearest or not at all, else within some units of the last place."""
    inputs = inputs_of(name, kind_of(name))
    with np.errstate(all="ignore"):
        value = np.asarray(numpy_function(name, parameters)(*inputs))
    expected = np.asarray(_jax_operation(name, parameters)(*inputs))
    assert value.dtype == expected.dtype
    if PRIMITIVES[name].rounding > 1.0:
        np.testing.assert_allclose(value, expected, rtol=16 * np.finfo(np.float32).eps, atol=1e-37)
    else:
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_slopes_are_those_of_differences(name, parameters):
    """In double precision, between the numbers where slopes jump; what has no slope is flat there, or counts."""
    inputs = [value.astype(float) for value in inputs_of(name)]
    near = np.all([abs(value) < 100.0 for value in inputs], axis=0)
    inputs = [value[near] + 0.0137 * (1 + i) for i, value in enumerate(inputs)]
    if name in TRUTHS or PRIMITIVES[name].is_truth or name == "bitcast_convert_type":
        assert not any(slope_rules(name, parameters, n_inputs(name)))
        return
    if name == "select_n":
        inputs[0] = inputs[0] > 0.6
    if name == "clamp":
        inputs[0], inputs[2] = -abs(inputs[0]), abs(inputs[2])
    if name == "one_minus_square":
        inputs[0] = 0.1 * inputs[0]
    if parameters in (("int32",), ("bool",)):
        assert slope_rules(name, parameters, 1) == [None]
        return
    function = numpy_function(name, ("float64",) if name == "convert_element_type" else parameters)
    with np.errstate(all="ignore"):
        output = function(*inputs)
        for i, slope in enumerate(slope_rules(name, parameters, len(inputs))):
            if slope is None and (name, i) in (("select_n", 0), ("stop_gradient", 0)):
                continue
            step = 1e-6 * np.maximum(1.0, abs(inputs[i]))
            ahead, behind = (function(*[*inputs[:i], inputs[i] + sign * step, *inputs[i + 1 :]]) for sign in (1, -1))
            expected = (ahead - behind) / (2.0 * step)
            actual = np.zeros_like(expected) if slope is None else slope(np.ones_like(output), output, *inputs)
            is_finite = np.isfinite(expected) & np.isfinite(actual)
            assert is_finite.any()
            scale = np.maximum(abs(output) / np.maximum(1.0, abs(inputs[i])), 1.0)
            difference = abs(np.asarray(actual, float) - expected)[is_finite]
            allowed = 1e-5 * np.maximum(abs(expected), scale)[is_finite]
            assert (difference <= allowed).all(), (name, i)


# --- ranges and lines -----------------------------------------------------------------------------------------


def ranges(generator: np.random.Generator, positive: bool) -> rules.Pair:
    """Ends of random ranges: of both signs, small and large, some of one number."""
    size = np.exp(generator.uniform(-3, 3, N)) * (1.0 if positive else generator.choice([-1.0, 1.0], N))
    size = np.where(generator.random(N) < 0.1, 0.0 if not positive else 1.0, size)
    width = np.where(generator.random(N) < 0.2, 0.0, np.exp(generator.uniform(-6, 2, N)))
    return size.astype(np.float32), (size + width).astype(np.float32)


def operands(generator: np.random.Generator, name: str, positive: bool) -> list[rules.Pair]:
    """Ranges of the inputs of a primitive."""
    low = generator.random(N) < 0.3
    truths = (low, low | (generator.random(N) < 0.5))
    if name in TRUTHS:
        return [truths] * n_inputs(name)
    numbers = [ranges(generator, positive) for _ in range(n_inputs(name))]
    return [truths, *numbers[1:]] if name == "select_n" else numbers


def inside(generator: np.random.Generator, pair: rules.Pair) -> Any:
    """A number within each range."""
    low, high = pair
    if low.dtype == bool:
        return np.where(generator.random(N) < 0.5, low, high)
    share = generator.choice([0.0, 0.3, 0.7, 1.0], N)
    return np.clip((low + share * (high.astype(float) - low)).astype(np.float32), low, high)


def holds(pair: rules.Pair, value: np.ndarray) -> Any:
    """Whether values are within ranges; a range with an end that is no number says nothing."""
    low, high = (np.asarray(end) for end in pair)
    if value.dtype == bool:
        return (low <= value) & (value <= high)
    return np.isnan(low) | np.isnan(high) | ((low <= value) & (value <= high))


def leaves(pairs: list[rules.Pair]) -> list[Any]:
    """Forms of ranges, each along an axis of its own."""
    return [
        pair if pair[0].dtype == bool else forms.leaf_form(*pair, symbol, len(pairs), is_rate=bool(symbol % 2))
        for symbol, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("name", "parameters"), [case for case in CASES if (case[0], "range") not in REFUSED])
def test_values_are_within_ranges_and_lines(name, parameters, positive):
    if name == "bitcast_convert_type" and not positive:
        pytest.skip("bits of negative numbers have no order")
    generator, function = np.random.default_rng(0), numpy_function(name, parameters)
    pairs = operands(generator, name, positive)
    with np.errstate(all="ignore"):
        bounds = range_function(name, parameters)(*pairs)
        line = forms.operation(name, parameters, len(pairs))(*leaves(pairs))
        line = forms.pair(line.settled() if isinstance(line, forms.Form) else line)
        for _ in range(TRIES):
            value = np.asarray(function(*(inside(generator, pair) for pair in pairs)))
            assert holds(bounds, value).all() and holds(line, value).all()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [case for case in CASES if isinstance(PRIMITIVES[case[0]].line, CurveShape) and case[1] != (0,)],
)
def test_lines_of_curves_touch_them(name, parameters):
    """A line of a narrow range is narrower than the range, where the function is a curve."""
    low = np.exp(np.linspace(-2.0, 2.0, N)).astype(np.float32)
    x = forms.leaf_form(low, low * np.float32(1.1), 0, 1, is_rate=False)
    exponent = [np.full(N, np.float32(1.7))] * (n_inputs(name) - 1)
    line = forms.operation(name, parameters, 1)(x, *exponent)
    assert (line.rows[forms.RADIUS] < 0.2 * abs(line.rows[forms.SLOPES])).all()


# --- JavaScript -----------------------------------------------------------------------------------------------


def scripted() -> tuple[Operations, list[tuple[str, Any]]]:
    """Operations on three numbers with every expression of the table as an output, and (name, parameters) of these."""
    converted: list[Operation] = [("convert_element_type", ("int32",), (i,), 4 + i) for i in range(3)]
    converted += [("gt", (), (i, 3), 7 + i) for i in range(3)]
    values = {"f": (0, 1, 2), "i": (4, 5, 6), "b": (7, 8, 9)}
    operations, names = [*converted], []
    for name, parameters in CASES:
        for case in PRIMITIVES[name].script or ["f"]:
            kind, _, result = case.partition(" to ")
            if result and np.dtype(*parameters).kind != result:
                continue
            inputs = values[kind][: n_inputs(name)] if name != "select_n" else (7, *values["i"][:2])
            if (name, kind) == ("div", "i"):  # the third number is never 0
                inputs = (4, 6)
            operations.append((name, parameters, inputs, 4 + len(operations)))
            names.append((f"{name} of {case}", parameters))
    outputs = [operation[3] for operation in operations[len(converted) :]]
    structure = tree_structure([0.0] * len(outputs))
    constants = [np.float32(0.6)]
    return Operations(constants, operations, 4 + len(operations), outputs, structure, None, "float32", 1), names


@pytest.fixture(scope="module")
def in_chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright, which drives a browser, is not installed")
    if not CHROMIUM:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser.new_page().evaluate
        browser.close()


def test_expressions_in_javascript_give_what_numpy_does(in_chromium):
    operations, names = scripted()
    program = PageProgram(operations, 3)
    rows = np.stack([value.reshape(-1) for value in np.meshgrid(NUMBERS, NUMBERS, np.float32([1.0, 3.0]))], axis=1)
    script = f"""() => {{ {machine_script(program.kernels)}
      const machine = new Machine({json.dumps(program.as_dict())});
      return {rows.tolist()}.map((row) => Array.from(machine.at(row), String));
    }}"""
    outputs = np.array(in_chromium(script), str).T
    values: dict[int, Any] = {0: rows[:, 0], 1: rows[:, 1], 2: rows[:, 2], 3: operations.constants[0]}
    walk(steps(operations.operations, numpy_function), values)
    for (name, parameters), output, texts in zip(names, operations.outputs, outputs, strict=True):
        actual = np.array([{"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}.get(t) or float(t) for t in texts])
        expected = np.broadcast_to(values[output], len(rows)).astype(float)
        row = primitive(name.partition(" ")[0])
        tolerance = 16 * np.finfo(np.float32).eps if row.rounding > 1.0 else 0.0
        np.testing.assert_allclose(
            actual, expected, rtol=tolerance, atol=tolerance * 1e-30, err_msg=f"{name} {parameters}"
        )
