"""Specifications: what they mean, and what is said of bad ones."""

import re

import numpy as np
import pytest

from dse.doors import SERVING, TRAINING
from dse.errors import InputError
from dse.spec.expression import parse
from dse.sweep import from_text, plan, read
from tests.unit.sweep.toy import sweep


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('["1 TB/s", "2 TB/s"]', [1e12, 2e12]),
        ('{ from = "1 TB/s", to = "8 TB/s", factor = 2 }', [1e12, 2e12, 4e12, 8e12]),
        ('{ from = "1 TB/s", to = "7.9 TB/s", factor = 2 }', [1e12, 2e12, 4e12]),
        ('{ from = "1 TB/s", to = "2 TB/s", step = "500 GB/s" }', [1e12, 1.5e12, 2e12]),
        ('{ from = "1 TB/s", to = "3 TB/s", count = 5 }', [1e12, 1.5e12, 2e12, 2.5e12, 3e12]),
    ],
)
def test_ways_to_write_an_axis(text, values):
    for name in ("memory.bandwidth", '"memory.bandwidth"', "system.accelerator.memory.bandwidth"):
        (axis,) = sweep(f"{name} = {text}").axes
        assert axis.key == "system.accelerator.memory.bandwidth"
        np.testing.assert_allclose(axis.values, values)


@pytest.mark.parametrize("last", [0.3, 0.7, 1.1])
def test_a_step_meets_the_end_despite_rounding(last):
    (axis,) = sweep(f"matrix_slowdown = {{ from = 0.1, to = {last}, step = 0.1 }}").axes
    assert len(axis.values) == round(last / 0.1)


def test_labels_are_readable():
    spec = sweep(
        'recompute = ["none", "full"]\nzero_stage = [0, 1]\noverlap_dp = [false, true]\nprecision = ["fp8_block"]'
    )
    assert [axis.labels for axis in spec.axes] == [("none", "full"), (0.0, 1.0), (False, True), ("fp8-block",)]


def test_defaults():
    spec = from_text('[workload]\nname = "gpt-3-13b"', "sweeps/some.toml")
    assert (str(spec.output), str(spec.keep), spec.title) == ("results/some.nc", "all", "some")
    assert [(o.expression.text, o.sign) for o in spec.objectives] == [("step_time", 1.0)]


def test_hash_tells_sweeps_apart_but_not_their_layout():
    spec = sweep("tp = [1, 2]")
    assert (
        spec.hash()
        == sweep("# a remark\ntp = [1,2]").hash()
        == sweep("tp = [1, 2]", more='[output]\nkeep = "best"').hash()
    )
    assert spec.hash() != sweep("tp = [1, 4]").hash()


