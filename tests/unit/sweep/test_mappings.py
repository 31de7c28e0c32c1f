"""The mapping table against plain enumeration: every valid mapping, each distinct one once."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse.errors import InputError
from dse.spec.sweep import read
from dse.sweep import from_text, plan
from dse.sweep.grid.degrees import divisors
from tests.unit.sweep.toy import MAPPING_AXES, sweep

ROOT = Path(__file__).parents[3]
OPTIONS = ("recompute", "zero_stage", "sequence_parallel", "overlap_dp", "overlap_tp")


def table(spec, **plan_options):
    """The mappings of a sweep as a list of {part: value}, in order."""
    grid, _ = plan(spec, **plan_options)
    columns = {axis.name: grid.mapping_values(axis) for axis in grid.mapping_axes}
    return [dict(zip(columns, map(int, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def by_brute_force(layers, heads, kv_heads, ffn, sequence, batch, devices):
    """The same by trying everything, with the rules written out once more."""
    found = set()
    counted = layers, layers + 1, layers + 2  # loss, then embedding too, as a layer
    parts = sorted({d for count in counted for d in divisors(count)})
    values = [divisors(devices), parts, divisors(devices), divisors(batch), parts]
    for tp, pp, dp, micro_batch, chunks in itertools.product(*values):
        whole = tp * pp * dp == devices
        heads_fit = heads % tp == 0 and ffn % tp == 0 and (kv_heads % tp == 0 or tp % kv_heads == 0)
        layers_fit = any(count % (pp * chunks) == 0 for count in counted)
        if not (whole and heads_fit and layers_fit and batch % (dp * micro_batch) == 0):
            continue
        if chunks > 1 and (pp == 1 or batch // (dp * micro_batch) % pp):
            continue
        for recompute, zero, split, overlap_dp, overlap_tp in itertools.product(
            range(3), range(4), (0, 1), (0, 1), (0, 1)
        ):
            if split and sequence % tp:
                continue
            if (tp == 1 and (split or overlap_tp)) or (dp == 1 and (zero or overlap_dp)) or (pp > 1 and zero == 2):
                continue
            found.add((tp, pp, dp, micro_batch, chunks, recompute, zero, split, overlap_dp, overlap_tp))
    return found


@settings(max_examples=40, deadline=None)
@given(
    layers=st.sampled_from([1, 6, 8, 12, 30]),
    kv_heads=st.sampled_from([1, 2, 3, 4]),
    queries=st.sampled_from([1, 2, 3, 8]),
    ffn=st.sampled_from([24, 36, 64]),
    sequence=st.sampled_from([4, 36, 64, 100]),
    batch=st.sampled_from([1, 6, 16, 36]),
    devices=st.sampled_from([1, 2, 6, 12, 16, 36]),
)
def test_every_valid_mapping_once(layers, kv_heads, queries, ffn, sequence, batch, devices):
    shape = (layers, kv_heads * queries, kv_heads, ffn, sequence, batch)
    names = ("n_layers", "n_heads", "n_kv_heads", "ffn_hidden", "seq_len", "global_batch")
    workload = "\n".join(f"{name} = {value}" for name, value in zip(names, shape, strict=True))
    axes = MAPPING_AXES.replace("zero_stage = [0, 1, 3]", "zero_stage = [0, 1, 2, 3]")
    spec = sweep(axes, workload=workload, system=f"n_devices = {devices}")
    expected = by_brute_force(*shape, devices)
    if not expected:
        with pytest.raises(InputError, match="no valid mapping"):
            plan(spec)
        return
    keys = ("tp", "pp", "dp", "micro_batch", "virtual_stages", *OPTIONS)
    found = [tuple(mapping[key] for key in keys) for mapping in table(spec)]
    assert len(found) == len(set(found)), "a mapping is there twice"
    assert set(found) == expected


@pytest.mark.parametrize(("tp", "devices"), [('"divisors"', 24), ("[1, 2]", 16)])
def test_groups_of_experts_are_cut_out_of_a_stage(tp, devices):
    """ep divides 8 experts, etp their 24 columns, ep x etp the devices of a stage; ZeRO where anything has copies."""
    axes = f'tp = {tp}\npp = [1, 2]\nep = "divisors"\netp = "divisors"\nzero_stage = [0, 1]'
    sizes = "n_experts = 8\nexpert_ffn = 24\nn_layers = 8\nn_heads = 8\nn_kv_heads = 8\nffn_hidden = 24"
    workload = f"{sizes}\nseq_len = 64\nglobal_batch = {2 * devices}"
    text = f"""
