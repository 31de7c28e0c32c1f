"""Energy and power of one training step: the work of operators and links, and the power that time costs.

Every part is a sum over all devices, so that parts add up to the whole. Dynamic energy of the cores follows the
square of their voltage; what device memory, links and hosts take does not. A device that waits for a message or for
another stage polls with some of its cores, whose clocks count under control; one that waits for its host does not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.machine.messages import layer_links, link_energy
from dse.model.machine.operator_energy import Joules, operators_energy
from dse.model.machine.power import Demand, control_power, leakage_power, power_limit, voltage
from dse.model.machine.rates import reciprocal
from dse.model.steps.layer import LayerTime, launch_time
from dse.model.steps.training import StepTime
from dse.model.work.convergence import run_tokens
from dse.model.work.messages import executions
from dse.model.work.parameters import common_parameters, routed_parameters
from dse.model.work.state import optimizer_traffic
from dse.model.work.training import TrainingWork
from dse.types import Design, Power, Scalar, Scope, System

#: Least share of its unthrottled dynamic power that a device at its power limit is left with.
LEAST_SHARE = 0.05
#: Share from which on it has all of it: a clock solved for the limit leaves all but a rounding.
FULL_SHARE = 1.0 - 1e-5


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


def layer_power(layer: Demand, working: Scalar, ratio: Scalar, power: Power) -> tuple[Scalar, Scalar]:
    """Board power of a device that runs layers, and the share of its cores' dynamic power that the limit leaves.

    ``working``: seconds of a layer for which all cores have clocks.

    Times of a step are measured ones with the clock that the chip's own limit allowed; where the nominal voltage
    would draw more than that limit, the chip ran at a lower one.
    """
    volts = voltage(ratio, power)
    period = jnp.maximum(layer.other_time, layer.host_time)
    cold, controls = 1.0 + power.cooling, control_power(ratio, volts, power) * working
    cores = cold * (layer.core_energy * volts * volts + controls) / period
    rest = power.uncore + cold * leakage_power(volts, power) + layer.other_energy / period
    left = (power_limit(power) - rest) / cores
    share = jnp.where(left > FULL_SHARE, 1.0, jnp.maximum(left, LEAST_SHARE))
    return rest + share * cores, share


def step_energy(
    design: Design, layout: Layout, work: TrainingWork, ratio: Scalar, times: tuple[StepTime, LayerTime]
) -> StepEnergy:
    """Energy of one step of ``design`` at ``ratio`` times the nominal clock.

    ``times``: of the step, and of one layer and micro-batch of it.
    """
    w, system = design.workload, design.system
    power, devices = system.accelerator.power, layout.devices
    time, one = times
    seconds, volts = time.total, voltage(ratio, power)

    a_layer = operators_energy(work.layer, design, layout)
    links = link_energy(work.messages, system, layout)
    beside_cores = (1.0 + power.memory_cooling) * a_layer.memory + layer_links(links, layout)
    busy, share = layer_power(
        Demand(0.0, jnp.maximum(one.total, 1e-12), a_layer.cores, beside_cores, host_time=launch_time(design, layout)),
        one.working(power.polling), ratio, power,
    )  # fmt: skip

    routed = 0.0 if work.experts is None else work.experts.parameters
    often = executions(design, layout, work.parameters, routed)
    ends = operators_energy([*work.embedding, *work.head], design)
    traffic = optimizer_traffic(design, layout, layout.groups.dp)
    held = common_parameters(w) * layout.replicas
    if work.trained is not None:  # on every device of a stage its layers' adapters
        held = w.blocks * work.trained.layer * layout.replicas * design.mapping.tp
    moved = w.backward * held * traffic
    layers = often[Scope.layer]
    if layout.experts is not None and work.experts is not None:
        replicas, layers = layout.experts.replicas, often[Scope.expert_layer]
        if work.trained is None:
            traffic = optimizer_traffic(design, layout, replicas)
            devices_each = replicas.size * layout.experts.copies.size
            moved = moved + w.backward * routed_parameters(w) * devices_each * traffic
    done = Joules(0.0, 0.0, power.cache_energy * moved, power.memory_energy * moved)
    done = done.plus(ends, often[Scope.embedding])
    if work.experts is None:
        done = done.plus(a_layer, layers)
    else:
        done = done.plus(operators_energy(work.experts.mean_layer, design, layout), layers)
        first = operators_energy(work.experts.first_layer, design, layout)
        done = done.plus(first, often[Scope.layer] - layers)

    dynamic = share * volts * volts
    network = sum(count * links[scope] for scope, count in often.items())
    device_seconds = devices * seconds
    running = devices * (seconds - time.host - (1.0 - power.polling) * time.waiting)
    cores = dict(
        matrix=done.matrix * dynamic,
        vector=done.vector * dynamic,
        control=control_power(ratio, volts, power) * share * running,
        leakage=leakage_power(volts, power) * device_seconds,
    )
    cache, memory = done.cache * dynamic, done.memory
    uncore, host = power.uncore * device_seconds, system.host_power * device_seconds
    on_device = sum(cores.values()) + cache + memory + uncore
    cryogenics = power.cooling * (sum(cores.values()) + cache) + power.memory_cooling * memory
    parts = Energy(
        **cores, memory=cache + memory, network=network, uncore=uncore, host=host, cryogenics=cryogenics,
        facility=(system.pue - 1.0) * (on_device + network + host + cryogenics),
    )  # fmt: skip

    peak, provisioned = (whole_power(board, devices, system) for board in (busy, power_limit(power)))
    return StepEnergy(parts, on_device, peak, provisioned)


def whole_power(board: Scalar, devices: Scalar, system: System) -> Scalar:
    """Watts of so many devices that draw ``board`` each, with hosts and facility."""
    return devices * (board + system.host_power) * system.pue


def powers(design: Design, layout: Layout, drawn: StepEnergy, step_time: Scalar) -> dict[str, Scalar]:
    """Power, energy of a token, and time and energy of a whole run."""
    w = design.workload
    a_token = reciprocal(w.global_batch * w.seq_len)
    steps = run_tokens(w) * a_token
    each_second = reciprocal(step_time)
    average = drawn.parts.total * each_second
    return dict(
        energy_per_token=drawn.parts.total * a_token,
        average_power=average,
        peak_power=jnp.maximum(drawn.peak, average),  # where the head or the optimiser draw more than layers do
        provisioned_power=drawn.provisioned,
        device_power=drawn.devices * each_second * reciprocal(layout.devices),
        run_time=steps * step_time,
        run_energy=steps * drawn.parts.total,
    )
