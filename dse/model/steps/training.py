"""One training step: compute, communication, bubble and optimiser of a design, by part."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.accounts.memory import optimizer_bytes
from dse.model.choice import choose
from dse.model.machine import collectives
from dse.model.machine.collectives import exposed
from dse.model.machine.rates import rates_of
from dse.model.machine.roofline import memory_time, operator_times
from dse.model.machine.topology import Groups
from dse.model.parallel import offload, pipeline
from dse.model.parallel.offload import OneLayer
from dse.model.work.transformer import (
    Local,
    activation_bytes,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)
from dse.types import Design, Mapping, Operator, OperatorKind, Recompute, Scalar, SequenceParallel

#: Launches that a softmax of single kernels adds to a layer's about twenty-five: cast, scale, mask, softmax, cast.
EAGER_LAUNCHES = 0.2


class Passes(NamedTuple):
    """Device seconds of a list of operators for one micro-batch."""

    forward: Scalar
    input_gradient: Scalar
    weight_gradient: Scalar
    core_forward: Scalar  # the attention core: selective recompute repeats it, context parallelism hides behind it
    core_backward: Scalar
    matrix_forward: Scalar  # the parts that tensor-parallel messages can hide behind
    matrix_input_gradient: Scalar
    matrix_weight_gradient: Scalar
    memory_forward: Scalar  # device memory in use, were each pass one long kernel
    memory_backward: Scalar

    @property
    def backward(self) -> Scalar:
        """Input and weight gradients."""
        return self.input_gradient + self.weight_gradient


def run_passes(operators: list[Operator], design: Design) -> Passes:
    """Time every operator and fold the list into passes."""
    accelerator, backward = design.system.accelerator, design.workload.backward
    rates = rates_of(accelerator, design.mapping.precision, design.software)
    timed = [(o, operator_times(o, rates)) for o in operators]

    def fold(index: int, keep=lambda o: True) -> Scalar:
        total = sum((t[index] for o, t in timed if keep(o)))
        return total if index == 0 else backward * total

    def dense(o: Operator) -> bool:
        return o.kind == OperatorKind.matrix

    def core(o: Operator) -> bool:
        return o.core

    return Passes(
        forward=fold(0),
        input_gradient=fold(1),
        weight_gradient=fold(2),
        core_forward=fold(0, core),
        core_backward=fold(1, core),
        matrix_forward=fold(0, dense),
        matrix_input_gradient=fold(1, dense),
        matrix_weight_gradient=fold(2, dense),
        memory_forward=memory_time(sum(o.present * o.forward.bytes for o in operators), accelerator),
        memory_backward=memory_time(
            backward * sum(o.present * sum(work.bytes for work in o.gradients) for o in operators), accelerator
        ),
    )


def with_small_kernels(passes: Passes, design: Design) -> Passes:
    """A layer's passes with what its list of operators leaves out: casts, copies, transposes, random states.

    A backward has about twice as many of them as a forward.
    """
    seconds = design.software.small_kernel_time
    again = 2.0 * design.workload.backward * seconds
    return passes._replace(forward=passes.forward + seconds, input_gradient=passes.input_gradient + again)


class LayerTime(NamedTuple):
    """Seconds of one layer and micro-batch on one device, by part."""

    forward: Scalar
    backward: Scalar
    recompute: Scalar
    tensor_parallel: Scalar
    context_parallel: Scalar
    offload: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class TensorMessages(NamedTuple):
    """Tensor-parallel communication of one layer and micro-batch, in seconds on the wire."""

    forward: Scalar
    backward_synchronous: Scalar
    backward_asynchronous: Scalar  # issued beside the weight gradient


def tensor_collectives(design: Design, local: Local, groups: Groups) -> tuple[Scalar, Scalar, Scalar]:
    """Seconds of an all-reduce and of an all-gather of ``T h`` activations over tp, and of the sums in one."""
    size = local.element.activation * local.tokens * design.workload.hidden
    software, group = design.software, groups.tp
    slower = software.communication_slowdown
    return (
        slower * collectives.all_reduce(size, group, design.system, software.collective),
        slower * collectives.all_gather(size, group, design.system, software.collective),
        collectives.summing_time(size, group, design.system),
    )


def tensor_messages(design: Design, local: Local, groups: Groups) -> TensorMessages:
    """Messages of ``T h`` activations of one layer.

    Two all-reduces a pass, or with sequence parallelism all-gathers and reduce-scatters: two of each a
    pass, and the backward gathers again those of the layer's two inputs that are not kept whole.
    """
    m = design.mapping
    reduce, gather, sums = tensor_collectives(design, local, groups)
    reduce = reduce + sums
    # What a split layer costs counts in full, or for the layers before a border of a stage.
    split = jnp.where(m.sequence_parallel == float(SequenceParallel.at_cuts), cut_layers(design), local.split)
    one_pass = (1.0 - split) * 2.0 * reduce + split * (4.0 * gather + 2.0 * sums)
    return TensorMessages(
        forward=one_pass,
        backward_synchronous=gathers_again(m) * gather,
        backward_asynchronous=one_pass,
    )


def cut_layers(design: Design) -> Scalar:
    """Share of the layers that end a model chunk at the border of a stage: one a chunk, none without a pipeline."""
    m = design.mapping
    return jnp.where(m.pp > 1.0, m.pp * m.virtual_stages / design.workload.n_layers, 0.0)


def gathers_again(mapping: Mapping) -> Scalar:
    """Inputs of a layer's first matrices that the backward gathers again: two, or those not kept whole."""
    kept = jnp.where(mapping.recompute == float(Recompute.selective), 1.0, 0.0)
    by_choice = {SequenceParallel.gather_again: 2.0, SequenceParallel.keep_gathered: kept}
    return choose(mapping.sequence_parallel, by_choice)


