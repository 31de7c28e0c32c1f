"""A step in nano-batches: how long kernels of different parts of a batch take side by side, by what they share.

Operators of one nano-batch depend on each other, those of different ones do not: while one part is in its matrix
products, a second one reads its cache and a third one is on the links (NanoFlow: Zhu et al. 2024, arXiv 2408.12757).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times
from dse.model.machine.messages import message_memory_bytes
from dse.model.machine.rates import Rates
from dse.model.machine.roofline import isolated_time, moving_time, roofline_terms
from dse.model.serving.memory import FarReads
from dse.model.serving.stage_pass import StagePass
from dse.model.serving.work import NO_EXCHANGE, Stage, StepWork
from dse.model.work.batch import Batch, split_batch
from dse.model.work.ledger import Runs, scale_record, sum_over_kernels, sum_records
from dse.types import NanoBatches, OperatorKind, Scalar, Work

#: One batch, whose operators run one after the other.
SINGLE_BATCH = NanoBatches(nano_batches=1.0)


class KernelShares(NamedTuple):
    """Seconds in which kernels would occupy all cores of a device, and all of its memory bandwidth."""

    cores: Scalar
    memory: Scalar


class ResourceTimes(NamedTuple):
    """Seconds for which one nano-batch keeps each resource of a device busy, if it had all of it."""

    cores: Scalar
    memory: Scalar
    links: Scalar
    launches: Scalar  # the queue through which all kernels are launched, and small kernels between two large ones
    far: Scalar  # link to memory beyond the device's

    @property
    def longest(self) -> Scalar:
        """Time of the busiest resource, s."""
        busiest = jnp.maximum(jnp.maximum(self.cores, self.memory), jnp.maximum(self.links, self.launches))
        return busiest if nothing(self.far) else jnp.maximum(busiest, self.far)


def nano_batches_of(stage: Stage) -> NanoBatches:
    """Return the parts of a step: the nano-batches of a mapping, two halves with ``step_overlap``, else one batch.

    Halves where :func:`~dse.model.serving.policy.with_halves` has found them to be on for this kind of step.
    """
    nano, serving = stage.design.mapping.nano, stage.design.mapping.serving
    if nano is not None:
        return nano
    if serving is None or nothing(serving.step_overlap) or stage.exchange is NO_EXCHANGE:
        return SINGLE_BATCH
    return NanoBatches(nano_batches=1.0 + jnp.where(serving.step_overlap == 1.0, 1.0, 0.0))


def nano_batch(stage: Stage, batch: Batch) -> Batch:
    """Return one nano-batch of a pass of a stage over ``batch``, at least 1 sequence where there are any."""
    nano = nano_batches_of(stage)
    return batch if nano is SINGLE_BATCH else split_batch(batch, nano.nano_batches)


def kernel_shares(kind: OperatorKind, work: Work, rates: Rates, core_share: Scalar) -> KernelShares:
    """Return for how long a kernel occupies all cores, and all memory bandwidth, s.

    A kernel that waits for memory alone needs the share ``B / feed`` of the cores to draw the whole bandwidth ``B``:
    all of them can take ``feed`` from their cache. So it occupies the cores for as long as it would take alone if the
    memory gave what they can take.

    Args:
        kind: of the operator.
        work: of the kernel.
        rates: of kernels in the engine.
        core_share: share of the cores that draw the bandwidth of the memory.
    """
    _, memory = roofline_terms(kind, work, rates)
    fed, slowdown = rates._replace(byte_time=core_share * rates.byte_time), rates.units[kind].slowdown
    return KernelShares(slowdown * isolated_time(kind, work, fed), slowdown * memory)


def resource_times(
    stage: Stage,
    ledger: StagePass,
    work: StepWork,
    rates: Rates,
    message_time: Scalar,
    launch_time: Scalar,
    far: FarReads,
) -> ResourceTimes:
    """Return for how long one nano-batch keeps each resource busy, s.

    Kernels: :func:`kernel_shares`. A collective takes the links for all of its time, the cores that it polls on
    (``power.polling``, one for each channel), and memory for what it sends and receives.

    Args:
        stage: with its device and links.
        ledger: of a pass over the nano-batch.
        work: of that pass.
        rates: of kernels in the engine.
        message_time: seconds of its messages alone.
        launch_time: seconds of its launches and small kernels alone.
        far: its reads from far memory.
    """
    accelerator = stage.design.system.accelerator
    core_share = jnp.minimum(accelerator.memory.bandwidth / accelerator.power.feed, 1.0)

    def shares(runs: tuple[Runs, ...]) -> KernelShares:
        return sum_over_kernels(runs, lambda kind, kernel: kernel_shares(kind, kernel, rates, core_share))

    attention = scale_record(plus(1.0, times(-1.0, far.attention_share)), shares((ledger.attention,)))
    kernels = sum_records([attention, shares(ledger.other_operators)])
    system = stage.design.system
    sent = plus(
        times(ledger.layers, message_memory_bytes(work.messages, system)), message_memory_bytes(work.hand_over, system)
    )
    return ResourceTimes(
        cores=kernels.cores + accelerator.power.polling * message_time,
        memory=kernels.memory + moving_time(sent, rates),
        links=message_time,
        launches=launch_time,
        far=far.total,
    )


def side_by_side(parts: Scalar, chain_time: Scalar, resources: ResourceTimes) -> Scalar:
    """Return the time of ``parts`` equal nano-batches side by side, s: ``max(n r, t)`` over the resources ``r``.

    Kernels that run together take cores, bandwidth and links from each other, so that no step is shorter than the
    busiest of these is busy, nor than one nano-batch takes alone (``t``: its operators depend on each other). A
    schedule that fills the busiest resource reaches the bound. One part takes ``t``.

    Args:
        parts: count of nano-batches.
        chain_time: seconds of one of them alone.
        resources: seconds for which it keeps each resource busy.
    """
    return jnp.where(parts > 1.0, jnp.maximum(parts * resources.longest, chain_time), chain_time)


def in_two_halves(parts: Scalar, chain_time: Scalar, expert_time: Scalar, exchange_time: Scalar) -> Scalar:
    """Return the time of a step in two halves that alternate, s: ``2 max(r, m) + 2 max(x, m)``.

    While one half is on the links the other one computes (two-batch overlap: SGLang; dual-batch overlap: vLLM, design
    documentation, "Dual Batch Overlap"). Experts of one half (``x``) run beside a dispatch or a combine of the other
    (``m`` each, half of ``exchange_time``), and so does the rest (``r``), which waits for its own. Kernels of both
    halves run one after the other. One part takes ``chain_time``.

    Args:
        parts: 2 for halves, 1 for one batch.
        chain_time: seconds of one part alone.
        expert_time: seconds of it in its experts.
        exchange_time: seconds of it in dispatch and combine.
    """
    one_way, rest = 0.5 * exchange_time, chain_time - expert_time - exchange_time
    both = jnp.maximum(rest, one_way) + jnp.maximum(expert_time, one_way)
    return jnp.where(parts > 1.0, 2.0 * both, chain_time)
