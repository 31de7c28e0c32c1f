"""Why a design cannot run, as bits: divisibility, network reach, precision, memory, what its stack can do."""

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
from dse.model.machine.technology import overspent
from dse.model.work import offload
from dse.types import Design, Experts, HostTiers, Infeasible, Recompute, Scalar, System


def usable_memory(design: Design) -> Scalar:
    """Bytes of a device that allocations can use: its capacity less what the stack reserves."""
    return design.system.accelerator.memory.capacity - design.software.reserve


def fits_probability(design: Design, memory: Scalar) -> Scalar:
    """Chance that a predicted peak of ``memory`` bytes fits: 1/2 where it is all that is usable.

    The true peak is log-normal about the prediction, with the stack's ``memory_spread``; its normal distribution is
    taken as logistic, ``1 / (1 + exp(-1.702 z))``, within 0.01 of it (Camilli 1994).
    """
    spare = jnp.log2(jnp.maximum(usable_memory(design), 1.0) / memory) * math.log(2.0)
    z = spare / jnp.maximum(design.software.memory_spread, 1e-3)
    return 1.0 / (1.0 + jnp.exp(-1.702 * jnp.clip(z, -20.0, 20.0)))


def routes(experts: Experts) -> Scalar:
    """Whether a router can send tokens as a mixture says: to no more experts and groups, and no more rows, than are."""
    return functools.reduce(operator.and_, experts.kept.values())


def experts_reasons(design: Design) -> dict[Infeasible, Scalar]:
    """Whether experts do not divide, and whether the mapping has what is not modelled beside them."""
    experts, m = design.workload.experts, design.mapping
    if experts is None or m.experts is None:
        return {}
    whole = {"tp": m.tp, "dp_replicate": m.dp_replicate, "stage_devices": m.tp * m.cp * m.dp}
    fits = divisibility.experts_fit({**vars(experts), **vars(m.experts), **whole}, divides) & routes(experts)
    unsplit = (m.tp > 1.0) & (splits_sequence(m.sequence_parallel) <= 0.0)
    unmodelled = unsplit | (m.recompute == float(Recompute.selective_op))
    if m.sharding is not None:
        unmodelled = unmodelled | (m.zero_stage >= 3.0)
    return {Infeasible.experts_not_divisible: ~fits, Infeasible.experts_unsupported: unmodelled}


def network_too_small(system: System, tp: Scalar) -> Scalar:
    """Whether nothing connects so many devices, or links without a switch cannot be laid out so."""
    too_small = system.n_devices > jnp.maximum(system.scale_up.domain, system.scale_out.domain)
    return too_small if system.scale_up.links is None else too_small | ~links.fills(system, tp)


class Needed(NamedTuple):
    """Bytes that a device needs of each memory."""

    memory: Scalar  # its own
    host: Scalar
    storage: Scalar


def infeasible_reason(design: Design, layout: Layout, needed: Needed, clock_infeasible: Scalar) -> Scalar:
    """Bits of :class:`Infeasible`; 0 when the design can run. ``clock_infeasible``: no clock meets its power limit."""
    w, m, system = design.workload, design.mapping, design.system
    sizes = {**vars(w), "n_layers": w.blocks, "n_micro_batches": layout.n_micro_batches}
    fits = divisibility.fits({**sizes, **vars(m), "splits_hidden": design.software.splits_hidden}, divides)
    lacking = capabilities.lacking(vars(m), vars(design.software.can))
    broken = {
        Infeasible.memory: needed.memory > usable_memory(design),
        **{reason: ~kept for reason, kept in fits.items()},
        Infeasible.device_count_mismatch: layout.devices != system.n_devices,
        Infeasible.network_too_small: network_too_small(system, m.tp),
        Infeasible.precision_unsupported: unsupported(system.accelerator, m.precision),
        Infeasible.host_memory: needed.host > system.host.capacity,
        Infeasible.offload_too_few_layers: offload.anything(m)
        & (w.n_layers < (offload.BUFFERED_LAYERS + 1.0) * m.pp),
        Infeasible.power: clock_infeasible,
        Infeasible.stack_lacks: functools.reduce(operator.or_, lacking.values()),
        **experts_reasons(design),
    }
    if layout.context.is_named:
        heads, ring = layout.context.heads_over.size, layout.context.ring.size
        for reason, kept in (
            (Infeasible.heads_not_divisible, divides(m.tp * heads, w.n_heads)),
            (Infeasible.sequence_not_divisible, divides(1.0, ring)),
        ):
            broken[reason] = broken[reason] | ~kept
    if system.accelerator.chip is not None:
        broken[Infeasible.chip_shares] = overspent(system.accelerator.chip)
    if w.recurrent is not None or w.sparse is not None:
        broken[Infeasible.layers_unsupported] = True
    if m.tiers is not None:
        broken[Infeasible.storage] = needed.storage > (system.host_tiers or HostTiers()).storage_capacity
    if layout.partitions is not None:
        across = (layout.partitions.weights_across.size, layout.partitions.gradients_across.size)
        whole = functools.reduce(operator.and_, (divides(1.0, size) for size in across))
        broken[Infeasible.shards_not_divisible] = broken[Infeasible.shards_not_divisible] | ~whole
    return bits_of(broken)


def bits_of(broken: dict[Infeasible, Scalar]) -> Scalar:
    """The reasons that hold, as bits."""
    return sum(jnp.where(is_broken, jnp.int32(bit), jnp.int32(0)) for bit, is_broken in broken.items())
