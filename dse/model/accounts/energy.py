"""Energy and power of one training step: work of operators and links, and power over time.

Every part is a sum over all devices; parts add up to the total. Dynamic energy of the cores follows the square of
their voltage; that of caches, device memory, links and hosts does not. A device that waits for a message or for
another stage polls with some of its cores, whose clocks count as control; one that waits for its host does not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import min_prefer_first
from dse.model.layout import Layout
from dse.model.machine.operator_energy import phase_energy, repeated_demand
from dse.model.machine.power import Demand, control_power, leakage_power, power_limit, voltage
from dse.model.machine.rates import reciprocal
from dse.model.steps.layer import LayerTime, launch_time
from dse.model.steps.training import StepTime
from dse.model.work.convergence import run_tokens
from dse.model.work.training import TrainingWork, layer_phase, step_phase
from dse.types import Design, Power, Scalar, System

#: Minimum share of the unthrottled dynamic power at the power limit.
MIN_DYNAMIC_SHARE = 0.05
#: Share from which on it counts as 1: a clock solved for the limit leaves a rounding.
FULL_SHARE = 1.0 - 1e-5


class Energy(NamedTuple):
    """Joules of one step of all devices by part, which add up to ``total``."""

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
    """Return the board power of a device that runs layers, W, and the share of dynamic power that its limit allows.

    ``P = rest + share cores`` with ``cores = (1 + cooling) (E_core V^2 / t + control)`` and a share of at most 1, by
    which it meets the power limit.

    Step times are measured at the clock of the chip's own limit; where the nominal voltage would exceed that limit, the
    chip ran at a lower clock. ``working``: seconds per layer with running core clocks.

    Args:
        layer: demand of a layer in repetition.
        working: seconds per layer with running core clocks.
        ratio: clock over the nominal one.
        power: parameters of the device.
    """
    volts = voltage(ratio, power)
    period = jnp.maximum(layer.other_time, layer.host_time)
    clocked_share = min_prefer_first(jnp.maximum(working / period, 0.0), 1.0)  # ends that bounds of ranges need
    cooling_factor, controls = 1.0 + power.cooling, control_power(ratio, volts, power) * clocked_share
    cores = cooling_factor * (layer.core_energy * volts * volts / period + controls)
    static_power = power.uncore + cooling_factor * leakage_power(volts, power) + layer.other_energy / period
    dynamic_ratio = (power_limit(power) - static_power) / cores
    share = jnp.where(dynamic_ratio > FULL_SHARE, 1.0, jnp.clip(dynamic_ratio, MIN_DYNAMIC_SHARE, FULL_SHARE))
    return static_power + share * cores, share


def step_energy(
    design: Design, layout: Layout, work: TrainingWork, ratio: Scalar, times: tuple[StepTime, LayerTime]
) -> StepEnergy:
    """Return the energy of one training step by part and of its devices, J, with peak and provisioned power, W.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        work: its ledger.
        ratio: clock over the nominal one.
        times: time of the step, and of one layer and micro-batch.
    """
    system = design.system
    power, devices = system.accelerator.power, layout.devices
    time, layer = times
    seconds, volts = time.total, voltage(ratio, power)

    layer_joules = phase_energy(layer_phase(design, layout, work), design)
    demand = repeated_demand(layer_joules, jnp.maximum(layer.total, 1e-12), power)._replace(
        host_time=launch_time(design, layout, layer)
    )
    busy, share = layer_power(demand, layer.working(power.polling), ratio, power)
    step_joules = phase_energy(step_phase(design, layout, work), design)

    dynamic_factor = share * volts * volts
    device_seconds = devices * seconds
    running = devices * (seconds - time.host - (1.0 - power.polling) * time.waiting)
    cores = dict(
        matrix=step_joules.matrix * dynamic_factor,
        vector=step_joules.vector * dynamic_factor,
        control=control_power(ratio, volts, power) * share * running,
        leakage=leakage_power(volts, power) * device_seconds,
    )
    cache, memory = step_joules.cache, step_joules.memory
    uncore, host = power.uncore * device_seconds, system.host_power * device_seconds
    on_device = sum(cores.values()) + cache + memory + uncore
    overhead = overhead_energy(system, sum(cores.values()) + cache, memory, on_device + step_joules.network + host)
    parts = Energy(
        **cores, memory=cache + memory, network=step_joules.network, uncore=uncore, host=host, **overhead._asdict()
    )

    peak, provisioned = (system_power(board, devices, system) for board in (busy, power_limit(power)))
    return StepEnergy(parts, on_device, peak, provisioned)


class OverheadEnergy(NamedTuple):
    """Joules spent around the devices: coolers of cold parts, and the facility."""

    cryogenics: Scalar
    facility: Scalar


def overhead_energy(system: System, cores: Scalar, memory: Scalar, facility_energy: Scalar) -> OverheadEnergy:
    """Return the energy of the coolers of cold cores and memory, and of the facility's overhead, J.

    ``E_cryo = cooling E_cores + cooling_memory E_memory`` and ``(PUE - 1) (E + E_cryo)``.

    Args:
        system: with its accelerator and facility.
        cores: energy of the cores, J.
        memory: energy of device memory, J.
        facility_energy: energy of all that the facility holds, without its coolers, J.
    """
    power = system.accelerator.power
    cryogenics = power.cooling * cores + power.memory_cooling * memory
    return OverheadEnergy(cryogenics, (system.pue - 1.0) * (facility_energy + cryogenics))


def system_power(board_power: Scalar, devices: Scalar, system: System) -> Scalar:
    """Return the power of ``devices`` at ``board_power`` W each, with hosts and facility, W.

    Args:
        board_power: power of a device, W.
        devices: their number.
        system: with its hosts and facility.
    """
    return devices * (board_power + system.host_power) * system.pue


def powers(design: Design, layout: Layout, energy: StepEnergy, step_time: Scalar) -> dict[str, Scalar]:
    """Return metric → power in W, energy per token in J, time in s and energy in J of a run without failures.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        energy: of a step.
        step_time: time of a step, s.

    Returns:
        Metric → value, by the fields of :class:`dse.types.Metrics`.
    """
    w = design.workload
    steps_per_token = reciprocal(w.global_batch * w.seq_len)
    steps = run_tokens(w) * steps_per_token
    steps_per_second = reciprocal(step_time)
    average = energy.parts.total * steps_per_second
    return dict(
        energy_per_token=energy.parts.total * steps_per_token,
        average_power=average,
        peak_power=jnp.maximum(energy.peak, average),  # head or optimiser may draw more than layers
        provisioned_power=energy.provisioned,
        device_power=energy.devices * steps_per_second * reciprocal(layout.devices),
        run_time=steps * step_time,
        run_energy=steps * energy.parts.total,
    )
