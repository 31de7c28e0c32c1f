"""Laws of the whole model on a panel of designs: numbers stay, parts add up, every constant counts.

Halving a constant moves some metric of some design, or it has no business there. What only keeps numbers within what
arithmetic can hold is listed as such, and held to move nothing.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import dse.model
from dse.designs import replace
from dse.doors import STUDIES, evaluation, serving
from dse.equations import ScalarFunction
from dse.measured.kernels import FORMULAS, device_of
from dse.measured.kernels.readers import OPERATIONS
from dse.model import formats
from dse.types import Design, Engine, Precision, paths
from tests.contract import golden
from tests.panel import PANEL, design

#: A metric moves where it changes by more than this share.
MOVED = 1e-4

#: Constants that keep numbers within what arithmetic and solves can hold: no design within reason feels them.
GUARDS = {
    "accounts.bounds._MIN_SECONDS": "parts that add up to nothing",
    "accounts.energy.MIN_DYNAMIC_SHARE": "a limit below what a device draws at rest",
    "accounts.failures._MAX_SECONDS": "a memory of no bandwidth",
    "accounts.failures._MAX_EXPONENT": "a job that fails more often than it saves",
    "accounts.failures._MIN_FAILURE_RATE": "devices that never fail",
    "accounts.failures._MAX_FAILURE_RATE": "devices that fail every second",
    "accounts.failures._MIN_FAILURES_PER_STALL": "checkpoints that stop nothing",
    "accounts.failures._MAX_SLOW_SHARE": "a cluster of slow nodes alone",
    "layout.NO_SHARERS.head": "ranks of which each has its head: read where some share one",
    "layout.NO_SHARERS.shared": "ranks of which each has its shared experts: read where some share them",
    "links._ROUNDING": "whole numbers of links beside their rounding",
    "machine.gemm_kernels.NO_SPLIT": "formats whose kernels split no sum: longer than any kernel",
    "machine.power._EQUAL_VOLTS": "voltages beside their rounding",
    "machine.power._EQUAL_WATTS": "powers beside their rounding",
    "machine.power._LEAST_SLOPE": "a clock far above the nominal one, where carriers saturate",
    "machine.power.HIGHEST_THRESHOLD": "a threshold at the supply voltage",
    "machine.power.LOWEST_CLOCK": "a limit that no clock meets",
    "machine.power._HIGHEST_VOLTAGE": "a clock far above the nominal one: infeasible",
    "machine.rates.ANY_PEAK": "a format that the device has not: no step, and no share of a peak",
    "machine.rates.TINY": "a rate of nothing",
    "machine.technology._MIN_AREA": "a memory of no area",
    "machine.technology._MIN_BYTE_ENERGY": "a byte of no energy",
    "machine.technology._LOWEST_VOLTAGE": "a node without a supply voltage",
    "money.die.LEAST_YIELD": "a wafer of defects",
    "money.die._MIN_AREA": "a die of no area",
    "serving.arrivals._FIRST_GUESS": "the first of iterations that converge",
    "serving.arrivals._MIN_IDLE_SHARE": "a rate beyond what is served",
    "serving.memory.LEAST_RUNTIME": "an engine whose steps are as good as empty",
    "serving.reuse._BUSY": "a link whose loads take all of its time",
    "serving.reuse._FOREVER": "a cache that holds all there is",
    "steps.layer.GRAPH_LAUNCH": "a graph that takes longer to launch than the small kernels of its layer",
    "steps.operating.HIGHEST_CLOCK": "the nominal clock beside its rounding: a reason, no number",
    "steps.operating.SLOW_CLOCK": "the second clock of a solve that is exact in two",
    "serving.tails._MAX_DEVIATION": "times beyond all use",
}  # fmt: skip


#: Constants that a table of the same module holds.
TABLED = {"recipes._FOUR_BIT", "recipes._BY_ROW", "recipes._BY_MX_BLOCK"}


def modules() -> list[types.ModuleType]:
    """All modules of the model."""
    found = pkgutil.walk_packages(dse.model.__path__, "dse.model.")
    return [importlib.import_module(one.name) for one in found]


def numbers_in(value: Any) -> bool:
    """Whether a constant is a number, or a record of numbers."""
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (
        isinstance(value, tuple) and hasattr(value, "_fields") and all(isinstance(one, float) for one in value)
    )


def assigned(module: types.ModuleType) -> Iterator[str]:
    """Names in capitals that a module assigns."""
    for node in ast.parse(Path(inspect.getfile(module)).read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        names = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield from (name.id for name in names if name.id.isupper())


@functools.cache
def constants() -> dict[str, Any]:
    """Full name → value of every number, or record of numbers but zeros, that a module of the model names."""
    named = ((module, name) for module in modules() for name in assigned(module))
    found = {f"{module.__name__}.{name}": getattr(module, name) for module, name in named}
    return {name: value for name, value in found.items() if numbers_in(value) and any(jax.tree.leaves(value))}


@contextlib.contextmanager
def replaced(values: Mapping[str, Any]) -> Iterator[None]:
    """The model with other constants: wherever a module, or a default of a function, holds one of these."""
    held = {(name.rpartition(".")[2], id(constants()[name])): value for name, value in values.items()}
    records = {id(constants()[name]): value for name, value in values.items() if isinstance(constants()[name], tuple)}
    undo: list[tuple[Any, str, Any]] = []

    def put(holder: Any, name: str, value: Any) -> None:
        undo.append((holder, name, getattr(holder, name)))
        setattr(holder, name, value)

    try:
        for module in modules():
            for name, value in list(vars(module).items()):
                if (name, id(value)) in held:
                    put(module, name, held[name, id(value)])
                elif inspect.isfunction(value) and any(id(one) in records for one in value.__defaults__ or ()):
                    put(value, "__defaults__", tuple(records.get(id(one), one) for one in value.__defaults__))
        yield
    finally:
        for holder, name, value in reversed(undo):
            setattr(holder, name, value)


def halved(at: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """How many variants, and the numbers as arrays of them: as they are, then each number halved alone."""
    leaves, structure = jax.tree.flatten(dict(at))
    table = np.tile(np.array(leaves, dtype=np.float64), (len(leaves) + 1, 1))
    table[np.arange(1, len(leaves) + 1), np.arange(len(leaves))] *= 0.5
    return len(table), jax.tree.unflatten(structure, list(table.T))


def moved(found: Mapping[str, np.ndarray]) -> np.ndarray:
    """By variant the largest relative change of any metric from the first one."""
    rows = np.array(list(found.values()))
    here = rows[:, :1]
    scale = np.where(np.abs(here) > 0.0, np.abs(here), 1.0)
    return np.max(np.nan_to_num(np.abs(rows[:, 1:] - here) / scale), axis=0)


#: Kind of study → the model behind its door.
DOORS: dict[str, Callable[[Design], Any]] = {"training": evaluation.evaluate, "serving": serving.serve}


@functools.cache
def with_constants(kind: str) -> ScalarFunction:
    """(constants, design) → its metrics, and under ``bounds`` its time by what bounds it."""
    study = STUDIES[kind]

    def of(values: Mapping[str, Any], one: Design) -> tuple[Any, None]:
        with replaced(values):
            found, by_bound = DOORS[kind](one), study.bounds(one)
        metrics = {name: getattr(found, name) for name in study.units}
        return metrics | {f"bounds.{name}": value for name, value in by_bound._asdict().items()}, None

    return ScalarFunction(of, None)


def variants(name: str, leaves: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Metric → its values in double precision: with the constants as they are, then with each of them halved."""
    count, values = halved(constants())
    with jax.enable_x64(True):
        one = jax.tree.map(np.float64, paths.build(Design, leaves))
        return with_constants(PANEL[name].kind).batch_values(count, values, one)


