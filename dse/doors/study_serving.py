"""Serving as a kind of study: the metrics of ``dse.doors.serving.serve`` and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.designs.records import LEAVES_UNREAD_BY_ENGINES, TRAINING_ALONE, with_serving_defaults
from dse.doors.study import (
    OPTIONAL,
    Evaluated,
    MetricColumn,
    Study,
    chip_share_excess,
    clock_note,
    money_note,
    network_description,
    price_note,
    routing_excess,
)
from dse.io import counted, digits, duration, quantity
from dse.types import (
    INFEASIBLE_MEANING,
    Design,
    FarMemory,
    Infeasible,
    Precision,
    Scalar,
    Serving,
    ServingMetrics,
    choice_name,
)

_GB = 1e9

#: Time to the first token of a queue without end, s, for its distance from a limit.
_ENDLESS_WAIT = 1e6

#: Operators of steps with prompts alone, and of steps that decode alone.
_PREFILL_OPERATORS, _DECODE_OPERATORS = ("prefill_attention", "prefill_state"), ("decode_attention", "decode_state")

#: Sequences of a global batch, which serving lacks: a multiple of any dp, so that every rule of training is met.
_ANY_BATCH = 2.0**15 * 3**2 * 5 * 7


def _serve(design: Design) -> ServingMetrics:
    """Return the metrics of ``dse.doors.serving.serve``, imported when it is first traced."""
    from dse.doors.serving import serve

    return serve(design)


def _capacity(design: Design) -> Scalar:
    """Return the device memory that the engine may take, B: its share of the capacity."""
    from dse.types import Serving

    return (design.mapping.serving or Serving()).memory_share * design.system.accelerator.memory.capacity


def _shortfalls(design: Design, metrics: ServingMetrics) -> dict[Infeasible, Scalar]:
    """Return reason → natural logarithm of demand over supply, for memory and latency."""
    import jax.numpy as jnp

    from dse.model import generated
    from dse.model.serving.goodput import has_unbounded_ttft
    from dse.types import Load, Requests

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


def _redundant_text(serving: Serving | None) -> str:
    """Return text on the count of redundant experts (`` + 32``), empty for none."""
    return f" + {serving.redundant_experts:g}" if serving and serving.redundant_experts else ""


def _far_memory_ratio(design: Design) -> Scalar:
    """Return the bytes of weights in far memory over its capacity, 0 for a mapping that does not use any."""
    from dse.model import generated, stage_of, weight_bytes
    from dse.types import Serving

    spill = design.mapping.spill
    if spill is None:
        return 0.0
    stage, serving = stage_of(generated(design)), design.mapping.serving or Serving()
    far_bytes = spill.far_weights * weight_bytes(stage.design, stage.layout, serving)
    return far_bytes / _far_tier(design).capacity


def _reason_numbers(design: Design, metrics: Mapping[str, float]) -> dict[str, str]:
    """Return name of a reason → text with the numbers behind it, whether it holds or not."""
    w, m, system = design.workload, design.mapping, design.system
    weights, capacity = metrics["peak_memory_weights"] / _GB, system.accelerator.memory.capacity / _GB
    far = "" if m.spill is None else f", {_far_tier(design).capacity / _GB:.1f} GB beyond it"
    return {
        "memory": f"weights {weights:.1f} GB of {capacity:.1f} GB{far}: no room for a cache"
        " (precision, weight_bytes, expert_bytes)",
        "heads_not_divisible": f"tp={m.tp:g}, heads={w.n_heads:g}, key/value heads={w.n_kv_heads:g}",
        "width_not_divisible": f"tp={m.tp:g}, feed-forward width={w.ffn_hidden:g}",
        "layers_not_divisible": f"pp={m.pp:g}, layers={w.n_layers:g}",
        "device_count_mismatch": f"tp x pp x dp = {m.tp * m.pp * m.dp:g}, n_devices={system.n_devices:g}",
        "network_too_small": network_description(system),
        "precision_unsupported": _precision_text(Precision(int(m.precision))),
        "power": (
            f"clock {system.accelerator.power.clock / 1e9:g} GHz, limit "
            f"{system.accelerator.power.limit or system.accelerator.power.tdp:g} W"
        ),
        "chip_shares": chip_share_excess(design),
        "step_tokens": "" if m.serving is None else f"chunk={m.serving.chunk:g}, drafts={m.serving.drafts:g}",
        "latency": (
            f"first token {metrics['time_to_first_token']:.3g} s{_no_promise_text(w.requests)}, output token "
            f"{1e3 * metrics['time_per_output_token']:.3g} ms{_overload_text(metrics)}"
        ),
        "experts_not_divisible": "no experts"
        if m.experts is None or w.experts is None
        else (
            f"ep={m.experts.ep:g}, etp={m.experts.etp:g}, experts={w.experts.n_experts:g}{_redundant_text(m.serving)}"
            f"{routing_excess(w.experts)}"
        ),
    }


def _precision_text(precision: Precision) -> str:
    """Return text on a precision, below 16 bits with how to state weights that are only stored in it."""
    from dse.model.recipes import RECIPES

    recipe, text = RECIPES[precision], f"precision={choice_name(precision)}"
    stored_bytes = recipe.operand + recipe.scales
    if stored_bytes >= RECIPES[Precision.bf16].operand:
        return text
    return (
        f"{text} (weights stored in it and multiplied in 16 bits: precision=bf16 with "
        f"weight_bytes={stored_bytes:.2g} B,"
        f" for experts only, as in gpt-oss, expert_bytes={stored_bytes:.2g} B)"
    )


def _overload_text(metrics: Mapping[str, float]) -> str:
    """Return text on the request rate over what is served, empty where that is at most 1."""
    utilisation = metrics["utilisation"]
    return (
        ""
        if utilisation <= 1.0
        else f", request_rate {utilisation:.3g} times what is served (n_devices, or a lower rate)"
    )


def _no_promise_text(requests: Any) -> str:
    """Return text on why a load has no bound on the first token, empty where it has one or no limit is set."""
    from dse.model.serving.goodput import has_unbounded_ttft

    if requests is None or not requests.first_token_limit or not has_unbounded_ttft(requests):
        return ""
    return " after a wait in an offline queue, which has no end (load=concurrency, or no first_token_limit)"


def _far_tier(design: Design) -> FarMemory:
    """Return the far memory of a device of the design: the system's, or its host's memory where it has none."""
    from dse.model.serving.memory import far_tier

    return far_tier(design.system)


def _caution(metrics: Mapping[str, float], design: Design, evaluated: Evaluated) -> str:
    """Return a caution in one line where at least 99.9 % of the steps have prompts, else an empty text."""
    if metrics["prefill_share"] < 0.999:
        return ""
    return "every step has prefill: requests arrive faster than prefill completes, and queue"


def _headline(metrics: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the headline metrics of a design, those of open loads and caches where they apply."""
    open_load = metrics["utilisation"] != 1.0
    return (
        "time_to_first_token",
        "time_per_output_token",
        "inter_token_latency",
        "request_latency",
        *("p95_time_to_first_token", "p95_time_per_output_token", "p95_request_latency"),
        *("utilisation", "requests_in_flight", "replicas_needed") * open_load,
        "output_tokens_per_second",
        "output_tokens_per_second_per_device",
        "output_tokens_per_second_per_user",
        "requests_per_second",
        "goodput",
        "concurrency_limit",
        "prefill_share",
        *("cache_hit_rate",) * (metrics["cache_hit_rate"] > 0.0),
        "parameters",
        "peak_memory",
    )


