"""Energy that the links take in a training step, by sending every message from device to device.

Nothing here reads the model's messages: devices are numbered and put into scale-up domains, groups are formed, rings
are walked hop by hop, and volumes are written down a second time from the papers that the collectives come from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.types import Design, Placement, Precision, Recompute, SequenceParallel


class Rings(NamedTuple):
    """Mean price in J/B of a byte that a device of a group sends to the next one."""

    tensor: float
    context: float
    replicas: float  # that share model state; without ZeRO all that hold the same weights
    copies: float  # that hold the same share
    stages: float


def rings(design: Design) -> Rings:
    """Prices of the hops of every group, by the domains that their devices lie in."""
    m, system = design.mapping, design.system
    sizes = {name: int(getattr(m, name)) for name in ("pp", "cp", "tp")}
    sizes |= {"copies": _copies(design), "dp": int(m.dp) // _copies(design)}
    dp_outermost = m.placement == Placement.tp_cp_pp_dp
    order = ["copies", "dp", "pp", "cp", "tp"] if dp_outermost else ["pp", "copies", "dp", "cp", "tp"]
    device = np.arange(np.prod(list(sizes.values()))).reshape([sizes[name] for name in order])
    domain = device // int(system.scale_up.domain)

    def members(*names: str) -> np.ndarray:
        """Domains of the members of every group, a row a group."""
        axes = [order.index(name) for name in order if name in names]
        last = np.moveaxis(domain, axes, range(-len(axes), 0))
        return last.reshape(-1, int(np.prod([sizes[name] for name in names])))

    def mean(*names: str) -> float:
        groups = members(*names)
        leaves = groups != np.roll(groups, -1, axis=1)
        return float(np.where(leaves, system.scale_out.energy, system.scale_up.energy).mean())

    # One stage that leaves its domain sets the pace of the pipeline: all boundaries count as it does.
    within = (members("pp") == members("pp")[:, :1]).all()
    return Rings(
        tensor=mean("tp"),
        context=mean("cp"),
        replicas=mean("dp", "cp"),
        copies=mean("copies"),
        stages=float(system.scale_up.energy if within else system.scale_out.energy),
    )


def ring_bytes(kind: str, size: float, members: float) -> float:
    """Bytes that a member sends for a collective of ``size`` bytes: in each step of a ring one part of ``1 / N``."""
    steps = {"all_gather": members - 1, "reduce_scatter": members - 1, "all_reduce": 2 * (members - 1)}[kind]
    return steps * size / members


def parameters(design: Design) -> float:
    """Weights of the model, biases left out."""
    w = design.workload
    attention = w.hidden * w.head_dim * (2 * w.n_heads + 2 * w.n_kv_heads)
    layer = attention + (2 + w.gated) * w.hidden * w.ffn_hidden + 2 * w.norm_vectors * w.hidden
    tables = w.vocab * w.hidden * (2 - w.tied_embeddings) + w.learned_positions * w.seq_len * w.hidden
    return w.n_layers * layer + tables + w.hidden


def step_energy(design: Design) -> dict[str, float]:
    """Joules of all links in one training step, by what is sent."""
    w, m, software = design.workload, design.mapping, design.software
    t, c, p, d = m.tp, m.cp, m.pp, m.dp
    price = rings(design)
    trained = w.backward
    passes = 1 + trained * (2 if m.recompute == Recompute.full else 1)  # full recompute sends the forward's again
    width = 4 if m.precision in (Precision.fp32, Precision.tf32) else 2
    batches = w.global_batch / (d * m.micro_batch)
    in_stage = t * c * d * batches  # devices of a stage, times their micro-batches
    tokens = m.micro_batch * w.seq_len / c
    activations = width * tokens * w.hidden
    split = m.sequence_parallel in (SequenceParallel.gather_again, SequenceParallel.keep_gathered)

    def tensor(kind: str) -> float:
        return ring_bytes(kind, activations, t) * price.tensor

    return {
        "layers": in_stage
        * w.n_layers
        * (
            2 * passes * (tensor("all_gather") + tensor("reduce_scatter") if split else tensor("all_reduce"))
            + trained * _gathered_again(design) * tensor("all_gather")
        ),
        "embedding": in_stage * (tensor("all_gather") + tensor("reduce_scatter") if split else tensor("all_reduce")),
        "head": in_stage
        * trained
        * (2 * tensor("all_gather") + tensor("reduce_scatter") if split else tensor("all_reduce")),
        "context": in_stage
        * w.n_layers
        * (c - 1)
        * price.context
        # Keys and values in each forward of the core, with their gradients in the backward.
        * (passes + trained * (1 + (m.recompute == Recompute.selective)))
        * 2
        * width
        * tokens
        * w.head_dim
        * max(w.n_kv_heads / t, 1),
        "stages": in_stage * (p * m.virtual_stages - 1) * (1 + trained) * _stage_boundary(design, activations, price),
        "replicas": d * c * parameters(design) * _weight(design, width, batches, price),
        # Both ends send their gradient of the embedding, a part of each tensor-parallel rank.
        "tied embedding": trained
        * w.tied_embeddings
        * (p > 1)
        * 2
        * d
        * c
        * software.gradient_message_bytes
        * w.vocab
        * w.hidden
        * price.stages,
    }


def _gathered_again(design: Design) -> int:
    """Inputs of the two blocks of a layer that are kept in shares, so that the backward gathers them."""
    m = design.mapping
    if m.sequence_parallel == SequenceParallel.keep_gathered:
        return 1 if m.recompute == Recompute.selective else 0
    return 2 if m.sequence_parallel == SequenceParallel.gather_again else 0


def _stage_boundary(design: Design, activations: float, price: Rings) -> float:
    """Joules of what a device sends to the next stage: all, or its share, which may have to be gathered there."""
    m = design.mapping
    if m.sequence_parallel:
        return activations / m.tp * price.stages
    if design.software.scatter_gather:
        return activations / m.tp * price.stages + ring_bytes("all_gather", activations, m.tp) * price.tensor
    return activations * price.stages


def _copies(design: Design) -> int:
    """Copies of the model state that ZeRO splits (hybrid sharding)."""
    return int(design.mapping.dp_replicate) if design.mapping.zero_stage else 1


def _weight(design: Design, width: float, batches: float, price: Rings) -> float:
    """Joules that a replica spends for one weight that it holds (Rajbhandari et al. 2020; Zhao et al. 2023)."""
    m, trained = design.mapping, design.workload.backward
    stage, copies = int(m.zero_stage), _copies(design)
    replicas, gradient = m.dp * m.cp / copies, design.software.gradient_message_bytes
    if stage == 0:
        return trained * ring_bytes("all_reduce", gradient, replicas) * price.replicas
    # A stage of a pipeline sums the gradients of all its micro-batches first, whatever ZeRO 2 would do.
    every_time = stage == 3 or (stage == 2 and m.pp == 1)
    scatters = trained * (batches if every_time else 1)
    gathers = (1 + trained) * batches if stage == 3 else trained
    shared = scatters * ring_bytes("reduce_scatter", gradient, replicas) + gathers * ring_bytes(
        "all_gather", width, replicas
    )
    return shared * price.replicas + trained * ring_bytes("all_reduce", gradient / replicas, copies) * price.copies
