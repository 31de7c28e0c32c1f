"""Training runs with failures: failure rate of a job, time lost per failure, and the optimal checkpoint interval.

Failures are random at a constant rate, during training and restarts, but not during waits for a repair. ``tau`` seconds
of training with a stall of ``delta`` per checkpoint take ``(e^((tau + delta) / M) - 1) M`` with lost work, for a mean
time between failures ``M``, and ``e^(R / M)`` times that with restarts of ``R`` (Daly 2006, equation 13), if a
checkpoint can be restored as soon as training goes on; otherwise a failure also costs the time until it can.
Exponents end at 20, so that nothing overflows in runs that never end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose, max_prefer_first, min_prefer_first, plus, select, times, where_on
from dse.model.formats import optimizer_bytes, parameter_bytes
from dse.model.layout import Layout
from dse.model.machine.rates import host_link_rate, reciprocal
from dse.model.steps.training import StepTime
from dse.model.work.convergence import run_tokens
from dse.model.work.parameters import model_flops, parameter_count
from dse.model.work.training import TrainingWork
from dse.types import Checkpoint, Design, Reliability, Scalar, System

#: Maximum number of failures per stretch of training or restart.
_MAX_EXPONENT = 20.0
#: Maximum seconds of a copy or write.
_MAX_SECONDS = 1e12
#: Minimum and maximum failures/s of a job, and minimum failures per stall.
_MIN_FAILURE_RATE, _MAX_FAILURE_RATE, _MIN_FAILURES_PER_STALL = 1e-15, 1.0, 1e-12
#: Maximum share of slow nodes, whose logarithm of the others is finite.
_MAX_SLOW_SHARE = 1.0 - 2.0**-20

#: Devices of a small cluster, and bytes/s of the file server that they share: 1 to 2 GB/s by NFS, as published advice
#: on the storage of GPU clusters says.
_SMALL_CLUSTER, _FILE_SERVER = 64.0, 1.5e9
#: Bytes/s of a hyperscaler's file system, sustained, for 16,384 devices (Llama team 2024, section 3.3.1), and the power
#: of the number of devices that joins both ends.
_FILE_SYSTEM, _STORAGE_EXPONENT = 2e12, 1.3


class FailureRates(NamedTuple):
    """Failures/s of a job."""

    hardware: Scalar  # each takes a node
    total: Scalar


class CheckpointTimes(NamedTuple):
    """Seconds of a checkpoint of one kind."""

    stall: Scalar  # lost training time per checkpoint
    time_to_restorable: Scalar  # from the end of the stall until it can be restored
    min_spacing: Scalar  # minimum time between the starts of two checkpoints
    load_time: Scalar  # to restore it


class LostTime(NamedTuple):
    """Seconds lost per second of training by part, and the checkpoint interval in s."""

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


def failure_rates(reliability: Reliability, devices: Scalar) -> FailureRates:
    """Return the failures/s of the hardware of a job and of hardware and software together.

    ``N (1 / M_device + 1 / M_link + 1 / (n M_node) + 1 / M_software)`` for ``N`` devices and ``n`` devices a node,
    limited to a range.
    """
    r = reliability
    node_rate = 1.0 / (r.node_devices * r.node_mtbf)
    hardware = devices * (1.0 / r.device_mtbf + 1.0 / r.link_mtbf + node_rate)
    rates = hardware, max_prefer_first(hardware + devices / r.software_mtbf, _MIN_FAILURE_RATE)
    return FailureRates(*(min_prefer_first(rate, _MAX_FAILURE_RATE) for rate in rates))


def growth(exponent: Scalar) -> Scalar:
    """Return ``(e^x - 1) / x - 1`` of ``x >= 0``: relative time added by ``x`` expected failures per stretch."""
    small, large = exponent < 0.2, jnp.maximum(exponent, 0.2)
    x = jnp.where(small, exponent, 0.2)
    series = x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x / 720.0))))
    return jnp.where(small, series, (jnp.exp(large) - 1.0) / large - 1.0)


def best_interval(stall: Scalar, rate: Scalar) -> Scalar:
    """Return the optimal training time between checkpoints in s, for a ``stall`` in s and a ``rate`` of failures/s.

    ``tau = M (1 + W(-e^(-1 - delta / M)))`` with Lambert's W (Daly 2006, equation 34), by the Padé form of its series
    in ``q = sqrt(2 (1 - e^(-delta / M)))`` (Corless et al. 1996, equation 4.22), at most 2 % off where the loss is
    flat. It tends to Young's ``sqrt(2 delta M)`` for short stalls and to ``M`` for long ones.
    """
    expected = min_prefer_first(max_prefer_first(stall * rate, _MIN_FAILURES_PER_STALL), _MAX_EXPONENT)
    q = jnp.sqrt(2.0 * expected * (1.0 + growth(expected)) * jnp.exp(-expected))
    return q / (1.0 + q * (1.0 / 3.0 - q / 24.0)) / rate


def storage_bandwidth(system: System) -> Scalar:
    """Return the bandwidth of shared storage, bytes/s: as stated, where above 0, else by the number of devices ``N``.

    ``1.5 GB/s (N / 64)^1.3``, no less than one file server's and no more than a hyperscaler's 2 TB/s. Between these two
    ends it gives 9 GB/s for 256 devices, where the reference architecture of the DGX SuperPOD H100 asks for 7 to 20
    written by a scalable unit (from memory), and 228 GB/s for the 3,072 of Selene, which wrote 273 (Narayanan et al.
    2021, section 5.10).
    """
    system_bandwidth = (system.reliability or Reliability()).storage_bandwidth
    scaled_bandwidth = _FILE_SERVER * jnp.maximum(system.n_devices / _SMALL_CLUSTER, 1.0) ** _STORAGE_EXPONENT
    return where_on(system_bandwidth, system_bandwidth, jnp.minimum(scaled_bandwidth, _FILE_SYSTEM))


def checkpoint_parameters(design: Design, work: TrainingWork) -> Scalar:
    """Return the count of parameters of all devices whose state a checkpoint holds: the trained ones."""
    adapters = times(work.trained.adapter_parameters, design.workload.blocks * design.mapping.tp)
    return plus(times(work.trained.trains_model, parameter_count(design.workload)), adapters)


def device_bytes(layout: Layout, work: TrainingWork) -> Scalar:
    """Return the bytes of weights and optimiser state that the most loaded device copies, as ZeRO splits them.

    One replica copies state that all replicas share.
    """
    state, routed = (state_bytes.weights + state_bytes.optimizer for state_bytes in (work.state, work.routed_state))
    trained_bytes = work.trained.trained_count(work.parameters, layout.layers) * state
    return plus(trained_bytes, times(work.trained.trains_model, times(work.routed, routed)))


def host_copy(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Return the bytes per device of a copy of its state on the host, until it is written or permanently.

    0 without a reliability record, and for synchronous checkpoints, which pass through the host.

    Args:
        design: with or without a reliability record.
        layout: sizes and groups of the design.
        work: its ledger.
    """
    reliability = design.system.reliability
    if reliability is None:
        return 0.0
    return jnp.where(reliability.checkpoint == float(Checkpoint.synchronous), 0.0, device_bytes(layout, work))


