"""Sweeps over systems with optional records, and the mappings that are no others."""

import numpy as np
import pytest

import dse
from dse.types import Infeasible
from tests.programs import metrics_of

SWEEP = """
title = "presets"

[workload]
name = "gpt-3-13b"
global_batch = 16

[system]
name = {systems}
n_devices = 16

[axes]
tp = [1, 8]
pp = [1, 2]
sequence_parallel = [0, 1, 3]
offload_optimizer = [false, true]
precision = ["fp16"]

[objective]
minimize = "step_time"
"""


def write(folder, systems):
    path = folder / "presets.toml"
    path.write_text(SWEEP.replace("{systems}", systems))
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    return dse.run(write(folder, '"calculon-a100-80g"'), output=folder / "presets.nc")


def test_a_sweep_of_a_preset_is_the_model_of_that_preset(results):
    for at in range(0, results.sizes["mapping"], 3):
        row = results.isel(mapping=at)
        names = ("tp", "pp", "dp", "sequence_parallel", "offload_optimizer")
        options = {name: row[name].item() for name in names}
        design = dse.design(
            "gpt-3-13b", "calculon-a100-80g", n_devices=16, global_batch=16, precision="fp16", **options
        )
        assert float(metrics_of(design).step_time) == pytest.approx(float(row.step_time), rel=1e-5)


def test_a_split_at_cuts_needs_two_stages_and_a_split_needs_tp(results):
    variant, tp, pp = (results[name].values for name in ("sequence_parallel", "tp", "pp"))
    assert set(variant[tp == 1]) == {0}
    assert set(variant[(tp == 8) & (pp == 1)]) == {0, 1} and set(variant[(tp == 8) & (pp == 2)]) == {0, 1, 3}
    assert np.unique(results["offload_optimizer"].values).size == 2


def test_systems_unlike_in_the_steps_of_an_efficiency_are_swept_together(results, tmp_path):
    path = tmp_path / "mixed.toml"
    text = SWEEP.replace("name = {systems}\n", "").replace(
        "[axes]\n", '[axes]\nsystem = ["selene", "calculon-a100-80g"]\n'
    )
    path.write_text(text)
    found = dse.run(path, output=tmp_path / "mixed.nc")
    own = found.sel(system="calculon-a100-80g").dropna("mapping", subset=["step_time"])
    for name in ("step_time", "peak_memory", "tp", "pp", "sequence_parallel", "offload_optimizer"):
        np.testing.assert_array_equal(own[name].values.reshape(-1), results[name].values.reshape(-1))


def test_stacks_unlike_in_a_leaf_whose_absence_is_a_value_are_swept_together(tmp_path):
    """MaxText says what it keeps, Megatron-Core is as one that says nothing: each point is the model of its stack."""
    path = tmp_path / "stacks.toml"
    text = SWEEP.replace("{systems}", '"selene"').replace('["fp16"]', '["bf16"]')
    path.write_text(text.replace("[axes]\n", '[axes]\nsoftware = ["megatron-core", "maxtext"]\n'))
    found = dse.run(path, output=tmp_path / "stacks.nc")
    for stack in ("megatron-core", "maxtext"):
        for at in range(0, found.sizes["mapping"], 5):
            row = found.sel(software=stack).isel(mapping=at)
            options = {name: row[name].item() for name in ("tp", "pp", "dp", "sequence_parallel", "offload_optimizer")}
            settings = dict(n_devices=16, global_batch=16, precision="bf16", any_option=True) | options
            design = dse.design("gpt-3-13b", "selene", stack, **settings)
            for metric in ("peak_memory", "step_time"):
                alone = getattr(metrics_of(design), metric)
                assert float(row[metric]) == pytest.approx(float(alone), rel=1e-5), (stack, options, metric)


@pytest.mark.parametrize(("splits", "kinds"), [("[1]", {0, 1, 2}), ("[0]", {0}), ("[0, 1]", {0, 1, 2})])
def test_a_stack_that_splits_the_hidden_size_is_offered_what_it_can_run(tmp_path, splits, kinds):
    """PaLM's 12 ranks of tp do not divide 2,048 tokens, but 18,432 of hidden size; else designs tell the reason."""
    path = tmp_path / "palm.toml"
    path.write_text(f"""
title = "PaLM"
[workload]
name = "palm-540b"
global_batch = 2048
[system]
name = "tpu-v4"
n_devices = 6144
[axes]
tp = [12]
sequence_parallel = [0, 1, 2]
recompute = ["full"]
zero_stage = [3]
splits_hidden = {splits}
[output]
keep = "all"
""")
    found = dse.run(path, output=tmp_path / "palm.nc")
    assert set(found["sequence_parallel"].values.ravel()) == kinds
    wrong = (found["infeasible_reason"].values.astype(int) & int(Infeasible.sequence_not_divisible)) > 0
    assert wrong.any() == (splits == "[0, 1]")