def _settings(design: Design) -> str:
    """Return one line of text on the requests and the engine's settings of a design."""
    from dse.types import Load, Requests, Serving

    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    load = Load(int(requests.load))
    load_text = "maximum concurrency" if load is Load.offline else f"concurrency {requests.concurrency:g}"
    load_text = f"{requests.request_rate or 0:g} requests/s" if load is Load.rate else load_text
    drafts = f", {counted(serving.drafts, 'draft')}" if serving.drafts else ""
    prefill_text = "mixed prefill and decode" if serving.mixed else "separate prefill"
    return (
        f"{_tokens_text(requests.prompt_tokens, 'prompt')}, {_tokens_text(requests.output_tokens, 'output')}, "
        f"{load_text} "
        f"({choice_name(load)}); up to {counted(serving.chunk, 'token')} per step, {prefill_text}; "
        f"{counted(serving.cache_bytes, 'byte')} per cached value{drafts}"
    )


#: Path of the leaves of requests.
_REQUESTS = "workload.requests."


def _work_leaves(design: Design) -> tuple[str, ...]:
    """Return the paths of the leaves of the lengths of requests, and of those that their load reads."""
    from dse.types import Load, Requests

    load = Load(int((design.workload.requests or Requests()).load))
    load_leaves = {Load.offline: (), Load.rate: ("request_rate",)}.get(load, ("concurrency",))
    return tuple(_REQUESTS + name for name in ("prompt_tokens", "output_tokens", *load_leaves, "load"))


def _work(labels: Mapping[str, Any]) -> str:
    """Return text on the lengths and load of requests, from leaf path → label, for the labels there are."""
    from dse.types import Load

    settings = {name.removeprefix(_REQUESTS): value for name, value in labels.items() if name.startswith(_REQUESTS)}
    load = settings.get("load")
    means = {kind: settings[f"{kind}_tokens"] for kind in ("prompt", "output") if f"{kind}_tokens" in settings}
    length_texts = [_tokens_text(int(mean) if mean == int(mean) else mean, kind) for kind, mean in means.items()]
    parts = [f"each request: {' and '.join(length_texts)}"] if length_texts else []
    if load == choice_name(Load.offline):
        parts.append("as many in flight as fit")
    elif load == choice_name(Load.rate) and "request_rate" in settings:
        parts.append(f"{settings['request_rate']:g} requests/s")
    elif load != choice_name(Load.rate) and "concurrency" in settings:
        parts.append(f"concurrency {settings['concurrency']:g}")
    return "; ".join(parts)