def checkpoint_times(
    design: Design, device_bytes: Scalar, step: StepTime, checkpoint_bytes: Scalar
) -> dict[Checkpoint, CheckpointTimes]:
    """Return kind of checkpoint → its stall and other times, s.

    Each checkpoint stops training for ``checkpoint_overhead``. Synchronous ones also for the copy to the host and the
    write. Asynchronous ones are copied during the passes of the next step, before the optimiser changes the state;
    training waits for the rest, and hidden copies slow it down slightly. They are then written to storage (DataStates:
    Maurya et al. 2024), or sent once to other hosts for parities and kept (REFT: Wang et al. 2023).
    """
    r, system = design.system.reliability or Reliability(), design.system
    copy = jnp.minimum(device_bytes / host_link_rate(system), _MAX_SECONDS)
    storage = storage_bandwidth(system)
    write = jnp.minimum(
        max_prefer_first(checkpoint_bytes / storage, device_bytes / r.device_storage_bandwidth), _MAX_SECONDS
    )
    parity = jnp.minimum(device_bytes / system.scale_out.bandwidth, _MAX_SECONDS)
    window = step.total - step.optimizer

    def stall(hidden: Scalar) -> Scalar:
        return r.copy_interference * min_prefer_first(hidden, window) + jnp.maximum(hidden - window, 0.0)

    load_time, overhead = copy + write, r.checkpoint_overhead
    synchronous_stall = overhead + load_time
    asynchronous_stall = overhead + stall(copy)
    parity_stall = stall(copy + parity)
    return {
        Checkpoint.synchronous: CheckpointTimes(synchronous_stall, 0.0, step.total, load_time),
        Checkpoint.asynchronous: CheckpointTimes(
            asynchronous_stall, synchronous_stall - asynchronous_stall, synchronous_stall, load_time
        ),
        Checkpoint.in_memory: CheckpointTimes(parity_stall, copy + parity - parity_stall, copy + parity, copy + parity),
    }