def tensor_parallel_time(design: Design, local: Local, groups: Groups, passes: Passes) -> tuple[Scalar, Scalar]:
    """Exposed tensor-parallel seconds of the forward, and of the backward, of one layer."""
    messages = tensor_messages(design, local, groups)
    usage = collectives.usage(groups.tp, design.system)
    software = design.software
    # Kernels that multiply and send at once write into peers' memory: most need the scale-up domain.
    hidden = jnp.where(groups.tp.domains > 1.0, software.tp_overlap_across, software.tp_overlap)
    share = design.mapping.overlap_tp * hidden
    asynchronous = jnp.maximum(share, software.backward_tp_overlap)
    forward = exposed(messages.forward, passes.matrix_forward, share, usage)
    backward = exposed(
        messages.backward_synchronous, passes.matrix_input_gradient, share, usage
    ) + exposed(messages.backward_asynchronous, passes.matrix_weight_gradient, asynchronous, usage)
    return forward, design.workload.backward * backward


def context_parallel_time(design: Design, local: Local, groups: Groups, passes: Passes) -> tuple[Scalar, Scalar]:
    """Exposed seconds of ring attention (Liu et al. 2023), forward and backward of one layer.

    ``c - 1`` steps of keys and values, and of their gradients too in the backward, behind the attention
    they feed.
    """
    m, software = design.mapping, design.software
    block = 2.0 * local.element.activation * local.tokens * local.kv_width
    ring = (m.cp - 1.0) * collectives.send(block, groups.cp, design.system)
    usage = collectives.usage(groups.cp, design.system)
    forward = exposed(ring, passes.core_forward, software.cp_overlap, usage)
    backward = exposed(2.0 * ring, passes.core_backward, software.cp_overlap, usage)
    return forward, design.workload.backward * backward


def layer_time(
    design: Design, local: Local, groups: Groups, operators: list[Operator], on_host: OneLayer
) -> LayerTime:
    """One layer and micro-batch: device time, exposed messages and transfers."""
    return run_layer(design, local, groups, operators, on_host)[0]


