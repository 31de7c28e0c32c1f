"""Time of one layer and micro-batch: device, exposed messages, transfers to the host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.model.choice import choose, max_prefer_first, nothing, plus, times
from dse.model.layout import Layout
from dse.model.machine.messages import TimedMessage, send_all
from dse.model.machine.passes import run_passes, with_small_kernels
from dse.model.machine.rates import Rates, step_rates
from dse.model.parallel.layer import (
    ExposedTime,
    context_parallel,
    expert_parallel,
    tensor_parallel,
)
from dse.model.parallel.swaps import exposed_passes, exposed_update, layer_swaps
from dse.model.work.experts import unfused_cost
from dse.model.work.training import TrainingWork
from dse.types import Design, Dimension, Graph, Recompute, Scalar, Scope

#: Further launches of an unfused softmax, over the about twenty-five of a layer: cast, scale, mask, softmax, cast.
EAGER_LAUNCHES = 0.2

#: Further kernels per step of a ring in a forward, twice as many in a backward: attention, copies of half of the
#: queries and of keys and values, rescaled sum with its log-sum-exp, send (Transformer Engine, from memory).
RING_LAUNCHES = 6.0

#: Host time to launch the CUDA graph of one pass of a layer, s, an estimate: 3.5 to 8 us for the graph (manual of
#: CUDA.jl, usage/graphs), and from Python one or two copies of inputs into its buffers (make_graphed_callables).
GRAPH_LAUNCH = 2e-5


class LayerTime(NamedTuple):
    """Seconds of one layer and micro-batch of a device by part."""

    forward: Scalar
    backward: Scalar
    recompute: Scalar
    tensor_parallel: Scalar
    expert_parallel: Scalar
    context_parallel: Scalar
    offload: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return plus(*self[:3], plus(self.tensor_parallel, self.expert_parallel), *self[5:])

    @property
    def messages(self) -> Scalar:
        """Seconds of exposed messages."""
        return plus(self.tensor_parallel, self.expert_parallel, self.context_parallel)

    def working(self, polling: Scalar) -> Scalar:
        """Return the seconds with running core clocks, of exposed messages only the share ``polling``."""
        return self.total - (1.0 - polling) * self.messages


class LayerPasses(NamedTuple):
    """Seconds of one layer and micro-batch by pass, and its exposed messages in either pass."""

    forward: Scalar
    weight_gradient: Scalar  # the rest of the backward is input gradient and recompute
    tensor_forward: Scalar
    tensor_backward: Scalar
    experts_forward: Scalar
    experts_backward: Scalar
    context_forward: Scalar
    context_backward: Scalar


class LayerRun(NamedTuple):
    """Time of one layer and micro-batch within a step."""

    time: LayerTime
    forward: Scalar  # seconds of the pass with free inter-domain links, exposed messages included
    backward: Scalar  # the same, with recompute
    update: Scalar  # seconds that loading the optimiser state adds to a step's last backward
    passes: LayerPasses


def layer_time(design: Design, layout: Layout, work: TrainingWork) -> LayerTime:
    """Return the time of one layer and micro-batch by part, s."""
    messages = [message for message in work.messages if message.scope in (Scope.layer, Scope.expert_layer)]
    timed_messages = send_all(messages, design.software, design.system)
    return run_layer(design, layout, work, step_rates(design), timed_messages).time


def run_layer(
    design: Design, layout: Layout, work: TrainingWork, rates: Rates, messages: Iterable[TimedMessage]
) -> LayerRun:
    """Return the seconds by part and pass of one layer and micro-batch, of a mixture the mean over a stage's layers."""
    run = _run_layer(design, layout, work, rates, messages)
    first = times(jnp.where(design.mapping.pp > 1.0, 0.0, 1.0 / layout.layers), layout.experts.first)
    share = plus(first, times(1.0 - first, layout.experts.dense_share))
    if nothing(share):
        return run
    return _mean(run, first_layer(design, layout, work, rates, messages), share)


def first_layer(
    design: Design, layout: Layout, work: TrainingWork, rates: Rates, messages: Iterable[TimedMessage]
) -> LayerRun:
    """Return the seconds by part and pass of one of the first dense layers of a mixture of experts."""
    return _run_layer(design, layout, work, rates, messages, is_first=True)


def _mean(usual: LayerRun, first: LayerRun, share: Scalar) -> LayerRun:
    """Return the weighted mean of the seconds of two layers, ``first`` with weight ``share``."""

    def mean(a: Scalar, b: Scalar) -> Scalar:
        return 0.0 if nothing(a) and nothing(b) else a + share * (b - a)

    run: LayerRun = jax.tree.map(mean, usual, first)
    return run


