"""Metrics: totals and their parts are declared once for both doors, and read flat."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

import dse
from dse.doors import STUDIES
from dse.types import Metrics, ServingMetrics
from dse.types.metrics import GROUPS

RECORDS = {"training": Metrics, "serving": ServingMetrics}
ROWS = tomllib.loads(Path(dse.__file__).with_name("types").joinpath("metrics.toml").read_text(encoding="utf-8"))
KEYS = {
    "text", "training", "serving", "symbol", "units", "group", "counts", "high", "without_step", "smooth",
    "parts", "training_parts", "serving_parts", "serving_after",
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_a_metric_of_the_doors_that_it_has_a_text_for(name):
    row = ROWS[name]
    assert row.keys() <= KEYS and row.get("group", GROUPS[0]) in GROUPS
    for door, record in RECORDS.items():
        fields = {field.name: field.metadata for field in dataclasses.fields(record)}
        text = row.get("text", row.get(door))
        assert (name in fields) == (text is not None)
        if text is not None:
            about = fields[name]
            assert (about["long_name"], about["units"]) == (text, row.get("units", "1"))
            parts = STUDIES[door].parts(name)
            assert all(metric == f"{name}_{part}" for metric, part in parts.items())
            assert bool(parts) == any(row.get(key) for key in ("parts", f"{door}_parts"))
            for metric in parts:
                assert (fields[metric]["units"], fields[metric].get("group")) == (about["units"], about.get("group"))


@pytest.mark.parametrize("door", RECORDS)
def test_every_metric_is_declared_in_one_row(door):
    study = STUDIES[door]
    assert study.metrics is RECORDS[door]
    parts = [metric for total in study.totals for metric in study.parts(total)]
    assert sorted([*parts, *(name for name in study.units if name in ROWS)]) == sorted(study.units)
    position = list(study.units).index
    for total in study.totals:  # parts follow their total
        assert [position(metric) - position(total) for metric in study.parts(total)] == [
            *range(1, 1 + len(study.parts(total)))
        ]


class Pair(NamedTuple):
    """Parts of a total."""

    first: float
    second: float


def test_totals_and_their_parts_become_flat_metrics_and_are_read_as_parts_again():
    study, values = STUDIES["training"], {field.name: float(i) for i, field in enumerate(dataclasses.fields(Metrics))}
    nested = {name: value for name, value in values.items() if name in ROWS}
    for total in study.totals:
        nested[total] = (values[total], {part: values[metric] for metric, part in study.parts(total).items()})
    metrics = Metrics.of_totals(**nested)
    assert metrics == Metrics(**values) and metrics.step_time_forward == 1.0
    assert metrics.parts("step_time")["backward"] == 2.0 and metrics.parts("mfu") == {}
    with pytest.raises(TypeError, match="unexpected keyword argument 'step_time_first'"):
        Metrics.of_totals(**nested | {"step_time": (3.0, Pair(1.0, 2.0))})
    with pytest.raises(TypeError, match="no value for "):
        Metrics.of_totals(step_time=(3.0, {"forward": 1.0}))


@pytest.mark.parametrize("record", RECORDS.values())
def test_metrics_are_trees_of_their_fields(record):
    names = [field.name for field in dataclasses.fields(record)]
    metrics = record(**dict(zip(names, map(float, range(len(names))), strict=True)))
    assert jax.tree.leaves(metrics) == [*map(float, range(len(names)))]
    assert jax.tree.map(lambda value: value + 1.0, metrics).feasible == metrics.feasible + 1.0


def test_metrics_are_declared_without_jax():
    code = "import sys, dse.types; assert dse.types.Metrics and 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
