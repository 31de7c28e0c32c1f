"""A design whose step cannot be made claims no time, rate or utilisation; one that only lacks memory tells its step."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.doors import SERVING, TRAINING
from dse.spec import sweep as specs
from dse.types import Infeasible
from dse.views import explain

MODEL = ["evaluate", "-w", "llama-3-70b"]

#: What leaves no step: the options of a design, and the reason.
IMPOSSIBLE = {
    "precision_unsupported": ["-s", "a100", "-n", "64", "--set", "tp=8", "--set", "precision=fp8"],
    "layers_not_divisible": ["-s", "h100", "-n", "56", "--software", "nemo", "--set", "tp=8", "--set", "pp=7"],
    "batch_not_divisible": ["-s", "h100", "-n", "64", "--set", "tp=8", "--set", "global_batch=3"],
    "heads_not_divisible": ["-s", "h100", "-n", "48", "--set", "tp=24", "--set", "global_batch=512"],
    "interleave_not_divisible": ["-s", "h100", "-n", "64", "--set", "tp=8", "--set", "pp=8", "--set",
                                 "virtual_stages=5", "--set", "global_batch=12"],
}  # fmt: skip


@pytest.mark.parametrize("reason", IMPOSSIBLE)
def test_a_step_that_cannot_be_made_reports_no_utilisation(reason):
    asked = [*MODEL, *IMPOSSIBLE[reason], "--uncertainty"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 1 and "This step is not possible" in shown.stdout
    assert "utilisation (" not in shown.stdout and "tokens trained per second" not in shown.stdout
    document = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert reason in {one["name"] for one in document["reasons"]} and document["has_step"] is False
    metrics = document["metrics"]
    for name in (
        "mfu",
        "mfu_causal",
        "hfu",
        "step_time",
        "tokens_per_second",
        "energy_per_step",
        "run_time",
        "cost_per_run",
        "device_power",
    ):
        assert metrics[name] is None, name
    assert metrics["peak_memory"] > 0.0 and metrics["parameters"] > 7e10 and metrics["device_price"] > 0.0
    assert document["operators"] == document["elasticities"] == [] and document["intervals"] == {}
    assert "step_time" not in document["waterfall"] and "peak_memory" in document["waterfall"]


def test_what_only_lacks_memory_or_an_option_has_a_step():
    too_large = json.loads(CliRunner().invoke(app, [*MODEL, "-s", "h100", "-n", "8", "--set", "tp=8", "--json"]).stdout)
    assert [one["name"] for one in too_large["reasons"]] == ["memory"] and too_large["has_step"]
    assert 0.1 < too_large["metrics"]["mfu"] < 0.7
    for study in (TRAINING, SERVING):
        assert not study.no_step_bits & (Infeasible.memory | Infeasible.power | study.constraint_bit)
        assert study.no_step_bits & Infeasible.precision_unsupported
    assert not TRAINING.no_step_bits & Infeasible.stack_lacks and not SERVING.no_step_bits & Infeasible.latency


@pytest.mark.parametrize(("system", "precision"), [("a100", "fp8"), ("h100", "mxfp8"), ("h100", "nvfp4")])
def test_a_precision_that_nothing_multiplies_uses_nothing_of_the_peak(system, precision):
    """0.73 of a peak of nothing, before."""
    made = dse.design("llama-3-70b", system, n_devices=64, tp=8, precision=precision, any_option=True)
    found = dse.evaluate(made)
    for name in ("mfu", "mfu_causal", "hfu", "tokens_per_second"):
        assert 0.0 <= float(getattr(found, name)) < 1e-6
    assert np.isfinite([float(value) for value in explain(made).metrics.values()]).all()


def test_results_leave_out_what_a_design_without_a_step_would_say():
    text = (
        '[workload]\nname = "llama-3-8b"\nglobal_batch = 64\n[system]\nname = "a100"\nn_devices = 8\n'
        '[axes]\nprecision = ["bf16", "fp8"]\ntp = [1, 8]\nmicro_batch = [1]\n'
    )
    found = {name: one.values for name, one in dse.sweep.perform(specs.from_text(text), False)[0].data.items()}
    lacks = (found["infeasible_reason"] & Infeasible.precision_unsupported) != 0
    lone = (found["infeasible_reason"] & ~Infeasible.memory) == 0
    assert lacks.any() and lone.any() and (lacks ^ lone).all()
    for name in ("step_time", "mfu", "tokens_per_second"):
        assert np.isnan(found[name][lacks]).all() and np.isfinite(found[name][lone]).all()
    assert np.isfinite(found["peak_memory"]).all()