def _run_layer(
    design: Design,
    layout: Layout,
    work: TrainingWork,
    rates: Rates,
    messages: Iterable[TimedMessage],
    is_first: bool = False,
) -> LayerRun:
    """Return the seconds of one usual layer and micro-batch, or of one of the first dense layers (``is_first``)."""
    trained, recompute = design.workload.backward, layout.recompute
    passes = run_passes(work.lists.first_layer if is_first else work.layer, rates, trained, recompute)
    passes = with_small_kernels(passes, design, small_kernels(design, layout), recompute.forwards)
    dense = tensor_parallel(design, layout, messages, passes).with_repeats(recompute.sends(Dimension.tensor))
    experts = ExposedTime()
    if not is_first:
        routed_again = plus(recompute.forwards, recompute.levels.get(Recompute.expert_block, 0.0))
        passes = with_small_kernels(passes, design, routing_time(design, layout), routed_again)
        # On inter-domain links only full recompute is counted.
        experts = expert_parallel(design, layout, messages, passes)
        experts = experts.with_repeats(recompute.sends(Dimension.expert), recompute.full)
    context = context_parallel(design, layout, messages, passes).with_repeats(recompute.sends(Dimension.context))
    exposed = dense.plus(experts).plus(context)
    forward_pass = passes.forward + exposed.forward
    backward_pass = passes.backward + passes.recompute + exposed.backward
    swaps = layer_swaps(design, layout, work)
    exposed_forward, exposed_backward = exposed_passes(
        swaps, (forward_pass, backward_pass), (passes.memory_forward, passes.memory_backward), trained
    )
    # The last backward may also hide transfers in the wait for the host.
    launches = host_passes(design, layout) * graph_launch_time(design, design.software.host_time)
    last_pass = backward_pass + jnp.maximum(launches - forward_pass - backward_pass, 0.0)
    update = exposed_update(swaps, last_pass, passes.memory_backward)
    exchanges, offload = (dense.total, experts.total, context.total), exposed_forward + exposed_backward
    time = LayerTime(passes.forward, passes.backward, passes.recompute, *exchanges, offload)
    free_forward = jnp.maximum(forward_pass - exposed.across_forward, 0.0)
    free_backward = jnp.maximum(backward_pass - exposed.across_backward, 0.0)
    by_pass = LayerPasses(
        forward_pass + exposed_forward,
        passes.weight_gradient,
        *dense[:2],
        *experts[:2],
        *context[:2],
    )
    return LayerRun(time, free_forward, free_backward, trained * update, by_pass)


def small_kernels(design: Design, layout: Layout) -> Scalar:
    """Return the seconds per layer and forward of small kernels: those of the stack, and of the steps of a ring."""
    launches = RING_LAUNCHES * (layout.ring - 1.0)
    return design.software.small_kernel_time + launches * design.system.accelerator.kernels.kernel_floor


def routing_time(design: Design, layout: Layout) -> Scalar:
    """Return the seconds per layer and forward of small kernels of routing and of experts, 0 without experts."""
    kernels = design.software.experts
    if kernels is None:
        return 0.0
    return kernels.expert_kernel_time + unfused_cost(design, kernels.expert_time * layout.experts.local)


def host_passes(design: Design, layout: Layout) -> Scalar:
    """Return the count of passes per layer launched by the host: forward, backward, repeated forwards."""
    return 1.0 + design.workload.backward + layout.recompute.forwards


def host_launches(design: Design, layout: Layout) -> Scalar:
    """Return the host time to launch one layer of one micro-batch, s."""
    return _pass_launch_time(design, layout) * host_passes(design, layout)


def launch_time(design: Design, layout: Layout, layer: LayerTime, forward: Scalar | None = None) -> Scalar:
    """Return the least seconds of one layer and micro-batch by the host: launches, and waits for rows of experts.

    ``forward``: device seconds of the forward, by default with an equal share of the messages.

    The host launches ahead of the device. Without a capacity factor it waits for the rows of each expert in every
    forward, unless a kernel reads them on the device; then each pass takes the longer of both.
    """
    launches = host_launches(design, layout)
    if design.software.experts is None:
        return launches
    pass_launches = _pass_launch_time(design, layout)
    messages = layer.messages / (1.0 + design.workload.backward)
    forward = layer.forward + messages if forward is None else forward
    by_pass = jnp.maximum(forward, pass_launches) + jnp.maximum(layer.total - forward, launches - pass_launches)
    return jnp.where(_awaits_rows(design), by_pass, launches)


def awaited_forward(design: Design, layout: Layout) -> Scalar:
    """Return the host time of a layer's forward, s, where the host waits for the rows of experts, else 0."""
    if design.software.experts is None:
        return 0.0
    return jnp.where(_awaits_rows(design), _pass_launch_time(design, layout), 0.0)


def end_launch_time(design: Design, layout: Layout) -> Scalar:
    """Return the host time to launch embedding or head of one micro-batch, s: about that of a layer, never recomputed.

    Graphs of layers hold neither.
    """
    launches = (1.0 + design.workload.backward) * design.software.host_time * layout.has_vocabulary
    graph = design.mapping.graph
    return launches if graph is None else jnp.where(graph < float(Graph.iteration), launches, 0.0)


def graph_launch_time(design: Design, kernels: Scalar, outside: Scalar = 0.0) -> Scalar:
    """Return the host time to launch one pass of a layer under the CUDA graphs of a mapping, s.

    Args:
        design: with or without graphs.
        kernels: launch time of its kernels one by one.
        outside: part of it that graphs of layers leave out.
    """
    if design.mapping.graph is None:
        return kernels
    by_layer = jnp.minimum(kernels, GRAPH_LAUNCH + outside)
    return choose(design.mapping.graph, {Graph.none: kernels, Graph.layer: by_layer, Graph.iteration: 0.0})


def _awaits_rows(design: Design) -> Scalar:
    """Return true where the host waits for the rows of experts, for a stack with experts."""
    assert design.software.experts is not None
    waits = unfused_cost(design, design.software.experts.expert_host_time) > 0.0
    graph = design.mapping.graph
    return waits if graph is None else waits & (graph < float(Graph.iteration))


def _pass_launch_time(design: Design, layout: Layout) -> Scalar:
    """Return the host time to launch one pass of a layer, s.

    Graphs of layers leave the experts of dropless mixtures out, whose rows the host learns in between: what a layer
    with experts takes beyond one without.
    """
    software, host = design.software, design.software.host_time
    if software.experts is not None:
        host = max_prefer_first(host, unfused_cost(design, software.experts.expert_host_time))
    eager = 1.0 + EAGER_LAUNCHES * layout.eager
    launches = host * eager
    if design.mapping.graph is None:
        return launches
    return graph_launch_time(design, launches, (host - software.host_time) * eager)
