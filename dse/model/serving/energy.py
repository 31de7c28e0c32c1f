"""Energy per output token and power per device: prefill, decode, provisioned.

Dynamic energy of the cores follows the square of their voltage; that of memory, links and hosts does not
(:mod:`dse.model.accounts.energy` does the same for training). Idle power of an engine is paid by the tokens of that
time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.accounts.energy import beyond_devices, layer_power
from dse.model.machine.power import control_power, leakage_power, power_limit, repeats, voltage
from dse.model.serving.pass_energy import PassJoules, joules_of, working_share
from dse.model.serving.steady import EnginePhase, Phases
from dse.model.serving.step import with_mapping
from dse.model.serving.work import Rank, Stage
from dse.types import Engine, Scalar


class TokenEnergy(NamedTuple):
    """Joules per output token of all devices by part; the parts add up to ``total``."""

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
    """Energy per output token and power per device of one data-parallel rank at ``rate`` requests/s."""
    stage, met, requests, serving, engine = rank
    system, tp, pp = stage.design.system, stage.design.mapping.tp, stage.design.mapping.pp
    power = system.accelerator.power
    both = phases.decode, phases.mixed
    volts = [voltage(phase.clock.ratio, power) for phase in both]
    # Each kind of step has its own number of nano-batches.
    cut = (with_mapping(stage, phase.clock.stage.design.mapping) for phase in both)
    decode, mixed = (joules_of(s, met, serving, engine, p.batch) for s, p in zip(cut, both, strict=True))
    (decode_power, decode_share), (mixed_power, mixed_share) = (
        _phase_power(step, phase, stage, engine) for step, phase in zip((decode, mixed), both, strict=True)
    )
    mixes = phases.mixed.batch.sequences > 0.0
    added = mixed.less(PassJoules(*(jnp.where(mixes, part, 0.0) for part in decode)))
    devices = tp * pp
    cores = decode_share * volts[0] * volts[0], mixed_share * volts[1] * volts[1]
    tokens = jnp.maximum(rate * requests.output_tokens, 1e-12)  # per second
    done = _in_time(phases, mixes, phases.busy / tokens)
    often = [devices * phases.decode.passes * steps for steps in (done.alone, done.together)]
    decoded = _times(decode, often[0] + often[1], often[0] * cores[0] + often[1] * cores[1])
    chunks = devices * phases.mixed.passes * done.chunks
    filled = _times(added, chunks, chunks * cores[1])

    seconds = devices / tokens  # device seconds per token
    filling = done.chunks * phases.mixed.time.total * tokens
    clocks = [
        share * control_power(p.clock.ratio, v, power) * working_share(p.time, engine)
        for p, v, share in zip(both, volts, (decode_share, mixed_share), strict=True)
    ]
    leakage = leakage_power(volts[0], power)
    if phases.mixed.clock.stage is not phases.decode.clock.stage:
        leakage = leakage + filling * (leakage_power(volts[1], power) - leakage)
    cold = seconds * (leakage + phases.busy * clocks[0] + filling * (clocks[1] - clocks[0]))
    rest, host = cold + seconds * power.uncore, seconds * system.host_power
    on_device = sum(decoded) + sum(filled) + rest
    both_memory = decoded.memory + filled.memory
    around = beyond_devices(system, decoded.cores + filled.cores + cold, both_memory, on_device + host)
    return EnergyAndPower(
        token=TokenEnergy(
            decode=sum(decoded),
            prefill=sum(filled),
            rest=rest,
            host=host,
            **around._asdict(),
        ),
        average=on_device / seconds,
        decode=decode_power,
        prefill=mixed_power,
        provisioned=power_limit(power),
    )


class _Done(NamedTuple):
    """Steps per output token."""

    chunks: Scalar  # steps with prompts
    together: Scalar  # steps with prompts in which other sequences decode
    alone: Scalar  # decode steps without prompts


def _in_time(phases: Phases, mixes: Any, seconds: Scalar) -> _Done:
    """Steps per output token, scaled down to the engine seconds of a token.

    The request rate is accurate to a few per cent, so a busy engine may count more steps than fit into its time, and
    static batches take their first tokens from prefill steps.
    """
    mixed = phases.mixed.time.total
    chunks = jnp.minimum(phases.chunks, seconds / mixed)
    together = jnp.where(mixes, jnp.minimum(chunks, phases.decode_steps), 0.0)
    left = jnp.maximum(seconds - chunks * mixed, 0.0) / jnp.maximum(phases.decode.time.total, 1e-12)
    return _Done(chunks, together, jnp.minimum(phases.decode_steps - together, left))


def _times(step: PassJoules, often: Scalar, cores: Scalar) -> PassJoules:
    """Energy of ``often`` passes, with the cores' part scaled by ``cores`` to the nominal voltage."""
    return PassJoules(cores * step.cores, often * step.memory, often * step.network)


def _phase_power(step: PassJoules, phase: EnginePhase, stage: Stage, engine: Engine) -> tuple[Scalar, Scalar]:
    """Power of a device that repeats a step, W, and the share of its cores' energy that the power limit leaves."""
    power = stage.design.system.accelerator.power
    seconds = jnp.maximum(phase.time.total / stage.design.mapping.pp, 1e-12)  # one pass
    working = working_share(phase.time, engine) * seconds
    return layer_power(repeats(step, seconds, power), working, phase.clock.ratio, power)
