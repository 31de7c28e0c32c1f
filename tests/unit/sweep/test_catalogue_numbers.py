"""Numbers of the catalogue along axes of its names: of every kind, in every layout, in files read without dse."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import dse
from dse import optimizers
from dse.designs import catalog
from dse.sweep import execute, from_text

ROOT = Path(__file__).parents[3]
GPUS = """
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "eos"
n_devices = 64
accelerator = "gpu"
[mapping]
tp = 8
zero_stage = 1
[axes]
node = ["n12", "n2", "imec-a10", "extrapolated-a7"]
memory = ["hbm3-6-4", "hbm4-8-0"]
scale_out = ["infiniband-ndr", "infiniband-xdr", "infiniband-gdr"]
pp = [1, 2]
micro_batch = [1, 2]
"""
BOUGHT = """
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "eos"
n_devices = 64
[mapping]
zero_stage = 1
[axes]
tp = [4, 8]
"""


def run(text, keep="all", output=None):
    return execute(from_text(text), output=output, keep=keep)[0]


@pytest.fixture(scope="module")
def generated():
    return run(GPUS)


def test_nodes_have_the_length_of_their_name_and_the_year_and_say_what_is_extrapolated(generated):
    assert generated.node_nm.values.tolist() == [12.0, 2.0, 1.0, 0.7]
    assert generated.node_year.values.tolist() == [2017, 2025, 2030, 2033]
    assert generated.node_extrapolated.values.tolist() == [False, False, True, True]
    assert generated.node_nm.dims == ("node",) and generated.node_nm.attrs["units"] == "nm"


def test_memories_have_bandwidth_capacity_and_energy_of_a_stack(generated):
    assert generated.memory_bandwidth.values.tolist() == [819.2e9, 2048e9]
    assert generated.memory_capacity.attrs["units"] == "B" and generated.memory_year.values.tolist() == [2022, 2026]
    expected = [catalog.entry("memory", slug).value("unit_energy") for slug in generated.memory.values]
    np.testing.assert_allclose(generated.memory_energy, expected, rtol=1e-9)
    assert generated.memory_energy.attrs["units"] == "J/B"


def test_networks_have_their_rate_and_where_both_are_axes_one_each(generated):
    assert generated.network_rate.values.tolist() == [50e9, 100e9, 200e9] and generated.network_rate.dims == (
        "scale_out",
    )
    both = run(GPUS.replace("pp = [1, 2]", 'scale_up = ["nvlink-4", "nvlink-5"]'))
    assert "network_rate" not in both.coords
    assert both.scale_up_rate.values.tolist() == [450e9, 900e9] and both.scale_up_rate.dims == ("scale_up",)
    assert both.scale_out_rate.values.tolist() == [50e9, 100e9, 200e9]


def test_bought_accelerators_and_models_have_theirs():
    text = BOUGHT.replace('name = "gpt-3-13b"\n', "")
    found = run(
        text + 'accelerator = ["a100-sxm-80gb", "h100-sxm-80gb"]\nworkload = ["gpt-3-13b", "gpt-3-6-7b"]', "best"
    )
    assert found.accelerator_year.values.tolist() == [2020, 2022]
    assert found.accelerator_memory_bandwidth.values.tolist() == [2039e9, 3350e9]
    assert found.accelerator_peak.values.tolist() == [312e12, 989.4e12]
    assert found.workload_parameters.values[0] > found.workload_parameters.values[1] > 6e9


def test_a_number_that_some_names_lack_is_missing_there(tmp_path):
    """Of a generated accelerator no peak is stated; where no name has it there is no coordinate."""
    text = BOUGHT + 'accelerator = ["h100-sxm-80gb", "gpu"]'
    found = run(text, output=tmp_path / "r.nc")
    assert np.isnan(found.accelerator_peak.values).tolist() == [False, True] and "accelerator_tdp" in found.coords
    with dse.open_results(tmp_path / "r.nc") as again:
        xr.testing.assert_identical(again.load(), found)
    assert "accelerator_peak" not in run(text.replace('"h100-sxm-80gb", "gpu"', '"gpu", "generated-h100"')).coords


def test_axes_that_move_together_have_theirs_along_the_one_dimension():
    zipped = 'scale_out = ["infiniband-ndr", "infiniband-xdr"]\n[zip]\ngroups = [["memory", "scale_out"]]'
    text = GPUS.replace('scale_out = ["infiniband-ndr", "infiniband-xdr", "infiniband-gdr"]\n', "") + zipped
    found = run(text)
    assert found.memory_bandwidth.dims == found.network_rate.dims == ("memory",)
    assert found.network_rate.sel(memory="hbm4-8-0") == 100e9


@pytest.mark.parametrize("keep", ["feasible", "top:7"])
def test_single_designs_have_them_in_their_order_and_are_not_identified_by_them(generated, keep):
    found = run(GPUS, keep)
    assert "node_nm" not in found.indexes["design"].names and found.node_nm.dims == ("design",)
    by_name = dict(zip(generated.node.values.tolist(), generated.node_nm.values.tolist(), strict=True))
    assert [by_name[name] for name in found.node.values.tolist()] == found.node_nm.values.tolist()


def test_designs_of_a_search_have_theirs(tmp_path):
    """As data by method and seed, as the labels of its best designs are."""
    text = GPUS + '[search]\nmethod = "random"\nevaluations = 64\nseeds = 2\npolish = false\n'
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    optimizers.run(tmp_path / "s.toml", tmp_path / "s.nc")
    with dse.open_results(tmp_path / "s.nc") as found:
        assert found.node_nm.dims == found.node.dims == ("searcher", "seed")
        lengths = {"n12": 12.0, "n2": 2.0, "imec-a10": 1.0, "extrapolated-a7": 0.7}
        assert found.node_nm.values.ravel().tolist() == [lengths[name] for name in found.node.values.ravel()]


def test_an_axis_of_the_same_name_comes_first():
    text = GPUS + '"memory.bandwidth" = ["2 TB/s", "3 TB/s"]\n'
    text = text.replace('accelerator = "gpu"', "").replace('node = ["n12", "n2", "imec-a10", "extrapolated-a7"]', "")
    text = text.replace('memory = ["hbm3-6-4", "hbm4-8-0"]', "")
    assert run(text).memory_bandwidth.attrs["path"] == "system.accelerator.memory.bandwidth"


def test_a_served_model_has_its_energy_along_the_memories_of_its_accelerator():
    text = """
