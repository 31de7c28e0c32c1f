"""Energy and power of one training step: work of operators and links, and power over time.

Every part is a sum over all devices; parts add up to the total. Dynamic energy of the cores follows the square of
their voltage; that of device memory, links and hosts does not. A device that waits for a message or for another stage
polls with some of its cores, whose clocks count as control; one that waits for its host does not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import min_prefer_first
from dse.model.layout import Layout
from dse.model.machine.operator_energy import phase_energy
from dse.model.machine.power import Demand, control_power, leakage_power, power_limit, repeats, voltage
from dse.model.machine.rates import reciprocal
from dse.model.steps.layer import LayerTime, launch_time
from dse.model.steps.training import StepTime
from dse.model.work.convergence import run_tokens
from dse.model.work.training import TrainingWork, layer_phase, step_phase
from dse.types import Design, Power, Scalar, System

#: Minimum share of the unthrottled dynamic power at the power limit.
LEAST_SHARE = 0.05
#: Share from which on it counts as 1: a clock solved for the limit leaves a rounding.
FULL_SHARE = 1.0 - 1e-5


class Energy(NamedTuple):
    """Joules of one step of all devices by part; the parts add up to ``total``."""

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
    """Energy and power of a step."""

    parts: Energy
    devices: Scalar  # J of the devices alone
    peak: Scalar  # W while every device runs layers, hosts and facility included
    provisioned: Scalar  # W with every device at its limit, hosts and facility included


def layer_power(layer: Demand, working: Scalar, ratio: Scalar, power: Power) -> tuple[Scalar, Scalar]:
    """Board power of a device that runs layers, W, and the share of its cores' dynamic power under the power limit.

    Step times are measured at the clock of the chip's own limit; where the nominal voltage would exceed that limit, the
    chip ran at a lower clock. ``working``: seconds per layer with running core clocks.
    """
    volts = voltage(ratio, power)
    period = jnp.maximum(layer.other_time, layer.host_time)
    clocked = min_prefer_first(jnp.maximum(working / period, 0.0), 1.0)  # ends that bounds of ranges need
    cold, controls = 1.0 + power.cooling, control_power(ratio, volts, power) * clocked
    cores = cold * (layer.core_energy * volts * volts / period + controls)
    rest = power.uncore + cold * leakage_power(volts, power) + layer.other_energy / period
    left = (power_limit(power) - rest) / cores
    share = jnp.where(left > FULL_SHARE, 1.0, jnp.clip(left, LEAST_SHARE, FULL_SHARE))
    return rest + share * cores, share


def step_energy(
    design: Design, layout: Layout, work: TrainingWork, ratio: Scalar, times: tuple[StepTime, LayerTime]
) -> StepEnergy:
    """Energy of one training step.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        work: its ledger.
        ratio: clock over the nominal one.
        times: time of the step, and of one layer and micro-batch.
    """
    system = design.system
    power, devices = system.accelerator.power, layout.devices
    time, one = times
    seconds, volts = time.total, voltage(ratio, power)

    a_layer = phase_energy(layer_phase(design, layout, work), design)
    demand = repeats(a_layer, jnp.maximum(one.total, 1e-12), power)._replace(host_time=launch_time(design, layout, one))
    busy, share = layer_power(demand, one.working(power.polling), ratio, power)
    done = phase_energy(step_phase(design, layout, work), design)

    dynamic = share * volts * volts
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
    around = beyond_devices(system, sum(cores.values()) + cache, memory, on_device + done.network + host)
    parts = Energy(**cores, memory=cache + memory, network=done.network, uncore=uncore, host=host, **around._asdict())

    peak, provisioned = (whole_power(board, devices, system) for board in (busy, power_limit(power)))
    return StepEnergy(parts, on_device, peak, provisioned)


class Around(NamedTuple):
    """Joules around the devices."""

    cryogenics: Scalar
    facility: Scalar


def beyond_devices(system: System, cores: Scalar, memory: Scalar, within: Scalar) -> Around:
    """Energy of coolers of cold cores and memory, and of the facility for all energy ``within`` it, J."""
    power = system.accelerator.power
    cryogenics = power.cooling * cores + power.memory_cooling * memory
    return Around(cryogenics, (system.pue - 1.0) * (within + cryogenics))


def whole_power(board: Scalar, devices: Scalar, system: System) -> Scalar:
    """Power of ``devices`` at ``board`` W each, with hosts and facility, W."""
    return devices * (board + system.host_power) * system.pue


def powers(design: Design, layout: Layout, energy: StepEnergy, step_time: Scalar) -> dict[str, Scalar]:
    """Power in W, energy per token in J, and time and energy of a run."""
    w = design.workload
    a_token = reciprocal(w.global_batch * w.seq_len)
    steps = run_tokens(w) * a_token
    each_second = reciprocal(step_time)
    average = energy.parts.total * each_second
    return dict(
        energy_per_token=energy.parts.total * a_token,
        average_power=average,
        peak_power=jnp.maximum(energy.peak, average),  # head or optimiser may draw more than layers
        provisioned_power=energy.provisioned,
        device_power=energy.devices * each_second * reciprocal(layout.devices),
        run_time=steps * step_time,
        run_energy=steps * energy.parts.total,
    )
