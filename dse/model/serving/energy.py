"""Energy of an output token, and the power of a device by phase: computing prompts, decoding, provisioned.

Dynamic energy of the cores follows the square of their voltage; what memory, links and hosts take does not
(:mod:`dse.model.accounts.energy` keeps the same accounts of training). Engines run all the time, so that what a device
draws at rest is paid by the tokens of that time.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.accounts.energy import layer_power
from dse.model.machine.messages import link_energy
from dse.model.machine.operator_energy import operators_energy
from dse.model.machine.power import Demand, clock_ratio, control_power, leakage_power, power_limit, voltage
from dse.model.serving.batch import Batch
from dse.model.serving.steady import Phase, Phases
from dse.model.serving.step import StepTime
from dse.model.serving.work import Stage, step_work
from dse.types import Operator, Requests, Scalar, Serving


class TokenEnergy(NamedTuple):
    """Joules of an output token over all devices by part; the parts add up to ``total``."""

    decode: Scalar  # work of decode steps
    prefill: Scalar  # work of a prompt, shared by the tokens of its answer
    rest: Scalar  # clocks, leakage and what depends on no core, for as long as a token takes
    host: Scalar
    cryogenics: Scalar
    facility: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class Drawn(NamedTuple):
    """Energy of a token, and watts of a device."""

    token: TokenEnergy
    average: Scalar
    decode: Scalar  # while it decodes
    prefill: Scalar  # in steps that carry prompts
    provisioned: Scalar  # at its limit


class Joules(NamedTuple):
    """Joules of a device in a pass of its stage: of the cores, of memory, of links."""

    cores: Scalar
    memory: Scalar
    network: Scalar

    def less(self, other: Joules) -> Joules:
        """What this takes more than another, nothing at least."""
        return Joules(*(jnp.maximum(a - b, 0.0) for a, b in zip(self, other, strict=True)))


def drawn(
    stage: Stage, ranks: Scalar, requests: Requests, serving: Serving, phases: Phases, rate: Scalar
) -> Drawn:
    """What one rank of data parallelism draws that answers ``rate`` requests a second in these phases."""
    system, tp, pp = stage.design.system, stage.design.mapping.tp, stage.design.mapping.pp
    power = system.accelerator.power
    ratio = clock_ratio(power)
    volts = voltage(ratio, power)
    decode, mixed = (_joules(stage, ranks, serving, phase.batch) for phase in (phases.decode, phases.mixed))
    (decode_power, decode_share), (mixed_power, mixed_share) = (
        _phase_power(step, phase, stage, ratio, volts)
        for step, phase in ((decode, phases.decode), (mixed, phases.mixed))
    )
    added = mixed.less(Joules(*(jnp.where(phases.mixed.batch.sequences > 0.0, part, 0.0) for part in decode)))
    # A step is ``pp`` passes through each of ``pp`` stages of ``tp`` devices.
    passes = tp * pp * pp
    decoded = _times(decode, passes * phases.decode_steps, decode_share * volts * volts)
    filled = _times(added, passes * phases.chunks, mixed_share * volts * volts)

    seconds = tp * pp / jnp.maximum(rate * requests.output_tokens, 1e-12)  # of devices
    clocks = control_power(ratio, volts, power) * _working(phases.decode.time, power.polling)
    cold = seconds * (leakage_power(volts, power) + clocks)
    rest, host = cold + seconds * power.uncore, seconds * system.host_power
    cryogenics = power.cooling * (decoded.cores + filled.cores + cold) + power.memory_cooling * (
        decoded.memory + filled.memory
    )
    on_device = sum(decoded) + sum(filled) + rest
    return Drawn(
        token=TokenEnergy(
            decode=sum(decoded), prefill=sum(filled), rest=rest, host=host, cryogenics=cryogenics,
            facility=(system.pue - 1.0) * (on_device + host + cryogenics),
        ),
        average=on_device / seconds,
        decode=decode_power,
        prefill=mixed_power,
        provisioned=power_limit(power),
    )  # fmt: skip


def _times(step: Joules, often: Scalar, cores: Scalar) -> Joules:
    """So many of them, the cores with a share of what they take at the nominal voltage."""
    return Joules(often * cores * step.cores, often * step.memory, often * step.network)


def _joules(stage: Stage, ranks: Scalar, serving: Serving, batch: Batch) -> Joules:
    """One pass of a stage, with its share of the head."""
    design, layers, pp = stage.design, stage.layout.layers, stage.design.mapping.pp
    work = step_work(stage, ranks, serving, batch)
    mixture = design.workload.experts

    def joules(operators: tuple[Operator, ...]) -> Joules:
        forward = [o._replace(input_gradient=None, weight_gradient=None) for o in operators]
        found = operators_energy(forward, design)
        return Joules(found.cores, found.memory, 0.0)

    layer, head = joules(work.layer), joules((work.head,))
    links = layers * sum(link_energy(work.messages, design.system, stage.layout).values())
    if mixture is None:
        return Joules(layers * layer.cores + head.cores / pp, layers * layer.memory + head.memory / pp, links)
    first, dense = mixture.first_dense / pp, joules(work.first_layer)
    cores, memory = (
        (layers - first) * a + first * b + c / pp
        for a, b, c in zip(layer[:2], dense[:2], head[:2], strict=True)
    )
    return Joules(cores, memory, links)


def _working(time: StepTime, polling: Scalar) -> Scalar:
    """Share of a step in which the cores have clocks: while they wait for messages, those that poll."""
    return (time.matrix + time.attention + polling * time.communication) / jnp.maximum(time.total, 1e-12)


def _phase_power(step: Joules, phase: Phase, stage: Stage, ratio: Scalar, volts: Scalar) -> tuple[Scalar, Scalar]:
    """Watts of a device that repeats a step, and the share of its cores' energy that the limit leaves."""
    power = stage.design.system.accelerator.power
    seconds = jnp.maximum(phase.time.total / stage.design.mapping.pp, 1e-12)  # of one pass
    beside = (1.0 + power.memory_cooling) * step.memory + step.network
    demand = Demand(0.0, seconds, step.cores, beside)
    return layer_power(demand, _working(phase.time, power.polling) * seconds, ratio, power)