def measured(name: str, leaves: Mapping[str, float]) -> dict[str, float]:
    """Metric → its value."""
    return {metric: float(values[0]) for metric, values in variants(name, leaves).items()}


@functools.cache
def kept_variants(name: str) -> dict[str, np.ndarray]:
    """Those of the design that is kept."""
    return variants(name, golden.kept()[name]["leaves"])


@pytest.mark.parametrize("name", PANEL)
def test_the_numbers_of_the_panel_are_those_that_are_kept(name):
    found = {metric: values[0] for metric, values in kept_variants(name).items()}
    expected = golden.kept()[name]["metrics"]
    assert set(found) == set(expected)
    changed = {m: (v, found[m]) for m, v in expected.items() if found[m] != pytest.approx(v, rel=1e-6, abs=1e-30)}
    assert not changed, "python -m tests.contract.golden writes them anew, if this is meant"


@pytest.mark.parametrize("name", PANEL)
def test_parts_and_bounds_add_up_to_their_totals(name):
    study, found = PANEL[name].study, {metric: values[0] for metric, values in kept_variants(name).items()}
    for total in study.totals:
        assert sum(found[part] for part in study.parts(total)) == pytest.approx(found[total], rel=1e-9), total
    bounds = [value for metric, value in found.items() if metric.startswith("bounds.")]
    assert sum(bounds) == pytest.approx(found[study.totals[0]], rel=1e-9)
    assert min(bounds) >= 0.0


#: Measured kernels: formula, values of a row, device.
KERNELS = [
    ("gemm", (6.0, 4096.0, 576.0, float(Precision.fp8_block), 0.0, 1.0), "h100-sxm-80gb"),
    ("gemm", (24.0, 4096.0, 512.0, float(Precision.fp8_block), 0.0, 1.0), "h100-sxm-80gb"),
    ("gemm", (6.0, 512.0, 64.0, float(Precision.fp8_block), 0.0, 1.0), "h100-sxm-80gb"),
    ("gemm_power", (64.0, 8192.0, 4096.0, float(Precision.bf16)), "h100-sxm-80gb"),
    ("attention", (2.0, 1000.0, 8.0, 1.0, 128.0, 0.0, 2.0, 1.0, 1.0, 1.0), "h100-sxm-80gb"),
    ("attention", (8.0, 4096.0, 24.0, 1.0, 128.0, 0.0, 2.0, 0.0, 1.0, 1.0), "h100-sxm-80gb"),
    ("collective", (float(OPERATIONS.index("alltoall")), 8.0 * 12000.0, 8.0, 8.0, 0.0), "h100-sxm-80gb"),
    ("collective", (float(OPERATIONS.index("send_recv")), 1e6, 2.0, 2.0, 0.0), "h100-sxm-80gb"),
    ("exchange", (0.0, 0.0, 4096.0, 7168.0, 8.0, 6.0, 24.0), "h100-sxm-80gb apart"),
]


