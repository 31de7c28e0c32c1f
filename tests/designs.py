"""Designs for tests: a plain one built by hand, and Hypothesis strategies over valid ones."""

from __future__ import annotations

import dataclasses
import functools

from hypothesis import strategies as st

from dse import types
from dse.designs import all_leaves, catalog, replace
from dse.designs.records import CHIP, OPTIONAL
from dse.model import lay_out, training_work
from dse.model.choice import plus, times
from dse.model.work.blocks import feed_forward_of
from dse.model.work.parameters import common_parameters, routed_parameters
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
    matrix_efficiency=0.85,
    matrix_depth=100.0,
    tile_rows=128.0,
    tile_columns=128.0,
    wave_quantization=0.1,
    vector_efficiency=0.7,
    memory_efficiency=0.85,
    roofline_blend=0.2,
    kernel_floor=4e-6,
    flash_efficiency=0.6,
    flash_sequence=500.0,
    flash_backward=1.2,
)

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
    attention=0.0,
    fused_elementwise=1.0,
    matrix_slowdown=1.05,
    elementwise_slowdown=1.0,
    host_time=5e-4,
    step_overhead=0.0,
    tp_overlap=0.8,
    backward_tp_overlap=0.5,
    cp_overlap=0.8,
    dp_overlap=0.8,
    pp_overlap=0.5,
    collective=0.0,
    gradient_bytes=4.0,
    gradient_message_bytes=4.0,
    logit_bytes=4.0,
    cross_entropy_traffic=24.0,
    gradient_cache=0.0,
    reserve=0.0,
)

WORKLOAD = Workload(
    n_layers=16.0,
    hidden=4096.0,
    n_heads=32.0,
    n_kv_heads=32.0,
    head_dim=128.0,
    ffn_hidden=16384.0,
    gated=0.0,
    vocab=51200.0,
    tied_embeddings=1.0,
    learned_positions=1.0,
    rotary=0.0,
    relative_positions=0.0,
    dropout=1.0,
    window=2048.0,
    local_layers=0.0,
    seq_len=2048.0,
    global_batch=64.0,
)

MAPPING = Mapping(
    tp=1.0,
    pp=1.0,
    dp=1.0,
    cp=1.0,
    micro_batch=1.0,
    virtual_stages=1.0,
    recompute=0.0,
    zero_stage=0.0,
    sequence_parallel=0.0,
    overlap_dp=0.0,
    overlap_tp=0.0,
    precision=3.0,
    placement=0.0,
)


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
            collective=draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
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
        dp_replicate=draw(st.sampled_from([1, 1, 2])) if dp > 1 else 1,
    )


def work_of(design):
    """Operators, messages and bytes of a step of ``design``."""
    return training_work(design, lay_out(design))


# --- every field of a machine -------------------------------------------------------------------------------

#: Choices, switches and counts of a machine and its software: drawn from values of their own, never scaled.
_SWITCHES = (
    "attention", "collective", "fused_elementwise", "softmax_batch", "scatter_gather", "activation_output_kept",
    "gradient_cache", "gradient_bytes", "gradient_message_bytes", "logit_bytes", "domain", "mesh", "crowding",
    "bridged", "in_network_reduction", "tile_rows", "tile_columns", "n_devices",
)  # fmt: skip

#: Leaves that may be any number near the one they have; others have tests of their own.
_NUMBERS = [
    p
    for p, about in all_leaves().items()
    if p.startswith(("system.", "software."))
    and not p.endswith(_SWITCHES)
    and about.get("default", 1.0) is not None
    and not p.startswith(tuple(OPTIONAL.keys() - {CHIP}))
]

#: Those of a machine whose accelerator is stated, and of one whose accelerator is generated from its chip.
STATED = [path for path in _NUMBERS if not path.startswith(f"{CHIP}.")]
_BESIDE_CHIPS = ("system.scale", "system.host", "system.pue", "system.accelerator.kernels", "software.")
GENERATED = [path for path in _NUMBERS if path.startswith((f"{CHIP}.", *_BESIDE_CHIPS))]

#: Accelerators of the catalogue that are generated: four of one architecture, and superconducting logic.
CHIPS = ("gpu", "generated-a100", "generated-h100", "generated-b200", "generated-mi300x", "scd-board")


def value(design: Design, path: str) -> float:
    """What a design has at a path."""
    return functools.reduce(getattr, path.split("."), design)


def scaled(design: Design, path: str, factor: float) -> Design:
    """A design with one leaf multiplied, inside its bounds; a clock at most the nominal one."""
    bounds, power = all_leaves()[path]["bounds"], design.system.accelerator.power
    new = min(max(value(design, path) * factor, bounds.low), bounds.high)
    if path == f"{CHIP}.clock_ratio":
        new = min(new, 1.0)
    if path.endswith("power.clock"):
        new = min(new, power.nominal_clock)
    if path.endswith("power.nominal_clock"):
        new = max(new, power.clock)
    return replace(design, {path: new})


@st.composite
def stated_machines(draw) -> Design:
    """Designs of every field whose accelerator is stated, under a power limit at or below the one as sold."""
    design = draw(_with_machine(STATED, ACCELERATOR))
    limit = draw(st.sampled_from([1.0, 0.9, 0.6])) * design.system.accelerator.power.tdp
    return replace(design, {"system.accelerator.power.limit": limit})


@st.composite
def generated_machines(draw) -> Design:
    """Designs of every field whose accelerator is generated from its chip."""
    return draw(_with_machine(GENERATED, catalog.record(types.Accelerator, draw(st.sampled_from(CHIPS)))))


@st.composite
def _with_machine(draw, numbers: list[str], accelerator: Accelerator) -> Design:
    """A design on this accelerator: other networks, and a few numbers of machine and software near their own."""
    design = draw(designs())
    switches = {
        "system.scale_up.domain": st.sampled_from([1.0, 4.0, 8.0, 64.0, 72.0]),
        "system.scale_up.mesh": st.sampled_from([0.0, 0.0, 1.0]),
        "system.scale_up.crowding": st.sampled_from([0.0, 0.0, 0.1, 2.0]),
        "system.scale_up.in_network_reduction": st.sampled_from([0.0, 0.7]),
        "system.scale_out.in_network_reduction": st.sampled_from([0.0, 0.5]),
        "system.scale_up.energy": st.sampled_from([0.0, 10e-12]),
        "system.scale_out.energy": st.sampled_from([20e-12, 150e-12]),
        "software.scatter_gather": st.sampled_from([0.0, 1.0]),
        "software.activation_output_kept": st.sampled_from([0.0, 1.0]),
        "software.softmax_batch": st.sampled_from([1.0, 4.0]),
        "software.small_kernel_time": st.sampled_from([0.0, 1e-4]),
        "software.gradient_bytes": st.sampled_from([2.0, 4.0]),
    }
    design = dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=accelerator))
    design = replace(design, {path: draw(values) for path, values in switches.items()})
    for path, factor in draw(st.dictionaries(st.sampled_from(numbers), st.floats(0.6, 1.6), max_size=6)).items():
        design = scaled(design, path, factor)
    return design


def machines() -> st.SearchStrategy[Design]:
    """Designs of every field: accelerators stated, limited in power, or generated."""
    return st.one_of(stated_machines(), generated_machines())


def active_parameters(workload):
    """Parameters used per token: ``k`` of ``E`` routed experts, as publications count them."""
    met = times(feed_forward_of(workload).active_share, routed_parameters(workload))
    return plus(common_parameters(workload), met)
