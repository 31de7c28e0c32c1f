"""Energy and power of one training step: the work of operators and links, and the power that time costs.

Every part is a sum over all devices, so that parts add up to the whole. Dynamic energy of the cores follows the
square of their voltage; what device memory, links and hosts take does not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine import collectives
from dse.model.machine.collectives import byte_energy
from dse.model.machine.operator_energy import Joules, flop_energies, work_energy
from dse.model.machine.power import control_power, leakage_power, power_limit, voltage
from dse.model.machine.topology import Groups
from dse.model.steps.training import LayerTime, StepTime, gathers_again, layer_launch_time, optimizer_traffic
from dse.model.work.transformer import Local, parameter_count
from dse.types import Design, Operator, Power, Recompute, Scalar

#: Least share of its unthrottled dynamic power that a device at its power limit is left with.
LEAST_SHARE = 0.05


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


def layer_link_energy(design: Design, local: Local, groups: Groups) -> Scalar:
    """Joules that one device sends for one layer and micro-batch: tensor and context parallelism.

    A pass sends two all-reduces of ``T h`` (``2 (t-1)/t`` of it each), as one or as reduce-scatter and
    all-gather; ring attention the keys and values of the other members, and in the backward their gradients too.
    """
    w, m, system = design.workload, design.mapping, design.system
    full = jnp.where(m.recompute == float(Recompute.full), 1.0, 0.0)
    passes = 1.0 + w.backward * (1.0 + full)
    message = local.element.activation * local.tokens * w.hidden * collectives.ring_fraction(groups.tp.size)
    tensor = (4.0 * passes + w.backward * gathers_again(m)) * message
    block = 2.0 * local.element.activation * local.tokens * local.kv_width
    context = (m.cp - 1.0) * block * (1.0 + w.backward * (2.0 + full))
    return tensor * byte_energy(groups.tp, system) + context * byte_energy(groups.cp, system)


def border_energy(design: Design, local: Local, groups: Groups) -> Scalar:
    """Joules of sending one micro-batch across all borders of stages, forth and back, over one replica's devices."""
    w, m, system = design.workload, design.mapping, design.system
    once = (m.sequence_parallel > 0.0) | (design.software.scatter_gather > 0.0)
    size = local.element.activation * local.tokens * w.hidden * jnp.where(once, 1.0, m.tp) * m.cp
    return (m.pp * m.virtual_stages - 1.0) * (1.0 + w.backward) * size * byte_energy(groups.pp, system)


def replica_energy(design: Design, local: Local, groups: Groups, n_micro_batches: Scalar) -> Scalar:
    """Joules of reducing gradients and gathering weights over the replicas, of one copy of the model."""
    m, stage = design.mapping, design.mapping.zero_stage
    replicas = groups.dp.size
    gradients = design.software.gradient_message_bytes * collectives.ring_fraction(replicas)
    weights = local.element.activation * collectives.ring_fraction(replicas)
    trained = design.workload.backward
    scatters = jnp.where(stage >= 2.0, n_micro_batches, 1.0)
    gathers = jnp.where(stage >= 3.0, (1.0 + trained) * n_micro_batches, jnp.where(stage >= 1.0, trained, 0.0))
    # ZeRO 0 sums and spreads gradients in one all-reduce.
    reduced = trained * gradients * jnp.where(stage >= 1.0, scatters, 2.0)
    a_parameter = reduced + weights * gathers
    return parameter_count(design.workload) * m.dp * m.cp * a_parameter * byte_energy(groups.dp, design.system)


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
