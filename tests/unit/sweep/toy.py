"""A model that compiles in a moment: same door, same fields, made-up numbers."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from dse.doors import TRAINING, Study
from dse.sweep import SweepSpec, from_text
from dse.types import Design, Infeasible, Metrics

TRACES: list[Design] = []  # one entry each time a program is traced


def evaluate(design: Design) -> Metrics:
    """Time falls with every degree and rises with what it costs; memory decides what can run."""
    TRACES.append(design)
    w, m, memory = design.workload, design.mapping, design.system.accelerator.memory
    layers = w.n_layers / m.pp
    compute = layers * w.hidden / m.tp * (1.0 + 0.3 * m.recompute) * w.global_batch / m.dp / m.micro_batch
    messages = m.tp * 3.0 * (1.0 - 0.5 * m.overlap_tp) + m.dp * (1.0 - 0.5 * m.overlap_dp) * (1.0 + m.zero_stage)
    time = compute / memory.bandwidth * 1e9 + messages + m.pp / m.virtual_stages
    used = w.hidden * layers / m.tp * (3.0 - m.recompute) * m.micro_batch / (1.0 + m.zero_stage) * 1e6
    used = used / (1.0 + m.sequence_parallel)
    reason = jnp.where(used > memory.capacity, int(Infeasible.memory), 0)
    reason = reason + jnp.where(w.n_heads % m.tp == 0.0, 0, int(Infeasible.heads_not_divisible))
    named = {"step_time": time, "peak_memory": used, "feasible": reason == 0, "infeasible_reason": reason}
    others = {f.name: time * i for i, f in enumerate(dataclasses.fields(Metrics)) if f.name not in named}
    return Metrics(**named, **others)


#: The made-up model in the place of the real one.
STUDY = dataclasses.replace(TRAINING, name="toy", evaluate=evaluate)

#: All degrees as divisors and all options: what most tests sweep.
MAPPING_AXES = """
tp = "divisors"
pp = "divisors"
micro_batch = "divisors"
virtual_stages = "divisors"
recompute = ["none", "selective", "full"]
zero_stage = [0, 1, 3]
sequence_parallel = [false, true]
overlap_dp = [false, true]
overlap_tp = [false, true]
"""


def sweep(
    axes: str = MAPPING_AXES,
    *,
    workload: str = "",
    system: str = "n_devices = 16",
    mapping: str = "",
    more: str = "",
    study: Study | None = None,
) -> SweepSpec:
    """The specification of a small sweep: eight layers, eight heads, a batch of 32 on 16 devices."""
    shape = dict(n_layers=8, n_heads=8, n_kv_heads=8, ffn_hidden=1024, seq_len=64, global_batch=32)
    fixed = "\n".join(f"{name} = {value}" for name, value in shape.items() if name not in workload + axes)
    return from_text(
        f"""
[workload]
{"" if "workload =" in axes else 'name = "gpt-3-125m"'}
{fixed}
{workload}
[system]
{"" if "system =" in axes else 'name = "selene"'}
{"" if "n_devices" in axes else system}
{"" if "[software]" in more else "[software]" + chr(10) + "any_option = true"}
[mapping]
{mapping}
[axes]
{axes}
{more}
""",
        study=study,
    )