def run_layer(
    design: Design, local: Local, groups: Groups, operators: list[Operator], on_host: OneLayer
) -> tuple[LayerTime, Scalar]:
    """Times of one layer and micro-batch, and what fetching the optimiser state adds to a step's last backward."""
    policy, trained = design.mapping.recompute, design.workload.backward
    full = jnp.where(policy == float(Recompute.full), trained, 0.0)
    selective = jnp.where(policy == float(Recompute.selective), trained, 0.0)
    passes = with_small_kernels(run_passes(operators, design), design)
    tp_forward, tp_backward = tensor_parallel_time(design, local, groups, passes)
    cp_forward, cp_backward = context_parallel_time(design, local, groups, passes)
    recompute = full * passes.forward + selective * passes.core_forward
    forward_pass = passes.forward + tp_forward + cp_forward
    backward_pass = passes.backward + recompute + tp_backward + full * tp_forward + cp_backward
    moved = offload.transfers(on_host, design.system.host)
    exposed_backward = trained * offload.exposed(moved.backward, backward_pass, passes.memory_backward)
    # The last backward may hide transfers in the wait for the host too.
    stall = jnp.maximum(host_passes(design) * design.software.host_time - forward_pass - backward_pass, 0.0)
    last_pass = backward_pass + stall
    update = offload.exposed(moved.last_backward, last_pass, passes.memory_backward) - offload.exposed(
        moved.backward, last_pass, passes.memory_backward
    )
    time = LayerTime(
        forward=passes.forward,
        backward=passes.backward,
        recompute=recompute,
        tensor_parallel=tp_forward + tp_backward + full * tp_forward,
        context_parallel=cp_forward + cp_backward + full * cp_forward,
        offload=offload.exposed(moved.forward, forward_pass, passes.memory_forward) + exposed_backward,
    )
    return time, trained * update


def host_passes(design: Design) -> Scalar:
    """Passes over a layer that the host launches: forward and backward, and the forward again under full recompute."""
    return 1.0 + design.workload.backward * jnp.where(design.mapping.recompute == float(Recompute.full), 2.0, 1.0)


def layer_launch_time(design: Design, local: Local) -> Scalar:
    """Host seconds to launch one layer of one micro-batch."""
    return design.software.host_time * (1.0 + EAGER_LAUNCHES * local.eager) * host_passes(design)


def edge_times(
    design: Design, local: Local, groups: Groups, embedding: list[Operator], head: list[Operator]
) -> tuple[Scalar, Scalar]:
    """Seconds a micro-batch that the first stage (embedding) and the last (head, loss) add.

    Both sum ``T h`` over the tensor-parallel group once: the look-up forward, the head's input backward.
    """
    reduce, gather, _ = tensor_collectives(design, local, groups)
    split = local.split > 0.0
    first, last = run_passes(embedding, design), run_passes(head, design)
    return (
        first.forward + first.backward + local.edges * jnp.where(split, 2.0 * gather, reduce),
        last.forward
        + last.backward
        + design.workload.backward * local.edges * jnp.where(split, 3.0 * gather, reduce),
    )


def pipeline_message(design: Design, local: Local, groups: Groups) -> Scalar:
    """Seconds of one stage-to-stage message of ``T h`` activations.

    A split sequence, or one that is split at the cut, is sent in shares. Else each tp rank sends all of it,
    or its share, which is gathered again (scatter/gather, Narayanan et al. 2021, section 4.1).
    """
    m = design.mapping
    size = local.element.activation * local.tokens * design.workload.hidden
    split, shares = m.sequence_parallel > 0.0, design.software.scatter_gather > 0.0
    sent = collectives.send(size / jnp.where(split | shares, m.tp, 1.0), groups.pp, design.system)
    _, gathered, _ = tensor_collectives(design, local, groups)
    return sent + jnp.where(split, 0.0, jnp.where(shares, gathered, 0.0))


