"""Laws of the schedule of swaps, for any design: what runs ahead, is pinned or pipelined never costs time."""

import dataclasses

import pytest
from hypothesis import given, strategies as st

from dse.types import HostTiers, Tiers
from tests.designs import designs
from tests.programs import metrics_of

SHARE = st.floats(0.0, 1.0)
#: Shares of what is off the device, and where.
OFFLOADED = st.fixed_dictionaries(
    dict.fromkeys(
        (
            "storage_weights",
            "storage_activations",
            "storage_optimizer",
            "offload_gradients",
            "host_update",
            "storage_gradients",
        ),
        SHARE,
    )
)
DEPTHS = ("prefetch_depth", "gradient_depth", "activation_depth")
SWITCHES = ("pinned", "pinned_activations", "pipeline_read", "pipeline_write")


def swapped(design, tiers, host=None):
    """Metrics of a design with a schedule of swaps."""
    mapping = dataclasses.replace(design.mapping, tiers=Tiers(**{name: float(v) for name, v in tiers.items()}))
    system = dataclasses.replace(design.system, host_tiers=HostTiers(**(host or {})))
    return metrics_of(dataclasses.replace(design, mapping=mapping, system=system))


@given(design=designs(), shares=OFFLOADED, less=st.integers(0, 3), more=st.integers(1, 60))
def test_deeper_is_never_slower_and_needs_no_less_memory(design, shares, less, more):
    near, far = (swapped(design, shares | dict.fromkeys(DEPTHS, depth)) for depth in (less, less + more))
    assert float(far.step_time) <= float(near.step_time) * (1 + 1e-5)
    assert float(far.peak_memory) >= float(near.peak_memory) * (1 - 1e-5)


@given(design=designs(), shares=OFFLOADED, depth=st.integers(0, 3), switch=st.sampled_from(SWITCHES))
def test_pinned_and_pipelined_swaps_are_never_slower(design, shares, depth, switch):
    schedule = shares | dict.fromkeys(DEPTHS, depth) | {"sub_group_size": 1e7}
    off, on = (swapped(design, schedule | {switch: value}) for value in (0.0, 1.0))
    assert float(on.step_time) <= float(off.step_time) * (1 + 1e-5)


@given(
    design=designs(),
    shares=OFFLOADED,
    worse=st.sampled_from(
        [
            {"link_duplex": 0.0},
            {"link_sharing": 4.0},
            {"host_cores": 0.5},
            {"host_memory_bandwidth": 1e9},
            {"storage_read": 1e8},
            {"storage_write": 1e8},
        ]
    ),
)
def test_a_worse_host_is_never_faster(design, shares, worse):
    usual, slow = swapped(design, shares), swapped(design, shares, worse)
    assert float(slow.step_time) >= float(usual.step_time) * (1 - 1e-5)


@given(design=designs(), depth=st.integers(0, 9))
def test_a_schedule_of_host_swaps_one_layer_ahead_is_the_usual_one(design, depth):
    """No record of it, and the record's own defaults; without offloading any of them."""
    plain, usual = metrics_of(design), swapped(design, {})
    assert float(usual.step_time) == pytest.approx(float(plain.step_time), rel=1e-6)
    mapping = dataclasses.replace(design.mapping, offload_weights=0.0, offload_activations=0.0, offload_optimizer=0.0)
    nothing = dataclasses.replace(design, mapping=mapping)
    scheduled = swapped(nothing, dict.fromkeys(DEPTHS, depth) | {"pinned": 0.0, "pipeline_read": 1.0})
    assert float(scheduled.step_time) == pytest.approx(float(metrics_of(nothing).step_time), rel=1e-6)
