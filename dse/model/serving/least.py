"""The least that requests take of a model and its devices, whatever serves them: FLOPs at the peak, bytes at the rate.

No link and no message, no launch, no limit of an engine or of power, and as little skew as there can be: all ranks of
experts have as many tokens, and a step reads no more experts than one token chooses. Products and memory wait for
nothing and work beside each other, and so do the stages of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine import technology
from dse.model.machine.rates import TINY, matrix_rate
from dse.model.serving.batch import Batch
from dse.model.serving.stage_pass import StagePass, stage_pass
from dse.model.serving.work import SKEW, Stage, cache_bytes, ranks_of_experts, stage_of, step_work
from dse.model.work.ledger import Runs, over_kernels
from dse.types import Design, Load, OperatorKind, Requests, Scalar, Serving

#: What matrix units do; all else is as little as one likes.
_PRODUCTS = (OperatorKind.matrix, OperatorKind.matrix_16, OperatorKind.grouped, OperatorKind.flash)


class Least(NamedTuple):
    """Seconds that nothing beats, and the requests that share a step."""

    prompt: Scalar  # of one prompt, alone on all devices of its replica and those that hold its experts
    token: Scalar  # of an output token of one request alone
    request: Scalar  # of each device, for one of the requests that share its steps: its prompt and all of its tokens
    together: Scalar  # requests that share a step at most: those in flight in a replica, or what its memory holds


def least(design: Design) -> Least:
    """The bounds of a design; a pure function of scalars.

    A step reads the weights of one token at least, which the sequences in it share, and the cache of each:
    ``turns (W / n + cache) / B``; or FLOPs take longer, those of the prompt and of all tokens but the first, which is
    the prompt's. Everything is multiplied at the fastest rate of the formats that are stated; all drafts are accepted,
    and cost nothing.
    """
    design = technology.generated(design)
    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    stage, ranks, stages = stage_of(design), ranks_of_experts(design), design.mapping.pp
    reach = 0.5 * requests.prompt_tokens * (1.0 + requests.prefix_share)
    prompt = Batch(0.0, 0.0, requests.prompt_tokens * (1.0 - requests.prefix_share), reach)
    one = Batch(1.0, requests.prompt_tokens + 0.5 * requests.output_tokens, 0.0, 0.0)

    def ran(batch: Batch, met: Scalar) -> StagePass:
        return stage_pass(stage, step_work(stage, met, serving, batch, is_mean=True), batch)

    flop, byte = 1.0 / _peak(design, serving), 1.0 / design.system.accelerator.memory.bandwidth
    alone = ran(one, 1.0 / SKEW)  # meets just the experts that it chooses
    weights, cache = byte * _bytes(alone.others), byte * _bytes([alone.attention])
    later = requests.output_tokens - 1.0
    turns = later / (1.0 + serving.drafts)
    together = _together(design, stage, requests, serving)
    computed = flop * (_flops(ran(prompt, ranks)) + later * _flops(ran(one, ranks)))
    return Least(
        prompt=jnp.maximum(flop * _flops(ran(prompt, 1.0)), stages * weights),
        token=stages * jnp.maximum(weights + cache, flop * _flops(ran(one, 1.0))) / (1.0 + serving.drafts),
        request=jnp.maximum(turns * (weights / together + cache), computed),
        together=together,
    )


def _peak(design: Design, serving: Serving) -> Scalar:
    """FLOP/s of a device: of the recipe, or of experts in 4 bits where they are faster."""
    rates = design.system.accelerator.matrix_rate
    in_four = (serving.expert_bytes > 0.0) & (serving.expert_bytes < 1.0)
    own = matrix_rate(design.system.accelerator, design.mapping.precision)
    return jnp.maximum(jnp.maximum(own, jnp.where(in_four, rates.fp4, 0.0)), TINY)


def _together(design: Design, stage: Stage, requests: Requests, serving: Serving) -> Scalar:
    """Requests of a replica, one at least; of a queue as many as there is memory for caches."""
    mean = requests.prompt_tokens + 0.5 * requests.output_tokens
    a_sequence = stage.layout.layers * cache_bytes(stage.design, serving, mean)
    held = design.system.accelerator.memory.capacity / a_sequence
    in_flight = requests.concurrency / design.mapping.dp
    return jnp.maximum(jnp.where(requests.load == float(Load.offline), held, in_flight), 1.0)


def _flops(ran: StagePass) -> Scalar:
    """FLOPs of a device in a pass."""
    return over_kernels(ran.phase.runs, lambda kind, work: work.flops if kind in _PRODUCTS else 0.0)


def _bytes(runs: Iterable[Runs]) -> Scalar:
    """Bytes of a device's memory."""
    return over_kernels(runs, lambda kind, work: work.bytes if kind in _PRODUCTS else 0.0)
