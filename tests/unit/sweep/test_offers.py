"""What stacks lack is left out of a sweep and told; stacks' defaults hold where a sweep does not say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dse
from dse.designs import catalog
from dse.designs.catalog import LEFT_OPEN
from dse.measured import completion, read_cases
from dse.sweep import execute, from_text, plan
from dse.types import Infeasible

OPTIONS = """
zero_stage = [0, 1, 3]
sequence_parallel = [false, true]
overlap_dp = [false, true]
overlap_tp = [false, true]
"""


def spec(axes=OPTIONS, software='name = "megatron-2022"', mapping="", more=""):
    return from_text(f"""
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "selene"
n_devices = 16
[software]
{software}
[mapping]
{mapping}
[axes]
tp = [1, 2]
pp = [1, 2]
recompute = ["none", "selective", "full"]
{axes}
{more}
""")


def values(grid, name):
    axis = next(axis for axis in grid.mapping_axes if axis.name == name)
    return sorted({int(value) for value in grid.mapping_values(axis)})


def test_what_the_stack_lacks_is_left_out_and_told():
    grid, _ = plan(spec())
    assert values(grid, "zero_stage") == values(grid, "overlap_dp") == values(grid, "overlap_tp") == [0]
    assert values(grid, "sequence_parallel") == [0, 1] and values(grid, "recompute") == [0, 1, 2]
    assert grid.unsupported_note == (
        "megatron-2022 lacks zero_stage 1 3, overlap_dp yes, overlap_tp yes: left out (--any-option offers everything)"
    )
    old, _ = plan(spec(software='name = "megatron-2021"'))
    assert values(old, "recompute") == [0, 2] and values(old, "sequence_parallel") == [0]


@pytest.mark.parametrize("asked", [dict(any_option=True), {}])
def test_any_option_offers_everything(asked):
    in_file = "" if asked else "\nany_option = true"
    grid, _ = plan(spec(software=f'name = "megatron-2022"{in_file}'), **asked)
    assert (
        grid.unsupported_note == "" and values(grid, "zero_stage") == [0, 1, 3] and values(grid, "overlap_tp") == [0, 1]
    )
    found, _ = execute(grid.spec, output=False, keep="all")
    assert not np.any(found.infeasible_reason.values & int(Infeasible.stack_lacks))


def test_what_a_sweep_fixes_stays_cannot_run_and_is_told():
    fixed = spec(axes="zero_stage = [0]\noverlap_tp = [true]", mapping="overlap_dp = true")
    grid, _ = plan(fixed)
    assert grid.unsupported_note == (
        "megatron-2022 lacks overlap_dp yes, overlap_tp yes, which the sweep asks for: such designs cannot run "
        "(--any-option offers everything)"
    )
    _, summary = execute(fixed, output=False, keep="all")
    assert summary.n_feasible == 0 and summary.reasons["stack_lacks"] == grid.n_designs
    assert summary.lacks == grid.unsupported_note


def test_a_rule_ends_at_what_the_stack_has():
    grid, _ = plan(spec(axes='virtual_stages = "divisors"\ncp = [1, 2]', software='name = "fsdp"'))
    assert values(grid, "virtual_stages") == values(grid, "cp") == [1]
    assert "virtual_stages above 1" in grid.unsupported_note and "cp 2" in grid.unsupported_note


def test_zipped_options_go_together():
    zipped = "zero_stage = [0, 1]\noverlap_dp = [false, true]"
    grid, _ = plan(spec(axes=zipped, more='[zip]\ngroups = [["zero_stage", "overlap_dp"]]'))
    assert values(grid, "zero_stage") == values(grid, "overlap_dp") == [0]


def test_of_several_stacks_each_has_its_own():
    axes = 'software = ["megatron-2022", "nemo"]\n' + OPTIONS
    several = spec(axes=axes, software="")
    grid, _ = plan(several)
    assert values(grid, "zero_stage") == [0, 1] and values(grid, "overlap_tp") == [0, 1]
    assert grid.unsupported_note == "megatron-2022, nemo lack zero_stage 3: left out (--any-option offers everything)"
    found, _ = execute(several, output=False, keep="all")
    lacks = (found.infeasible_reason & int(Infeasible.stack_lacks)) > 0
    asks = (found.zero_stage > 0) | found.overlap_dp | found.overlap_tp
    np.testing.assert_array_equal(lacks.sel(software="megatron-2022"), asks)
    assert not lacks.sel(software="nemo").any()


def test_the_sweep_may_say_what_its_stack_can_do():
    grid, _ = plan(spec(software='name = "megatron-2022"\ncan.zero_stage = 1'))
    assert values(grid, "zero_stage") == [0, 1]


def test_searches_leave_the_same_out():
    from dse.optimizers import problem
    from dse.optimizers.run import plan as plan_search
    from dse.spec import search

    text = spec().text + '[search]\nmethod = "random"\n'
    least, most = plan_search(search.from_text(text)), plan_search(search.from_text(text), any_option=True)
    assert least.space.n_designs == plan(spec())[0].n_designs < most.space.n_designs
    assert least.grid.unsupported_note and not most.grid.unsupported_note
    assert problem.build(search.from_text(text)).space.n_designs == least.space.n_designs


@pytest.mark.parametrize("stack", ["megatron-2022", "nemo", "fsdp"])
def test_a_sweep_takes_the_stack_s_defaults(stack):
    grid, _ = plan(spec(axes="", software=f'name = "{stack}"'))
    one = dse.design("gpt-3-13b", "selene", stack, n_devices=16, tp=2)
    own = catalog.mapping_defaults(stack)
    for option in LEFT_OPEN:
        assert getattr(grid.base.mapping, option) == getattr(one.mapping, option) == own.get(option)


def test_stacks_along_an_axis_take_each_its_defaults():
    axes = 'software = ["megatron-2022", "nemo", "fsdp"]'
    found, _ = execute(spec(axes=axes, software=""), output=False)
    for stack in ("megatron-2022", "nemo", "fsdp"):
        alone, _ = execute(spec(axes="", software=f'name = "{stack}"'), output=False)
        np.testing.assert_allclose(found.peak_memory.sel(software=stack), alone.peak_memory, rtol=1e-6)
        np.testing.assert_allclose(found.step_time.sel(software=stack), alone.step_time, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "slugs"), [("software", ["sglang", "vllm"]), ("accelerator", ["h100-sxm-80gb", "gh200-144gb"])]
)
def test_engines_and_hosts_along_an_axis_are_those_of_single_designs(name, slugs):
    """Records that state an optional leaf, and ones that do not: hosts that are slow, prompts that are not cut."""
    found, _ = execute(
        from_text(f"""
