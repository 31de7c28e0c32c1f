"""Energy per output token and power per device: prefill, decode, provisioned.

Dynamic energy of the cores follows the square of their voltage; that of caches, memory, links and hosts does not
(:mod:`dse.model.accounts.energy` does the same for training). Idle power of an engine is paid by the tokens of that
time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.accounts.energy import layer_power, overhead_energy
from dse.model.machine.operator_energy import PassJoules, repeated_demand
from dse.model.machine.power import control_power, leakage_power, power_limit, voltage
from dse.model.serving.pass_energy import joules_of, working_share
from dse.model.serving.steady import EnginePhase, Phases
from dse.model.serving.step import with_mapping
from dse.model.serving.work import Rank
from dse.types import Scalar


class TokenEnergy(NamedTuple):
    """Joules per output token of all devices by part, which add up to ``total``."""

    decode: Scalar  # work of decode steps
    prefill: Scalar  # work of a prompt, divided by the output tokens of its request
    rest: Scalar  # clocks, leakage and power that no core causes, over the time of a token
    host: Scalar
    cryogenics: Scalar
    facility: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class EnergyAndPower(NamedTuple):
    """Energy per output token in J, and power per device in W."""

    token: TokenEnergy
    average: Scalar
    decode: Scalar  # in decode steps
    prefill: Scalar  # in steps with prompts
    provisioned: Scalar  # at the power limit


def token_energy(rank: Rank, phases: Phases, rate: Scalar) -> EnergyAndPower:
    """Return the energy per output token, J, and power per device, W, of one rank at ``rate`` requests/s.

    Args:
        rank: with its requests and engine.
        phases: its kinds of engine steps.
        rate: requests/s.
    """
    system, power = rank.stage.design.system, rank.stage.design.system.accelerator.power
    decode, mixed = (_phase_energy(rank, phase) for phase in (phases.decode, phases.mixed))
    is_mixing = phases.mixed.batch.sequences > 0.0
    prompt_joules = PassJoules(
        *(jnp.maximum(a - jnp.where(is_mixing, b, 0.0), 0.0) for a, b in zip(mixed.joules, decode.joules, strict=True))
    )
    devices = rank.stage.design.mapping.tp * rank.stage.design.mapping.pp
    tokens = jnp.maximum(rate * rank.requests.output_tokens, 1e-12)  # per second
    counts = _step_counts(phases, is_mixing, phases.busy / tokens)
    alone, in_mixed = (devices * phases.decode.passes * steps for steps in (counts.decode_only, counts.mixed))
    nominal_passes = alone * decode.core_factor + in_mixed * mixed.core_factor
    decode_joules = _pass_joules(decode.joules, alone + in_mixed, nominal_passes)
    prompt_passes = devices * phases.mixed.passes * counts.with_prompts
    prefill_joules = _pass_joules(prompt_joules, prompt_passes, prompt_passes * mixed.core_factor)

    device_seconds = devices / tokens  # device seconds per token
    prefill_share = counts.with_prompts * phases.mixed.time.total * tokens
    leakage, added_clocks = decode.leakage, prefill_share * (mixed.clocks - decode.clocks)
    if phases.mixed.clock.stage is not phases.decode.clock.stage:
        leakage = leakage + prefill_share * (mixed.leakage - leakage)
    core_joules = device_seconds * (leakage + phases.busy * decode.clocks + added_clocks)
    idle_joules, host = core_joules + device_seconds * power.uncore, device_seconds * system.host_power
    on_device = sum(decode_joules) + sum(prefill_joules) + idle_joules
    both_memory = decode_joules.memory + prefill_joules.memory
    on_chip = decode_joules.cores + prefill_joules.cores + decode_joules.cache + prefill_joules.cache + core_joules
    overhead = overhead_energy(system, on_chip, both_memory, on_device + host)
    return EnergyAndPower(
        token=TokenEnergy(
            decode=sum(decode_joules),
            prefill=sum(prefill_joules),
            rest=idle_joules,
            host=host,
            **overhead._asdict(),
        ),
        average=on_device / device_seconds,
        decode=decode.power,
        prefill=mixed.power,
        provisioned=power_limit(power),
    )


class _StepCounts(NamedTuple):
    """Steps per output token."""

    with_prompts: Scalar  # steps with prompts
    mixed: Scalar  # steps with prompts in which other sequences decode
    decode_only: Scalar  # decode steps without prompts


def _step_counts(phases: Phases, is_mixing: Any, seconds: Scalar) -> _StepCounts:
    """Return the counts of steps per output token, limited to the engine seconds of a token.

    The request rate is accurate to a few per cent, so a busy engine may count more steps than fit into its time, and
    static batches take their first tokens from prefill steps.
    """
    mixed_time = phases.mixed.time.total
    prompt_steps = jnp.minimum(phases.chunks, seconds / mixed_time)
    mixed_steps = jnp.where(is_mixing, jnp.minimum(prompt_steps, phases.decode_steps), 0.0)
    remaining_steps = jnp.maximum(seconds - prompt_steps * mixed_time, 0.0) / jnp.maximum(
        phases.decode.time.total, 1e-12
    )
    return _StepCounts(prompt_steps, mixed_steps, jnp.minimum(phases.decode_steps - mixed_steps, remaining_steps))


def _pass_joules(joules: PassJoules, passes: Scalar, nominal_passes: Scalar) -> PassJoules:
    """Return the joules of ``passes`` passes; those of the cores count ``nominal_passes``, at the nominal voltage."""
    return PassJoules(
        nominal_passes * joules.cores, passes * joules.cache, passes * joules.memory, passes * joules.network
    )


class _PhaseEnergy(NamedTuple):
    """Energy of one pass of a stage in one kind of engine step, and power of a device that repeats it."""

    joules: PassJoules  # at the nominal voltage
    power: Scalar  # W of the board
    core_factor: Scalar  # energy of the cores over that at the nominal voltage
    clocks: Scalar  # W of clock trees and control
    leakage: Scalar  # W


def _phase_energy(rank: Rank, phase: EnginePhase) -> _PhaseEnergy:
    """Return the energy of one pass, J, and its powers, W, with the nano-batches of this kind of step.

    As :func:`dse.model.accounts.energy.layer_power`, for one pass of a stage.
    """
    ratio, power = phase.clock.ratio, rank.stage.design.system.accelerator.power
    stage, volts = with_mapping(rank.stage, phase.clock.stage.design.mapping), voltage(ratio, power)
    joules = joules_of(stage, rank.experts_dp, rank.serving, rank.engine, phase.batch)
    seconds = jnp.maximum(phase.time.total / stage.design.mapping.pp, 1e-12)  # one pass
    working = working_share(phase.time, rank.engine)
    board, share = layer_power(repeated_demand(joules, seconds, power), working * seconds, ratio, power)
    clocks = share * control_power(ratio, volts, power) * working
    return _PhaseEnergy(joules, board, share * volts * volts, clocks, leakage_power(volts, power))
