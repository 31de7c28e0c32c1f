"""A whole run with its failures: how often a job fails, what it loses each time, and the best interval of checkpoints.

Failures come at random, at a constant rate; they also come while a job restarts, but not while it waits for a repair.
Between two checkpoints ``tau`` seconds of training and a stall of ``delta`` take ``(e^((tau + delta) / M) - 1) M`` with
all that is done again, ``M`` being the mean time between failures, and ``e^(R / M)`` times that with restarts of ``R``
(Daly 2006, equation 13), for checkpoints that can be gone back to as soon as training goes on. One that is still under
way is not: a failure costs its time more. Powers of e end at e^20: nothing overflows where no run would ever end.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import jax.numpy as jnp

from dse.model.choice import choose, max_prefer_first, min_prefer_first, plus, times
from dse.model.formats import optimizer_bytes, parameter_bytes
from dse.model.layout import Layout
from dse.model.machine.rates import reciprocal
from dse.model.steps.training import StepTime
from dse.model.work.convergence import run_tokens
from dse.model.work.parameters import model_flops, parameter_count
from dse.model.work.training import TrainingWork
from dse.types import Checkpoint, Design, Reliability, Scalar

#: Failures in a stretch of training or a restart beyond which no more are counted.
_MOST = 20.0
#: Seconds beyond which no copy or write is told from another.
_LONGEST = 1e12
#: Least and most failures a second of a job, and least failures in a stall that are told from none.
_RAREST, _OFTENEST, _LEAST = 1e-15, 1.0, 1e-12


class FailureRates(NamedTuple):
    """Failures a second of a job."""

    hardware: Scalar  # of which each takes a node
    total: Scalar


class Saving(NamedTuple):
    """Seconds that checkpoints of a kind take."""

    stall: Scalar  # that training loses for one
    exposed: Scalar  # from when training goes on until it can be gone back to
    apart: Scalar  # least time from the begin of one to that of the next
    load: Scalar  # to bring it back


class Lost(NamedTuple):
    """Seconds lost for each second of training, by part, and the interval that gives them."""

    checkpointing: Scalar
    lost_work: Scalar
    detection: Scalar
    restart: Scalar
    repair: Scalar
    interval: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self[:-1])


T = TypeVar("T", Saving, Lost)


def failure_rates(reliability: Reliability, devices: Scalar) -> FailureRates:
    """Rates of all devices, links, nodes and software add up."""
    r = reliability
    of_nodes = 1.0 / (r.node_devices * r.node_mtbf)
    hardware = devices * (1.0 / r.device_mtbf + 1.0 / r.link_mtbf + of_nodes)
    rates = hardware, max_prefer_first(hardware + devices / r.software_mtbf, _RAREST)
    return FailureRates(*(min_prefer_first(rate, _OFTENEST) for rate in rates))


def growth(exponent: Scalar) -> Scalar:
    """``(e^x - 1) / x - 1`` of a number from 0: what failures add to a stretch in which ``x`` are expected."""
    small, large = exponent < 0.2, jnp.maximum(exponent, 0.2)
    x = jnp.where(small, exponent, 0.2)
    series = x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x / 720.0))))
    return jnp.where(small, series, (jnp.exp(large) - 1.0) / large - 1.0)


def best_interval(stall: Scalar, rate: Scalar) -> Scalar:
    """Training time between checkpoints that loses least, for a stall and failures a second.

    ``tau = M (1 + W(-e^(-1 - delta / M)))`` with Lambert's W (Daly 2006, equation 34), here by the Padé form of its
    series in ``q = sqrt(2 (1 - e^(-delta / M)))`` (Corless et al. 1996, equation 4.22), at most 2 % off where the loss
    is flat. It tends to Young's ``sqrt(2 delta M)`` for short stalls and to ``M`` for long ones.
    """
    expected = min_prefer_first(max_prefer_first(stall * rate, _LEAST), _MOST)
    q = jnp.sqrt(2.0 * expected * (1.0 + growth(expected)) * jnp.exp(-expected))
    return q / (1.0 + q * (1.0 / 3.0 - q / 24.0)) / rate


def saved_parameters(design: Design, work: TrainingWork) -> Scalar:
    """Parameters whose state a checkpoint holds: those that are trained."""
    adapters = times(work.trained.added, design.workload.blocks * design.mapping.tp)
    return plus(times(work.trained.whole, parameter_count(design.workload)), adapters)


def device_bytes(layout: Layout, work: TrainingWork) -> Scalar:
    """Bytes of weights and optimiser state that the device copies which has most of them, as ZeRO splits them.

    State that replicas have alike is copied by one of them.
    """
    state, routed = (one.weights + one.optimizer for one in (work.state, work.routed_state))
    held = work.trained.of(work.parameters, layout.layers) * state
    return plus(held, times(work.trained.whole, times(work.routed, routed)))


def host_copy(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Bytes that the host keeps for a device until a checkpoint is written, or for good: one copy of its state.

    Of designs that say nothing of checkpoints none; while training waits, what is written goes past the host.
    """
    reliability = design.system.reliability
    if reliability is None:
        return 0.0
    return jnp.where(reliability.checkpoint == float(Checkpoint.synchronous), 0.0, device_bytes(layout, work))


