"""Serving as a kind of study: the metrics of ``dse.doors.serving.serve`` and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.designs.records import LEAVES_UNREAD_BY_ENGINES, TRAINING_ALONE, with_serving_defaults
from dse.doors.study import OPTIONAL, Breakdown, Evaluated, Study, imported
from dse.io import counted, digits
from dse.types import (
    INFEASIBLE_MEANING,
    Design,
    Engine,
    Infeasible,
    Load,
    Requests,
    Scalar,
    Serving,
    ServingMetrics,
    choice_name,
)

#: Time to the first token of a queue without end, s, for its distance from a limit.
_ENDLESS_WAIT = 1e6

#: Operators of steps with prompts alone, and of steps that decode alone.
_PREFILL_OPERATORS, _DECODE_OPERATORS = ("prefill_attention", "prefill_state"), ("decode_attention", "decode_state")

#: Sequences of a global batch, which serving lacks: a multiple of any dp, so that every rule of training is met.
_ANY_BATCH = 2.0**15 * 3**2 * 5 * 7


def _capacity(design: Design) -> Scalar:
    """Return the device memory that the engine may take, B: its share of the capacity."""
    return (design.mapping.serving or Serving()).memory_share * design.system.accelerator.memory.capacity


def _shortfalls(design: Design, metrics: ServingMetrics) -> dict[Infeasible, Scalar]:
    """Return reason → natural logarithm of demand over supply, for memory and latency."""
    import jax.numpy as jnp

    from dse.model import generated
    from dse.model.serving.goodput import has_unbounded_ttft

    requests = design.workload.requests or Requests()
    capacity = _capacity(generated(design))

    def ratio(seconds: Scalar, limit: Scalar) -> Scalar:
        return jnp.where(limit > 0.0, seconds / jnp.where(limit > 0.0, limit, 1.0), 1.0)

    first_token_time = jnp.where(has_unbounded_ttft(requests), _ENDLESS_WAIT, metrics.time_to_first_token)
    latency_ratio = jnp.maximum(
        ratio(first_token_time, requests.first_token_limit),
        ratio(metrics.time_per_output_token, requests.token_limit),
    )
    if requests.request_rate is not None:
        latency_ratio = jnp.where(
            requests.load == float(Load.rate), jnp.maximum(latency_ratio, metrics.utilisation), latency_ratio
        )
    return {
        Infeasible.memory: jnp.log(
            jnp.maximum(metrics.peak_memory / jnp.maximum(capacity, 1.0), _far_memory_ratio(design))
        ),
        Infeasible.latency: jnp.log(jnp.maximum(latency_ratio, 1e-6)),
    }


def _far_memory_ratio(design: Design) -> Scalar:
    """Return the bytes of weights in far memory over its capacity, 0 for a mapping that does not use any."""
    from dse.model import generated, stage_of, weight_bytes
    from dse.model.serving.memory import far_tier

    spill = design.mapping.spill
    if spill is None:
        return 0.0
    stage, serving = stage_of(generated(design)), design.mapping.serving or Serving()
    far_bytes = spill.far_weights * weight_bytes(stage.design, stage.layout, serving)
    return far_bytes / far_tier(design.system).capacity


def _caution(metrics: Mapping[str, float], design: Design, evaluated: Evaluated) -> str:
    """Return a caution in one line where at least 99.9 % of the steps have prompts, else an empty text."""
    if metrics["prefill_share"] < 0.999:
        return ""
    return "every step has prefill: requests arrive faster than prefill completes, and queue"


#: Path of the leaves of requests.
_REQUESTS = "workload.requests."


def _work_leaves(design: Design) -> tuple[str, ...]:
    """Return the paths of the leaves of the lengths of requests, and of those that their load reads."""
    load = Load(int((design.workload.requests or Requests()).load))
    load_leaves = {Load.offline: (), Load.rate: ("request_rate",)}.get(load, ("concurrency",))
    return tuple(_REQUESTS + name for name in ("prompt_tokens", "output_tokens", *load_leaves, "load"))


def _work(labels: Mapping[str, Any]) -> str:
    """Return text on the lengths and load of requests, from leaf path → label, for the labels there are."""
    settings = {name.removeprefix(_REQUESTS): value for name, value in labels.items() if name.startswith(_REQUESTS)}
    load = settings.get("load")
    means = {kind: settings[f"{kind}_tokens"] for kind in ("prompt", "output") if f"{kind}_tokens" in settings}
    length_texts = [tokens_text(int(mean) if mean == int(mean) else mean, kind) for kind, mean in means.items()]
    parts = [f"each request: {' and '.join(length_texts)}"] if length_texts else []
    if load == choice_name(Load.offline):
        parts.append("as many in flight as fit")
    elif load == choice_name(Load.rate) and "request_rate" in settings:
        parts.append(f"{settings['request_rate']:g} requests/s")
    elif load != choice_name(Load.rate) and "concurrency" in settings:
        parts.append(f"concurrency {settings['concurrency']:g}")
    return "; ".join(parts)


def tokens_text(mean: Scalar, kind: str) -> str:
    """Return text on a mean count of tokens of a kind (``prompt``), with three digits where it is no integer."""
    is_integer = mean == round(float(mean))
    return counted(mean, f"{kind} token") if is_integer else f"{digits(float(mean))} {kind} tokens"


def _breakdown(design: Design) -> Any:
    """Return the breakdown of a design: operators of one layer and the head by phase, step times by bound, messages."""
    import jax.numpy as jnp

    from dse.doors.serving import at_its_clock, step_bounds
    from dse.model import Batch, generated, stage_of
    from dse.model.serving.step import rates_in
    from dse.model.serving.work import ranks_of_experts, step_work

    built_design = at_its_clock(generated(design))
    requests, serving = built_design.workload.requests or Requests(), built_design.mapping.serving or Serving()
    engine, stage, ranks = (
        built_design.software.engine or Engine(),
        stage_of(built_design),
        ranks_of_experts(built_design),
    )
    context = requests.prompt_tokens + 0.5 * requests.output_tokens
    attended_tokens = 0.5 * requests.prompt_tokens * (1.0 + requests.prefix_share)
    chunk = jnp.minimum(serving.chunk, requests.prompt_tokens * (1.0 - requests.prefix_share))
    decoding = Batch(_decoding(built_design), context, 0.0, 0.0, serving.drafts)
    decode = step_work(stage, ranks, serving, decoding, engine)
    prefill = step_work(stage, ranks, serving, Batch(0.0, 0.0, chunk, attended_tokens))
    sections = {
        "decode": [o for o in (*decode.layer, *decode.head) if o.name not in _PREFILL_OPERATORS],
        "prefill": [o for o in (*prefill.layer, *prefill.head) if o.name not in _DECODE_OPERATORS],
    }
    forward = {
        phase: tuple(o._replace(input_gradient=None, weight_gradient=None) for o in operators)
        for phase, operators in sections.items()
    }
    messages = (*prefill.messages, *decode.messages)
    return Breakdown(built_design, {}, forward, step_bounds(design)._asdict(), rates_in(engine, stage), messages)


def _decoding(design: Design) -> Scalar:
    """Return the sequences that a stage decodes at once, at most what memory and engine hold and at least 1."""
    import jax.numpy as jnp

    from dse.doors.serving import decoding_sequences
    from dse.model import kv_capacity, stage_of

    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    engine = design.software.engine or Engine()
    max_sequences = jnp.minimum(
        kv_capacity(stage_of(design), requests, serving, engine).sequences, engine.most_sequences
    )
    sequences = jnp.where(requests.load == float(Load.offline), max_sequences, requests.concurrency / design.mapping.dp)
    if requests.request_rate is not None:
        sequences = jnp.where(requests.load == float(Load.rate), decoding_sequences(design), sequences)
    return jnp.maximum(jnp.minimum(sequences, max_sequences) / design.mapping.pp, 1.0)


#: Metric → its kind. What an engine leaves open is known by kind; its parameters are not drawn, as what they leave open
#: is part of the errors of unseen figures.
_RESIDUALS = {
    "time_per_output_token": "token",
    "inter_token_latency": "token",
    "output_tokens_per_second_per_user": "token",
    "time_to_first_token": "first",
    "p50_time_to_first_token": "first",
    "request_latency": "latency",
    "output_tokens_per_second": "rate",
    "output_tokens_per_second_per_device": "rate",
    "requests_per_second": "rate",
    "energy_per_output_token": "energy",
    "average_power": "energy",
}

#: Serving: :class:`~dse.types.ServingMetrics` of ``dse.doors.serving.serve``.
SERVING = Study(
    name="serving",
    evaluate=imported("dse.doors.serving:serve"),
    metrics=ServingMetrics,
    reasons=Infeasible,
    meanings=INFEASIBLE_MEANING,
    objective="request_latency",
    rate="output_tokens_per_second_per_device",
    memory="peak_memory",
    memory_reasons=Infeasible.memory,
    hypothetical=Infeasible.power | Infeasible.latency | Infeasible.chip_shares,
    shortfalls=_shortfalls,
    energy="energy_per_output_token",
    front_axes=("output_tokens_per_second_per_user", "output_tokens_per_second_per_device"),
    main_metrics=(
        "time_per_output_token",
        "time_to_first_token",
        "output_tokens_per_second",
        "output_tokens_per_second_per_device",
        "output_tokens_per_second_per_user",
        "peak_memory",
    ),
    capacity=_capacity,
    neutral_values={"workload.global_batch": _ANY_BATCH},
    caution=_caution,
    complete=with_serving_defaults,
    work_leaves=_work_leaves,
    work=_work,
    breakdown=_breakdown,
    bounds=imported("dse.doors.serving:bounds"),
    residuals=_RESIDUALS,
    ignored_leaves=(*TRAINING_ALONE, *LEAVES_UNREAD_BY_ENGINES),
    optional=OPTIONAL,
)