BAD = [
    ("tpp = [1]", "", "axes.tpp", "did you mean 'tp'"),
    ("bandwidth = [1]", "", "axes.bandwidth", "memory.bandwidth or"),
    ("memory.bandwith = ['1 TB/s']", "", "axes.memory.bandwith", "memory.bandwidth"),
    ("tp = []", "", "axes.tp", "empty"),
    ("tp = [1, 1]", "", "axes.tp", "twice"),
    ("tp = [1.5]", "", "axes.tp", "a whole number"),
    ("tp = [-1]", "", "axes.tp", "more than 0"),
    ("tp = [nan]", "", "axes.tp", "more than 0"),
    ("tp = 8", "", "axes.tp", "a list"),
    ("tp = 'divisor'", "", "axes.tp", "did you mean 'divisors'"),
    ("tp = 'all'", "", "axes.tp", "divisors, powers_of_two, or a list of values"),
    ("tp = 3", "", "axes.tp", "write a list: [3]"),
    ("recompute = 'full'", "", "axes.recompute", 'write a list: ["full"]'),
    ("tp = [1]", "[constraints]\nrecompute = 'full'", "constraints", "write all = [\"recompute == 'full'\"]"),
    (
        "tp = [1]",
        "[constraints]\npeak_memory = '<= 0.9 * memory.capacity'",
        "constraints",
        'write all = ["peak_memory <= 0.9 * memory.capacity"]',
    ),
    ("tp = [1]", "[constraints]\nall = ['step_time < peak_memory']", "constraints.all[0]", "compares s with B"),
    ("tp = [1]", "[constraints]\nall = ['recompute == full']", "constraints.all[0]", "write recompute == 'full'"),
    ("tp = [1]", "[constraints]\nall = ['step_time = 3']", "constraints.all[0]", "write step_time == 3"),
    ("tp = [1]", "[constraints]\nall = ['tp <= 8 && pp <= 8']", "constraints.all[0]", "write and for &&"),
    ("tp = [1]", "[search]\nseeds = 3", "search", "run dse search instead"),
    ("tp = [1]", "[codesign]\n", "codesign", "run dse search instead"),
    ("tp = { from = 1, to = 8, factr = 2 }", "", "axes.tp", "did you mean 'factor'"),
    ("tp = { from = 1, to = 8 }", "", "axes.tp", "one of factor, step, count"),
    ("tp = { from = 8, to = 1, factor = 2 }", "", "axes.tp", "swap"),
    ("tp = { from = 1, to = 8, factor = 1 }", "", "axes.tp.factor", "above 1"),
    ("tp = { from = 1, to = 8, factor = inf }", "", "axes.tp.factor", "a finite number"),
    ("tp = { from = 0, to = 8, factor = 2 }", "", "axes.tp.from", "more than 0"),
    ("tp = { from = 1, to = 8, step = 0 }", "", "axes.tp.step", "more than 0"),
    ("tp = { from = 1, to = 8, count = 2.5 }", "", "axes.tp.count", "above 1"),
    ("memory.bandwidth = ['1 TB']", "", "axes.memory.bandwidth", "another dimension"),
    ("memory.bandwidth = 'divisors'", "", "axes.memory.bandwidth", "divides nothing"),
    ("n_devices = 'divisors'", "", "axes.n_devices", "list or a range"),
    ("zero_stage = 'divisors'", "", "axes.zero_stage", "list the values"),
    ("recompute = ['fulll']", "", "axes.recompute", "did you mean 'full'"),
    ("recompute = { from = 0, to = 2, step = 1 }", "", "axes.recompute", "a list of names"),
    ("workload = ['gpt-3-175']", "", "axes.workload", "gpt-3-175b"),
    ("workload = 'divisors'", "", "axes.workload", "dse catalog list"),
    ("workload = { from = 1, to = 2, step = 1 }", "", "axes.workload", "catalogue names"),
    ("tp = [1]\ntensor = [3]", "", "axes.tensor", "dse list axes"),
    ("seq_len = [64]", "", "axes.seq_len", "seq_len twice"),
    ("seq_len = [64.5]", "", "seq_len", "whole number"),
    ("tp = [3]", "", "axes.tp", "got 3, which does not divide 8 heads; allowed 1 2 4 8"),
    ("tp = [1]", "[zip]\ngroups = [['tp', 'pp']]", "zip.groups", "'pp'"),
    ("tp = [1]\npp = [1, 2]", "[zip]\ngroups = [['tp', 'pp']]", "zip.groups", "different lengths"),
    ("tp = [1]\npp = [1]", "[zip]\ngroups = ['tp', 'pp']", "zip.groups", "two or more"),
    ("tp = 'divisors'\npp = [1]", "[zip]\ngroups = [['tp', 'pp']]", "zip.groups", "divisors"),
    ("tp = [1]\npp = [1]", "[zip]\ngroup = [['tp', 'pp']]", "zip", "did you mean 'groups'"),
    ("tp = [1, 2]\nmatrix_slowdown = [1, 2]", "[zip]\ngroups = [['tp', 'matrix_slowdown']]", "zip.groups", "take the"),
    ("tp = [1, 2]\nzero_stage = [1, 2]", "[zip]\ngroups = [['tp', 'zero_stage']]", "zip.groups", "take the"),
    ("tp = [1]", "[constrants]", "sweep.toml", "did you mean 'constraints'"),
    ("tp = [1]", "[constraints]\nall = 'tp < 3'", "constraints.all", "a list of strings"),
    ("tp = [1]", "[constraints]\nall = ['tp + 3']", "constraints.all[0]", "a comparison"),
    ("tp = [1]", "[constraints]\npeak_memory = '<= 80 GiB'", "constraints", """all = ["peak_memory <= '80 GiB'"]"""),
    ("tp = [1]", "[constraints]\nmemory.bandwidth = 3e12", "constraints", 'write all = ["memory.bandwidth == 3000'),
    ("tp = [1]", "[constraints]\nall = ['tpp < 3']", "constraints.all[0]", "did you mean 'tp'"),
    ("tp = [1]", "[objective]\nminimise = 'step_time'", "objective", "did you mean 'minimize'"),
    ("tp = [1]", "[objective]\nminimize = 'step_tim'", "objective.minimize", "did you mean 'step_time'"),
    ("tp = [1]", "[objective]\nminimize = 'tp'", "objective.minimize", "with a metric"),
    ("tp = [1]", "[objective]\nminimize = 'step_time < 3'", "objective.minimize", "a number"),
    ("tp = [1]", "[output]\nkeep = 'top'", "output.keep", "top:100"),
    ("tp = [1]", "[output]\nkeep = 'top:0'", "output.keep", "top:100"),
    ("tp = [1]", "[output]\nkeep = 'pareto'", "objective", "two or more"),
    ("tp = [1]", "[output]\nlimit = 'many'", "output.limit", "a number of designs"),
    ("tp = [1, 2]", "[output]\nlimit = 1", "axes", "2 mappings = 2 designs"),
    ("tp = [8]\npp = [4]", "", "axes", "tp x cp x pp does not divide the number of devices"),
    ("tp = [1, 2]", "[constraints]\nall = ['tp > 8']", "axes", "2 x constraint 'tp > 8'"),
]


@pytest.mark.parametrize(("axes", "more", "where", "wanted"), BAD)
def test_bad_axes_and_sections(axes, more, where, wanted):
    with pytest.raises(InputError) as raised:
        plan(sweep(axes, workload="seq_len = 64" if axes == "seq_len = [64]" else "", more=more))
    assert where in raised.value.where and wanted in str(raised.value), raised.value
    assert raised.value.allowed and raised.value.fix


