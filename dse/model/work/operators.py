"""FLOPs and bytes of the operators of a transformer, for forward, input gradient and weight gradient.

An operator is a record of scalars; its kind is decided in Python, so a layer is a
short unrolled list and everything later is a fold over it. A multiply-add counts as
two FLOPs; bytes are those that cross the device memory.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling
from dse.types import Element, Operator, OperatorKind, Scalar, Work

#: Bytes kept and moved for one dropout mask element (PyTorch keeps a byte a boolean).
MASK_BYTES = 1.0

#: Kernels of flash attention compute heads of a multiple of so many columns.
HEAD_MULTIPLE = 32.0


class Flops(NamedTuple):
    """FLOPs an element of an element-wise operator."""

    forward: Scalar
    backward: Scalar


NOMINAL = Flops(5.0, 10.0)
# As counted by Isaev et al., SC 2023 (Calculon): mean, variance, scale and shift; exponential, sum and division …
NORM = Flops(9.0, 14.0 + 7.0)  # input and weight gradients
SOFTMAX = Flops(5.0, 8.0)
ACTIVATION = Flops(8.0, 13.0)  # GeLU
DROPOUT = Flops(1.0, 1.0)
RESIDUAL = Flops(2.0, 1.0 + 2.0)  # dropout and sum; their gradients
RESCALED = Flops(2.0, 1.0)  # sum of outputs, of which each is scaled by its share of the softmax; sum of gradients


def matmul_work(rows: Scalar, columns: Scalar, depth: Scalar, batch: Scalar, element: Element) -> Work:
    """Work of ``batch`` products C[rows, columns] = A[rows, depth] B[depth, columns].

    Traffic is the larger of touching each matrix once and the I/O lower bound
    ``2 m n k / sqrt(S)`` elements for an on-chip memory of S elements (Hong & Kung 1981).
    B are weights, where these have bytes of their own.
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
    kind: OperatorKind = OperatorKind.matrix, present: Scalar = 1.0, kept: Scalar = 0.0, again: int = 0,
    freed: int = 0,
) -> Operator:  # fmt: skip
    """A linear layer Y[tokens, outputs] = X[tokens, inputs] W.

    The weight gradient reads and writes the accumulated gradient buffer instead of a fresh matrix.
    """
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
        again=again,
        freed=freed,
    )


class Products(NamedTuple):
    """So many products C[rows, columns] = A[rows, depth] B[depth, columns]."""

    batch: Scalar
    rows: Scalar
    columns: Scalar
    depth: Scalar


def batched_matmul(name: str, products: Products, element: Element, stored: Scalar, present: Scalar) -> Operator:
    """Products of two activations (scores, context): the backward is two products, no weight gradient."""
    batch, rows, columns, depth = products
    forward = matmul_work(rows, columns, depth, batch, element)
    left = matmul_work(rows, depth, columns, batch, element)
    right = matmul_work(depth, columns, rows, batch, element)
    both = left._replace(flops=2.0 * left.flops, bytes=left.bytes + right.bytes, batch=2.0 * batch)
    return Operator(name, OperatorKind.matrix_16, forward, both, None, stored, present, core=True)


def elementwise(
    name: str, elements: Scalar, forward_bytes: Scalar, backward_bytes: Scalar, stored: Scalar,
    flops: Flops = NOMINAL, present: Scalar = 1.0, core: bool = False, again: int = 0, freed: int = 0,
) -> Operator:  # fmt: skip
    """A norm, activation, dropout or residual: so many FLOPs and bytes an element; mostly the bytes set its time."""
    forward = Work(flops.forward * elements, forward_bytes * elements)
    backward = Work(flops.backward * elements, backward_bytes * elements)
    return Operator(
        name, OperatorKind.vector, forward, backward, None, stored, present, core, again=again, freed=freed
    )


def casts(inputs: Scalar, gradients: Scalar, element: Element) -> Operator:
    """Casts of so many elements of inputs, and in the backward of ``gradients`` times as many, to narrower operands."""
    cast = element.reads * element.activation + 2.0 * element.operand
    narrow = jnp.where(element.operand < element.activation, 1.0, 0.0)
    return elementwise("quantization", inputs, cast, cast * gradients, 0.0, flops=Flops(0.0, 0.0), present=narrow)


class Attended(NamedTuple):
    """What a kernel of flash attention runs over."""

    batch: Scalar  # heads
    queries: Scalar
    keys: Scalar
    pairs: Scalar  # of a query and a key that are computed, a head
    head_dim: Scalar
    kv_heads: Scalar
    steps: Scalar = 1.0  # kernels that share the keys: those of a ring


def flash_attention(attended: Attended, element: Element, stored: Scalar, present: Scalar) -> Operator:
    """Flash attention (Dao 2023).

    Forward: 4 d FLOPs a pair; backward: five products instead of two, 2.5 times as many. Kernels compute whole heads
    of a multiple of 32 columns (``round_multiple`` of FlashAttention-2, from memory): one of 80 takes as long as of 96.
    Memory: queries, keys, values and outputs once (forward), and their gradients too (backward).
    ``rows`` of the work are the keys that one kernel visits, which set its rate. Every kernel of a ring reads the
    queries and writes outputs of its own.
    """
    batch, queries, keys, pairs, head_dim, kv_heads, steps = attended
    flops = 4.0 * batch * pairs * HEAD_MULTIPLE * ceiling(head_dim * (1.0 / HEAD_MULTIPLE))
    query_bytes = element.activation * batch * queries * head_dim
    key_bytes = element.activation * kv_heads * keys * head_dim
    moved, rows = 2.0 * steps * query_bytes + 2.0 * key_bytes, keys / steps
    forward = Work(flops, moved, rows, head_dim, keys, batch)
    backward = Work(2.5 * flops, 2.0 * moved, rows, head_dim, keys, batch)
    return Operator(
        "flash_attention", OperatorKind.flash, forward, backward, None, stored, present, core=True, kept=1.0
    )
