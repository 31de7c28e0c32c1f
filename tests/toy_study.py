"""A second kind of study on the same designs: other metrics, other reasons, nothing of training."""

from __future__ import annotations

from enum import IntFlag

import jax.numpy as jnp

from dse.doors import Study
from dse.types import Design, Scalar, number, record
from dse.views.studies import PRESENTATIONS, MetricColumn, Presentation


@record
class Answers:
    """What answering one request takes."""

    latency: Scalar = number("time of an answer", "s")
    latency_reading: Scalar = number("reading the question", "s", total="latency", part="reading")
    latency_writing: Scalar = number("writing the answer", "s", total="latency", part="writing")
    answers_per_second: Scalar = number("answers a second", "s-1")
    footprint: Scalar = number("memory of a device", "B")
    heat: Scalar = number("heat of all devices", "W", group="energy")
    feasible: Scalar = number("whether it can answer")
    infeasible_reason: Scalar = number("why it cannot: bits of Silent")


class Silent(IntFlag):
    """Why there is no answer."""

    too_large = 1
    heads = 2
    too_hot = 4


def answer(design: Design) -> Answers:
    """Reading shrinks with tp, writing with dp; memory and heads decide what can answer."""
    w, m, a = design.workload, design.mapping, design.system.accelerator
    reading = w.n_layers * w.hidden / (m.tp * a.memory.bandwidth) * 1e6
    writing = 0.1 * w.seq_len / m.dp + 0.01 * m.tp * (1.0 + m.recompute)
    footprint = w.hidden * w.n_layers / (m.tp * m.pp) * m.micro_batch * 5e6
    heat = 100.0 * m.tp * m.pp * m.dp
    reason = jnp.where(footprint > a.memory.capacity, int(Silent.too_large), 0)
    reason = reason + jnp.where(w.n_heads % m.tp == 0.0, 0, int(Silent.heads))
    return Answers(
        latency=reading + writing,
        latency_reading=reading,
        latency_writing=writing,
        answers_per_second=m.micro_batch / (reading + writing),
        footprint=footprint,
        heat=heat,
        feasible=reason == 0,
        infeasible_reason=reason,
    )


ANSWERING = Study(
    name="answering",
    evaluate=answer,
    metrics=Answers,
    reasons=Silent,
    meanings={Silent.too_large: "larger than memory", Silent.heads: "heads left over", Silent.too_hot: "it glows"},
    objective="latency",
    memory="footprint",
    memory_reasons=Silent.too_large,
    shortfalls=lambda design, metrics: {
        Silent.too_large: jnp.log(metrics.footprint / design.system.accelerator.memory.capacity)
    },
    optional={"energy": ("system.pue",)},
    idle_options={"mapping.recompute": lambda degrees: degrees["mapping.tp"] == 1},
    main_metrics=("latency", "footprint"),
)

PRESENTATIONS[Answers] = Presentation(
    columns=(MetricColumn("latency", "latency", "time"), MetricColumn("GiB", "footprint", "bytes")),
    time_columns={"read": ("latency_reading",), "write": ("latency_writing",)},
)
