"""What a stack can do: a mapping that asks for more cannot run, by one bit, and nothing else changes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, strategies as st

import dse
from dse import types
from dse.designs import catalog
from dse.doors import TRAINING
from dse.model import missing_capabilities
from dse.model.capabilities import required_capabilities
from dse.types import Capabilities, Infeasible
from dse.views.studies import presentation_of
from tests.designs import designs, make_design
from tests.programs import metrics_of

EVERYTHING = Capabilities()
#: Capability → the least that a stack may have of it, and a mapping that asks for more.
LESS = {
    "zero_stage": (1.0, dict(dp=2, zero_stage=2)),
    "sequence_parallel": (0.0, dict(tp=2, sequence_parallel=1)),
    "overlap_dp": (0.0, dict(dp=2, overlap_dp=1)),
    "overlap_tp": (0.0, dict(tp=2, overlap_tp=1)),
    "cp": (1.0, dict(cp=2)),
    "virtual_stages": (1.0, dict(pp=2, virtual_stages=2)),
    "dp_replicate": (1.0, dict(dp=2, zero_stage=1, dp_replicate=2)),
    "selective_recompute": (0.0, dict(recompute=1)),
    "offload": (0.0, dict(offload_optimizer=1)),
    "schedule": (1.0, dict(pp=2, schedule=2)),
    "graph": (0.0, dict(graph=1)),
}


def with_stack(design, **can):
    return dataclasses.replace(
        design, software=dataclasses.replace(design.software, can=dataclasses.replace(EVERYTHING, **can))
    )


def test_every_capability_is_tried():
    assert (
        set(LESS) == set(vars(EVERYTHING)) == set(required_capabilities(vars(make_design(schedule=0, graph=0).mapping)))
    )


@pytest.mark.parametrize("name", LESS)
def test_what_a_stack_lacks_cannot_run_and_costs_nothing_else(name):
    least, mapping = LESS[name]
    whole = make_design(**mapping)
    less = with_stack(whole, **{name: least})
    able, unable = dse.evaluate(whole), dse.evaluate(less)
    assert int(unable.infeasible_reason) == int(able.infeasible_reason) | Infeasible.stack_lacks
    assert not unable.feasible
    for field in ("step_time", "peak_memory", "energy_per_step"):
        assert getattr(able, field) == getattr(unable, field)
    assert name in presentation_of(TRAINING).reason_numbers(less, vars(unable))["stack_lacks"]
    plain = with_stack(make_design(), **{name: least})
    assert not int(metrics_of(plain).infeasible_reason) & Infeasible.stack_lacks, "a plain mapping asks for nothing"


@given(designs(), st.sets(st.sampled_from(sorted(LESS))))
def test_the_bit_is_what_the_host_says(design, missing):
    design = with_stack(design, **{name: LESS[name][0] for name in missing})
    lacks = missing_capabilities(vars(design.mapping), vars(design.software.can))
    assert {name for name, one in lacks.items() if one} <= missing
    found = int(metrics_of(design).infeasible_reason) & Infeasible.stack_lacks
    assert bool(found) == any(lacks.values())


@pytest.mark.parametrize("name", catalog.names("software"))
def test_a_stack_can_do_what_it_does_by_itself(name):
    own = catalog.mapping_defaults(name)
    can = vars(catalog.record(types.Software, name).can)
    assert all(value <= can[option] for option, value in own.items())


def test_any_option_lets_a_design_have_what_its_stack_lacks():
    options = dict(n_devices=64, tp=8, overlap_tp=1, zero_stage=1, recompute="full")
    bits = [
        int(metrics_of(dse.design("gpt-3-13b", "selene", any_option=any_, **options)).infeasible_reason)
        for any_ in (False, True)
    ]
    assert [bool(bit & Infeasible.stack_lacks) for bit in bits] == [True, False]
