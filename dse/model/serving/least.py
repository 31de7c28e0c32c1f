"""Lower bounds of serving latencies, independent of the engine: FLOPs at the peak rate, bytes at the memory bandwidth.

Without network, kernel launches, engine or power limits, and with the least skew: all ranks of experts have the same
number of tokens, and a step reads only the experts of one token. Compute, memory and pipeline stages overlap fully.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine import technology
from dse.model.machine.rates import TINY, matrix_rate
from dse.model.serving.stage_pass import StagePass, stage_pass
from dse.model.serving.work import Stage, cache_bytes, ranks_of_experts, stage_of, step_work
from dse.model.work.batch import Batch
from dse.model.work.ledger import Runs, sum_over_kernels
from dse.types import Design, Load, OperatorKind, Requests, Scalar, Serving

#: Operators of the matrix units; all others count as 0.
_PRODUCTS = tuple(kind for kind in OperatorKind if kind is not OperatorKind.vector)


class LatencyBounds(NamedTuple):
    """Lower bounds in seconds, and the requests per step."""

    prompt: Scalar  # one prompt alone on all devices of its replica and of its experts
    token: Scalar  # one output token of a single request
    request: Scalar  # device time of one request, its prompt and all of its tokens, in shared steps
    together: Scalar  # maximum requests per step: those in flight in a replica, or its KV-cache capacity


def latency_bounds(design: Design) -> LatencyBounds:
    """Return lower bounds of the latencies of a design, s, and the maximum requests per step behind them.

    Memory: a step reads at least the weights that one token uses, shared by its ``n`` sequences, and the cache of each:
    ``steps (W / n + cache) / B``. Compute: FLOPs of the prompt and of all tokens but the first. Both at the fastest
    rate of the stated formats; all drafts are accepted at no cost.
    """
    design = technology.generated(design)
    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    stage, ranks, stages = stage_of(design), ranks_of_experts(design), design.mapping.pp
    attended_tokens = 0.5 * requests.prompt_tokens * (1.0 + requests.prefix_share)
    prompt = Batch(0.0, 0.0, requests.prompt_tokens * (1.0 - requests.prefix_share), attended_tokens)
    single = Batch(1.0, requests.prompt_tokens + 0.5 * requests.output_tokens, 0.0, 0.0)

    def pass_of(batch: Batch, experts_dp: Scalar) -> StagePass:
        return stage_pass(stage, step_work(stage, experts_dp, serving, batch, is_mean=True), batch)

    flop_time, byte_time = 1.0 / _peak(design, serving), 1.0 / design.system.accelerator.memory.bandwidth
    single_pass = pass_of(single, 1.0)  # reads only the experts of its own tokens
    weights_time = byte_time * _bytes(single_pass.other_operators)
    cache_time = byte_time * _bytes([single_pass.attention])
    later_tokens = requests.output_tokens - 1.0
    decode_steps = later_tokens / (1.0 + serving.drafts)
    requests_per_step = _requests_per_step(design, stage, requests, serving)
    compute_time = flop_time * (_flops(pass_of(prompt, ranks)) + later_tokens * _flops(pass_of(single, ranks)))
    return LatencyBounds(
        prompt=jnp.maximum(flop_time * _flops(pass_of(prompt, 1.0)), stages * weights_time),
        token=stages
        * jnp.maximum(weights_time + cache_time, flop_time * _flops(pass_of(single, 1.0)))
        / (1.0 + serving.drafts),
        request=jnp.maximum(decode_steps * (weights_time / requests_per_step + cache_time), compute_time),
        together=requests_per_step,
    )


def _peak(design: Design, serving: Serving) -> Scalar:
    """Return the peak FLOP/s of a device: at the recipe's precision, or fp4 for faster 4-bit experts."""
    rates = design.system.accelerator.matrix_rate
    is_four_bit = (serving.expert_bytes > 0.0) & (serving.expert_bytes < 1.0)
    recipe_rate = matrix_rate(design.system.accelerator, design.mapping.precision)
    return jnp.maximum(jnp.maximum(recipe_rate, jnp.where(is_four_bit, rates.fp4, 0.0)), TINY)


def _requests_per_step(design: Design, stage: Stage, requests: Requests, serving: Serving) -> Scalar:
    """Return the maximum requests per step of a replica, at least 1: in flight, offline those whose caches fit."""
    mean_tokens = requests.prompt_tokens + 0.5 * requests.output_tokens
    sequence_bytes = stage.layout.layers * cache_bytes(stage.design, serving, mean_tokens)
    capacity_requests = design.system.accelerator.memory.capacity / sequence_bytes
    in_flight = requests.concurrency / design.mapping.dp
    return jnp.maximum(jnp.where(requests.load == float(Load.offline), capacity_requests, in_flight), 1.0)


def _flops(ledger: StagePass) -> Scalar:
    """Return the FLOPs of all but vector operators per device and pass."""
    return sum_over_kernels(ledger.phase.runs, lambda kind, work: work.flops if kind in _PRODUCTS else 0.0)


def _bytes(runs: Iterable[Runs]) -> Scalar:
    """Return the device-memory bytes of all but vector operators per device and pass."""
    return sum_over_kernels(runs, lambda kind, work: work.bytes if kind in _PRODUCTS else 0.0)
