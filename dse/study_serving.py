"""Serving as a kind of study: the metrics of ``dse.serving.serve`` and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.study import Shown, Study
from dse.types import INFEASIBLE_MEANING, Design, Infeasible, Precision, Scalar, ServingMetrics

_GB = 1e9

#: Sequences of a global batch, which serving has not: a multiple of any dp, so that no rule of training objects.
_ANY_BATCH = 2.0**15 * 3**2 * 5 * 7


def _serve(design: Design) -> ServingMetrics:
    """``dse.serving.serve``, imported when it is first traced."""
    from dse.serving import serve

    return serve(design)


def _shortfalls(design: Design, metrics: ServingMetrics) -> dict[Infeasible, Scalar]:
    """Memory and the limits of latency have a degree."""
    import jax.numpy as jnp

    from dse.model.machine.technology import generated
    from dse.types import Requests, Serving

    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    capacity = serving.memory_share * generated(design).system.accelerator.memory.capacity

    def over(need: Scalar, limit: Scalar) -> Scalar:
        return jnp.where(limit > 0.0, need / jnp.where(limit > 0.0, limit, 1.0), 1.0)

    late = jnp.maximum(
        over(metrics.time_to_first_token, requests.first_token_limit),
        over(metrics.time_per_output_token, requests.token_limit),
    )
    return {
        Infeasible.memory: jnp.log(metrics.peak_memory / jnp.maximum(capacity, 1.0)),
        Infeasible.latency: jnp.log(jnp.maximum(late, 1e-6)),
    }


def _numbers(design: Design, metrics: Mapping[str, float]) -> dict[str, str]:
    """The numbers behind each reason."""
    w, m, system = design.workload, design.mapping, design.system
    weights = metrics["peak_memory_weights"] / _GB
    return {
        "memory": f"weights {weights:.1f} GB of {system.accelerator.memory.capacity / _GB:.1f} GB: no room for a cache",
        "heads_not_divisible": f"tp={m.tp:g}, heads={w.n_heads:g}, key/value heads={w.n_kv_heads:g}",
        "width_not_divisible": f"tp={m.tp:g}, feed-forward width={w.ffn_hidden:g}",
        "layers_not_divisible": f"pp={m.pp:g}, layers={w.n_layers:g}",
        "device_count_mismatch": f"tp x pp x dp = {m.tp * m.pp * m.dp:g}, n_devices={system.n_devices:g}",
        "network_too_small": f"n_devices={system.n_devices:g}",
        "precision_unsupported": f"precision={Precision(int(m.precision)).name.replace('_', '-')}",
        "latency": (
            f"first token {metrics['time_to_first_token']:.3g} s, output token "
            f"{1e3 * metrics['time_per_output_token']:.3g} ms"
        ),
        "experts_not_divisible": "no experts" if m.experts is None else f"ep={m.experts.ep:g}, etp={m.experts.etp:g}",
    }


def _caution(metrics: Mapping[str, float]) -> str:
    """That prompts come faster than the engine computes them, where they do."""
    if metrics["prefill_share"] < 0.999:
        return ""
    return "every step carries prompts: requests come faster than their prompts are computed, and wait"


def _inside(design: Design) -> Any:
    """The operators of one decode step."""
    from dse.model.machine.technology import generated
    from dse.model.serving.work import Batch, ranks_of_experts, stage_of, step_work
    from dse.study import Inside
    from dse.types import Requests, Serving

    built = generated(design)
    requests, serving = built.workload.requests or Requests(), built.mapping.serving or Serving()
    batch = Batch(
        requests.concurrency / built.mapping.dp, requests.prompt_tokens + 0.5 * requests.output_tokens, 0.0, 0.0
    )
    work = step_work(stage_of(built), ranks_of_experts(built), serving, batch)
    return Inside(built, {}, {"decode step": work.layer, "head": (work.head,)})


#: Serving: :class:`~dse.types.ServingMetrics` of ``dse.serving.serve``.
SERVING = Study(
    name="serving",
    evaluate=_serve,
    metrics=ServingMetrics,
    reasons=Infeasible,
    meanings=INFEASIBLE_MEANING,
    objective="request_latency",
    rate="output_tokens_per_second",
    memory="peak_memory",
    memory_reasons=Infeasible.memory,
    shortfalls=_shortfalls,
    totals=("time_per_output_token", "time_to_first_token", "peak_memory"),
    steps=("parameters",),
    plain={"workload.global_batch": _ANY_BATCH},
    reason_numbers=_numbers,
    caution=_caution,
    inside=_inside,
    shown=(
        Shown("TPOT", "time_per_output_token", "time"),
        Shown("TTFT", "time_to_first_token", "time"),
        Shown("tok/s", "output_tokens_per_second", "number"),
        Shown("tok/s/dev", "output_tokens_per_second_per_device", "number"),
        Shown("GiB", "peak_memory", "bytes"),
    ),
    breakdown={
        "matrix": ("time_per_output_token_matrix",),
        "attention": ("time_per_output_token_attention",),
        "comm": ("time_per_output_token_communication",),
        "host": ("time_per_output_token_host",),
        "prefill": ("time_per_output_token_prefill",),
    },
)
