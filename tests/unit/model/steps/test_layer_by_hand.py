"""Small kernels of a layer in seconds, worked out by hand in comments."""

from __future__ import annotations

import dataclasses

import pytest

from dse.model import lay_out
from dse.model.steps.layer import RING_LAUNCHES, routing_time, small_kernels
from dse.types import ExpertKernels, ExpertMapping, Experts, Precision
from tests.designs import SOFTWARE, WORKLOAD, make_design

MIXTURE = dataclasses.replace(WORKLOAD, experts=Experts(n_experts=64.0, top_k=2.0, expert_ffn=1024.0))


def routed(ep, fused=None, **mapping):
    """64 experts over ep ranks, with 200 us of a layer and 3 us of each expert."""
    kernels = ExpertKernels(expert_kernel_time=200e-6, expert_time=3e-6, fused=fused)
    plain = make_design(MIXTURE, software=dataclasses.replace(SOFTWARE, experts=kernels), dp=ep, **mapping)
    mapping = dataclasses.replace(plain.mapping, experts=ExpertMapping(ep=float(ep)))
    return dataclasses.replace(plain, mapping=mapping)


@pytest.mark.parametrize(("ep", "seconds"), [(1, 392e-6), (8, 224e-6), (64, 203e-6)])
def test_routing_takes_its_time_and_that_of_each_local_expert(ep, seconds):
    """64, 8 and 1 experts of 3 us on a device."""
    design = routed(ep)
    assert float(routing_time(design, lay_out(design))) == pytest.approx(seconds)


@pytest.mark.parametrize(("precision", "seconds"), [(Precision.mxfp8, 200e-6), (Precision.bf16, 224e-6)])
def test_one_kernel_of_all_experts_has_no_time_of_each(precision, seconds):
    design = routed(8, fused=1.0, precision=precision)
    assert float(routing_time(design, lay_out(design))) == pytest.approx(seconds)


def test_a_dense_layer_routes_nothing():
    design = make_design()
    assert routing_time(design, lay_out(design)) == 0.0


@pytest.mark.parametrize("cp", [1, 2, 8])
def test_a_ring_launches_kernels_in_every_step_but_the_first(cp):
    """6 kernels of 4 us in each of cp - 1 steps, beside 10 us of the stack."""
    design = make_design(cp=cp, software=dataclasses.replace(SOFTWARE, small_kernel_time=10e-6))
    assert RING_LAUNCHES == 6.0 and float(design.system.accelerator.kernels.kernel_floor) == 4e-6
    assert float(small_kernels(design, lay_out(design))) == pytest.approx(10e-6 + (cp - 1) * 24e-6)