[workload]
name = "mixtral-8x7b"
{workload}
[system]
name = "selene"
n_devices = {devices}
[software]
any_option = true
[axes]
{axes}
"""
    found = table(from_text(text))
    expected = set()
    for t, p, ep, etp, zero in itertools.product((1, 2, 4, 8), (1, 2), divisors(8), divisors(24), (0, 1)):
        stage = devices // p
        if (t not in (1, 2) and tp != '"divisors"') or devices % (t * p) or stage % (ep * etp):
            continue
        if 2 * devices % (stage // t) == 0 and not (zero and stage == t == ep * etp):
            expected.add((t, p, ep, etp, zero))
    keys = ("tp", "pp", "ep", "etp", "zero_stage")
    assert len(found) == len(expected) and {tuple(m[key] for key in keys) for m in found} == expected
    with pytest.raises(InputError, match="3, which does not divide 8 experts; allowed 1 2 4 8"):
        plan(from_text(text.replace('ep = "divisors"', "ep = [3]", 1)))


def test_mappings_of_deepseek_v3_are_ten_million():
    grid, _ = plan(read(ROOT / "sweeps" / "deepseek_v3_2048_h800.toml"))
    assert grid.n_designs >= 10_000_000
    assert {"tp", "pp", "cp", "ep", "etp", "dp"} <= {axis.name for axis in grid.mapping_axes}


def test_context_parallelism_splits_the_sequence_and_shares_states():
    found = table(sweep('tp = "divisors"\ncp = "divisors"\nzero_stage = [0, 1]\nsequence_parallel = [false, true]'))
    assert {m["tp"] * m["cp"] * m["dp"] for m in found} == {16}
    assert any(m["dp"] == 1 and m["cp"] == 16 and m["zero_stage"] == 1 for m in found), "split over dp x cp"
    spec = sweep("tp = [1, 4]\ncp = [4]\nsequence_parallel = [false, true]", workload="seq_len = 4")
    assert {(m["tp"], m["sequence_parallel"]) for m in table(spec)} == {(1, 0), (4, 0)}


def test_what_context_parallelism_sends_matters_where_there_is_some():
    found = table(sweep('tp = [1]\ncp = [1, 2]\ncp_comm_type = ["p2p", "all-gather", "a2a"]'))
    assert {(m["cp"], m["cp_comm_type"]) for m in found} == {(1, 0), (2, 0), (2, 1), (2, 2)}


def test_placement_matters_between_dp_and_pp_only():
    found = table(sweep('tp = [1, 2]\npp = [1, 2, 4, 8]\nplacement = ["tp_cp_pp_dp", "tp_cp_dp_pp"]'))
    placements = {(m["pp"], m["dp"]): set() for m in found}
    for m in found:
        placements[m["pp"], m["dp"]].add(m["placement"])
    for (pp, dp), seen in placements.items():
        assert seen == ({0} if 1 in (pp, dp) else {0, 1})


@pytest.mark.parametrize(
    ("axes", "at_tp_1"),
    [
        ("sequence_parallel = [true]\noverlap_tp = [false, true]", {(1, 0)}),
        ("sequence_parallel = [true, false]\noverlap_tp = [true]", {(0, 1)}),
        ("sequence_parallel = [true]\noverlap_tp = [true]", {(1, 1)}),
    ],
)
def test_a_listed_value_stands_in_where_the_plain_one_is_not_listed(axes, at_tp_1):
    found = table(sweep("tp = [1, 2]\n" + axes))
    assert {(m["sequence_parallel"], m["overlap_tp"]) for m in found if m["tp"] == 1} == at_tp_1
    assert len([m for m in found if m["tp"] == 1]) == 1


def test_first_listed_of_several_values_stands_in():
    found = table(sweep("tp = [1, 8]\npp = [1, 2]\nzero_stage = [3, 1]"))
    assert [m["zero_stage"] for m in found if m["dp"] == 1] == [3]


def test_zero_2_is_zero_1_under_a_pipeline():
    found = table(sweep("pp = [1, 2]\nzero_stage = [1, 2]"))
    assert {(m["pp"], m["zero_stage"]) for m in found} == {(1, 1), (1, 2), (2, 1)}
    assert {m["zero_stage"] for m in table(sweep("pp = [1, 2]\nzero_stage = [2, 3]"))} == {2, 3}
    spec = sweep(
        "pp = [1, 2]\nzero_stage = [2, 1, 1]\noverlap_dp = [true, true, false]",
        more="[zip]\ngroups = [['zero_stage', 'overlap_dp']]",
    )
    assert [(m["zero_stage"], m["overlap_dp"]) for m in table(spec) if m["pp"] == 2] == [(1, 1), (1, 0)]
    spec = sweep(
        "pp = [2]\nzero_stage = [2, 1]\noverlap_dp = [true, false]",
        more="[zip]\ngroups = [['zero_stage', 'overlap_dp']]",
    )
    assert [(m["zero_stage"], m["overlap_dp"]) for m in table(spec)] == [(2, 1), (1, 0)]


def test_layers_with_loss_and_embedding_may_be_divided():
    """126 layers in 128 chunks, as Llama 3 405B was trained; a chunk less or more is none."""
    axes, fixed = 'pp = [16]\nvirtual_stages = "divisors"', dict(mapping="dp = 2", system="")
    found = table(sweep(axes, workload="n_layers = 126", **fixed))
    assert [m["virtual_stages"] for m in found] == [1, 2, 4, 8]
    with pytest.raises(InputError, match="does not divide 125 layers"):
        plan(sweep(axes, workload="n_layers = 125", **fixed))


def test_zipped_options_lose_nothing_at_tp_1():
    spec = sweep(
        "tp = [1, 2]\nsequence_parallel = [true, false]\noverlap_tp = [false, true]",
        more="[zip]\ngroups = [['sequence_parallel', 'overlap_tp']]",
    )
    found = [(m["tp"], m["sequence_parallel"], m["overlap_tp"]) for m in table(spec)]
    assert found == [(1, 1, 0), (2, 1, 0), (2, 0, 1)]


def test_zipped_degrees():
    spec = sweep("tp = [1, 2, 8]\npp = [8, 4, 1]\nmicro_batch = [1, 2]", more="[zip]\ngroups = [['tp', 'pp']]")
    assert {(m["tp"], m["pp"]) for m in table(spec)} == {(1, 8), (2, 4), (8, 1)}


@pytest.mark.parametrize(("rule", "found"), [("divisors", divisors(24)), ("powers_of_two", [1, 2, 4, 8])])
def test_rules(rule, found):
    workload = "n_heads = 24\nn_kv_heads = 24\nffn_hidden = 48\nglobal_batch = 48"
    assert [m["tp"] for m in table(sweep(f'tp = "{rule}"', workload=workload, system="n_devices = 48"))] == found


def test_devices_as_an_axis_are_part_of_the_mapping():
    found = table(sweep("n_devices = [8, 16, 24]\ntp = [1, 8]\npp = [1, 3]", workload="n_layers = 9"))
    assert {m["n_devices"] for m in found} == {8, 16, 24}
    assert all(m["tp"] * m["pp"] * m["dp"] == m["n_devices"] for m in found)


def test_devices_follow_from_given_degrees():
    found = table(sweep("tp = [1, 2]\ndp = [1, 4]", system=""))
    assert [(m["n_devices"], m["tp"], m["dp"]) for m in found] == [(1, 1, 1), (2, 2, 1), (4, 1, 4), (8, 2, 4)]
    found = table(sweep('tp = "divisors"', system="", mapping="dp = 2"))
    assert [m["n_devices"] for m in found] == [2, 4, 8, 16]
    found = table(sweep('tp = "divisors"\npp = "divisors"\ndp = [2, 4]'))
    assert {m["tp"] * m["pp"] * m["dp"] for m in found} == {16}


def test_a_mapping_is_there_when_one_workload_takes_it():
    spec = sweep('tp = "divisors"\nn_heads = [6, 8]', workload="n_kv_heads = 1\nffn_hidden = 24")
    assert [m["tp"] for m in table(spec)] == [1, 2, 4, 8]  # 6 heads take tp = 1, 2 on 16 devices
    grid, _ = plan(spec)
    assert grid.describe() == "2 n_heads x 4 mappings = 8 designs"


def test_constraints_on_the_mapping_shorten_the_table():
    spec = sweep(more="[constraints]\nall = ['tp * pp <= 8', 'recompute != \"full\" or zero_stage == 0']")
    grid, _ = plan(spec)
    assert grid.constraints == ()
    found = table(spec)
    assert found and all(m["tp"] * m["pp"] <= 8 and (m["recompute"] != 2 or m["zero_stage"] == 0) for m in found)
    kept = plan(sweep(more="[constraints]\nall = ['peak_memory < 3', 'tp < 3 or n_heads > 4']"))[0]
    assert len(kept.constraints) == 2


def test_listed_degrees_name_what_they_fail_to_divide():
    with pytest.raises(InputError) as raised:
        plan(sweep("tp = [1, 16]", system="n_devices = 16"))
    assert str(raised.value).startswith("sweep.toml: axes.tp: got 16, which does not divide 8 heads; allowed 1 2 4 8; ")
    with pytest.raises(InputError, match="4 key/value heads"):
        plan(sweep("tp = [3]", workload="n_heads = 12\nn_kv_heads = 4\nffn_hidden = 12", system="n_devices = 3"))
    table(sweep("tp = { from = 1, to = 64, factor = 2 }"))  # of a range what fits is taken
    table(sweep("tp = [1, 3]\nn_heads = [3, 8]\nn_devices = [6, 16]", workload="n_kv_heads = 1\nffn_hidden = 24"))


def test_listed_degrees_that_are_in_no_mapping_are_told():
    """Three of four values went without a word where no number of devices was said."""
    axes = "tp = [8]\npp = [1, 2, 4]"
    found = plan(sweep(axes, system=""))[0]
    assert found.n_designs == 1
    assert found.notes["missing"] == (
        "in no mapping: pp 2, 4 (tp x cp x pp does not divide the number of devices); "
        "the sweep says no n_devices: 8, those of one node, are used"
    )
    assert found.notes["missing"] in found.remarks
    assert (
        plan(sweep(axes, system="n_devices = 16"))[0]
        .notes["missing"]
        .endswith("pp 4 (tp x cp x pp does not divide the number of devices)")
    )
    assert plan(sweep(axes, system="n_devices = 32"))[0].notes["missing"] == ""
    constrained = sweep(axes, system="n_devices = 32", more="[constraints]\nall = ['tp * pp <= 8']")
    assert plan(constrained)[0].notes["missing"] == "", "who asked for it knows"
    assert plan(sweep('tp = [8]\npp = "divisors"', system=""))[0].notes["missing"] == "", "of a rule what fits is taken"


def test_an_empty_sweep_tells_what_removed_candidates():
    with pytest.raises(InputError) as raised:
        plan(sweep("tp = [2, 4]\npp = [8]\nvirtual_stages = [2]", system="n_devices = 32"))
    assert "2 x pp x virtual_stages does not divide 8 layers" in str(raised.value)


def test_indices_and_places_are_inverse():
    grid, _ = plan(sweep(MAPPING_AXES + "matrix_slowdown = [1, 2, 3]\nglobal_batch = [16, 32]"))
    index = np.arange(grid.n_designs)
    digits, column = grid.locate(index)
    outer = np.ravel_multi_index(tuple(digits), (*grid.shape, grid.table.n_rows))
    np.testing.assert_array_equal(grid.design_index(outer, column), index)
    assert grid.n_designs == math.prod(grid.shape) * len(grid.pairs)
    for position in (0, 1, grid.n_outer // 2, grid.n_outer - 1, grid.n_outer):
        assert grid.first_design(position) == np.count_nonzero(outer < position)


SCHEDULES = ("1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipev")


def test_every_schedule_that_can_run_is_a_mapping():
    """Rules written out once more; where there is no pipeline the schedule changes nothing."""
    axes = f"pp = [1, 2, 4]\nmicro_batch = [1, 2]\nvirtual_stages = [1, 2]\nschedule = {list(SCHEDULES)}"
    found = {(m["pp"], m["micro_batch"], m["virtual_stages"], m["schedule"]) for m in table(sweep(axes))}
    wanted = {(1, micro_batch, 1, 0) for micro_batch in (1, 2)}
    for pp, micro_batch, chunks, code in itertools.product((2, 4), (1, 2), (1, 2), range(6)):
        n = 32 // (16 // pp * micro_batch)
        folds = code in (3, 5)
        if chunks != (2 if folds else 1) and not (code == 0 and n % pp == 0):
            continue
        if (code >= 3 and n < 2 * pp) or (code == 4 and n % 2):
            continue
        wanted.add((pp, micro_batch, chunks, code))
    assert found == wanted


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        ('schedule = ["1f1b", "zb-v"]\npp = [2]', "virtual_stages = [1, 2]"),
        ('schedule = ["1f1b", "dualpipe"]\npp = [8]\nmicro_batch = [8]', "which no mapping can run"),
        ('schedule = ["zb-h3"]', "zb-h1"),
        ('schedule = ["gpipe"]\nvirtual_stages = [2]\npp = [2]', "the schedule needs"),
    ],
)
def test_schedules_that_no_mapping_can_run_are_told(axes, told):
    with pytest.raises(InputError) as error:
        plan(sweep(axes))
    assert told in str(error.value)


def test_graphs_are_an_axis_as_far_as_the_stack_has_them():
    axes = 'graph = ["none", "layer", "iteration"]\npp = [1, 2]'
    for stack, offered in (("megatron-2022", {0}), ("nemo", {0, 1}), ("megatron-bridge", {0, 1, 2})):
        spec = sweep(axes, more=f'[software]\nname = "{stack}"')
        assert {m["graph"] for m in table(spec)} == offered


def test_a_stack_without_a_schedule_leaves_it_out():
    axes = 'schedule = ["1f1b", "zb-h1", "dualpipe"]\npp = [2]'
    for stack, offered in (("nemo", {0}), ("torchtitan", {0, 2}), ("deepseek-dualpipe", {0, 2, 4})):
        spec = sweep(axes, more=f'[software]\nname = "{stack}"')
        assert {m["schedule"] for m in table(spec)} == offered
