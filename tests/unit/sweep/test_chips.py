"""Chips, nodes and memories as axes of a sweep, and as leaves of a design."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dse
from dse.designs import all_leaves, leaf, leaf_path, leaves_of
from dse.designs.leaves import leaves
from dse.designs.records import CHIP, MANUFACTURE, OF_KERNELS, OPTIONAL
from dse.errors import InputError
from dse.measured import evaluate_many
from dse.spec.sweep import from_text
from dse.sweep.grid.compose import build
from dse.types import Metrics
from dse.types.metrics import CARBON, MONEY

SPEC = """
[workload]
name = "gpt-3-13b"
global_batch = 64

[system]
name = "{system}"
n_devices = 16
{fixed}

[mapping]
recompute = "full"
zero_stage = 1
overlap_dp = false
overlap_tp = false

[axes]
tp = [8]
{axes}
"""


ENERGY = "\n[output]\nenergy = true\n"


def spec(system="gpu", axes="", fixed=""):
    return SPEC.format(system=system, axes=axes, fixed=fixed)


def grid(**parts):
    return build(from_text(spec(**parts)))


def test_names_of_chips_leave_others_unique():
    assert leaf_path("memory.bandwidth") == "system.accelerator.memory.bandwidth"
    assert leaf_path("cache") == "system.accelerator.cache"
    assert leaf_path("node.energy") == f"{CHIP}.node.energy"
    assert leaf_path("chip.die_area") == f"{CHIP}.die_area"
    with pytest.raises(InputError):
        leaf_path("die_area")
    assert not [path for path in leaves() if path.startswith(CHIP)]


def test_leaves_of_a_design():
    ordinary = dse.design(workload="gpt-3-13b", system="h100", tp=8)
    made = dse.design(workload="gpt-3-13b", system="gpu", tp=8, **{"chip.die_area": "500 mm2", "node.energy": 0.4})
    ours = {*OF_KERNELS, CHIP, MANUFACTURE}
    others = {path for path in all_leaves() if path.startswith(tuple(OPTIONAL.keys() - ours))}
    own = {
        path: about for path, about in leaves_of(ordinary).items() if not path.startswith((*OF_KERNELS, MANUFACTURE))
    }
    assert own == leaves() and leaves_of(made).keys() == all_leaves().keys() - others
    assert leaf(made, f"{CHIP}.die_area") == pytest.approx(500e-6)
    assert leaf(made, f"{CHIP}.node.energy") == 0.4


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (dict(system="selene", axes='node = ["n7"]'), "chip.node"),
        (dict(system="selene", fixed='memory = "hbm3-5-2"'), "chip.memory"),
        (dict(system="selene", axes='chip.die_area = ["800 mm2"]'), "chip.die_area"),
        (dict(system="selene", axes="node.energy = [0.5]"), "chip.node.energy"),
        (dict(axes='memory.bandwidth = ["3 TB/s"]'), "memory.bandwidth of a generated"),
        (dict(system="selene", axes='accelerator = ["a100", "h100"]\nchip.stacks = [4, 6]'), "chip.stacks"),
        (dict(fixed='node = "n3x"'), "did you mean"),
    ],
)
def test_a_chip_where_there_is_none_is_one_clear_error(parts, told):
    with pytest.raises(InputError) as caught:
        grid(**parts)
    assert told in str(caught.value)
    error = caught.value
    assert "sweep.toml" in error.where and error.got and error.allowed and error.fix


def test_a_design_tells_of_a_chip_it_lacks():
    with pytest.raises(InputError, match=r"chip\.die_area"):
        dse.design(workload="gpt-3-13b", system="h100", tp=8, **{"chip.die_area": "500 mm2"})


def test_accelerators_with_chips_are_columns():
    found = grid(system="selene", axes='accelerator = ["generated-a100", "generated-mi300x"]')
    columns = found.dimensions[0].columns
    assert columns[f"{CHIP}.base_area"].tolist() == [0.0, pytest.approx(1480e-6)]
    assert grid(system="gpu", axes='accelerator = ["a100"]').base.system.accelerator.chip is None


@pytest.mark.parametrize("axis", [pytest.param("node", marks=pytest.mark.slow), "memory"])
def test_a_sweep_is_its_designs(axis, tmp_path):
    names = {"node": ["n5", "n3e"], "memory": ["hbm3-6-4", "hbm4-8-0"]}[axis]
    file = tmp_path / "chips.toml"

    def device_bound(**parts):  # the host of small layers would hide the device
        return spec(**parts).replace("[mapping]", "[software]\nhost_time = 0\n\n[mapping]")

    file.write_text(device_bound(axes=f"{axis} = {names}".replace("'", '"') + "\nchip.stacks = [6, 8]"))
    results = dse.run(file, output=tmp_path / "chips.nc")
    assert dict(results.step_time.sizes)[axis] == 2 if axis in results.step_time.dims else True
    steps = np.sort(results.step_time.values.ravel())
    expected = []
    for name in names:
        for stacks in (6, 8):
            (tmp_path / "one.toml").write_text(device_bound(fixed=f'{axis} = "{name}"\nchip.stacks = {stacks}'))
            expected.append(float(dse.run(tmp_path / "one.toml", output=tmp_path / "one.nc").step_time.values.item()))
    assert np.allclose(steps, np.sort(expected), rtol=1e-5)
    assert len(set(np.round(steps, 9))) > 1


def accelerators(*names, fixed=""):
    listed = ", ".join(f'"{name}"' for name in names)
    whole = spec(system="eos", fixed=fixed, axes=f'accelerator = [{listed}]\nscale_up = ["nvlink-3", "nvlink-5"]')
    return whole.replace("[mapping]", "[software]\nhost_time = 0\n\n[mapping]")


@pytest.mark.parametrize(
    ("axes", "fixed", "told"),
    [
        ("chip.stacks = [4, 6]", "", "without chip.stacks: a100-sxm-80gb"),
        ('memory.bandwidth = ["2 TB/s", "3 TB/s"]', "", "without memory.bandwidth: gpu"),
        ('node = ["n5", "n7"]', "", "without node: a100-sxm-80gb"),
    ],
)
def test_what_one_sort_has_is_swept_of_it_alone(axes, fixed, told):
    whole = grid(system="selene", axes=f'accelerator = ["a100", "gpu"]\n{axes}', fixed=fixed)
    assert sorted(one.n_points for one in whole.structure_grids) == [1, 2] and told in whole.remarks


def test_a_node_of_generated_accelerators_alone():
    whole = grid(system="selene", axes='accelerator = ["a100", "gpu"]', fixed='node = "n5"')
    bought, generated = (one.base.system.accelerator.chip for one in whole.structure_grids)
    alone = grid(system="gpu", fixed='node = "n5"').base.system.accelerator.chip
    assert bought is None and generated.node.energy == alone.node.energy


def test_figures_of_both_sorts_are_not_compared_without_a_word():
    """Times and energies are near each other, prices are of two kinds."""

    def told(*names, more=""):
        return " ".join(build(from_text(accelerators(*names) + more)).remarks)

    money = "[output]\nmoney = true\n"
    assert "compare prices with those of generated chips" in told("h100-sxm-80gb", "generated-h100", more=money)
    assert "compare" not in told("h100-sxm-80gb", "gpu", more="[output]\nenergy = true\n")
    assert all("compare" not in told(*names, more=money) for names in (["gpu", "generated-h100"], ["h100-sxm-80gb"]))


@pytest.mark.slow
def test_bought_and_generated_accelerators_share_an_axis(tmp_path):
    def run(*names):
        file = tmp_path / "chips.toml"
        file.write_text(accelerators(*names) + ENERGY)
        return dse.run(file, output=tmp_path / f"{len(names)}-{names[0]}.nc").load()

    mixed = run("h100-sxm-80gb", "generated-h100", "gpu")
    parts = [run("h100-sxm-80gb"), run("generated-h100", "gpu")]
    for name in mixed.data_vars:
        apart = np.concatenate([part[name].transpose("accelerator", ...).values for part in parts])
        together = mixed[name].transpose("accelerator", ...).values
        assert np.allclose(together, apart, rtol=1e-5, equal_nan=True), name
    assert len(np.unique(np.round(mixed.step_time.values, 9))) > 3


@pytest.mark.slow
def test_a_power_limit_holds_on_an_axis_of_both_sorts():
    def first(*names):
        return build(from_text(accelerators(*names, fixed='power.limit = "400 W"'))).base

    bought, made = "h100-sxm-80gb", "generated-h100"
    found = evaluate_many([first(bought, made), first(bought), first(made, bought), first(made)])
    of_money = {field.name for field in dataclasses.fields(Metrics) if field.metadata.get("group") in (MONEY, CARBON)}
    for name in found.keys() - of_money:  # not asked for, so nobody says what accelerators are made of
        assert np.allclose(found[name][::2], found[name][1::2], rtol=1e-5), name
