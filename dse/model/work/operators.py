"""FLOPs and bytes of the operators of a transformer: forward, input gradient, weight gradient.

An operator is a record of scalars; its kind is decided in Python, so a layer is a short unrolled list and every account
is a fold over it. A multiply-add counts as two FLOPs; bytes are those of device memory.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling, quotient, times, value_or, where_on
from dse.model.layout import Layout
from dse.types import Design, Element, Operator, OperatorKind, Recompute, Scalar, Work

#: Bytes stored and moved per dropout mask element (PyTorch: a byte per boolean).
MASK_BYTES = 1.0

#: Flash-attention kernels compute heads of a multiple of these columns.
HEAD_MULTIPLE = 32.0


#: First levels of expert recompute (:class:`dse.types.Recompute`) that repeat an operator's forward, and that do not
#: store what it stores; 0: only full recompute.
Levels = tuple[int, int]


class Flops(NamedTuple):
    """FLOPs per element of an element-wise operator."""

    forward: Scalar
    backward: Scalar


NOMINAL = Flops(5.0, 10.0)
#: FLOPs of flash attention, backward over forward: five products instead of two.
BACKWARD_FLOPS = 2.5
# As counted by Isaev et al., SC 2023 (Calculon): mean, variance, scale and shift; exponential, sum and division …
NORM = Flops(9.0, 14.0 + 7.0)  # input and weight gradients
SOFTMAX = Flops(5.0, 8.0)
ACTIVATION = Flops(8.0, 13.0)  # GeLU
DROPOUT = Flops(1.0, 1.0)
RESIDUAL = Flops(2.0, 1.0 + 2.0)  # dropout and sum; their gradients
RESCALED = Flops(2.0, 1.0)  # sum of outputs, of which each is scaled by its share of the softmax; sum of gradients


def matmul_work(rows: Scalar, columns: Scalar, depth: Scalar, batch: Scalar, element: Element) -> Work:
    """Return FLOPs, bytes and sizes of ``batch`` products C[rows, columns] = A[rows, depth] B[depth, columns].

    Bytes are the larger of touching each matrix once and the I/O lower bound ``2 m n k / sqrt(S)`` elements for an
    on-chip memory of S elements (Hong & Kung 1981). ``element.weight``: bytes of an element of B, where they differ.

    Args:
        rows: m.
        columns: n.
        depth: k.
        batch: products.
        element: bytes of an element; ``weight`` of one of B, where it differs.
    """
    products = batch * rows * columns * depth
    if element.weight is None:
        read = element.operand * (rows + columns)
    else:
        read = element.operand * rows + element.weight * columns
    touched_bytes = batch * (read * depth + element.activation * rows * columns)
    io_bound = 2.0 * products * element.operand * jnp.sqrt(element.operand / element.cache)
    return Work(2.0 * products, jnp.maximum(touched_bytes, io_bound), rows, columns, depth, batch)


def linear(
    name: str,
    tokens: Scalar,
    outputs: Scalar,
    inputs: Scalar,
    element: Element,
    stored: Scalar,
    kind: OperatorKind = OperatorKind.matrix,
    present: Scalar = 1.0,
    stored_ratio: Scalar = 0.0,
    levels: Levels = (0, 0),
    groups: Scalar = 1.0,
) -> Operator:
    """Return the operator of a linear layer Y[tokens, outputs] = X[tokens, inputs] W, forward and backward.

    Its weight gradient accumulates in the buffer. Layers of several ``groups`` in one kernel (experts) have an equal
    share of the tokens each: tiles are rounded per group, and the depth of a weight gradient is the rows of its group.
    """
    rows = quotient(tokens, groups)
    forward = matmul_work(rows, outputs, inputs, groups, element)
    input_gradient = matmul_work(rows, inputs, outputs, groups, element)
    product = matmul_work(inputs, outputs, rows, groups, element)
    accumulate = times(groups, 2.0 * element.gradient - element.activation) * inputs * outputs
    weight_gradient = product._replace(bytes=product.bytes + accumulate)
    return Operator(name, kind, forward, input_gradient, weight_gradient, stored, present, False, stored_ratio, *levels)


class Products(NamedTuple):
    """``batch`` products C[rows, columns] = A[rows, depth] B[depth, columns]."""

    batch: Scalar
    rows: Scalar
    columns: Scalar
    depth: Scalar


def batched_matmul(name: str, products: Products, element: Element, stored: Scalar, present: Scalar) -> Operator:
    """Return the operator of products of two activations (scores, context).

    Their backward is two products, without a weight gradient.
    """
    batch, rows, columns, depth = products
    forward = matmul_work(rows, columns, depth, batch, element)
    left_gradient = matmul_work(rows, depth, columns, batch, element)
    right_gradient = matmul_work(depth, columns, rows, batch, element)
    gradients = left_gradient._replace(
        flops=2.0 * left_gradient.flops, bytes=left_gradient.bytes + right_gradient.bytes, batch=2.0 * batch
    )
    return Operator(name, OperatorKind.matrix_16, forward, gradients, None, stored, present, core=True)


def elementwise(
    name: str,
    elements: Scalar,
    forward_bytes: Scalar,
    backward_bytes: Scalar,
    stored: Scalar,
    flops: Flops = NOMINAL,
    present: Scalar = 1.0,
    core: bool = False,
    levels: Levels = (0, 0),
) -> Operator:
    """Return the operator of a norm, activation, dropout or residual, by its bytes and FLOPs per element."""
    forward = Work(flops.forward * elements, forward_bytes * elements)
    backward = Work(flops.backward * elements, backward_bytes * elements)
    return Operator(name, OperatorKind.vector, forward, backward, None, stored, present, core, 0.0, *levels)


def norm(
    name: str, elements: Scalar, element_bytes: Scalar, stored: Scalar, present: Scalar = 1.0, levels: Levels = (0, 0)
) -> Operator:
    """Return the operator of a norm of ``elements`` elements of ``element_bytes`` bytes each."""
    forward_bytes, backward_bytes = 2.0 * element_bytes, 6.0 * element_bytes
    return elementwise(name, elements, forward_bytes, backward_bytes, stored, NORM, present, levels=levels)


class FeedForwardShape(NamedTuple):
    """Sizes of a feed-forward on one device: dense, of a shared expert, or of all routed ones."""

    rows: Scalar
    width: Scalar  # columns of the activation
    groups: Scalar | None = None  # experts in one kernel; None: one product
    present: Scalar = 1.0  # share of layers that have it
    kernel_bytes: Scalar | None = None  # bytes per element of the activation's kernel, by default those stored


class FeedForwardStored(NamedTuple):
    """What a feed-forward stores for its backward."""

    inputs: Scalar  # bytes of its input
    output: Scalar  # bytes per activation output
    inputs_until: int = 0  # first level of expert recompute that does not store the input
    ratios: tuple[Scalar, Scalar] = (0.0, 0.0)  # shares that recompute by operator stores, of up and of down


def feed_forward_operators(
    prefix: str, shape: FeedForwardShape, design: Design, layout: Layout, stored: FeedForwardStored
) -> list[Operator]:
    """Return the operators of a feed-forward: up (and gate), the activation function, down.

    The activation stores its input and the gate; a fused chain passes over its elements once, single kernels twice.
    """
    hidden, e, gate = design.workload.hidden, layout.element, 1.0 + design.workload.gated
    rows, width, groups, present, kernel_bytes = shape
    kind, groups = (OperatorKind.matrix, 1.0) if groups is None else (OperatorKind.grouped, groups)
    elements, act, chain = rows * width, e.activation, 1.0 + (1.0 - layout.fused)
    kernel_bytes = value_or(kernel_bytes, act)
    up_ratio, down_ratio = stored.ratios
    norms, inner, block = Recompute.norms, Recompute.expert_inner, Recompute.expert_block
    columns, output, levels = gate * width, stored.output * elements, (inner, stored.inputs_until)
    forward, backward = kernel_bytes * (gate + 1.0) * chain, kernel_bytes * (2.0 * gate + 1.0) * chain
    name, stored_gate = f"{prefix}_activation", act * gate * elements
    return [
        linear(f"{prefix}_up", rows, columns, hidden, e, stored.inputs, kind, present, up_ratio, levels, groups),
        elementwise(name, elements, forward, backward, stored_gate, ACTIVATION, present, levels=(norms, inner)),
        linear(f"{prefix}_down", rows, hidden, width, e, output, kind, present, down_ratio, (block, norms), groups),
    ]


class CastElements(NamedTuple):
    """Elements that a layer casts to narrower operands, per micro-batch and device."""

    inputs: Scalar
    gradients: Scalar  # of outputs
    weights: Scalar


def casts(elements: CastElements, element: Element, backward: Scalar, trains_weights: bool) -> Operator:
    """Return the operator that casts inputs (forward) and gradients (backward) to narrower operands.

    A kernel writes an operand as it is, and transposed where weights are trained. Where transposed operands are cast
    separately (``element.transposed_casts``), :func:`casts_by_row` are in their place.
    """
    inputs, gradients = elements.inputs, elements.gradients / elements.inputs
    act, operand, transposed_casts = element.activation, element.operand, times(backward, element.transposed_casts)
    bytes_per_element = element.reads * act + times(1.0 + (backward if trains_weights else 0.0), operand)
    narrow = jnp.where(operand < act, 1.0, 0.0)
    forward, backward_bytes = where_on(
        transposed_casts,
        casts_by_row(elements, element, trains_weights),
        (bytes_per_element, bytes_per_element * gradients),
    )
    return elementwise("quantization", inputs, forward, backward_bytes, 0.0, flops=Flops(0.0, 0.0), present=narrow)


def casts_by_row(elements: CastElements, element: Element, trains_weights: bool) -> tuple[Scalar, Scalar]:
    """Return the bytes per input element, forward and backward, of casts with a scale per row.

    Their transposed operands are cast separately.

    An operand is read in 16 bits and written. Its transposed one has other scales, known after the last row: a 16-bit
    copy is written transposed, read and written in 8 bits, for gradients of inputs from the weights, which every
    micro-batch casts, and for gradients of weights from inputs and gradients (``get_tensor_memory_traffic_ovhd_s`` of
    torchao/testing/training/roofline_utils.py). Products that accumulate in fp32 return unscaled gradients, which a
    kernel of its own reads and writes (``addmm_float8_unwrapped`` of torchao/float8/float8_ops.py).
    """
    act, operand = element.activation, element.operand
    gradients, weights = elements.gradients / elements.inputs, elements.weights / elements.inputs
    cast_bytes, transposed, scaled = element.reads * act + operand, 2.0 * act + operand, 2.0 * act
    backward_bytes = gradients * cast_bytes + weights * (act + transposed) + scaled
    if trains_weights:
        backward_bytes = backward_bytes + (1.0 + gradients) * transposed + weights * scaled
    return cast_bytes + weights * cast_bytes, backward_bytes


class FlashShape(NamedTuple):
    """Sizes of a flash-attention kernel."""

    batch: Scalar  # heads
    queries: Scalar
    keys: Scalar
    pairs: Scalar  # computed query-key pairs per head
    head_dim: Scalar
    kv_heads: Scalar
    steps: Scalar = 1.0  # kernels of a ring that share the keys


def flash_attention(shape: FlashShape, element: Element, stored: Scalar, present: Scalar) -> Operator:
    """Return the operator of causal flash attention, forward and backward (Dao 2023).

    Forward: ``4 d`` FLOPs per pair; backward: five products instead of two, 2.5 times as many. Heads are padded to a
    multiple of 32 columns (``round_multiple`` of FlashAttention-2, from memory). Bytes: queries, keys, values and
    outputs once (forward), and their gradients (backward). ``rows`` of the work are the keys per kernel, which set its
    rate. Each kernel of a ring reads the queries and writes outputs.
    """
    batch, queries, keys, pairs, head_dim, kv_heads, steps = shape
    flops = 4.0 * batch * pairs * HEAD_MULTIPLE * ceiling(head_dim * (1.0 / HEAD_MULTIPLE))
    query_bytes = element.activation * batch * queries * head_dim
    key_bytes = element.activation * kv_heads * keys * head_dim
    forward_bytes, rows = 2.0 * steps * query_bytes + 2.0 * key_bytes, keys / steps
    forward = Work(flops, forward_bytes, rows, head_dim, keys, batch)
    backward = Work(BACKWARD_FLOPS * flops, 2.0 * forward_bytes, rows, head_dim, keys, batch)
    return Operator(
        "flash_attention", OperatorKind.flash, forward, backward, None, stored, present, core=True, retained_share=1.0
    )