def spare_wait(reliability: Reliability, failure_rate: Scalar) -> Scalar:
    """Return the mean wait for a spare in s per hardware failure, at ``failure_rate`` hardware failures/s.

    The probability that all ``s`` spares are in repair, with ``m`` in repair on average, is Erlang's loss formula; here
    the sum of ``1 - s / m``, where positive, and ``m^s e^-m / s!`` (by Stirling's formula), for any ``s``: exact
    without spares and with many more than ``m``, low by a factor of two at most at ``s = m``. The first node in repair
    returns after its share of the repair time.
    """
    spares, mean = reliability.spares, jnp.maximum(failure_rate * reliability.repair_time, 1e-9)
    min_spares = jnp.maximum(spares, 1e-9)
    surplus = min_spares * math.log(2.0) * jnp.log2(min_spares / mean) - (min_spares - mean)
    overflow_chance = jnp.exp(-jnp.minimum(surplus, _MAX_EXPONENT)) / jnp.sqrt(2.0 * math.pi * min_spares + 1.0)
    wait_probability = jnp.maximum(1.0 - spares / mean, 0.0) + jnp.where(surplus < _MAX_EXPONENT, overflow_chance, 0.0)
    return jnp.minimum(wait_probability, 1.0) * reliability.repair_time / (1.0 + spares)


def lost_time(reliability: Reliability, saving: CheckpointTimes, rates: FailureRates, step_time: Scalar) -> LostTime:
    """Return the seconds lost per second of training by part, and the stated or best checkpoint interval, s.

    The interval is at least a step. Where a stated one is shorter than a checkpoint takes, training waits for it.

    Args:
        reliability: of the system.
        saving: times of a checkpoint.
        rates: failures/s of the job.
        step_time: time of a step, s.
    """
    r, rate = reliability, rates.total
    best = max_prefer_first(best_interval(saving.stall, rate), saving.min_spacing - saving.stall)
    interval = max_prefer_first(jnp.where(r.checkpoint_every > 0.0, r.checkpoint_every, best), step_time)
    pause = max_prefer_first(saving.stall, saving.min_spacing - interval)
    stretch = interval + pause
    recovery_time = r.detection_time + r.restart_time + saving.load_time
    extra = growth(min_prefer_first(stretch * rate, _MAX_EXPONENT))
    restart_failures = min_prefer_first((recovery_time + saving.time_to_restorable) * rate, _MAX_EXPONENT)
    failure_rate = stretch * rate * (1.0 + extra) / interval  # during training
    restart_rate = failure_rate * (1.0 + growth(restart_failures))  # some restarts fail
    repair_wait = spare_wait(r, rates.hardware) * rates.hardware / rate
    return LostTime(
        checkpointing=pause / interval,
        lost_work=stretch * extra / interval + restart_rate * saving.time_to_restorable,
        detection=restart_rate * r.detection_time,
        restart=restart_rate * (r.restart_time + saving.load_time),
        repair=failure_rate * jnp.exp(restart_failures) * repair_wait,
        interval=interval,
    )


