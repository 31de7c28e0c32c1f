"""Accelerators compared on one system: each in its own node with its own stack, unless the sweep says otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from dse import types
from dse.designs import catalog, leaf
from dse.errors import InputError
from dse.sweep import execute, from_text, plan
from tests.unit.sweep import toy

CHIPS = ["a100-sxm-80gb", "h100-sxm-80gb", "gb200-nvl72"]


def found(system):
    return catalog.record(types.System, system)


def spec(axes: str, system: str = "eos", fixed: str = "", software: str = ""):
    return from_text(f"""
[workload]
name = "gpt-3-13b"
global_batch = 128
[system]
name = "{system}"
n_devices = 64
{fixed}
[software]
{software}
[axes]
{axes}
tp = [8]
micro_batch = [1]
""")


COMPARED = f"accelerator = {CHIPS}"


def columns(*arguments, **options):
    grid = plan(spec(*arguments, **options))[0]
    return grid, grid.dimensions[0].columns


def test_each_has_its_own_node_and_stack():
    grid, found = columns(COMPARED)
    alone = [catalog.record(types.System, chip) for chip in CHIPS]
    for path in ("scale_up.bandwidth", "scale_up.latency", "scale_up.domain", "host.bandwidth", "host_power"):
        head, _, rest = path.partition(".")
        wanted = [getattr(getattr(one, head), rest) if rest else getattr(one, head) for one in alone]
        np.testing.assert_allclose(found[f"system.{path}"], wanted, err_msg=path)
    assert [axis.name for axis in grid.dimensions[0].axes] == ["accelerator", "software"]
    assert grid.dimensions[0].axes[1].labels == tuple(map(catalog.default_software, CHIPS))
    assert not [path for path in found if path.startswith("system.scale_out")]
    assert grid.base.system.scale_out.bandwidth == catalog.record(types.System, "eos").scale_out.bandwidth


def test_a_chip_is_as_fast_as_on_its_own():
    """The figures of one axis are those of each chip as the system, on the same network between nodes."""
    together, _ = execute(spec(COMPARED), output=False, study=toy.STUDY)
    for chip in CHIPS:
        alone, _ = execute(
            spec("pp = [1]", system=chip, fixed='scale_out = "infiniband-ndr"'), output=False, study=toy.STUDY
        )
        one = together.sel(accelerator=chip)
        assert one.software == alone.software
        np.testing.assert_allclose(one.step_time.squeeze(), alone.step_time.squeeze(), rtol=1e-6)


def test_what_the_sweep_says_stays():
    grid, found = columns(COMPARED, fixed='scale_up = "nvlink-4"\nhost_power = "100 W"', software='name = "nemo"')
    assert "system.scale_up.bandwidth" not in found and "system.host_power" not in found
    assert grid.base.system.scale_up.bandwidth == np.float32(450e9)
    assert found["system.scale_up.domain"].tolist() == [8, 8, 72], "how many a node joins is not the link's"
    assert [axis.name for axis in grid.dimensions[0].axes] == ["accelerator"]
    assert {axis.key: axis.labels for axis in grid.fixed}["software"] == ("nemo",)
    _, found = columns(COMPARED, fixed="scale_up.domain = 16")
    assert "system.scale_up.domain" not in found and "system.scale_up.bandwidth" in found


def test_it_is_told():
    assert columns(COMPARED)[0].notes["nodes"] == (
        "each accelerator in its own node: a100-sxm-80gb (8 a node, nvlink-3, jax-toolbox-a100), "
        "h100-sxm-80gb (8 a node, nvlink-4, megatron-bridge), "
        "gb200-nvl72 (72 a node, nvlink-5, megatron-bridge); the network between nodes is that of eos"
    )
    told = columns(COMPARED, fixed='scale_up = "nvlink-4"', software='name = "nemo"')[0].notes["nodes"]
    assert "a100-sxm-80gb (8 a node), h100-sxm-80gb (8 a node), gb200-nvl72 (72 a node)" in told
    assert told.endswith("; software nemo for all")
    assert plan(spec("pp = [1]"))[0].notes["nodes"] == ""


def test_links_of_a_torus_are_a_part_of_their_own():
    """Who is beside an accelerator changes nothing of it; each has its own links."""
    _, alone = columns(COMPARED)
    grid, _ = columns(f"accelerator = {[*CHIPS, 'tpu-v6e']}")
    *switched, torus = grid.structure_grids  # accelerators of one die and of several are parts too
    for path, values in alone.items():
        found_by_part = []
        for part in switched:
            same = leaf(part.base, path)  # for all of a part; None where its column is, or the leaf is absent
            column = [] if same is None else np.full(part.dimensions[0].size, same)
            found_by_part.append(part.dimensions[0].columns.get(path, column))
        together = np.concatenate(found_by_part)
        if len(together) < len(values):  # optional: some stacks and hosts state none
            assert path.startswith(("software.", "system.host")) and set(together) <= set(values), path
            continue
        np.testing.assert_array_equal(np.sort(together), np.sort(values), err_msg=path)
    links = torus.base.system.scale_up
    assert links.links is not None and links.bandwidth == np.float32(found("tpu-v6e").scale_up.bandwidth)
    assert grid.dimensions[0].axes[1].labels == tuple(map(catalog.default_software, [*CHIPS, "tpu-v6e"]))
    note = "each accelerator in its own node: a100-sxm-80gb (8 a node, nvlink-3, jax-toolbox"
    assert grid.notes["nodes"].startswith(note)
    together, _ = execute(spec(f"accelerator = {[*CHIPS, 'tpu-v6e']}"), output=False)
    apart, _ = execute(spec('accelerator = ["tpu-v6e"]'), output=False)
    one = together.sel(accelerator="tpu-v6e").dropna("mapping")
    np.testing.assert_array_equal(one.step_time, apart.step_time[0])


def test_one_whose_links_are_not_known_stands_in_the_systems_node():
    _, alone = columns(COMPARED)
    grid, beside = columns(f"accelerator = {[*CHIPS, 'wse-3']}")
    for path, values in alone.items():
        np.testing.assert_array_equal(beside[path][:-1], values, err_msg=path)
    assert beside["system.scale_up.bandwidth"][-1] == catalog.record(types.System, "eos").scale_up.bandwidth
    stack = catalog.default_software("wse-3")
    assert f"in the nodes of eos, with its links: wse-3 ({stack}) (their own are not known)" in grid.notes["nodes"]
    assert grid.notes["nodes"].startswith("each in its own node: a100-sxm-80gb (8 a node, nvlink-3, jax-toolbox-a100)")


def test_a_switched_accelerator_on_a_pod_has_its_own_node():
    grid = plan(spec('accelerator = ["tpu-v6e", "h100"]', system="tpu-v6e-pod"))[0]
    torus, switched = grid.structure_grids
    assert torus.base.system.scale_up.links is not None and switched.base.system.scale_up.links is None
    assert switched.base.system.scale_up.bandwidth == np.float32(found("h100").scale_up.bandwidth)


@pytest.mark.parametrize(
    ("axes", "fixed", "told"),
    [("pp = [1]", 'accelerator = "h200"', "h200-sxm-141gb: in the nodes of eos, with its links and its stack nemo")],
)
def test_what_keeps_the_nodes_of_its_system_is_told(axes, fixed, told):
    """One that is fixed is a part of its system."""
    grid = plan(spec(axes, fixed=fixed))[0]
    assert grid.notes["nodes"] == told
    assert grid.base.system.scale_up.domain == 8.0
    assert grid.base.software.host_time == np.float32(catalog.record(types.Software, "nemo").host_time)


def test_a_generated_accelerator_has_links_as_fast_as_its_chip_drives():
    gpu = catalog.record(types.System, "gpu")
    assert gpu.scale_up.bandwidth == gpu.accelerator.chip.link_bandwidth == 900e9
    assert gpu.scale_out.bandwidth == 100e9 and gpu.scale_up.domain == 8.0


@pytest.mark.parametrize(
    "section", ["[objective]\nminimize = 'device_cost'", "[constraints]\nall = ['device_cost <= 9000']"]
)
def test_a_bill_that_nobody_knows_is_no_bill_of_nothing(section):
    """An accelerator without dies cost 0 USD, and won."""
    text = "[workload]\nname = 'llama-3-8b'\n[system]\nname = 'eos'\n[axes]\naccelerator = {}\n" + section
    with pytest.raises(InputError, match="b300-sxm-288gb, without a stated bill"):
        plan(from_text(text.format("['h100', 'b300']")))
    plan(from_text(text.format("['h100', 'gb200-nvl72']")))
    plan(from_text(text.format("['h100', 'b300']").replace("device_cost", "device_price")))