def savings(design: Design, held: Scalar, step: StepTime, size: Scalar) -> dict[Checkpoint, Saving]:
    """What checkpoints of ``size`` bytes take, by kind, of which a device has ``held``.

    Training stops for what each takes to begin that is written (``checkpoint_overhead``), however few its bytes.
    Synchronous ones are copied to the host and written while training waits. Asynchronous ones are copied behind the
    passes of the next step, before the optimiser changes what is copied; training waits for the rest, and what is
    hidden slows it down a little. They are then written to storage (DataStates: Maurya et al. 2024), or else sent
    once to other hosts for their parities and kept (REFT: Wang et al. 2023).
    """
    r, system = design.system.reliability or Reliability(), design.system
    copy = jnp.minimum(held / system.host.bandwidth, _LONGEST)
    write = jnp.minimum(max_prefer_first(size / r.storage_bandwidth, held / r.device_storage_bandwidth), _LONGEST)
    parity = jnp.minimum(held / system.scale_out.bandwidth, _LONGEST)
    window = step.total - step.optimizer

    def stall(hidden: Scalar) -> Scalar:
        return r.copy_interference * min_prefer_first(hidden, window) + jnp.maximum(hidden - window, 0.0)

    load, begin = copy + write, r.checkpoint_overhead
    waits, behind, coded = begin + load, begin + stall(copy), stall(copy + parity)
    return {
        Checkpoint.synchronous: Saving(waits, 0.0, step.total, load),
        Checkpoint.asynchronous: Saving(behind, waits - behind, waits, load),
        Checkpoint.in_memory: Saving(coded, copy + parity - coded, copy + parity, copy + parity),
    }


def no_spare(reliability: Reliability, failing: Scalar) -> Scalar:
    """Seconds waited in the mean after a failure that takes a node, of ``failing`` a second.

    The chance that all ``s`` spares are being repaired, ``m`` being asked for in the mean, is Erlang's loss formula.
    For any ``s`` it is here what ``1 - s / m``, where that is positive, and ``m^s e^-m / s!`` (by Stirling's formula)
    add up to: exact without spares and with many more than ``m``, low by a factor of two at most where there are ``m``.
    The first of so many nodes is back after a share of the time to repair.
    """
    spares, mean = reliability.spares, jnp.maximum(failing * reliability.repair_time, 1e-9)
    some = jnp.maximum(spares, 1e-9)
    surplus = some * math.log(2.0) * jnp.log2(some / mean) - (some - mean)
    rare = jnp.exp(-jnp.minimum(surplus, _MOST)) / jnp.sqrt(2.0 * math.pi * some + 1.0)
    chance = jnp.maximum(1.0 - spares / mean, 0.0) + jnp.where(surplus < _MOST, rare, 0.0)
    return jnp.minimum(chance, 1.0) * reliability.repair_time / (1.0 + spares)


def lost_time(reliability: Reliability, saving: Saving, rates: FailureRates, step_time: Scalar) -> Lost:
    """Seconds lost for each second of training, at the interval that is stated or else loses least.

    A step at least; where one is stated that is too short for the checkpoint before to be over, training waits for it.
    """
    r, rate = reliability, rates.total
    best = max_prefer_first(best_interval(saving.stall, rate), saving.apart - saving.stall)
    interval = max_prefer_first(jnp.where(r.checkpoint_every > 0.0, r.checkpoint_every, best), step_time)
    paused = max_prefer_first(saving.stall, saving.apart - interval)
    stretch = interval + paused
    back = r.detection_time + r.restart_time + saving.load
    added = growth(min_prefer_first(stretch * rate, _MOST))
    again = min_prefer_first((back + saving.exposed) * rate, _MOST)
    failures = stretch * rate * (1.0 + added) / interval  # those of training
    restarts = failures * (1.0 + growth(again))  # of full length: some fail themselves
    waited = no_spare(r, rates.hardware) * rates.hardware / rate
    return Lost(
        checkpointing=paused / interval,
        lost_work=stretch * added / interval + restarts * saving.exposed,
        detection=restarts * r.detection_time,
        restart=restarts * (r.restart_time + saving.load),
        repair=failures * jnp.exp(again) * waited,
        interval=interval,
    )