def stage_parameters(design: Design) -> Scalar:
    """Parameters on the device that holds most: its layers and the larger edge."""
    w, m = design.workload, design.mapping
    layers = pipeline.most_layers(w.n_layers, m.pp) * layer_parameters(w, m.tp)
    embedding, head = embedding_parameters(w, m.tp), head_parameters(w, m.tp)
    alone = embedding + jnp.where(w.tied_embeddings > 0.0, 0.0, head)
    return layers + jnp.where(m.pp > 1.0, jnp.maximum(embedding, head), alone)


class Windows(NamedTuple):
    """Seconds of one micro-batch on a stage that messages of data parallelism can hide behind."""

    forward: Scalar
    backward: Scalar
    stall: Scalar  # the device's waits for its host, in either pass


def data_parallel_time(
    design: Design, local: Local, groups: Groups, windows: Windows, parameters: Scalar, n_micro_batches: Scalar
) -> Scalar:
    """Exposed seconds a step of reducing gradients and gathering weights over the replicas.

    ZeRO 0: one all-reduce of gradients. ZeRO 1: reduce-scatter, then all-gather of the new weights.
    ZeRO 2: a reduce-scatter every micro-batch. ZeRO 3: also a gather of the weights for every
    forward and every backward (Rajbhandari et al. 2020). Gathers for a forward hide behind forwards, what the
    backward sends behind backwards: what one pass leaves idle does not help the other, but where a stage
    waits for its host either may use the wait. The forward alone sends its gathers of ZeRO 3 only.
    """
    w, m, software = design.workload, design.mapping, design.software
    group, algorithm = groups.dp, software.collective
    stage, n = m.zero_stage, n_micro_batches
    gradients = parameters * software.gradient_message_bytes
    weights = parameters * local.element.activation
    # ZeRO 3 moves layer by layer (and the edge): as many messages, each with its own latency and ramp.
    messages = jnp.where(stage >= 3.0, pipeline.most_layers(w.n_layers, m.pp) + 1.0, 1.0)
    slower = software.communication_slowdown * messages
    reduce = software.communication_slowdown * collectives.all_reduce(gradients, group, design.system, algorithm)
    scatter = slower * collectives.reduce_scatter(gradients / messages, group, design.system, algorithm)
    gather = slower * collectives.all_gather(weights / messages, group, design.system, algorithm)
    gathers = jnp.where(stage >= 3.0, n, jnp.where(stage >= 1.0, w.backward, 0.0))
    scatters = w.backward * jnp.where(stage >= 2.0, n, 1.0)
    again = jnp.where(stage >= 3.0, gather, 0.0)
    overlap = m.overlap_dp * software.dp_overlap
    usage = collectives.usage(group, design.system)
    before, behind = gathers * gather, scatters * (jnp.where(stage >= 1.0, scatter, reduce) + again)
    hidden = jnp.minimum(overlap * before, gathers * (windows.forward + windows.stall)) + jnp.minimum(
        overlap * behind, scatters * (windows.backward + windows.stall)
    )
    both = gathers * windows.forward + scatters * windows.backward + jnp.maximum(gathers, scatters) * windows.stall
    exposed_part = before + behind - (1.0 - usage) * jnp.minimum(hidden, both)
    return exposed_part + w.backward * tied_embedding_time(design, groups)


def tied_embedding_time(design: Design, groups: Groups) -> Scalar:
    """Seconds to sum the tied embedding's gradient between the first and the last stage."""
    w, m = design.workload, design.mapping
    size = design.software.gradient_message_bytes * head_parameters(w, m.tp)
    exchange = collectives.send(size, groups.pp, design.system)
    return jnp.where((m.pp > 1.0) & (w.tied_embeddings > 0.0), exchange, 0.0)


