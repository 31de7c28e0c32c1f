"""The operators of a mixture of experts: router, permutation, grouped products, shared expert."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import nothing, required, times, where_on
from dse.model.formats import trait
from dse.model.layout import EXPERT_LEVELS, ExpertLayout, Layout
from dse.model.recipes import Block
from dse.model.work.messages import members_copied
from dse.model.work.operators import (
    SOFTMAX,
    CastElements,
    FeedForwardShape,
    FeedForwardStored,
    Flops,
    casts,
    elementwise,
    feed_forward_operators,
    linear,
)
from dse.types import AllToAll, Design, Operator, OperatorKind, Recompute, Scalar

#: Bytes stored by a router: probability and mask per token and expert, index and weight per routed row.
PROBABILITY_BYTES, ROUTE_BYTES = 5.0, 12.0

#: Bytes of a router's weight in exchanges that send a token once per device (``_DeepepManager`` and
#: ``_HybridEPManager`` of Megatron-Core, fused_a2a.py: fp32 only). Others leave it in the activations' format.
WEIGHT_BYTES = 4.0

#: Reads and writes per output of biased products in engines: the bias times the router's weight is written, read and
#: added, and the parts of the experts are joined.
FORWARD_BIAS_PASSES = 6.0


def expert_operators(design: Design, layout: Layout, stored: Scalar) -> list[Operator]:
    """Return the feed-forward operators of a layer with experts, per micro-batch.

    Args:
        design: with a mixture of experts.
        layout: sizes on one device.
        stored: bytes that the layer stores of its input.
    """
    w, experts, mixture = design.workload, layout.experts, required(design.workload.experts, "workload.experts")
    norms, _, block = EXPERT_LEVELS
    e = layout.element
    tokens, stored_per_element = layout.norm_tokens, design.software.activation_output_kept * e.stored_input
    router_elements, kind = tokens * mixture.n_experts, OperatorKind.matrix_16
    routes = PROBABILITY_BYTES * router_elements + ROUTE_BYTES * experts.rows
    shared_tokens = times(layout.sharers.shared, layout.tokens)
    shared = FeedForwardShape(shared_tokens, jnp.maximum(experts.shared, 1.0), present=experts.gathers)
    return [
        linear("router", tokens, mixture.n_experts, w.hidden, e.sixteen_bit(), stored, kind, levels=(block, norms)),
        elementwise("routing", router_elements, 8.0, 12.0, routes, SOFTMAX, levels=(block, block)),
        *routed_operators(design, layout, experts),
        *feed_forward_operators("shared", shared, design, layout, FeedForwardStored(0.0, stored_per_element)),
    ]


def routed_operators(design: Design, layout: Layout, experts: ExpertLayout) -> list[Operator]:
    """Return the operators on the routed rows of a device.

    Each of ``T`` tokens is copied to ``k`` experts: permuted into ``T k`` rows before the all-to-all, and ``R`` rows by
    expert after it (:func:`permuted_rows`); likewise on the way back. Stored are the rows, the first products and the
    activations. Router weights are applied to the activations, so the output of the second product is not stored.
    Without a backward rows are narrow on the way there (:func:`expert_quantization`).
    """
    w, e, act = design.workload, layout.element, layout.element.activation
    block = Recompute.expert_block
    dispatch_bytes = where_on(w.backward, act, e.operand)
    permute_bytes = (dispatch_bytes + act) * permuted_rows(design, layout, experts)
    shape = FeedForwardShape(experts.rows, experts.ffn, experts.local, kernel_bytes=unfused_cost(design, act))
    output_bytes = design.software.activation_output_kept * e.stored_input
    stored = FeedForwardStored(e.stored_input * experts.rows * w.hidden, output_bytes, block)
    return [
        elementwise("permute", w.hidden, permute_bytes, permute_bytes, 0.0, Flops(0.0, 0.0), levels=(block, 0)),
        *feed_forward_operators("experts", shape, design, layout, stored),
        *bias_operators(design, layout, experts),
    ]


def bias_operators(design: Design, layout: Layout, experts: ExpertLayout) -> list[Operator]:
    """Return the operators of biases and clamps of experts whose products and activation are kernels of their own.

    In training, biases of the first products, and the sums of their gradients, are in epilogues of the products
    (``GroupedLinear`` of Transformer Engine, cublaslt_gemm.cu). Megatron-Core adds those of the second ones, and
    clamps, in single kernels (:func:`bias_bytes`, :func:`clamp_bytes`). The clamped inputs are stored beside the
    products. Engines clamp in the activation; they take :data:`FORWARD_BIAS_PASSES` for both biases.
    """
    w, act, norms = design.workload, layout.element.activation, Recompute.norms
    mixture, trains = required(w.experts, "workload.experts"), not nothing(w.backward)
    gated_width = (1.0 + w.gated) * experts.ffn
    columns, outputs = experts.rows * gated_width, experts.rows * (w.hidden if trains else gated_width + w.hidden)
    forward, backward = bias_bytes(design, act) if trains else (FORWARD_BIAS_PASSES * act, 0.0)
    forward, gradients = unfused_cost(design, forward), unfused_cost(design, backward)
    backward = gradients if gradients is backward else jnp.maximum(gradients, act)
    levels = (Recompute.expert_block, 0)
    bias = elementwise("experts_bias", outputs, forward, backward, 0.0, present=mixture.biased, levels=levels)
    if mixture.clamped is None or not trains:
        return [bias]
    forward, backward = (unfused_cost(design, cost) for cost in clamp_bytes(act))
    stored, levels = unfused_cost(design, act * columns), (norms, norms)
    clamp = elementwise("experts_clamp", columns, forward, backward, stored, present=mixture.clamped, levels=levels)
    return [bias, clamp]


def bias_bytes(design: Design, act: Scalar) -> tuple[Scalar, Scalar]:
    """Return the bytes per output of second products with a bias ``b``, forward and backward, in training.

    ``TEGroupedMLP._apply_bias`` of Megatron-Core (experts.py), with the router's weight in ``p`` bytes: ``b`` times the
    weight is written; it is read with the output, and the sum written; the parts of the experts are joined, and cast to
    ``act`` bytes where they are wider. Backward: the casts again, of the output and of the sum; parts are joined; the
    gradient is multiplied by the weight, and by ``b``, and each product is summed::

        forward = act + 5 p + cast,   backward = 2 act + 6 p + 2 cast,   cast = p + act where p > act

    With fused products one kernel reads the gradient for both sums, ``act`` bytes (``compute_grouped_dbias_dscales`` of
    Transformer Engine).
    """
    mapping = required(design.mapping.experts, "mapping.experts")
    is_once = (mapping.all_to_all == float(AllToAll.by_rank)) | (mapping.all_to_all == float(AllToAll.by_node))
    weight = jnp.maximum(jnp.where(is_once, WEIGHT_BYTES, act), act)
    cast = jnp.where(weight > act, weight + act, 0.0)
    return act + 5.0 * weight + cast, 2.0 * act + 6.0 * weight + 2.0 * cast


def clamp_bytes(act: Scalar) -> tuple[Scalar, Scalar]:
    """Return the bytes per column of a clamped activation's input, forward and backward.

    ``weighted_bias_quick_geglu_impl`` of Megatron-Core (fused_bias_geglu.py) clamps gate and linear part each by a
    kernel, and joins them: four passes. PyTorch's ``clamp_backward`` compares the input with a bound, writing a byte,
    and selects the gradient by it: ``3 act + 2`` bytes for the gate, and with two bounds, whose bytes are joined in
    place, ``4 act + 6`` for the linear part; then the halves are joined.
    """
    return 4.0 * act, 0.5 * ((3.0 * act + 2.0) + (4.0 * act + 6.0)) + 2.0 * act


def permuted_rows(design: Design, layout: Layout, experts: ExpertLayout) -> Scalar:
    """Return the count of rows that permutations read and write before the experts, as many as after them.

    Where tokens are sent once per expert, the sender copies them and the receiver sorts by expert; where once per
    device, the receiver copies them to its experts.
    """
    mixture = required(design.workload.experts, "workload.experts")
    mapping = required(design.mapping.experts, "mapping.experts")
    pairwise = layout.norm_tokens + experts.sent_rows + 2.0 * experts.rows
    received_rows = layout.norm_tokens * members_copied(mapping.all_to_all, experts.ep.size, mixture)
    is_sent = (mapping.all_to_all == float(AllToAll.pairwise)) & (experts.ep.size * mapping.etp > design.mapping.tp)
    return jnp.where(is_sent, pairwise, received_rows + experts.rows)


def expert_quantization(design: Design, layout: Layout) -> Operator:
    """Return the operator of all casts to narrow operands in a layer: attention, shared expert and routed rows.

    Without a backward tokens are cast once, before they are copied to their experts: engines do so
    (``fused_moe_cutlass.py`` of TensorRT-LLM, ``fused_moe`` of vLLM; from memory). Fused products cast what passes from
    one to the other, not the first one's input, nor the gradient of the second one's output (backward_grouped_mlp.py
    of Transformer Engine: ``group_quantize``).
    """
    w, experts = design.workload, layout.experts
    gate = 1.0 + w.gated
    shared = experts.gathers * w.hidden
    shared_in, shared_inner = (times(layout.sharers.shared, width) for width in (shared, experts.shared))
    inputs = layout.tokens * (w.hidden + layout.context_width + shared_in + shared_inner)
    outputs = layout.tokens * (w.hidden + layout.query_width + layout.keys_and_values + shared + gate * experts.shared)
    inner_rows = unfused_cost(design, experts.rows)
    cast_rows = where_on(w.backward, experts.rows, unfused_cost(design, layout.tokens))
    inputs = inputs + cast_rows * w.hidden + inner_rows * experts.ffn
    widths = layout.query_width + layout.keys_and_values + layout.context_width
    widths_of_experts = (1.0 + gate) * (experts.shared + unfused_cost(design, experts.local) * experts.ffn)
    gradients = outputs + experts.rows * w.hidden + inner_rows * gate * experts.ffn
    elements = CastElements(inputs, gradients, w.hidden * (widths + widths_of_experts))
    return casts(elements, layout.element, w.backward, w.trains_all)


def unfused_cost(design: Design, cost: Scalar) -> Scalar:
    """Return ``cost`` (s, bytes, count) of separate kernels on routed rows, or 0 where one kernel does all.

    Stacks may fuse them for products in MX formats, with the rows of each expert read on the device: activation and
    cast are part of the product before them (``grouped_mlp.py`` of Transformer Engine). The rows themselves are still
    permuted, and cast, by kernels of their own: permutation within the exchange takes too many cores beside other
    work (Megatron-Bridge, issue 2886).
    """
    kernels = design.software.experts
    if kernels is None or kernels.fused is None:
        return cost
    is_mx = trait(design.mapping.precision, lambda recipe: float(recipe.block is Block.mx))
    return cost * (1.0 - kernels.fused * is_mx)


def backward_bytes(design: Design, layout: Layout, experts: ExpertLayout) -> Scalar:
    """Return the transient bytes of the backward of a layer's experts: gradients of rows and inner tensors."""
    w = design.workload
    elements = times(experts.rows, 4.0 * w.hidden + (2.0 + w.gated) * experts.ffn)
    return times(layout.element.activation, elements)
