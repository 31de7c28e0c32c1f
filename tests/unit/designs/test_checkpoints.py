"""Models are served in the format of their checkpoint unless a design says another, alone and in sweeps."""

from __future__ import annotations

import numpy as np
import pytest

import dse
from dse.designs import catalog, leaf
from dse.spec.sweep import from_text
from dse.sweep import execute, plan
from dse.types import Precision

SWEEP = """
[system]
name = "h100"
n_devices = 8
[serving]
isl = 1000
osl = 200
[axes]
workload = {models}
accelerator = ["h200", "b200"]
concurrency = [16]
tp = [1]
ep = [8]
{more}
"""


def formats(made) -> tuple[float, ...]:
    return tuple(float(leaf(made, path)) for path in catalog.SERVED_FORMAT)


@pytest.mark.parametrize(("model", "system", "expected"), [
    ("deepseek-v3", "h200", (Precision.fp8, 0.0, 0.0)), ("deepseek-v3", "a100", (Precision.bf16, 1.0, 0.0)),
    ("gpt-oss-120b", "h100", (Precision.bf16, 0.0, 0.53125)), ("llama-3-70b", "h200", (Precision.bf16, 0.0, 0.0)),
])  # fmt: skip
def test_a_design_that_serves(model, system, expected):
    assert formats(dse.design(model, system, kind="serving")) == expected
    assert formats(dse.design(model, system, kind="serving", precision="bf16")) == (Precision.bf16, 0.0, 0.0)


def test_training_is_in_16_bits():
    assert float(dse.design("deepseek-v3", "h200").mapping.precision) == Precision.bf16


def test_a_sweep_of_models_and_accelerators():
    """Each model in its own format, and mixtures on accelerators that bring their stacks have all metrics."""
    grid = plan(from_text(SWEEP.format(models='["deepseek-v3", "gpt-oss-120b"]', more="")))[0]
    assert all(any(f"{said};" in text for text in grid.remarks) for said in ("deepseek-v3 fp8", "gpt-oss-120b mxfp4"))
    data, _ = execute(from_text(SWEEP.format(models='["deepseek-v3", "gpt-oss-120b"]', more="")), output=False)
    assert np.isfinite(data.time_per_output_token).all()
    for model in ("deepseek-v3", "gpt-oss-120b"):
        own = dse.design(model, "b200", n_devices=8, kind="serving", ep=8, tp=1, isl=1000, osl=200, concurrency=16)
        swept = float(data.time_per_output_token.sel(workload=model, accelerator="b200-sxm-180gb").squeeze())
        assert swept == pytest.approx(float(dse.serve(own).time_per_output_token), rel=1e-4)


def test_a_stated_format_counts():
    sixteen = SWEEP.format(models='["deepseek-v3"]', more='[mapping]\nprecision = "bf16"')
    assert plan(from_text(sixteen))[0].base.mapping.precision == Precision.bf16
    assert not any("checkpoint" in text for text in plan(from_text(sixteen))[0].remarks)


@pytest.mark.parametrize("stack", catalog.names("software"))
def test_requests_in_flight_by_default_lie_in_the_rows_of_engines(stack):
    """Of engines for the accelerators of the default; others have rows of a few requests at a time."""
    entry = catalog.entry("software", stack)
    extent = entry.value("calibrated.concurrency")
    if extent is not None and extent[0] < extent[1] and "NVIDIA" in (entry.value("vendors", ()) or ("NVIDIA",)):
        default = dse.design("llama-3-8b", "h100", kind="serving").workload.requests.concurrency
        assert extent[0] <= default <= extent[1]
