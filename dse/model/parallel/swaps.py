"""Swaps as a schedule: when offloaded tensors cross the link to the host and its drives, and what waits for them.

A pass takes tensors in (weights, stored activations) and sends others out (activations, gradients). A copy that is
``prefetch_depth`` layers ahead of its use runs beside compute, into as many buffers beyond the one in use. At depth 0,
and of pageable memory, whose copies block the thread that launches kernels (CUDA Runtime API, synchronization behavior
of memcpy), it runs in turn with compute. The update of the optimiser goes through sub-groups: read from drives, update,
write back (ZeRO-Infinity: Rajbhandari et al. 2021, section 6.2; ZeRO-Offload: Ren et al. 2021, section 5; DeepSpeed,
``runtime/swap_tensor/pipelined_optimizer_swapper.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times
from dse.model.layout import Layout
from dse.model.machine.rates import host_link_rate
from dse.model.work.offload import NO_TIERS, NOT_TIERED, TieredOffload
from dse.model.work.training import TrainingWork
from dse.types import Design, HostTiers, Scalar, Tiers


class Move(NamedTuple):
    """Bytes of one kind of tensor that a pass moves per layer, and how early."""

    inward: Scalar  # over the link to the device
    outward: Scalar
    read: Scalar  # from drives
    written: Scalar
    depth: Scalar  # layers ahead of their use
    pinned: Scalar


class PassSwaps(NamedTuple):
    """Seconds of the transfers of one pass per layer and micro-batch."""

    link: Scalar  # beside compute
    drives: Scalar = 0.0  # beside compute
    synchronous: Scalar = 0.0  # in turn with compute
    ahead: Scalar = 0.0  # of the layers of a stage that are further ahead than one, divided by all its layers

    @property
    def overlapped(self) -> Scalar:
        """Seconds beside compute: link and drives work in parallel on different layers."""
        return longest(self.link, self.drives)


class UpdateParts(NamedTuple):
    """Seconds per layer of an update outside of the device."""

    read: Scalar  # from drives
    compute: Scalar  # host, and copies over the link
    write: Scalar
    link: Scalar  # part of compute


class Swaps(NamedTuple):
    """Seconds of one layer's transfers by pass, and of its update."""

    forward: PassSwaps
    backward: PassSwaps
    last_transfers: Scalar  # overlapped with the last backward of a step, with a share of the update
    last_update: Scalar  # chain of that share of the update: read, compute, write
    update: Scalar  # rest of the update, after the last backward


def longest(*seconds: Scalar) -> Scalar:
    """Return the largest of the seconds, without an equation for the literal zeros of absent parts."""
    present = [term for term in seconds if not nothing(term)]
    largest: Scalar = present[0] if present else 0.0
    for term in present[1:]:
        largest = jnp.maximum(largest, term)
    return largest


def both_ways(one: Scalar, other: Scalar, duplex: Scalar) -> Scalar:
    """Return the seconds of traffic in two directions: the longer one in parallel, the sum in turn."""
    if nothing(one) or nothing(other):
        return plus(one, other)
    parallel = jnp.maximum(one, other)
    if isinstance(duplex, float) and duplex == 1.0:
        return parallel
    return jnp.where(duplex > 0.0, parallel, one + other)


def _seconds(size: Scalar, rate: Scalar) -> Scalar:
    """Return the seconds of ``size`` bytes, the literal 0 for none."""
    return 0.0 if nothing(size) else size / rate


def copy_rate(link: Scalar, host: HostTiers, pinned: Scalar) -> Scalar:
    """Return the rate of copies over the link, B/s.

    Pageable memory is copied by one thread through a pinned buffer: ``min(link, pageable)``.

    Args:
        link: rate of a device's share of the link, B/s.
        host: of the device.
        pinned: 1 for page-locked memory, 0 for pageable.
    """
    return jnp.where(pinned > 0.0, link, jnp.minimum(link, host.pageable_bandwidth))


def host_update_rate(tiers: HostTiers, bytes_per_parameter: Scalar) -> Scalar:
    """Return the parameters per second that Adam on the host updates: memory traffic over what its cores can move.

    ``min(host_memory_bandwidth, host_cores core_bandwidth) / bytes``. Its arithmetic does not bind: a division and a
    square root of sixteen fp32 lanes take some twenty cycles (AVX-512), in which a core moves a sixth of their bytes.

    Args:
        tiers: of the host.
        bytes_per_parameter: read and written per update.
    """
    moved = jnp.minimum(tiers.host_memory_bandwidth, tiers.host_cores * tiers.core_bandwidth)
    return moved / bytes_per_parameter


