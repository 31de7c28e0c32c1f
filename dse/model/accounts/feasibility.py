"""Reasons of infeasibility as bits: divisibility, network reach, precision, memory, capabilities of the stack."""

from __future__ import annotations

import functools
import math
import operator
from typing import NamedTuple

import jax.numpy as jnp

from dse.model import capabilities, divisibility, links
from dse.model.choice import divides
from dse.model.layout import Layout, splits_sequence
from dse.model.machine.rates import unsupported
from dse.model.machine.technology import exceeds_shares
from dse.model.work import offload
from dse.types import Design, Experts, HostTiers, Infeasible, Recompute, Scalar, System


def usable_memory(design: Design) -> Scalar:
    """Return the usable bytes of a device: its capacity without the stack's reserve."""
    return design.system.accelerator.memory.capacity - design.software.reserve


def fits_probability(spread: Scalar, usable: Scalar, memory: Scalar) -> Scalar:
    """Return the probability that a predicted peak of ``memory`` bytes fits, 1/2 where it equals the ``usable`` bytes.

    The true peak is log-normal about the prediction with the stack's ``memory_spread``; the normal distribution is
    approximated by the logistic one, ``1 / (1 + exp(-1.702 z))``, within 0.01 (Camilli 1994).

    Args:
        spread: relative standard deviation of the prediction.
        usable: usable bytes.
        memory: predicted peak, bytes.
    """
    log_margin = jnp.log2(jnp.maximum(usable, 1.0) / memory) * math.log(2.0)
    z = log_margin / jnp.maximum(spread, 1e-3)
    return 1.0 / (1.0 + jnp.exp(-1.702 * jnp.clip(z, -20.0, 20.0)))


def routing_exists(experts: Experts) -> Scalar:
    """Return true where experts, groups and experts per token of a mixture are within their limits."""
    return functools.reduce(operator.and_, experts.within_limits.values())


def expert_infeasibility(design: Design) -> dict[Infeasible, Scalar]:
    """Return reason → true where experts are not divisible, or combined with options that are not modelled.

    Empty without experts in the workload or in the mapping.
    """
    experts, m = design.workload.experts, design.mapping
    if experts is None or m.experts is None:
        return {}
    degrees = {"tp": m.tp, "dp_replicate": m.dp_replicate, "stage_devices": m.tp * m.cp * m.dp}
    fits = divisibility.experts_fit({**vars(experts), **vars(m.experts), **degrees}, divides) & routing_exists(experts)
    unsplit = (m.tp > 1.0) & (splits_sequence(m.sequence_parallel) <= 0.0)
    unmodelled = unsplit | (m.recompute == float(Recompute.selective_op))
    if m.sharding is not None:
        unmodelled = unmodelled | (m.zero_stage >= 3.0)
    return {Infeasible.experts_not_divisible: ~fits, Infeasible.experts_unsupported: unmodelled}


def network_too_small(system: System, tp: Scalar) -> Scalar:
    """Return true where no network joins all devices, or their links do not form a torus, hypercube or cube mesh."""
    too_small = system.n_devices > jnp.maximum(system.scale_up.domain, system.scale_out.domain)
    return functools.reduce(operator.or_, links.faults(system, tp), too_small)


class RequiredMemory(NamedTuple):
    """Bytes per device needed of each memory."""

    memory: Scalar  # of the device
    host: Scalar
    storage: Scalar


def infeasible_reason(design: Design, layout: Layout, required: RequiredMemory, clock_infeasible: Scalar) -> Scalar:
    """Return the sum of the bits of :class:`Infeasible` that hold, 0 for a feasible design.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        required: bytes per device needed of each memory.
        clock_infeasible: true where no clock meets the power limit.
    """
    w, m, system = design.workload, design.mapping, design.system
    sizes = {**vars(w), "n_layers": w.blocks, "n_micro_batches": layout.n_micro_batches}
    stack = {name: getattr(design.software, name) for name in ("splits_hidden", "uneven_layers")}
    fits = divisibility.fits({**sizes, **vars(m), **stack}, divides)
    missing = capabilities.missing_capabilities(vars(m), vars(design.software.can))
    broken = {
        Infeasible.memory: required.memory > usable_memory(design),
        **{reason: ~is_satisfied for reason, is_satisfied in fits.items()},
        Infeasible.device_count_mismatch: layout.devices != system.n_devices,
        Infeasible.network_too_small: network_too_small(system, m.tp),
        Infeasible.precision_unsupported: unsupported(system.accelerator, m.precision),
        Infeasible.host_memory: required.host > system.host.capacity,
        Infeasible.offload_too_few_layers: offload.is_offloading(m) & (w.n_layers < offload.least_layers() * m.pp),
        Infeasible.power: clock_infeasible,
        Infeasible.stack_lacks: functools.reduce(operator.or_, missing.values()),
        **expert_infeasibility(design),
    }
    if layout.context.is_named:
        heads, ring = layout.context.head_exchange.size, layout.context.ring.size
        for reason, is_satisfied in (
            (Infeasible.heads_not_divisible, divides(m.tp * heads, w.n_heads)),
            (Infeasible.sequence_not_divisible, divides(1.0, ring)),
        ):
            broken[reason] = broken[reason] | ~is_satisfied
    if system.accelerator.chip is not None:
        broken[Infeasible.chip_shares] = exceeds_shares(system.accelerator.chip)
    if w.is_serving_only:
        broken[Infeasible.layers_unsupported] = True
    if m.tiers is not None:
        broken[Infeasible.storage] = required.storage > (system.host_tiers or HostTiers()).storage_capacity
    if layout.partitions is not None:
        across = (layout.partitions.weights_across.size, layout.partitions.gradients_across.size)
        is_divisible = functools.reduce(operator.and_, (divides(1.0, size) for size in across))
        broken[Infeasible.shards_not_divisible] = broken[Infeasible.shards_not_divisible] | ~is_divisible
    return bits_of(broken)


def bits_of(broken: dict[Infeasible, Scalar]) -> Scalar:
    """Return the int32 sum of the bits of the reasons that hold, of reason → true where it holds."""
    return sum(jnp.where(is_broken, jnp.int32(bit), jnp.int32(0)) for bit, is_broken in broken.items())
