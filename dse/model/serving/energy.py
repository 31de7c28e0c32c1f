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
from dse.model.serving.work import Rank, Stage
from dse.types import Engine, Scalar


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
    stage, experts_dp, requests, serving, engine = rank
    system, tp, pp = stage.design.system, stage.design.mapping.tp, stage.design.mapping.pp
    power = system.accelerator.power
    phase_pair = phases.decode, phases.mixed
    volts = [voltage(phase.clock.ratio, power) for phase in phase_pair]
    # Each kind of step has its own number of nano-batches.
    cut_stages = (with_mapping(stage, phase.clock.stage.design.mapping) for phase in phase_pair)
    decode, mixed = (
        joules_of(cut_stage, experts_dp, serving, engine, phase.batch)
        for cut_stage, phase in zip(cut_stages, phase_pair, strict=True)
    )
    (decode_power, decode_share), (mixed_power, mixed_share) = (
        _phase_power(joules, phase, stage, engine) for joules, phase in zip((decode, mixed), phase_pair, strict=True)
    )
    is_mixing = phases.mixed.batch.sequences > 0.0
    prompt_joules = PassJoules(
        *(jnp.maximum(a - jnp.where(is_mixing, b, 0.0), 0.0) for a, b in zip(mixed, decode, strict=True))
    )
    devices = tp * pp
    core_factors = decode_share * volts[0] * volts[0], mixed_share * volts[1] * volts[1]
    tokens = jnp.maximum(rate * requests.output_tokens, 1e-12)  # per second
    counts = _step_counts(phases, is_mixing, phases.busy / tokens)
    pass_counts = [devices * phases.decode.passes * steps for steps in (counts.decode_only, counts.mixed)]
    decode_joules = _pass_joules(
        decode, pass_counts[0] + pass_counts[1], pass_counts[0] * core_factors[0] + pass_counts[1] * core_factors[1]
    )
    prompt_passes = devices * phases.mixed.passes * counts.with_prompts
    prefill_joules = _pass_joules(prompt_joules, prompt_passes, prompt_passes * core_factors[1])

    device_seconds = devices / tokens  # device seconds per token
    prefill_share = counts.with_prompts * phases.mixed.time.total * tokens
    clocks = [
        share * control_power(p.clock.ratio, v, power) * working_share(p.time, engine)
        for p, v, share in zip(phase_pair, volts, (decode_share, mixed_share), strict=True)
    ]
    leakage = leakage_power(volts[0], power)
    if phases.mixed.clock.stage is not phases.decode.clock.stage:
        leakage = leakage + prefill_share * (leakage_power(volts[1], power) - leakage)
    core_joules = device_seconds * (leakage + phases.busy * clocks[0] + prefill_share * (clocks[1] - clocks[0]))
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
        decode=decode_power,
        prefill=mixed_power,
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


def _phase_power(joules: PassJoules, phase: EnginePhase, stage: Stage, engine: Engine) -> tuple[Scalar, Scalar]:
    """Return (power of a device that repeats a step, W; share of its cores' energy that the power limit leaves).

    As :func:`dse.model.accounts.energy.layer_power`, for one pass of a stage.
    """
    power = stage.design.system.accelerator.power
    seconds = jnp.maximum(phase.time.total / stage.design.mapping.pp, 1e-12)  # one pass
    working = working_share(phase.time, engine) * seconds
    return layer_power(repeated_demand(joules, seconds, power), working, phase.clock.ratio, power)
