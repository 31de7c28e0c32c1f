"""Energy and power of one training step: the work of operators and links, and the power that time costs.

Every part is a sum over all devices, so that parts add up to the whole. Dynamic energy of the cores follows the
square of their voltage; what device memory, links and hosts take does not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine import collectives
from dse.model.machine.collectives import Group, Groups
from dse.model.machine.power import control_power, flop_energy, leakage_power, power_limit, voltage
from dse.model.steps.training import LayerTime, StepTime, gathers_again, layer_launch_time, optimizer_traffic
from dse.model.work.transformer import Local, parameter_count
from dse.types import Design, Network, Operator, Power, Recompute, Scalar, Work

#: Least share of its unthrottled dynamic power that a device at its power limit is left with.
LEAST_SHARE = 0.05


class Joules(NamedTuple):
    """Energy of some work at the nominal voltage, by the unit that does it."""

    matrix: Scalar
    vector: Scalar
    cache: Scalar
    memory: Scalar  # device memory: does not follow the cores' voltage

    def plus(self, other: Joules, times: Scalar = 1.0) -> Joules:
        """The sum with ``times`` another."""
        return Joules(*(a + times * b for a, b in zip(self, other, strict=True)))

    @property
    def cores(self) -> Scalar:
        """What follows the cores' voltage."""
        return self.matrix + self.vector + self.cache


class FlopEnergy(NamedTuple):
    """Joules of a FLOP by the kind of operator, at the nominal voltage."""

    matrix: Scalar  # at the recipe's precision
    sixteen: Scalar  # what a narrower recipe leaves in 16 bits
    vector: Scalar


def flop_energies(precision: Scalar, power: Power) -> FlopEnergy:
    """Joules of a FLOP under a recipe."""
    matrix = flop_energy(precision, power)
    return FlopEnergy(matrix, jnp.maximum(matrix, power.matrix_energy), power.vector_energy)


def work_energy(works: list[tuple[str, Scalar, Work | None]], flop: FlopEnergy, power: Power) -> Joules:
    """Joules of kernels given as (kind of operator, how often, work)."""
    there = [(kind, times, work) for kind, times, work in works if work is not None]

    def flops(*kinds: str) -> Scalar:
        return sum((times * work.flops for kind, times, work in there if kind in kinds), 0.0)

    moved = sum((times * work.bytes for _, times, work in there), 0.0)
    return Joules(
        matrix=flop.matrix * flops("matrix") + flop.sixteen * flops("matrix_16", "flash"),
        vector=flop.vector * flops("vector"),
        cache=power.cache_energy * moved,
        memory=power.memory_energy * moved,
    )


def operators_energy(operators: list[Operator], design: Design, repeated: bool = False) -> Joules:
    """Joules of a list of operators, forward and backward, on one device for one micro-batch.

    With ``repeated`` also of what the mapping's recompute policy runs again.
    """
    w, m, power = design.workload, design.mapping, design.system.accelerator.power
    flop = flop_energies(m.precision, power)
    forward = work_energy([(o.kind, o.present, o.forward) for o in operators], flop, power)
    backward = work_energy([(o.kind, o.present, work) for o in operators for work in o.gradients], flop, power)
    total = forward.plus(backward, w.backward)
    if not repeated:
        return total
    core = work_energy([(o.kind, o.present, o.forward) for o in operators if o.core], flop, power)
    full = jnp.where(m.recompute == float(Recompute.full), w.backward, 0.0)
    selective = jnp.where(m.recompute == float(Recompute.selective), w.backward, 0.0)
    return total.plus(forward, full).plus(core, selective)


# Links


def byte_energy(group: Group, scale_up: Network, scale_out: Network) -> Scalar:
    """Joules of a byte that a member of a group sends along a ring: one hop in ``local`` leaves the domain."""
    outside = jnp.where(group.domains > 1.0, 1.0 / group.local, 0.0)
    return scale_up.energy * (1.0 - outside) + scale_out.energy * outside


def layer_link_energy(design: Design, local: Local, groups: Groups) -> Scalar:
    """Joules that one device sends for one layer and micro-batch: tensor and context parallelism.

    A pass sends two all-reduces of ``T h`` (``2 (t-1)/t`` of it each), as one or as reduce-scatter and
    all-gather; ring attention the keys and values of the other members, and in the backward their gradients too.
    """
    w, m, system = design.workload, design.mapping, design.system
    full = jnp.where(m.recompute == float(Recompute.full), 1.0, 0.0)
    passes = 1.0 + w.backward * (1.0 + full)
    message = local.element.activation * local.tokens * w.hidden * collectives.others(groups.tp.size)
    tensor = (4.0 * passes + w.backward * gathers_again(m)) * message
    block = 2.0 * local.element.activation * local.tokens * local.kv_width
    context = (m.cp - 1.0) * block * (1.0 + w.backward * (2.0 + full))
    return tensor * byte_energy(groups.tp, system.scale_up, system.scale_out) + context * byte_energy(
        groups.cp, system.scale_up, system.scale_out
    )


def border_energy(design: Design, local: Local, groups: Groups) -> Scalar:
    """Joules of sending one micro-batch across all borders of stages, forth and back, over one replica's devices."""
    w, m, system = design.workload, design.mapping, design.system
    once = (m.sequence_parallel > 0.0) | (design.software.scatter_gather > 0.0)
    size = local.element.activation * local.tokens * w.hidden * jnp.where(once, 1.0, m.tp) * m.cp
    link = jnp.where(groups.pp_neighbours_local > 0.0, system.scale_up.energy, system.scale_out.energy)
    return (m.pp * m.virtual_stages - 1.0) * (1.0 + w.backward) * size * link