def chosen_checkpoint(
    reliability: Reliability, times_by_kind: dict[Checkpoint, CheckpointTimes], rates: FailureRates, step_time: Scalar
) -> tuple[CheckpointTimes, LostTime]:
    """Return the times of a checkpoint of the stated kind, s, and the time lost with it per second of training.

    Those of a synchronous checkpoint where an asynchronous one is stated and loses more.

    Args:
        reliability: of the system.
        times_by_kind: kind → times of a checkpoint.
        rates: failures/s of the job.
        step_time: time of a step, s.
    """
    saving = choose(reliability.checkpoint, times_by_kind)
    synchronous = times_by_kind[Checkpoint.synchronous]
    lost, synchronous_loss = (lost_time(reliability, times, rates, step_time) for times in (saving, synchronous))
    is_synchronous = (reliability.checkpoint == float(Checkpoint.asynchronous)) & (synchronous_loss.total < lost.total)
    return select(is_synchronous, (synchronous, synchronous_loss), (saving, lost))


def replica_reliability(design: Design, weights: Scalar, ranks: Scalar) -> dict[str, Scalar]:
    """Return metric → value: mean seconds between failures of a serving replica, and its availability from 0 to 1.

    A replica is the ``ranks`` of data parallelism that share experts. Availability ``M / (M + D)``: it is down until
    the failure is detected, a spare node is available, and an engine has started and loaded the ``weights`` of a
    device. All replicas share the spares.

    Args:
        design: the design.
        weights: bytes of weights per device.
        ranks: data-parallel ranks that share experts.

    Returns:
        Metric → value.
    """
    m, r = design.mapping, design.system.reliability or Reliability()
    rates = failure_rates(r, m.tp * m.pp * ranks)
    repair_wait = spare_wait(r, m.dp / ranks * rates.hardware) * rates.hardware / rates.total
    down_time = r.detection_time + r.restart_time + weights / r.device_storage_bandwidth + repair_wait
    return dict(time_between_failures=1.0 / rates.total, availability=1.0 / (1.0 + rates.total * down_time))


def relative_slowdown(reliability: Reliability, devices: Scalar, step: StepTime) -> Scalar:
    """Return the expected time added by slow nodes and congestion, over the step time.

    A job waits for its slowest node: with a share ``s`` of slow ones among its ``n`` nodes, its passes and bubbles take
    ``straggler_slowdown`` longer with the probability ``1 - (1 - s)^n`` that it has one. Congestion lengthens exposed
    messages of dimensions across nodes: context, pipeline and data parallelism.
    """
    r = reliability
    inter_node = step.context_parallel + step.pipeline_parallel + step.data_parallel
    passes = step.total - inter_node - plus(step.tensor_parallel, step.expert_parallel)
    nodes = jnp.maximum(devices / r.node_devices, 1.0)
    straggler_probability = -jnp.expm1(nodes * jnp.log1p(-jnp.minimum(r.slow_nodes, _MAX_SLOW_SHARE)))
    return (r.straggler_slowdown * straggler_probability * passes + r.congestion * inter_node) * reciprocal(step.total)


def run_with_failures(
    design: Design, layout: Layout, work: TrainingWork, step: StepTime
) -> dict[str, Scalar | tuple[Scalar, dict[str, Scalar]]]:
    """Return metric → tokens and FLOPs of a training run, its expected seconds by part, failures and checkpoints.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        work: its ledger.
        step: time of a step by part.

    Returns:
        Metric → value.
    """
    w, r = design.workload, design.system.reliability or Reliability()
    tokens, rates = run_tokens(w), failure_rates(r, layout.devices)
    steps = tokens * reciprocal(w.global_batch * w.seq_len)
    precision = design.mapping.precision
    states = optimizer_bytes(precision, design.software)
    size = checkpoint_parameters(design, work) * (parameter_bytes(precision, design.software) + states)
    saving, lost = chosen_checkpoint(
        r, checkpoint_times(design, device_bytes(layout, work), step, size), rates, step.total
    )
    trained = steps * step.total
    slower = trained * relative_slowdown(r, layout.devices, step)
    parts = {
        "training": trained,
        "stragglers": slower,
        **{name: (trained + slower) * getattr(lost, name) for name in LostTime._fields[:-1]},
    }
    total = sum(parts.values())
    return dict(
        tokens_needed=tokens,
        run_flops=steps * model_flops(w),
        time_between_failures=1.0 / rates.total,
        checkpoint_bytes=size,
        checkpoint_time=saving.stall + saving.time_to_restorable,
        checkpoint_stall=lost.checkpointing * lost.interval,
        checkpoint_interval=lost.interval,
        goodput_fraction=trained / total,
        run_time_with_failures=(total, parts),
    )
