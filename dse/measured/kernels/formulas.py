"""Formulas of the model for measured kernels, for one row or many."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.measured.kernels.devices import ExchangeKernels, device_of
from dse.measured.kernels.kernel import Kernel
from dse.measured.table import Skip, in_batches
from dse.model import matmul_work, operand_bytes
from dse.model.links import reach_in
from dse.model.machine import kernel_power
from dse.model.machine.attention_kernels import AttentionKernel, attention_time
from dse.model.machine.collective_kernels import collective_time, direct_time
from dse.model.machine.exchange_kernels import exchange_time, low_latency_time
from dse.model.machine.gemm_kernels import Gemm, gemm_time
from dse.model.machine.rates import unsupported
from dse.model.machine.roofline import elementwise_time
from dse.model.work.operators import SOFTMAX
from dse.types import Accelerator, Element, Group, Scalar, System


def gemm_of(sizes: Sequence[Scalar], device: Accelerator) -> Gemm:
    """Return a GEMM from rows, columns, inner dimension and number format, with 16-bit results."""
    rows, columns, depth, precision = sizes
    element = Element(operand_bytes(precision), 2.0, 2.0, device.cache)
    return Gemm(matmul_work(rows, columns, depth, 1.0, element), precision)


def attention_of(
    sizes: Sequence[Scalar], compute_stretch: Scalar = 1.0, reading_stretch: Scalar = 1.0
) -> AttentionKernel:
    """Return an attention call from ``sizes``, the fields of :class:`AttentionKernel` up to ``context``."""
    return AttentionKernel._make((*sizes, SOFTMAX.forward, compute_stretch, reading_stretch))


def _gemm(values: Sequence[Scalar], device: Accelerator) -> Scalar:
    """Return the s of a GEMM: rows, columns, depth, precision, sustained (0 or 1), factor of the time."""
    *sizes, is_sustained, stretch = values
    gemm = gemm_of(sizes, device)
    sustained_time = kernel_power.sustained_gemm_time(gemm, device)
    return stretch * jnp.where(is_sustained > 0.0, sustained_time, gemm_time(gemm, device))


def _gemm_power(values: Sequence[Scalar], device: Accelerator) -> Scalar:
    """Return the W of a repeated GEMM: rows, columns, depth, precision, then unused values."""
    return kernel_power.gemm_power(gemm_of(values[:4], device), device)


def _attention(values: Sequence[Scalar], device: Accelerator) -> Scalar:
    """Return the s of an attention call: its sizes, then factors of compute and reading time."""
    *sizes, compute_stretch, reading_stretch = values
    return attention_time(attention_of(sizes, compute_stretch, reading_stretch), device)


def _attention_power(values: Sequence[Scalar], device: Accelerator) -> Scalar:
    """Return the W of a repeated attention call: its sizes, then factors of compute and reading time."""
    *sizes, compute_stretch, reading_stretch = values
    return kernel_power.attention_power(attention_of(sizes, compute_stretch, reading_stretch), device)


def _vector(values: Sequence[Scalar], device: Accelerator) -> Scalar:
    """Return the s of an element-wise kernel: bytes, B/s per core, least s."""
    n_bytes, core_rate, floor = values
    return elementwise_time(n_bytes, core_rate, floor, device)


def _collective(values: Sequence[Scalar], system: System) -> Scalar:
    """Return the s of a collective: operation, bytes, members, of them in a node, launch s."""
    operation, n_bytes, members, local, launch = values
    return collective_time(operation, n_bytes, _group(members, local, system), launch, system)


def _group(members: Scalar, local: Scalar, system: System) -> Group:
    """Return a group of neighbours, ``local`` of them in each node."""
    return Group(members, local, reach=reach_in(system, local)((1.0, local)))


def _direct(values: Sequence[Scalar], system: System) -> Scalar:
    """Return the s of a framework's all-reduce: bytes, members, eager (0 or 1), lean (0 or 1)."""
    n_bytes, members, eager, lean = values
    return direct_time(n_bytes, members, eager, lean, system)


def _exchange(values: Sequence[Scalar], device: ExchangeKernels) -> Scalar:
    """Return the s of a dispatch or combine: combine, low latency (0 or 1), tokens, B a token, top k, nodes, cores."""
    is_combine, is_low_latency, tokens, token_bytes, top_k, nodes, cores = values
    normal_kernel, low_latency_kernel = (
        jax.tree.map(lambda dispatch, combine: jnp.where(is_combine > 0.0, combine, dispatch), *kernels)
        for kernels in ((device.dispatch, device.combine), (device.dispatch_low, device.combine_low))
    )
    normal_time = exchange_time(
        tokens, token_bytes, top_k, nodes, normal_kernel._replace(rate=cores * normal_kernel.rate)
    )
    return jnp.where(
        is_low_latency > 0.0, low_latency_time(tokens, token_bytes, top_k, nodes, low_latency_kernel), normal_time
    )


FORMULAS: dict[str, Callable[[Sequence[Scalar], Any], Scalar]] = {
    "gemm": _gemm,
    "attention": _attention,
    "vector": _vector,
    "collective": _collective,
    "direct": _direct,
    "exchange": _exchange,
    "gemm_power": _gemm_power,
    "attention_power": _attention_power,
}


def times_or_powers(kind: str, rows: jax.Array, device: Any) -> jax.Array:
    """Return time in s, or power in W, of kernels of one kind on one device, one per row of ``rows`` [kernels]."""
    return jax.vmap(lambda row: jnp.asarray(FORMULAS[kind](list(row), device)))(rows)


_compiled_times = functools.partial(jax.jit, static_argnames="kind")(times_or_powers)


def predict(kernels: Sequence[Kernel]) -> list[float | Skip]:
    """Predict time in s, or power in W, of every kernel.

    Returns:
        One number a kernel, in order, or the reason of a skip.
    """
    return in_batches(kernels, lambda kernel: (kernel.kind, kernel.device), _predict_batch)


def _predict_batch(kind_and_device: tuple[str, str], kernels: Sequence[Kernel]) -> list[float | Skip]:
    """Return s or W of kernels of one kind on one device, or a Skip each; padded so that few programs serve all."""
    kind, name = kind_and_device
    try:
        device = device_of(kind, name)
    except Skip as skip:
        return [skip] * len(kernels)
    rows = np.asarray([kernel.values for kernel in kernels], np.float32)
    n_padded_rows = max(256, 1 << (len(rows) - 1).bit_length())
    padded = np.concatenate([rows, np.repeat(rows[-1:], n_padded_rows - len(rows), axis=0)])
    times = np.asarray(_compiled_times(kind, padded, device))[: len(rows)]
    is_unsupported = np.zeros(len(rows), bool)
    if kind.startswith("gemm"):
        is_unsupported = np.asarray(unsupported(device, jnp.asarray(rows[:, 3])))
    lacks_format, out_of_range = (
        Skip("the chip has no such number format"),
        Skip("beyond the range of single precision"),
    )
    return [
        lacks_format if lacks else float(time) if math.isfinite(time) and time > 0.0 else out_of_range
        for time, lacks in zip(times, is_unsupported, strict=True)
    ]