@pytest.mark.parametrize(
    ("workload", "system", "mapping", "where", "wanted"),
    [
        ("n_layer = 3", "", "", "workload.n_layer", "did you mean 'n_layers'"),
        ("tp = 3", "", "", "workload.tp", "move it to [mapping]"),
        ("n_layers = [3, 4]", "", "", "workload.n_layers", "[axes]"),
        ("global_batch = 0", "", "", "global_batch", "more than 0"),
        ("", "n_devics = 3", "", "system.n_devics", "n_devices"),
        ("", "accelerator = 'h10'", "", "system.accelerator", "h100"),
        ("", "memory.capacity = '80 GB/s'", "", "system.memory.capacity", "80 GiB"),
        ("", "", "tp = 3", "mapping.tp", "does not divide 8 heads"),
        ("", "", "precision = 'bf-16'", "mapping.precision", "bf16"),
        ("", "n_devices = 16", "dp = 3", "mapping.dp", "does not divide 32 sequences"),
    ],
)
def test_bad_fixed_values(workload, system, mapping, where, wanted):
    with pytest.raises(InputError) as raised:
        plan(sweep("pp = [1]", workload=workload, system=system or "n_devices = 16", mapping=mapping))
    assert where in raised.value.where and wanted in str(raised.value), raised.value


@pytest.mark.parametrize(
    ("text", "where", "wanted"),
    [
        ("[workload", "f.toml: line 1", "invalid TOML"),
        ("workload = 'gpt-3-13b'", "f.toml: workload", "a table"),
        ("[workload]\nname = 'gpt-3-13b'", "f.toml: system.name", "a system of the catalogue"),
        ("[system]\nname = 'selene'", "f.toml: workload.name", "a workload of the catalogue"),
        ("[workload]\nname = 'gpt-3-13b'\n[system]\nname = 'selen'", "f.toml: system.name", "did you mean 'selene'"),
    ],
)
def test_bad_files(text, where, wanted):
    with pytest.raises(InputError) as raised:
        plan(from_text(text, "f.toml"))
    assert (raised.value.where, wanted in str(raised.value)) == (where, True), raised.value


def test_unreadable_files(tmp_path):
    (tmp_path / "fine.toml").write_text("")
    with pytest.raises(InputError, match=re.escape("fine.toml")):
        read(tmp_path / "fin.toml")
    with pytest.raises(InputError, match="folder"):
        read(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        read(tmp_path / "binary.toml")


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    """Editors of Windows write one."""
    text = '[workload]\nname = "gpt-3-13b"\n[system]\nname = "selene"\n'
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read(tmp_path / "marked.toml").text == text


def test_numbers_without_their_unit_are_told_how_they_were_read():
    axes = 'memory.bandwidth = { from = 1e12, to = "2 TB/s", count = 2 }\ntp = [1, 2]\nmemory.capacity = ["8 GB", 9e9]'
    told = sweep(axes, system="power.limit = 300\nhost_power = '300 W'\nn_devices = 16").notes
    assert told == (
        "power.limit = 300 has no unit: read as 300 W",
        "memory.bandwidth = 1e+12 has no unit: read as 1e+12 B/s",
        "memory.capacity = 9e+09 has no unit: read as 9e+09 B",
    )
    assert sweep('memory.bandwidth = ["1 TB/s"]\noverlap_dp = [true]\nrecompute = [1]').notes == ()


def test_the_limit_as_sold_is_no_axis():
    """Times were measured under it and do not follow it: a lower one would be energy for nothing."""
    with pytest.raises(InputError, match=re.escape("power.limit")):
        plan(sweep('power.tdp = ["300 W", "700 W"]'))


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        ("time_to_first_token <= 500", ["time_to_first_token <= 500 has no unit: read as 500 s"]),
        ("time_to_first_token <= '500 ms'", []), ("concurrency <= 64", []), ("time_to_first_token > 0", []),
        ("peak_memory < 0.9 * memory.capacity", []), ("feasible", []), ("recompute == 'none' or tp == 8", []),
        ("7e10 > peak_memory > 1e9",
         ["7e+10 > peak_memory has no unit: read as 7e+10 B", "peak_memory > 1e+09 has no unit: read as 1e+09 B"]),
        ("tp <= 8 and not cost_per_run < 2 * 3e6", ["cost_per_run < 2 * 3000000.0 has no unit: read as 6e+06 USD"]),
    ],
)  # fmt: skip
def test_numbers_of_constraints_without_their_unit_are_told(constraint, told):
    study = SERVING if "token" in constraint or "concurrency" in constraint else TRAINING
    assert list(parse(constraint, "constraints", study).notes) == told


def test_a_sweep_tells_how_it_reads_its_constraints():
    text = '[workload]\nname = "gpt-3-13b"\n[constraints]\nall = ["step_time <= 30", "step_time <= 30"]'
    assert from_text(text).notes == ("step_time <= 30 has no unit: read as 30 s",)