def optimizer_traffic(design: Design) -> Scalar:
    """Bytes of device memory that the Adam step moves for one parameter of a device.

    Every state is read and written once, gradients read twice (norm, update), weights written once; all split
    over the replicas from ZeRO 1 on. Gradients are zeroed and, between replicas, scaled before they are summed:
    whole until ZeRO 2 splits them.
    """
    m, software = design.mapping, design.software
    states = 2.0 * optimizer_bytes(m.precision)
    replicas = m.dp * m.cp
    moved = states + 2.0 * software.gradient_bytes + activation_bytes(m.precision)
    scaled = jnp.where(replicas > 1.0, 3.0, 1.0) * software.gradient_bytes
    share = moved / jnp.where(m.zero_stage >= 1.0, replicas, 1.0)
    whole = scaled / jnp.where(m.zero_stage >= 2.0, replicas, 1.0)
    return share + whole


def optimizer_time(design: Design, parameters: Scalar) -> Scalar:
    """Seconds of the Adam step, bound by memory, and of what the host does once a step."""
    moved = parameters * optimizer_traffic(design)
    return memory_time(moved, design.system.accelerator) + design.software.step_overhead


class StepTime(NamedTuple):
    """Seconds of one training step by part; the parts add up to ``total``."""

    forward: Scalar
    backward: Scalar
    recompute: Scalar
    edge: Scalar
    host: Scalar
    tensor_parallel: Scalar
    context_parallel: Scalar
    bubble: Scalar
    pipeline_parallel: Scalar
    data_parallel: Scalar
    optimizer: Scalar
    offload: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


def step_time(
    design: Design, local: Local, groups: Groups, layer: list[Operator], embedding: list[Operator],
    head: list[Operator], on_host: OneLayer, n_micro_batches: Scalar,
) -> tuple[StepTime, LayerTime]:  # fmt: skip
    """One step, and one layer and micro-batch of it.

    ``n`` beats of the slowest stage, the bubble, exposed communication, the optimiser.

    A stage's host launches ahead of its device, so a beat is the longer of what both need for a micro-batch:
    of a host-bound stage the edge work hides in the wait.
    """
    w, m = design.workload, design.mapping
    n, layers = n_micro_batches, pipeline.most_layers(w.n_layers, m.pp)
    one, update = run_layer(design, local, groups, layer, on_host)
    first, last = edge_times(design, local, groups, embedding, head)
    device = layers * one.total
    launches = layer_launch_time(design, local) * layers
    beat = jnp.maximum(device, launches)
    # An edge has about as many launches as a layer, and is not recomputed. A single stage has both edges.
    at_edge = launches + (1.0 + w.backward) * design.software.host_time * local.edges * jnp.where(m.pp > 1.0, 1.0, 2.0)
    first, last = jnp.where(m.pp > 1.0, first, first + last), jnp.where(m.pp > 1.0, last, 0.0)
    edge = jnp.maximum(first, last)
    slowest = jnp.maximum(device + edge, at_edge)
    other = jnp.where(m.pp > 1.0, jnp.maximum(device + jnp.minimum(first, last), at_edge) - beat, 0.0)
    stages = pipeline.Stages(beat, slowest - beat, other, spare=(m.pp * layers - w.n_layers) / layers * beat)
    stall = beat - device
    sends = pipeline.exposed_sends(m.pp, m.virtual_stages, n, design.software.pp_overlap)
    parameters = stage_parameters(design)
    windows = Windows(
        layers * one.forward, layers * (one.backward + one.recompute), stall + layers * one.offload
    )
    step = StepTime(
        forward=n * layers * one.forward,
        backward=n * layers * one.backward,
        recompute=n * layers * one.recompute,
        edge=n * edge,
        host=n * jnp.maximum(at_edge - device - edge, 0.0),
        tensor_parallel=n * layers * one.tensor_parallel,
        context_parallel=n * layers * one.context_parallel,
        bubble=pipeline.bubble_time(stages, m.pp, m.virtual_stages),
        pipeline_parallel=0.5 * (1.0 + w.backward) * sends * pipeline_message(design, local, groups),
        data_parallel=data_parallel_time(design, local, groups, windows, parameters, n),
        optimizer=w.backward * optimizer_time(design, parameters),
        offload=n * layers * one.offload + layers * update,
    )
    return step, one