def pipelined_update(parts: UpdateParts, groups: Scalar, tiers: Tiers, storage_duplex: Scalar) -> Scalar:
    """Return the seconds of an update in ``groups`` sub-groups: read, compute, write.

    ``(r + c + w) / K + (1 - 1 / K) b``. The part ``b`` that repeats is ``r + c + w`` where each group is read, updated
    and written in turn, ``max(r, c + w)`` where the next one is read ahead, ``max(w, r + c)`` where the last one is
    written behind, ``max(r, c, w)`` with both. Of drives that read and write in turn: ``max(r, c) + w``,
    ``r + max(c, w)``, ``max(r + w, c)``.

    Args:
        parts: seconds of reads, compute and writes of all groups.
        groups: count of sub-groups, 1 or more.
        tiers: of the mapping, with its pipelines.
        storage_duplex: 1 where drives read and write in parallel, 0 in turn.
    """
    read, compute, write = parts.read, parts.compute, parts.write
    total, parallel = read + compute + write, storage_duplex > 0.0
    read_ahead = jnp.where(parallel, jnp.maximum(read, compute + write), jnp.maximum(read, compute) + write)
    written_behind = jnp.where(parallel, jnp.maximum(write, read + compute), read + jnp.maximum(compute, write))
    both = jnp.maximum(both_ways(read, write, storage_duplex), compute)
    repeated = jnp.where(
        tiers.pipeline_read > 0.0,
        jnp.where(tiers.pipeline_write > 0.0, both, read_ahead),
        jnp.where(tiers.pipeline_write > 0.0, written_behind, total),
    )
    return total / groups + (1.0 - 1.0 / groups) * repeated


def swap_seconds(moves: tuple[Move, ...], link: Scalar, host: HostTiers, layers: Scalar) -> PassSwaps:
    """Return the seconds of the transfers of a pass per layer.

    Link and drives work in parallel on different layers (ZeRO-Infinity, section 6.2), a synchronous copy takes both in
    turn.

    Args:
        moves: what the pass moves.
        link: rate of a device's share of the link, B/s.
        host: of the device.
        layers: of a stage.
    """

    def beside(weights: tuple[Scalar, ...]) -> tuple[Scalar, Scalar]:
        """Return the seconds of ``weights`` of each move on the link and on drives."""

        def total(name: str) -> Scalar:
            return plus(*(times(weight, getattr(move, name)) for weight, move in zip(weights, moves, strict=True)))

        inward, outward = _seconds(total("inward"), link), _seconds(total("outward"), link)
        read, write = _seconds(total("read"), host.storage_read), _seconds(total("written"), host.storage_write)
        return both_ways(inward, outward, host.link_duplex), both_ways(read, write, host.storage_duplex)

    if all(isinstance(leaf, float) and leaf == 1.0 for move in moves for leaf in (move.depth, move.pinned)):  # no tiers
        return PassSwaps(*beside((1.0,) * len(moves)))
    shares = tuple(jnp.minimum(move.depth, 1.0) * move.pinned for move in moves)
    further = tuple(jnp.clip(move.depth - 1.0, 0.0, layers) * move.pinned for move in moves)
    synchronous: list[Scalar] = []
    for move, share in zip(moves, shares, strict=True):
        copied = plus(move.inward, move.outward) / copy_rate(link, host, move.pinned)
        stored = plus(_seconds(move.read, host.storage_read), _seconds(move.written, host.storage_write))
        synchronous.append((1.0 - share) * plus(copied, stored))
    return PassSwaps(*beside(shares), plus(*synchronous), longest(*beside(further)) / layers)


def layer_swaps(design: Design, layout: Layout, work: TrainingWork) -> Swaps:
    """Return the seconds of one layer's transfers by pass, and of its update.

    The forward takes weights in and activations out, the backward needs both in and sends gradients out. A share
    ``update_overlap`` of the update runs beside the last backward of a step, layer by layer with its gradients, and the
    rest after it, where the update waits for the norm of all gradients.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        work: its ledger.
    """
    on_host, tiered, overlap = work.on_host, work.tiered, design.software.update_overlap
    link, host = host_link_rate(design.system), design.system.host_tiers or HostTiers()
    tiers, storage = design.mapping.tiers or NO_TIERS, tiered or NOT_TIERED
    copies, checkpoints = (tiers.prefetch_depth, tiers.pinned), (tiers.activation_depth, tiers.pinned_activations)
    weights = Move(on_host.weights, 0.0, storage.weights, 0.0, *copies)
    gradients = Move(0.0, storage.gradients, 0.0, storage.stored_gradients, tiers.gradient_depth, tiers.pinned)
    stored = Move(0.0, on_host.activations, 0.0, storage.activations, *checkpoints)
    loaded = Move(on_host.activations, 0.0, storage.activations, 0.0, *checkpoints)
    forward = swap_seconds((weights, stored), link, host, layout.layers)
    backward = swap_seconds((weights, loaded, gradients), link, host, layout.layers)
    if tiered is None:
        state = on_host.optimizer / link  # in and out in parallel
        last = backward.overlapped + overlap * state
        return Swaps(forward, backward, last, 0.0, (1.0 - overlap) * state)
    parts = update_parts(work, tiered, tiers, link, host)
    groups = jnp.maximum(tiered.offloaded_parameters * layout.layers / tiers.sub_group_size, 1.0)
    chain = pipelined_update(parts, groups, tiers, host.storage_duplex)
    drives = both_ways(parts.read, parts.write, host.storage_duplex)
    last = longest(backward.link + overlap * parts.link, backward.drives + overlap * drives)
    return Swaps(forward, backward, last, overlap * chain, (1.0 - overlap) * chain)


