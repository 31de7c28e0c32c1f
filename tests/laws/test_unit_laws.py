"""Physics knows no units: where seconds, joules, dollars, kilograms or metres are twice as long, so are the metrics."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import dse
from dse.designs import leaf, leaves_of, replace
from dse.designs.records import OPTIONAL
from dse.types import Metrics, ServingMetrics
from tests.programs import metrics_of, served

#: What units are made of, as powers of base units; bytes and FLOPs are counts, of which a model has its own.
BASE = {"s": {"s": 1, "Hz": -1, "W": -1}, "J": {"J": 1, "W": 1}, "USD": {"USD": 1}, "kg": {"kg": 1}, "m": {"m": 1}}

#: Of an hour and of a year, which stay as long as they are.
OF_CALENDARS = {"cost_per_device_hour", "tco_per_year"}

#: Records whose defaults have units: stated, so that they follow.
STATED = ("system.reliability", "system.prices", "system.emissions", "system.accelerator.fab")
OF_SERVING = ("workload.requests", "mapping.serving", "software.engine")

TRAINED = [
    ("llama-3-70b", "dgx-gb200", {"tp": 4, "pp": 2, "dp": 4, "precision": "fp8", "recompute": "full"}),
    ("mixtral-8x7b", "mi300x", {"tp": 2, "dp": 8, "ep": 8, "zero_stage": 3, "overlap_dp": 1}),
    ("gemma-2-9b", "tpu-v6e-pod", {"tp": 4, "dp": 16, "cp": 2}),
    ("llama-3-8b", "generated-h100", {"tp": 2, "dp": 8, "zero_stage": 2, "chip.power_budget": 500.0}),
]
SERVED = [
    ("llama-3-70b", "h100", {"tp": 4, "dp": 2, "concurrency": 64, "power.limit": 400.0}),
    ("deepseek-v3", "h200", {"tp": 8, "dp": 2, "ep": 16, "precision": "fp8", "concurrency": 128}),
    ("qwen3-8b", "generated-b200", {"concurrency": 16, "prompt_tokens": 8192}),
]


def power_of(units: str, base: str) -> int:
    """The power of a base unit in a unit such as ``USD/(B/s)``, ``J/m^2`` or ``s-1``."""
    found, outer, sign = 0, [1], 1
    for token in re.findall(r"[A-Za-z]+(?:\^?-?\d+)?|[/()]", units):
        if token == "/":
            sign = -outer[-1]
        elif token == "(":
            outer.append(sign)
        elif token == ")":
            outer.pop()
        else:
            name, power = re.fullmatch(r"([A-Za-z]+)\^?(-?\d+)?", token).groups()
            found += sign * BASE[base].get(name, 0) * int(power or 1)
    return found


def test_powers_of_units():
    assert [power_of(units, "s") for units in ("s", "B/s", "W", "USD/(B/s)", "1/s/USD", "W/m^2", "s-1", "J/FLOP")] == [
        1,
        -1,
        -1,
        1,
        -1,
        -1,
        -1,
        0,
    ]


@pytest.mark.parametrize("base", BASE)
@pytest.mark.parametrize(
    ("evaluate", "record", "named"),
    [
        *((metrics_of, Metrics, named) for named in TRAINED),
        *((served, ServingMetrics, named) for named in SERVED),
    ],
)
def test_metrics_follow_the_unit(base, evaluate, record, named):
    workload, system, settings = named
    design = dse.design(workload, system, any_option=True, **settings)
    for path in STATED + (OF_SERVING if record is ServingMetrics else ()):
        design = replace(design, {} if leaf(design, path) is not None else {path: OPTIONAL[path]()})
    if record is Metrics:  # a bandwidth of 0 follows from the number of devices
        design = replace(design, {"system.reliability.storage_bandwidth": 250e9})
    values = {path: (leaf(design, path), power_of(about["units"], base)) for path, about in leaves_of(design).items()}
    rescaled = replace(design, {path: v * 2.0**power for path, (v, power) in values.items() if v is not None and power})
    before, after = evaluate(design), evaluate(rescaled)
    for field in dataclasses.fields(record):
        if field.name not in OF_CALENDARS:
            expected = float(getattr(before, field.name)) * 2.0 ** power_of(field.metadata["units"], base)
            np.testing.assert_allclose(float(getattr(after, field.name)), expected, rtol=2e-4, err_msg=field.name)
