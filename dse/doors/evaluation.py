"""The doors into the model: ``evaluate(design)`` gives the metrics of one training step, ``bounds`` what bounds it.

``stages`` gives the passes that it is made of.
"""

from __future__ import annotations

from dse.model import fits_probability, lay_out, operate, parameter_count, training_work
from dse.model.accounts import energy, memory
from dse.model.accounts.bounds import BoundBy, step_bounds
from dse.model.accounts.failures import host_copy, run_with_failures
from dse.model.accounts.feasibility import RequiredMemory, infeasible_reason, usable_memory
from dse.model.accounts.throughput import throughput
from dse.model.layout import Layout
from dse.model.machine import technology
from dse.model.machine.power import clock_reached
from dse.model.machine.rates import reciprocal
from dse.model.money.account import account, integrate
from dse.model.steps.training import Stages, StepTime, stages_of, step_time
from dse.model.work.training import TrainingWork
from dse.types import Design, Metrics, Scalar


def evaluate(design: Design) -> Metrics:
    """Evaluate one training step of ``design``: metrics of time, memory, energy, money, carbon and feasibility.

    A pure function of scalars: it works under ``jit``, ``vmap`` and ``grad``. Never raises, and gives
    no NaN for leaves within their bounds; a design that cannot run has ``feasible = False`` and the bits of its
    reasons.

    Args:
        design: one point of the design space; leaves are plain numbers or traced scalars in SI units.

    Returns:
        Metrics of scalars in SI units (see :class:`dse.types.Metrics`); parts add up to their total.
    """
    design = technology.generated(design)
    layout = lay_out(design)
    work = training_work(design, layout)
    operation = operate(design, layout, work)
    step, layer = step_time(operation.design, layout, work)
    step_energy = energy.step_energy(design, layout, work, operation.ratio, (step, layer))
    peak_memory, memory_parts = memory.peak_memory(design, layout, work)
    offloaded_bytes, storage_bytes = memory.outside_memory(design, layout, work)
    host_bytes = offloaded_bytes + host_copy(design, layout, work)
    throughput_metrics = throughput(design, layout, step.total)
    powers = energy.powers(design, layout, step_energy, step.total)
    tokens_per_second = throughput_metrics["tokens_per_second"]
    costs = account(design, layout.devices, powers["average_power"], tokens_per_second)
    seconds_per_token = reciprocal(tokens_per_second)
    reason_bits = infeasible_reason(
        design, layout, RequiredMemory(peak_memory, host_bytes, storage_bytes), operation.clock_infeasible
    )
    return Metrics.of_totals(
        step_time=(step.total, step),
        **throughput_metrics,
        parameters=parameter_count(design.workload),
        peak_memory=(peak_memory, memory_parts),
        fits_probability=fits_probability(design.software.memory_spread, usable_memory(design), peak_memory),
        host_memory=host_bytes,
        energy_per_step=(step_energy.parts.total, step_energy.parts),
        **run_with_failures(design, layout, work, step),
        **powers,
        clock_reached=clock_reached(operation.ratio, design.system.accelerator.power),
        **costs.metrics,
        cost_per_run=integrate(costs.running_costs, powers["run_time"]),
        cost_per_token=costs.running_costs.total * seconds_per_token,
        carbon_per_run=integrate(costs.emitted, powers["run_time"]),
        carbon_per_token=costs.emitted.total * seconds_per_token,
        feasible=reason_bits == 0,
        infeasible_reason=reason_bits,
    )


def bounds(design: Design) -> BoundBy:
    """Return the time of one training step by what bounds it, s: compute, memory, network and rest, which add up.

    As pure as :func:`evaluate`, and a program of its own: sweeps do without it.
    """
    return step_bounds(*_timed_step(design))


def stage_memories(design: Design) -> tuple[tuple[memory.Memory, Scalar], ...]:
    """Return (peak memory by part, B; layers x micro-batches stored) of the first, second and last pipeline stage."""
    design = technology.generated(design)
    layout = lay_out(design)
    work = training_work(design, layout)
    stages = memory.memory_stages(design, layout, work)
    return tuple((memory.stage_memory(design, layout, work, stage), stage.stored_layers) for stage in stages)


def stages(design: Design) -> Stages:
    """Return the pass times of all pipeline stages, s, for a schedule event by event; pure as :func:`evaluate`."""
    return stages_of(*_timed_step(design))


def _timed_step(design: Design) -> tuple[Design, Layout, TrainingWork, StepTime]:
    """Return a design at its clock, its layout, its ledger and its step by part."""
    design = technology.generated(design)
    layout = lay_out(design)
    work = training_work(design, layout)
    operating_design = operate(design, layout, work).design
    return operating_design, layout, work, step_time(operating_design, layout, work)[0]