def _tokens_text(mean: Scalar, kind: str) -> str:
    """Return text on a mean count of tokens of a kind (``prompt``), with three digits where it is no integer."""
    is_integer = mean == round(float(mean))
    return counted(mean, f"{kind} token") if is_integer else f"{digits(float(mean))} {kind} tokens"


def _remark(total: str, metrics: Mapping[str, float], design: Design) -> str:
    """Return a remark on a total, as text: requests in memory, power by phase, cost, or price; else empty."""
    if total == "energy_per_output_token":
        return _power_text(metrics, design)
    if total == "cost_per_token":
        return money_note(total, metrics, design)
    if total != "peak_memory":
        return price_note(total, metrics, design)
    between_failures = duration(metrics["time_between_failures"])
    return (
        f"Maximum concurrent requests, all devices: {metrics['concurrency_limit']:,.0f}. Availability of a replica: "
        f"{100 * metrics['availability']:.3f} %, mean time between failures {between_failures}."
    )


def _power_text(metrics: Mapping[str, float], design: Design) -> str:
    """Return text on the power of a device by phase, and of the system, W, and on clocks under a limit."""

    def watts(name: str) -> str:
        return quantity(metrics[name], "W")

    clocks = {"decode": metrics["decode_clock_reached"], "steps with prefill": metrics["prefill_clock_reached"]}
    headroom = metrics["provisioned_power"] / max(metrics["average_power"], 1e-9)
    return (
        f"Power per device: {watts('decode_power')} in decode, {watts('prefill_power')} in steps with prefill, "
        f"{watts('device_power')} on average. Power of the system: {watts('average_power')} on average, "
        f"{watts('peak_power')} at peak, {watts('provisioned_power')} provisioned ({headroom:.2f} times the average)."
        f"{clock_note(clocks, design)}"
    )


def _bounds(design: Design) -> Any:
    """Return ``dse.doors.serving.bounds`` of a design, imported when it is first traced."""
    from dse.doors.serving import bounds

    return bounds(design)


def _breakdown(design: Design) -> Any:
    """Return the breakdown of a design: operators of one layer and the head by phase, step times by bound, messages."""
    import jax.numpy as jnp

    from dse.doors.serving import at_its_clock, step_bounds
    from dse.doors.study import Breakdown
    from dse.model import Batch, generated, stage_of
    from dse.model.serving.step import rates_in
    from dse.model.serving.work import ranks_of_experts, step_work
    from dse.types import Engine, Requests, Serving

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
    from dse.types import Engine, Load, Requests, Serving

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
    evaluate=_serve,
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
    secondary_metric=MetricColumn("tok/s/device", "output_tokens_per_second_per_device", "number"),
    front_axes=("output_tokens_per_second_per_user", "output_tokens_per_second_per_device"),
    capacity=_capacity,
    neutral_values={"workload.global_batch": _ANY_BATCH},
    reason_numbers=_reason_numbers,
    caution=_caution,
    complete=with_serving_defaults,
    headline=_headline,
    summary={
        "time_to_first_token": "first token (TTFT)",
        "time_per_output_token": "per token (TPOT)",
        "request_latency": "request",
        "output_tokens_per_second": "output tokens/s",
        "output_tokens_per_second_per_user": "tokens/s per user",
        "concurrency_limit": "most requests at once",
        "peak_memory": "peak memory",
        "energy_per_output_token": "energy per token",
        "cost_per_token": "cost per token",
        "carbon_per_token": "carbon per token",
    },
    settings=_settings,
    work_leaves=_work_leaves,
    work=_work,
    remark=_remark,
    breakdown=_breakdown,
    bounds=_bounds,
    operators_of="one layer and the head, without launches, of a decode step and of a prefill, on one device",
    residuals=_RESIDUALS,
    ignored_leaves=(*TRAINING_ALONE, *LEAVES_UNREAD_BY_ENGINES),
    optional=OPTIONAL,
    table_columns=(
        MetricColumn("TPOT", "time_per_output_token", "time"),
        MetricColumn("TTFT", "time_to_first_token", "time"),
        MetricColumn("tok/s", "output_tokens_per_second", "number"),
        MetricColumn("tok/s/dev", "output_tokens_per_second_per_device", "number"),
        MetricColumn("tok/s/user", "output_tokens_per_second_per_user", "number"),
        MetricColumn("GiB", "peak_memory", "bytes"),
    ),
    time_columns={
        "matrix": ("time_per_output_token_matrix",),
        "attention": ("time_per_output_token_attention",),
        "comm": ("time_per_output_token_communication",),
        "host": ("time_per_output_token_host",),
        "prefill": ("time_per_output_token_prefill",),
        "preempted": ("time_per_output_token_preempted",),
    },
)