[workload]
name = "llama-3-8b"
[system]
name = "h100"
[serving]
prompt_tokens = 512
[axes]
{name} = {slugs}
n_devices = [1]
"""),
        output=False,
    )
    for slug in slugs:
        system, stack = (slug, "vllm") if name == "accelerator" else ("h100", slug)
        one = dse.serve(dse.design("llama-3-8b", system, stack, kind="serving", prompt_tokens=512))
        step = float(found.time_per_output_token.sel({name: slug}).squeeze())
        assert step == pytest.approx(float(one.time_per_output_token), rel=1e-5)


#: Stacks that train; those with an engine serve.
TRAINING_STACKS = [name for name in catalog.names("software") if not catalog.serving_defaults(name)]


@pytest.mark.parametrize("stack", TRAINING_STACKS)
def test_a_row_and_a_design_that_leave_the_same_open_are_the_same(stack, tmp_path):
    system = next(one for one in ("selene", "tpu-v4-pod", "mi300x-cluster") if not catalog.vendor_mismatch(stack, one))
    row = {"model": "gpt-3-13b", "system": system, "software": stack, "n_gpus": "64", "tp": "4", "pp": "1",
           "micro_batch": "1", "vp": "1", "recompute": "full", "global_batch": "512", "seq_len": "2048",
           "source": "someone"}  # fmt: skip
    path = tmp_path / "row.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    (case,) = read_cases(path, measured=False)
    candidates = completion.complete(case)
    (mapping,) = candidates.mappings
    made = dse.design("gpt-3-13b", system, stack, n_devices=64, tp=4, recompute="full", global_batch=512)
    assert vars(mapping) == vars(made.mapping)
    row_s = dataclasses.replace(made, software=candidates.software, mapping=mapping)
    assert float(dse.evaluate(row_s).peak_memory) == float(dse.evaluate(made).peak_memory)


@pytest.mark.parametrize(
    ("any_option", "seconds", "best"),
    [(False, 72.2, dict(tp=8, pp=64, dp=8, zero_stage=0)), (True, 64.7, dict(tp=8, pp=32, dp=16, zero_stage=1))],
)
def test_the_standard_sweep_with_its_own_stack_and_with_any_option(any_option, seconds, best):
    """README: `make run`, and `dse run sweeps/megatron_1t_4096_a100.toml --any-option`."""
    path = "sweeps/megatron_1t_4096_a100.toml"
    _, summary = execute(path, output=False, keep="top:1", any_option=any_option)
    assert summary.best[0].value == pytest.approx(seconds, rel=0.01)
    assert {name: summary.best[0].labels[name] for name in best} == best
