"""Products that the model has in one and a program in several: queries, keys and values, gate and up.

A fused product is divided by the widths of its parts where the trace has products of these shapes and none of the fused
one, and, in a trace without shapes, where their number then agrees.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dse.lab.evidence.matching import key_of, product_of, shapeless_products
from dse.lab.evidence.traces import RankTrace
from dse.types import Design
from dse.views.trace import INPUT_GRADIENT, DeviceStep, TraceKernel


def split_products(step: DeviceStep, design: Design, trace: RankTrace) -> DeviceStep:
    """Return the predicted step of a device with fused products divided as the trace has them.

    Args:
        step: predicted, of the stage of the trace.
        design: that is said to have run, with plain numbers as leaves.
        trace: of a rank.
    """
    shares = fused_shares(design)
    products = (product_of(kind.dims) for kind in trace.kinds)
    found = {product for product in products if product is not None}
    labels = [label for label in shares if _is_apart(step, label, shares[label], found)]
    if not found and (count := shapeless_products(trace).sum()):
        choices = itertools.chain.from_iterable(itertools.combinations(shares, n) for n in range(len(shares) + 1))
        per_step = count / trace.n_steps
        labels = next(([*c] for c in choices if _n_products(_divided(step, shares, c)) == per_step), labels)
    return _divided(step, shares, labels)


def fused_shares(design: Design) -> dict[str, tuple[float, ...]]:
    """Return operator → shares of its width that are products of their own in other programs.

    Args:
        design: with plain numbers as leaves.
    """
    workload = design.workload
    heads, cached = float(workload.n_heads), float(workload.n_kv_heads)
    widths: dict[str, tuple[float, ...]] = {"qkv": (heads, cached, cached)}
    if float(workload.gated) > 0.0:
        widths["ffn_up"] = (1.0, 1.0)
    return {label: tuple(part / sum(parts) for part in parts) for label, parts in widths.items() if sum(parts) > 0.0}


def _is_apart(step: DeviceStep, label: str, shares: Sequence[float], found: set[tuple[Any, ...]]) -> bool:
    """Return True where products of the parts of an operator were found, and none of the whole.

    Other operators may have the shapes of the parts; shapes of the whole that others have too tell nothing.
    """
    kernels = [kernel for kernel in step.kernels if kernel.label == label and kernel.family == "matrix"]
    others = {key_of(kernel) for kernel in step.kernels if kernel.label != label}
    parts = {key_of(part) for kernel in kernels for part in _parts(kernel, shares)}
    whole = {key_of(kernel) for kernel in kernels} - others
    return bool(whole and parts & found) and not whole & found


def _n_products(step: DeviceStep) -> int:
    """Return the number of products of a predicted step."""
    return sum(key_of(kernel)[0] == "product" for kernel in step.kernels)


def _divided(step: DeviceStep, shares: Mapping[str, Sequence[float]], labels: Sequence[str]) -> DeviceStep:
    """Return a step with the products of some operators divided."""
    if not labels:
        return step
    parts = (
        _parts(kernel, shares[kernel.label]) if kernel.label in labels and kernel.family == "matrix" else [kernel]
        for kernel in step.kernels
    )
    return step._replace(kernels=[*itertools.chain.from_iterable(parts)])


def _parts(kernel: TraceKernel, shares: Sequence[float]) -> list[TraceKernel]:
    """Return a product as one after the other of its parts, which share its time by their widths."""
    work = kernel.shape
    if work is None:
        return [kernel]
    parts, start = [], kernel.start
    for share in shares:
        width = (
            {"depth": work.depth * share} if kernel.pass_name == INPUT_GRADIENT else {"columns": work.columns * share}
        )
        shape = work._replace(seconds=work.seconds * share, flops=work.flops * share, bytes=work.bytes * share, **width)
        parts.append(kernel._replace(start=start, seconds=kernel.seconds * share, shape=shape))
        start += kernel.seconds * share
    return parts
