"""Throughput and utilisations of a training step."""

from __future__ import annotations

from dse.model.choice import plus, times, value_or
from dse.model.layout import Layout
from dse.model.machine.rates import ANY_PEAK, matrix_rate, reciprocal
from dse.model.work.attention import flash_pairs
from dse.model.work.parameters import (
    attended_tokens,
    attention_flops,
    forward_flops,
    model_flops,
    recomputed_flops,
    repeated_flops,
)
from dse.types import Design, Scalar


def throughput(design: Design, layout: Layout, step_time: Scalar) -> dict[str, Scalar]:
    """Return metric → tokens/s, utilisations from 0 to 1, and model FLOPs of a step.

    By the conventions of Narayanan 2021 and Korthikanti 2022.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        step_time: time of a step, s.

    Returns:
        Metric → value.
    """
    w = design.workload
    tokens = w.global_batch * w.seq_len
    steps_per_device_second = reciprocal(step_time * layout.devices)
    share = (
        reciprocal(matrix_rate(design.system.accelerator, design.mapping.precision, ANY_PEAK)) * steps_per_device_second
    )
    flops = model_flops(w)
    causal = model_flops(w, flash_pairs(w) / (w.seq_len * attended_tokens(w)))
    repeated = tokens * (
        layout.recompute.full * forward_flops(w)
        + layout.recompute.core * attention_flops(w)
        + layout.recompute.operators * repeated_flops(w, value_or(design.software.keeps_products, 0.0))
    )
    repeated = plus(repeated, times(tokens, recomputed_flops(w, layout.recompute.levels)))
    return dict(
        tokens_per_second=tokens / step_time,
        tokens_per_second_per_device=tokens * steps_per_device_second,
        mfu=flops * share,
        mfu_causal=causal * share,
        hfu=(flops + repeated) * share,
        model_flops=flops,
    )