[workload]
name = "llama-2-7b"
[system]
name = "gpu"
n_devices = 1
[serving]
concurrency = 4
[axes]
memory = ["gddr6-16", "hbm3e-9-2"]
tp = [1]
"""
    found = run(text)
    assert found.memory_bandwidth.values.tolist() == [64e9, 1177.6e9]
    assert (found.energy_per_output_token > 0.0).all() and (found.device_power > 0.0).all()


def test_plain_xarray_draws_over_nanometres_in_three_lines(tmp_path, monkeypatch):
    """The lines of docs/files.md, on fewer mappings of the sweep that they are of."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    text = (ROOT / "sweeps" / "technology_nodes_memories_networks.toml").read_text(encoding="utf-8")
    lines = re.search(
        r"```python\n(import xarray\n.*?)```", (ROOT / "docs" / "files.md").read_text("utf-8"), re.DOTALL
    )[1]
    code = [line for line in lines.splitlines() if line]
    assert len(code) == 3 and all(line in text for line in code) and "dse" not in lines
    few = {"tp": [8], "pp": [8, 16], "micro_batch": [1], "virtual_stages": [1], "recompute": ["full"]}
    for name, values in few.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {json.dumps(values)}", text, flags=re.MULTILINE)
    small = run(text, output=tmp_path / "results" / "technology_nodes_memories_networks.nc")
    monkeypatch.chdir(tmp_path)
    pyplot.figure()
    exec(lines, {})
    drawn = pyplot.gca().get_lines()
    pyplot.close("all")
    assert len(drawn) == small.sizes["memory"] == 7
    assert sorted(drawn[0].get_xdata()) == [0.5, 0.7, 1.0, 1.4, 1.6, 2.0, 3.0, 5.0, 7.0, 10.0, 12.0]
    best = small.step_time.where(small.feasible).min(["mapping", "scale_out"])
    np.testing.assert_array_equal(drawn[-1].get_ydata(), best.isel(memory=-1))
    assert small.sizes["node"] * small.sizes["memory"] * small.sizes["scale_out"] * 5643 == 2_172_555
