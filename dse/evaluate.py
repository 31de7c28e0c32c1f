"""``evaluate(design) -> Metrics``: the one door into the model."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.accounts import energy, memory
from dse.model.accounts.feasibility import infeasible_reason
from dse.model.machine import technology, topology
from dse.model.machine.rates import TINY, matrix_rate, reciprocal
from dse.model.parallel.offload import OneLayer
from dse.model.steps import training
from dse.model.steps.operating import operate
from dse.model.work import transformer
from dse.model.work.transformer import Local
from dse.types import Design, Metrics, Operator, Recompute, Scalar


class Layout(NamedTuple):
    """A design laid out on its devices: local sizes and the operators of layer and edges."""

    local: Local
    layer: list[Operator]
    embedding: list[Operator]
    head: list[Operator]
    groups: topology.Groups
    n_micro_batches: Scalar
    kept: Scalar  # bytes that one layer keeps of one micro-batch
    on_host: OneLayer


def lay_out(design: Design) -> Layout:
    """Sizes, operators and communicators of a design."""
    w, m = design.workload, design.mapping
    local = transformer.local_sizes(design)
    layer = transformer.layer_operators(design, local)
    kept = memory.layer_activation_bytes(design, local, layer)
    return Layout(
        local=local,
        layer=layer,
        embedding=transformer.embedding_operators(design, local),
        head=transformer.head_operators(design, local),
        groups=topology.groups(m, design.system.scale_up.domain),
        n_micro_batches=w.global_batch / (m.dp * m.micro_batch),
        kept=kept,
        on_host=memory.offloaded_layer(design, kept),
    )


def evaluate(design: Design) -> Metrics:
    """Time, memory and feasibility of one training step of ``design``.

    A pure function of scalars: ``jit``, ``vmap`` and ``grad`` it as you like. Never raises and never
    returns NaN; a design that cannot run has ``feasible = False`` and the bits of its reasons.
    """
    design = technology.generated(design)
    layout = lay_out(design)
    running = operate(design, layout.local, layout.groups, layout.layer, layout.on_host)
    step, one = training.step_time(
        running.design, layout.local, layout.groups, layout.layer, layout.embedding, layout.head, layout.on_host,
        layout.n_micro_batches,
    )  # fmt: skip
    drawn = energy.step_energy(
        design, layout.local, layout.groups, layout.layer, layout.embedding, layout.head, layout.n_micro_batches,
        running.ratio, step, one,
    )  # fmt: skip
    held = memory.peak_memory(
        design, layout.local, layout.layer, layout.embedding, layout.head, layout.kept, layout.n_micro_batches
    )
    on_host = memory.host_memory(design, layout.on_host, layout.n_micro_batches)
    reason = infeasible_reason(design, held.total, on_host, layout.n_micro_batches, running.stuck)
    return Metrics(
        step_time=step.total,
        **{f"step_time_{part}": value for part, value in step._asdict().items()},
        **throughput(design, step.total),
        parameters=transformer.parameter_count(design.workload),
        peak_memory=held.total,
        **{f"peak_memory_{part}": value for part, value in held._asdict().items()},
        host_memory=on_host,
        energy_per_step=drawn.parts.total,
        **{f"energy_per_step_{part}": value for part, value in drawn.parts._asdict().items()},
        **powers(design, drawn, step.total),
        feasible=reason == 0,
        infeasible_reason=reason,
    )


def powers(design: Design, drawn: energy.StepEnergy, step_time: Scalar) -> dict[str, Scalar]:
    """Power, energy of a token, and time and energy of a whole run."""
    w, m = design.workload, design.mapping
    a_token = reciprocal(w.global_batch * w.seq_len)
    each_second = reciprocal(step_time)
    return dict(
        energy_per_token=drawn.parts.total * a_token,
        average_power=drawn.parts.total * each_second,
        peak_power=drawn.peak,
        provisioned_power=drawn.provisioned,
        device_power=drawn.devices * each_second * reciprocal(m.tp * m.cp * m.pp * m.dp),
        run_time=w.run_tokens * a_token * step_time,
        run_energy=w.run_tokens * a_token * drawn.parts.total,
    )


def throughput(design: Design, step_time: Scalar) -> dict[str, Scalar]:
    """Tokens a second and the utilisations, by the conventions of Narayanan 2021 and Korthikanti 2022."""
    w, m = design.workload, design.mapping
    tokens = w.global_batch * w.seq_len
    devices = m.tp * m.cp * m.pp * m.dp
    peak = jnp.maximum(matrix_rate(design.system.accelerator, m.precision), TINY)
    each = reciprocal(step_time * devices)
    share = reciprocal(peak) * each
    flops = transformer.model_flops(w)
    causal = transformer.model_flops(w, transformer.flash_pairs(w) / (w.seq_len * w.seq_len))
    repeated = w.backward * tokens * jnp.where(
        m.recompute == float(Recompute.full),
        transformer.forward_flops(w),
        jnp.where(m.recompute == float(Recompute.selective), transformer.attention_flops(w), 0.0),
    )
    return dict(
        tokens_per_second=tokens / step_time,
        tokens_per_second_per_device=tokens * each,
        mfu=flops * share,
        mfu_causal=causal * share,
        hfu=(flops + repeated) * share,
        model_flops=flops,
    )