def update_parts(
    work: TrainingWork, tiered: TieredOffload, tiers: Tiers, link_rate: Scalar, host: HostTiers
) -> UpdateParts:
    """Return the seconds per layer of reading, updating and writing optimiser state that is off the device.

    State that the device updates crosses the link in and out. Of state that the host updates, new weights come in, and
    gradients go out unless they are offloaded in the backward. New weights of storage are written, too.

    Args:
        work: ledger of a step.
        tiered: bytes of a layer.
        tiers: of the mapping.
        link_rate: rate of a device's share of the link, B/s.
        host: of the device.
    """
    state = work.on_host.optimizer - tiered.host_state
    inward, outward = state + tiered.update_bytes, state + (1.0 - tiers.offload_gradients) * tiered.update_bytes
    rate = copy_rate(link_rate, host, tiers.pinned)
    link = both_ways(inward / rate, outward / rate, host.link_duplex)
    on_host = tiered.host_updated_parameters / host_update_rate(host, tiered.bytes_per_update)
    is_async = jnp.minimum(tiers.prefetch_depth, 1.0) * tiers.pinned
    compute = is_async * jnp.maximum(on_host, link) + (1.0 - is_async) * (on_host + link)
    return UpdateParts(
        read=(tiered.optimizer + tiered.stored_gradients) / host.storage_read,
        compute=compute,
        write=(tiered.optimizer + times(work.trained.trains_model, tiered.weights)) / host.storage_write,
        link=link,
    )


def exposed_transfer(transfer: Scalar, duration: Scalar, memory: Scalar) -> Scalar:
    """Return the seconds that an overlapped transfer adds to a pass.

    The transfer uses device memory too: ``max(0, t_transfer + t_memory - t_pass)``.

    Args:
        transfer: seconds of the transfer.
        duration: seconds of the pass.
        memory: device-memory seconds of its kernels.
    """
    return jnp.maximum(jnp.where(transfer > 0.0, transfer + memory - duration, 0.0), 0.0)


def exposed_passes(
    swaps: Swaps, durations: tuple[Scalar, Scalar], memories: tuple[Scalar, Scalar], trained: Scalar
) -> tuple[Scalar, Scalar]:
    """Return the seconds that transfers add to a forward and to a backward of a layer.

    ``s + max(0, t + t_memory - t_pass)`` with synchronous copies ``s``. Transfers further ahead than a layer start
    within the other pass as far as that leaves the link free: with an unlimited depth both passes together take
    ``max(sum of transfers, sum of passes)``.

    Args:
        swaps: of the layer.
        durations: seconds of forward and backward.
        memories: device-memory seconds of their kernels.
        trained: 1 with a backward, 0 for the forward alone.
    """
    forward, backward = (
        exposed_transfer(swap.overlapped, duration, memory)
        for swap, duration, memory in zip((swaps.forward, swaps.backward), durations, memories, strict=True)
    )
    if not nothing(swaps.forward.ahead):
        slack_forward, slack_backward = (
            jnp.maximum(duration - memory - swap.overlapped, 0.0)
            for swap, duration, memory in zip((swaps.forward, swaps.backward), durations, memories, strict=True)
        )
        forward = forward - trained * _ahead(swaps.forward, forward, slack_backward)
        backward = backward - _ahead(swaps.backward, backward, slack_forward)
    forward = plus(forward, swaps.forward.synchronous)
    return forward, times(trained, plus(backward, swaps.backward.synchronous))


def _ahead(swap: PassSwaps, exposed: Scalar, slack: Scalar) -> Scalar:
    """Return the ``exposed`` seconds of a pass that start within the ``slack`` of the other one."""
    return jnp.where(swap.ahead > 0.0, jnp.minimum(jnp.minimum(exposed, slack), swap.ahead), 0.0)


def exposed_update(swaps: Swaps, last_pass: Scalar, memory: Scalar) -> Scalar:
    """Return the seconds that the update of a layer adds to a step.

    What it adds to the transfers of the last backward, or to that pass as a chain, and the rest after it.

    Args:
        swaps: of the layer.
        last_pass: seconds of the last backward, with waits for the host.
        memory: device-memory seconds of its kernels.
    """
    usual = exposed_transfer(swaps.backward.overlapped, last_pass, memory)
    added = exposed_transfer(swaps.last_transfers, last_pass, memory) - usual
    if not nothing(swaps.last_update):
        chain = jnp.maximum(added, swaps.last_update - last_pass - usual)
        added = jnp.where(swaps.last_update > 0.0, chain, added)
    return added + swaps.update