def kernel_moves() -> np.ndarray:
    """By constant the most that halving it moves any of these kernels."""
    count, values = halved(constants())
    most = np.zeros(count - 1)
    for kind, row, name in KERNELS:

        def seconds(values: Mapping[str, Any], device: Any, kind: str = kind, row: Any = row) -> tuple[Any, None]:
            with replaced(values):
                return {kind: FORMULAS[kind](list(row), device)}, None

        device = jax.tree.map(np.float64, device_of(kind, name))
        most = np.maximum(most, moved(ScalarFunction(seconds, None).batch_values(count, values, device)))
    return most


@functools.cache
def moves() -> dict[str, float]:
    """Constant, its fields apart → the most that halving it moves any metric of the panel, or any kernel."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(constants())]
    names = [name.replace("['dse.model.", "").replace("']", "") for name in names]
    with jax.enable_x64(True):
        most = kernel_moves()
    for name, case in PANEL.items():
        in_steps = set(case.study.units) - set(case.study.smooth)
        found = {metric: rows for metric, rows in kept_variants(name).items() if metric not in in_steps}
        most = np.maximum(most, moved(found))
    return dict(zip(names, most, strict=True))


def test_every_constant_counts():
    still = {name for name, most in moves().items() if most < MOVED}
    assert still == set(GUARDS) | TABLED, "constants that change nothing, or guards that do"


@pytest.mark.parametrize(
    ("precision", "field"),
    [
        (Precision.nvfp4, "efficiency"),
        (Precision.fp8_row, "training_efficiency"),
        (Precision.mxfp8, "training_efficiency"),
    ],
)
def test_rates_of_recipes_count(monkeypatch, precision, field):
    """They stand in a table of recipes, which is read when a function is traced."""
    one = replace(design("weights of four bits"), {"mapping.precision": float(precision)})
    before = evaluation.evaluate(one).step_time
    recipe = formats.RECIPES[precision]
    monkeypatch.setitem(formats.RECIPES, precision, recipe._replace(**{field: 0.5 * getattr(recipe, field)}))
    assert evaluation.evaluate(one).step_time > (1.0 + MOVED) * before


#: Counts of rounds and of terms, known in Python → the design that half as many change.
COUNTS = {
    "serving.arrivals._ITERATIONS": "served, at a rate",
    "serving.steady.ROUNDS": "served, dense",
    "machine.power._HALVINGS": "dense, rings that hide, under a power limit",
    "money.die.MOST_SPARE": "dense, fully sharded, rings",
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_round_counts(name, monkeypatch):
    case, one = PANEL[COUNTS[name]], design(COUNTS[name])
    before = DOORS[case.kind](one)
    module, _, attribute = f"dse.model.{name}".rpartition(".")
    monkeypatch.setattr(f"{module}.{attribute}", getattr(importlib.import_module(module), attribute) // 4)
    after = DOORS[case.kind](one)
    assert any(getattr(after, metric) != getattr(before, metric) for metric in case.study.smooth)


def engines_of(name: str) -> Iterator[str]:
    """Leaves of the engine of a design that are stated."""
    engine = design(name).software.engine or Engine()
    return (field.name for field in dataclasses.fields(engine) if getattr(engine, field.name))


def engine_moves(name: str) -> dict[str, float]:
    """Leaf of an engine → the most that halving it moves any metric of a design of the panel."""
    one = design(name)
    engine = one.software.engine or Engine()
    stated = {leaf: float(getattr(engine, leaf)) for leaf in engines_of(name)}
    with jax.enable_x64(True):
        count, values = halved(stated)
        engine = dataclasses.replace(engine, **values)
        one = dataclasses.replace(one, software=dataclasses.replace(one.software, engine=engine))
        found = with_constants("serving").batch_values(count, constants(), jax.tree.map(np.float64, one))
    return dict(zip(sorted(stated), moved({m: found[m] for m in STUDIES["serving"].smooth}), strict=True))


def test_every_leaf_of_an_engine_counts():
    most: dict[str, float] = {}
    for name in (name for name, case in PANEL.items() if case.kind == "serving"):
        for leaf, change in engine_moves(name).items():
            most[leaf] = max(change, most.get(leaf, 0.0))
    leaves = {field.name for field in dataclasses.fields(Engine)}
    assert not {leaf for leaf in leaves if most.get(leaf, 0.0) < MOVED}
