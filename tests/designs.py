"""Designs for tests: a plain one built by hand, and Hypothesis strategies over valid ones."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from dse.model.layout import lay_out
from dse.model.work.training import training_work
from dse.types import (
    Accelerator,
    Design,
    Kernels,
    Mapping,
    MatrixRate,
    MemoryTier,
    Network,
    Software,
    System,
    Workload,
)

KERNELS = Kernels(
    matrix_efficiency=0.85, matrix_depth=100.0, tile_rows=128.0, tile_columns=128.0, wave_quantization=0.1,
    vector_efficiency=0.7, memory_efficiency=0.85, roofline_blend=0.2, kernel_floor=4e-6,
    flash_efficiency=0.6, flash_sequence=500.0, flash_backward=1.2,
)  # fmt: skip

ACCELERATOR = Accelerator(
    matrix_rate=MatrixRate(
        fp32=19.5e12, tf32=156e12, bf16=312e12, fp16=312e12, fp8=624e12, fp4=0.0, int8=624e12, int4=0.0
    ),
    vector_rate=19.5e12,
    cores=108.0,
    cache=40e6,
    memory=MemoryTier(capacity=80 * 2.0**30, bandwidth=2.039e12),
    kernels=KERNELS,
)

SCALE_UP = Network(
    bandwidth=300e9, latency=2e-6, domain=8.0, efficiency=0.85, ramp=8e6, in_network_reduction=0.0, processor_usage=0.05
)
SCALE_OUT = dataclasses.replace(SCALE_UP, bandwidth=25e9, latency=8e-6, domain=65536.0, ramp=2e6)

SYSTEM = System(accelerator=ACCELERATOR, scale_up=SCALE_UP, scale_out=SCALE_OUT, n_devices=1.0)

SOFTWARE = Software(
    attention=0.0, fused_elementwise=1.0, matrix_slowdown=1.05, elementwise_slowdown=1.0, host_time=5e-4,
    step_overhead=0.0, tp_overlap=0.8, backward_tp_overlap=0.5, cp_overlap=0.8, dp_overlap=0.8, pp_overlap=0.5,
    collective=0.0, gradient_bytes=4.0, gradient_message_bytes=4.0, logit_bytes=4.0, cross_entropy_traffic=24.0,
    gradient_cache=0.0, reserve=0.0,
)  # fmt: skip

WORKLOAD = Workload(
    n_layers=16.0, hidden=4096.0, n_heads=32.0, n_kv_heads=32.0, head_dim=128.0, ffn_hidden=16384.0, gated=0.0,
    vocab=51200.0, tied_embeddings=1.0, learned_positions=1.0, rotary=0.0, relative_positions=0.0, dropout=1.0,
    window=2048.0, local_layers=0.0, seq_len=2048.0, global_batch=64.0,
)  # fmt: skip

MAPPING = Mapping(
    tp=1.0, pp=1.0, dp=1.0, cp=1.0, micro_batch=1.0, virtual_stages=1.0, recompute=0.0, zero_stage=0.0,
    sequence_parallel=0.0, overlap_dp=0.0, overlap_tp=0.0, precision=3.0, placement=0.0,
)  # fmt: skip


def make_design(workload=WORKLOAD, system=SYSTEM, software=SOFTWARE, **mapping) -> Design:
    """A design from records and mapping values; the system gets as many devices as the mapping uses."""
    mapped = dataclasses.replace(MAPPING, **{k: float(v) for k, v in mapping.items()})
    devices = mapped.tp * mapped.cp * mapped.pp * mapped.dp
    return Design(
        workload=workload, system=dataclasses.replace(system, n_devices=devices), software=software, mapping=mapped
    )


@st.composite
def workloads(draw) -> Workload:
    """Small dense transformers of every kind the model knows."""
    heads = draw(st.sampled_from([8.0, 16.0, 32.0]))
    seq_len = draw(st.sampled_from([1024.0, 2048.0, 8192.0]))
    return Workload(
        n_layers=draw(st.sampled_from([8.0, 16.0, 32.0])),
        hidden=heads * 128.0,
        n_heads=heads,
        n_kv_heads=draw(st.sampled_from([1.0, 8.0, heads])),
        head_dim=128.0,
        ffn_hidden=heads * 512.0,
        gated=draw(st.sampled_from([0.0, 1.0])),
        vocab=draw(st.sampled_from([32000.0, 51200.0, 128256.0])),
        tied_embeddings=draw(st.sampled_from([0.0, 1.0])),
        learned_positions=draw(st.sampled_from([0.0, 1.0])),
        rotary=draw(st.sampled_from([0.0, 1.0])),
        relative_positions=0.0,
        dropout=draw(st.sampled_from([0.0, 1.0])),
        window=draw(st.sampled_from([512.0, seq_len])),
        local_layers=draw(st.sampled_from([0.0, 0.5])),
        seq_len=seq_len,
        global_batch=256.0,
    )


@st.composite
def designs(draw) -> Design:
    """Structurally valid designs (they may still need too much memory)."""
    pp = draw(st.sampled_from([1, 2, 4, 8]))
    dp = draw(st.sampled_from([1, 2, 8]))
    tp = draw(st.sampled_from([1, 2, 8, 16]))
    return make_design(
        draw(workloads()),
        software=dataclasses.replace(
            SOFTWARE,
            attention=draw(st.sampled_from([0.0, 1.0])),
            fused_elementwise=draw(st.sampled_from([0.0, 1.0])),
            collective=draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0])),
            gradient_cache=draw(st.sampled_from([0.0, 1.0])),
        ),
        tp=tp,
        pp=pp,
        dp=dp,
        cp=draw(st.sampled_from([1, 2])),
        micro_batch=draw(st.sampled_from([1, 2, 4])),
        virtual_stages=draw(st.sampled_from([1, 2])) if pp in (2, 4) else 1,
        recompute=draw(st.sampled_from([0, 1, 2])),
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        sequence_parallel=draw(st.sampled_from([0, 1, 2, 3])) if tp > 1 else 0,
        offload_weights=draw(st.sampled_from([0, 1])),
        offload_activations=draw(st.sampled_from([0, 1])),
        offload_optimizer=draw(st.sampled_from([0, 1])),
        overlap_dp=draw(st.sampled_from([0, 1])),
        overlap_tp=draw(st.sampled_from([0, 1])),
        precision=draw(st.sampled_from([2, 3, 4])),
        placement=draw(st.sampled_from([0, 1])),
    )


def work_of(design):
    """Operators, messages and bytes of a step of ``design``."""
    return training_work(design, lay_out(design))