def saved(
    reliability: Reliability, by_kind: dict[Checkpoint, Saving], rates: FailureRates, step_time: Scalar
) -> tuple[Saving, Lost]:
    """What checkpoints of the kind that is stated take, and what is lost.

    An engine that need not wait for the storage does so where it would lose more otherwise.
    """
    columns = zip(*by_kind.values(), strict=True)
    saving = Saving(*(choose(reliability.checkpoint, dict(zip(by_kind, values, strict=True))) for values in columns))
    waiting = by_kind[Checkpoint.synchronous]
    lost, instead = (lost_time(reliability, each, rates, step_time) for each in (saving, waiting))
    waits = (reliability.checkpoint == float(Checkpoint.asynchronous)) & (instead.total < lost.total)
    return either(waits, waiting, saving), either(waits, instead, lost)


def either(condition: Scalar, first: T, second: T) -> T:
    """The first record where a condition holds, else the second."""
    return type(first)(*(jnp.where(condition, *values) for values in zip(first, second, strict=True)))


def served_with_failures(design: Design, weights: Scalar, ranks: Scalar) -> dict[str, Scalar]:
    """How often a replica of a model that serves fails, and the share of the time for which it answers.

    A replica are the ``ranks`` of data parallelism that share experts: none of them goes on without the others.
    ``M / (M + D)``: it is down until the failure is found, a spare node is there, and an engine has started on it and
    loaded the ``weights`` of a device. The spares are those of all replicas.
    """
    m, r = design.mapping, design.system.reliability or Reliability()
    rates = failure_rates(r, m.tp * m.pp * ranks)
    waited = no_spare(r, m.dp / ranks * rates.hardware) * rates.hardware / rates.total
    down = r.detection_time + r.restart_time + weights / r.device_storage_bandwidth + waited
    return dict(time_between_failures=1.0 / rates.total, availability=1.0 / (1.0 + rates.total * down))


def slowed(reliability: Reliability, step: StepTime) -> Scalar:
    """Share by which slow devices and congestion lengthen a step.

    Collisions lengthen the exposed messages of dimensions that cross nodes: context, pipeline and data parallelism.
    """
    across = step.context_parallel + step.pipeline_parallel + step.data_parallel
    return reliability.straggler_slowdown + reliability.congestion * across * reciprocal(step.total)


def run_with_failures(design: Design, layout: Layout, work: TrainingWork, step: StepTime) -> dict[str, Scalar]:
    """Expected time of a whole run by part, and what it follows from."""
    w, r = design.workload, design.system.reliability or Reliability()
    tokens, rates = run_tokens(w), failure_rates(r, layout.devices)
    steps = tokens * reciprocal(w.global_batch * w.seq_len)
    precision = design.mapping.precision
    states = optimizer_bytes(precision, design.software)
    size = saved_parameters(design, work) * (parameter_bytes(precision, design.software) + states)
    saving, lost = saved(r, savings(design, device_bytes(layout, work), step, size), rates, step.total)
    trained = steps * step.total
    slower = trained * slowed(r, step)
    parts = {
        "training": trained,
        "stragglers": slower,
        **{name: (trained + slower) * getattr(lost, name) for name in Lost._fields[:-1]},
    }
    total = sum(parts.values())
    return dict(
        tokens_needed=tokens,
        run_flops=steps * model_flops(w),
        time_between_failures=1.0 / rates.total,
        checkpoint_bytes=size,
        checkpoint_time=saving.stall + saving.exposed,
        checkpoint_stall=lost.checkpointing * lost.interval,
        checkpoint_interval=lost.interval,
        goodput_fraction=trained / total,
        run_time_with_failures=total,
        **{f"run_time_with_failures_{part}": value for part, value in parts.items()},
    )
