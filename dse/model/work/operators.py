"""FLOPs and bytes of the operators of a transformer: forward, input gradient, weight gradient.

An operator is a record of scalars; its kind is decided in Python, so a layer is a short unrolled list and every account
is a fold over it. A multiply-add counts as two FLOPs; bytes are those of device memory.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling, times
from dse.types import Element, Operator, OperatorKind, Scalar, Work

#: Bytes stored and moved per dropout mask element (PyTorch: a byte per boolean).
MASK_BYTES = 1.0

#: Flash-attention kernels compute heads of a multiple of these columns.
HEAD_MULTIPLE = 32.0


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
    """Work of ``batch`` products C[rows, columns] = A[rows, depth] B[depth, columns].

    Bytes are the larger of touching each matrix once and the I/O lower bound ``2 m n k / sqrt(S)`` elements for an
    on-chip memory of S elements (Hong & Kung 1981). ``element.weight``: bytes of an element of B, where they differ.
    """
    products = batch * rows * columns * depth
    if element.weight is None:
        read = element.operand * (rows + columns)
    else:
        read = element.operand * rows + element.weight * columns
    once = batch * (read * depth + element.activation * rows * columns)
    bound = 2.0 * products * element.operand * jnp.sqrt(element.operand / element.cache)
    return Work(2.0 * products, jnp.maximum(once, bound), rows, columns, depth, batch)


def linear(
    name: str, tokens: Scalar, outputs: Scalar, inputs: Scalar, element: Element, stored: Scalar,
    kind: OperatorKind = OperatorKind.matrix, present: Scalar = 1.0, kept: Scalar = 0.0, recomputed_from: int = 0,
    not_stored_from: int = 0,
) -> Operator:  # fmt: skip
    """A linear layer Y[tokens, outputs] = X[tokens, inputs] W; its weight gradient accumulates in the buffer."""
    backward = matmul_work(inputs, outputs, tokens, 1.0, element)
    accumulate = (2.0 * element.gradient - element.activation) * inputs * outputs
    return Operator(
        name,
        kind,
        forward=matmul_work(tokens, outputs, inputs, 1.0, element),
        input_gradient=matmul_work(tokens, inputs, outputs, 1.0, element),
        weight_gradient=backward._replace(bytes=backward.bytes + accumulate),
        stored=stored,
        present=present,
        kept=kept,
        recomputed_from=recomputed_from,
        not_stored_from=not_stored_from,
    )


class Products(NamedTuple):
    """``batch`` products C[rows, columns] = A[rows, depth] B[depth, columns]."""

    batch: Scalar
    rows: Scalar
    columns: Scalar
    depth: Scalar


def batched_matmul(name: str, products: Products, element: Element, stored: Scalar, present: Scalar) -> Operator:
    """Products of two activations (scores, context); their backward is two products, without a weight gradient."""
    batch, rows, columns, depth = products
    forward = matmul_work(rows, columns, depth, batch, element)
    left = matmul_work(rows, depth, columns, batch, element)
    right = matmul_work(depth, columns, rows, batch, element)
    both = left._replace(flops=2.0 * left.flops, bytes=left.bytes + right.bytes, batch=2.0 * batch)
    return Operator(name, OperatorKind.matrix_16, forward, both, None, stored, present, core=True)


def elementwise(
    name: str, elements: Scalar, forward_bytes: Scalar, backward_bytes: Scalar, stored: Scalar,
    flops: Flops = NOMINAL, present: Scalar = 1.0, core: bool = False, recomputed_from: int = 0,
    not_stored_from: int = 0,
) -> Operator:  # fmt: skip
    """A norm, activation, dropout or residual, by bytes and FLOPs per element; mostly bound by memory."""
    forward = Work(flops.forward * elements, forward_bytes * elements)
    backward = Work(flops.backward * elements, backward_bytes * elements)
    return Operator(
        name, OperatorKind.vector, forward, backward, None, stored, present, core,
        recomputed_from=recomputed_from, not_stored_from=not_stored_from,
    )  # fmt: skip


def casts(inputs: Scalar, gradients: Scalar, element: Element, backward: Scalar) -> Operator:
    """Casts to narrower operands: ``inputs`` elements forward, ``inputs gradients`` elements backward.

    Written as they are, and transposed where there is a ``backward``.
    """
    cast = element.reads * element.activation + times(1.0 + backward, element.operand)
    narrow = jnp.where(element.operand < element.activation, 1.0, 0.0)
    return elementwise("quantization", inputs, cast, cast * gradients, 0.0, flops=Flops(0.0, 0.0), present=narrow)


class Attended(NamedTuple):
    """Shape of a flash-attention kernel."""

    batch: Scalar  # heads
    queries: Scalar
    keys: Scalar
    pairs: Scalar  # computed query-key pairs per head
    head_dim: Scalar
    kv_heads: Scalar
    steps: Scalar = 1.0  # kernels of a ring that share the keys


def flash_attention(attended: Attended, element: Element, stored: Scalar, present: Scalar) -> Operator:
    """Flash attention (Dao 2023).

    Forward: ``4 d`` FLOPs per pair; backward: five products instead of two, 2.5 times as many. Heads are padded to a
    multiple of 32 columns (``round_multiple`` of FlashAttention-2, from memory). Bytes: queries, keys, values and
    outputs once (forward), and their gradients (backward). ``rows`` of the work are the keys per kernel, which set its
    rate. Each kernel of a ring reads the queries and writes outputs.
    """
    batch, queries, keys, pairs, head_dim, kv_heads, steps = attended
    flops = 4.0 * batch * pairs * HEAD_MULTIPLE * ceiling(head_dim * (1.0 / HEAD_MULTIPLE))
    query_bytes = element.activation * batch * queries * head_dim
    key_bytes = element.activation * kv_heads * keys * head_dim
    moved, rows = 2.0 * steps * query_bytes + 2.0 * key_bytes, keys / steps
    forward = Work(flops, moved, rows, head_dim, keys, batch)
    backward = Work(BACKWARD_FLOPS * flops, 2.0 * moved, rows, head_dim, keys, batch)
    return Operator(
        "flash_attention", OperatorKind.flash, forward, backward, None, stored, present, core=True, kept=1.0
    )
