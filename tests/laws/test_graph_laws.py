"""CUDA graphs of training take launches from the host, and nothing else but memory."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings, strategies as st

from dse.designs import replace
from dse.model import lay_out
from dse.model.accounts.memory import GRAPH_BUFFERS
from dse.model.steps.layer import GRAPH_LAUNCH
from dse.types import ExpertKernels, Graph, Metrics, Precision
from tests.designs import designs, make_design
from tests.laws.test_expert_laws import FLASH, GATED, mixtures, with_experts
from tests.programs import metrics_of


def under(design, graph, **values):
    return metrics_of(replace(design, {"mapping.graph": float(graph), **values}))


def with_host(design, host, expert_host=None, **kernels):
    """A design whose host needs so many seconds a layer and pass, of experts more."""
    software = dataclasses.replace(design.software, host_time=host)
    if expert_host is not None:
        software = dataclasses.replace(software, experts=ExpertKernels(expert_host_time=expert_host, **kernels))
    return dataclasses.replace(design, software=software)


@given(design=designs() | mixtures(), host=st.floats(0.0, 1e-2))
@settings(max_examples=25, deadline=None)
def test_more_in_a_graph_is_never_slower(design, host):
    """Nor does it change what the device computes; parts add up, and the step is the host's where that is slower."""
    slow = replace(design, {"software.host_time": host})
    absent, *graphs = metrics_of(slow), *(under(slow, graph) for graph in Graph)
    times = [float(one.step_time) for one in graphs]
    assert times[0] == float(absent.step_time) and float(graphs[0].peak_memory) == float(absent.peak_memory)
    assert times[2] <= times[1] * (1.0 + 1e-5) and times[1] <= times[0] * (1.0 + 1e-5)
    for one in graphs:
        assert float(one.step_time_forward) == pytest.approx(float(absent.step_time_forward), rel=1e-5)
        parts = [float(getattr(one, f.name)) for f in dataclasses.fields(Metrics) if f.name.startswith("step_time_")]
        assert min(parts) >= 0.0 and sum(parts) == pytest.approx(float(one.step_time), rel=1e-5)


@given(design=mixtures(), host=st.floats(0.0, 1.0), expert_host=st.floats(0.0, 1.0))
@settings(max_examples=15, deadline=None)
def test_a_graph_of_the_iteration_does_not_know_the_host(design, host, expert_host):
    """Neither its launches nor its wait for the rows of experts, in time and energy."""
    values = {"software.host_time": host, "software.experts.expert_host_time": expert_host}
    fast, slow = under(design, Graph.iteration), under(design, Graph.iteration, **values)
    assert float(fast.step_time) == pytest.approx(float(slow.step_time), rel=1e-5)
    assert float(fast.energy_per_step) == pytest.approx(float(slow.energy_per_step), rel=1e-4)
    assert float(slow.step_time_host) <= 1e-5 * float(slow.step_time)


def test_launches_by_hand():
    """Host-bound: a pass of a layer takes 3 s; in graphs of layers 20 us, and 2 s of experts that the host launches.

    Forward and backward of every layer and micro-batch; embedding and head are outside of the graphs of layers.
    """
    base = make_design(GATED, software=FLASH, dp=8, recompute=0)
    layout = lay_out(base)
    passes = 2.0 * GATED.n_layers * float(layout.n_micro_batches)
    dense = [float(under(with_host(base, 3.0), graph).step_time) for graph in Graph]
    assert dense[0] - dense[1] == pytest.approx(passes * (3.0 - GRAPH_LAUNCH), rel=1e-3)
    assert dense[1] >= 2.0 * 2.0 * 3.0 * float(layout.n_micro_batches) > 10.0 * dense[2]  # of embedding and head
    mixture = with_host(with_experts(base, ep=4), 1.0, 3.0)
    none, layer, _ = (float(under(mixture, graph).step_time) for graph in Graph)
    assert none - layer == pytest.approx(passes * (3.0 - 2.0 - GRAPH_LAUNCH), rel=1e-3)


@pytest.mark.parametrize("precision", [Precision.bf16, Precision.mxfp8])
def test_graphs_of_layers_hold_experts_of_one_kernel(precision):
    """It reads the rows of experts on the device, so that the host launches a graph and does not wait."""
    base = make_design(GATED, software=FLASH, dp=8, recompute=0, precision=float(precision))
    base = replace(base, {"system.accelerator.matrix_rate.fp4": 1248e12})  # such units scale MX blocks
    mixture = with_experts(base, ep=4)
    fused, separate = (
        float(under(with_host(mixture, 0.0, 3.0, fused=share), Graph.layer).step_time) for share in (1.0, 0.0)
    )
    assert fused < 0.1 * separate if precision is Precision.mxfp8 else fused == separate


def test_graphs_keep_temporary_tensors():
    """A fifth of the stored activations, as part of the buffers."""
    none, layer, iteration = (under(make_design(GATED, software=FLASH, dp=8), graph) for graph in Graph)
    more = float(layer.peak_memory_buffers - none.peak_memory_buffers)
    assert more == pytest.approx(GRAPH_BUFFERS * float(none.peak_memory_activations), rel=1e-3)
    assert float(layer.peak_memory) == float(iteration.peak_memory)