def replica_energy(design: Design, local: Local, groups: Groups, n_micro_batches: Scalar) -> Scalar:
    """Joules of reducing gradients and gathering weights over the replicas, of one copy of the model."""
    m, stage = design.mapping, design.mapping.zero_stage
    replicas = groups.dp.size
    gradients = design.software.gradient_message_bytes * collectives.others(replicas)
    weights = local.element.activation * collectives.others(replicas)
    trained = design.workload.backward
    scatters = jnp.where(stage >= 2.0, n_micro_batches, 1.0)
    gathers = jnp.where(stage >= 3.0, (1.0 + trained) * n_micro_batches, jnp.where(stage >= 1.0, trained, 0.0))
    # ZeRO 0 sums and spreads gradients in one all-reduce.
    reduced = trained * gradients * jnp.where(stage >= 1.0, scatters, 2.0)
    a_parameter = reduced + weights * gathers
    return parameter_count(design.workload) * m.dp * m.cp * a_parameter * byte_energy(
        groups.dp, design.system.scale_up, design.system.scale_out
    )


# A step


class Energy(NamedTuple):
    """Joules of one step over the whole system by part; the parts add up to ``total``."""

    matrix: Scalar
    vector: Scalar
    memory: Scalar
    network: Scalar
    control: Scalar
    leakage: Scalar
    uncore: Scalar
    host: Scalar
    cryogenics: Scalar
    facility: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class StepEnergy(NamedTuple):
    """Energy of a step, and what else is told of it."""

    parts: Energy
    devices: Scalar  # joules of the devices alone
    peak: Scalar  # watts while every device runs layers, hosts and facility included
    provisioned: Scalar  # watts of the same with every device at its limit


def layer_power(
    energy: Joules, links: Scalar, time: Scalar, host: Scalar, ratio: Scalar, power: Power
) -> tuple[Scalar, Scalar]:
    """Board power of a device that runs layers, and the share of its cores' dynamic power that the limit leaves.

    A layer takes its device ``time``, and its host ``host`` to launch.

    Times of a step are measured ones with the clock that the chip's own limit allowed; where the nominal voltage
    would draw more than that limit, the chip ran at a lower one.
    """
    volts = voltage(ratio, power)
    period = jnp.maximum(time, host)
    cold, cool = 1.0 + power.cooling, 1.0 + power.memory_cooling
    cores = cold * (energy.cores * volts * volts + control_power(ratio, volts, power) * time) / period
    rest = power.uncore + cold * leakage_power(volts, power) + (cool * energy.memory + links) / period
    share = jnp.clip((power_limit(power) - rest) / cores, LEAST_SHARE, 1.0)
    return rest + share * cores, share


def step_energy(
    design: Design, local: Local, groups: Groups, layer: list[Operator], embedding: list[Operator],
    head: list[Operator], n_micro_batches: Scalar, ratio: Scalar, time: StepTime, one: LayerTime,
) -> StepEnergy:  # fmt: skip
    """Energy of one step of ``design`` at ``ratio`` times the nominal clock.

    The step takes ``time``, and one layer and micro-batch of it ``one``.
    """
    w, m, system = design.workload, design.mapping, design.system
    power = system.accelerator.power
    devices, seconds = m.tp * m.cp * m.pp * m.dp, time.total
    volts = voltage(ratio, power)

    a_layer = operators_energy(layer, design, repeated=True)
    links = layer_link_energy(design, local, groups)
    busy, share = layer_power(
        a_layer, links, jnp.maximum(one.total, 1e-12), layer_launch_time(design, local), ratio, power
    )

    ends = operators_energy([*embedding, *head], design)
    executions = n_micro_batches * m.dp * m.cp * m.tp
    moved = w.backward * parameter_count(w) * m.dp * m.cp * optimizer_traffic(design)
    work = Joules(0.0, 0.0, power.cache_energy * moved, power.memory_energy * moved)
    work = work.plus(a_layer, executions * w.n_layers).plus(ends, executions)

    dynamic = share * volts * volts
    replicas = m.dp * n_micro_batches
    network = (
        executions * w.n_layers * links
        + replicas * border_energy(design, local, groups)
        + replica_energy(design, local, groups, n_micro_batches)
    )
    device_seconds = devices * seconds
    running = devices * (seconds - time.bubble - time.host)
    cores = dict(
        matrix=work.matrix * dynamic,
        vector=work.vector * dynamic,
        control=control_power(ratio, volts, power) * share * running,
        leakage=leakage_power(volts, power) * device_seconds,
    )
    cache, memory = work.cache * dynamic, work.memory
    uncore, host = power.uncore * device_seconds, system.host_power * device_seconds
    on_device = sum(cores.values()) + cache + memory + uncore
    cryogenics = power.cooling * (sum(cores.values()) + cache) + power.memory_cooling * memory
    parts = Energy(
        **cores, memory=cache + memory, network=network, uncore=uncore, host=host, cryogenics=cryogenics,
        facility=(system.pue - 1.0) * (on_device + network + host + cryogenics),
    )  # fmt: skip

    def whole(board: Scalar) -> Scalar:
        return devices * (board + system.host_power) * system.pue

    return StepEnergy(parts, on_device, whole(busy), whole(power_limit(power)))
