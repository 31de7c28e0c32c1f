"""What is shown of serving: headline, notes on its totals, and the numbers behind its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.doors.study_serving import tokens_text
from dse.io import counted, duration, quantity
from dse.types import Design, Load, Precision, Requests, Serving, Slices, choice_name
from dse.views.studies.notes import (
    chip_share_excess,
    clock_note,
    money_note,
    network_description,
    price_note,
    routing_excess,
)
from dse.views.studies.presentation import Presentation, words_of
from dse.views.words import WORDS

_GB = 1e9


def _redundant_text(design: Design) -> str:
    """Return text on the count of redundant experts (`` + 32``), empty for none."""
    from dse.model.serving.policy import copies_in

    copies = float(copies_in(design.workload, design.mapping))
    return f" + {copies:g}" if copies else ""


def _reason_numbers(design: Design, metrics: Mapping[str, float]) -> dict[str, str]:
    """Return name of a reason → text with the numbers behind it, whether it holds or not."""
    from dse.model.serving.memory import far_tier

    w, m, system = design.workload, design.mapping, design.system
    weights, capacity = metrics["peak_memory_weights"] / _GB, system.accelerator.memory.capacity / _GB
    far = "" if m.spill is None else f", {far_tier(system).capacity / _GB:.1f} GB beyond it"
    return {
        "memory": f"weights {weights:.1f} GB of {capacity:.1f} GB{far}: no room for a cache"
        " (precision, weight_bytes, expert_bytes)",
        "heads_not_divisible": f"tp={m.tp:g}, heads={w.n_heads:g}, key/value heads={w.n_kv_heads:g}",
        "width_not_divisible": f"tp={m.tp:g}{_slices_text(m.slices)}, feed-forward width={w.ffn_hidden:g}",
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
        "stack_lacks": "step_overlap=on hides the exchange of experts of ranks with attention of their own, and is no"
        " nano-batch",
        "latency": (
            f"first token {metrics['time_to_first_token']:.3g} s{_no_promise_text(w.requests)}, output token "
            f"{1e3 * metrics['time_per_output_token']:.3g} ms{_overload_text(metrics)}"
        ),
        "experts_not_divisible": "no experts"
        if m.experts is None or w.experts is None
        else (
            f"ep={m.experts.ep:g}, etp={m.experts.etp:g}, experts={w.experts.n_experts:g}{_redundant_text(design)}"
            f"{routing_excess(w.experts)}"
        ),
    }


def _slices_text(slices: Slices | None) -> str:
    """Return text on the sizes of slices, empty for a mapping without any."""
    return "" if slices is None else "".join(f", {name}={size:g}" for name, size in vars(slices).items())


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


#: Headline metrics of open loads alone.
_OPEN_LOAD = ("utilisation", "requests_in_flight", "replicas_needed")


def _headline(metrics: Mapping[str, float]) -> list[str]:
    """Return the names of the headline metrics of a design, those of open loads and caches where they apply."""
    hidden = {*_OPEN_LOAD * (metrics["utilisation"] == 1.0), *("cache_hit_rate",) * (metrics["cache_hit_rate"] <= 0.0)}
    return [name for name in WORDS["headline"]["serving"] if name not in hidden]


def _settings(design: Design) -> str:
    """Return one line of text on the requests and the engine's settings of a design."""
    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    load = Load(int(requests.load))
    load_text = "maximum concurrency" if load is Load.offline else f"concurrency {requests.concurrency:g}"
    load_text = f"{requests.request_rate or 0:g} requests/s" if load is Load.rate else load_text
    drafts = f", {counted(serving.drafts, 'draft')}" if serving.drafts else ""
    prefill_text = "mixed prefill and decode" if serving.mixed else "separate prefill"
    return (
        f"{tokens_text(requests.prompt_tokens, 'prompt')}, {tokens_text(requests.output_tokens, 'output')}, "
        f"{load_text} "
        f"({choice_name(load)}); up to {counted(serving.chunk, 'token')} per step, {prefill_text}; "
        f"{counted(serving.cache_bytes, 'byte')} per cached value{drafts}"
    )


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


#: What is shown of the study.
PRESENTATION = Presentation(
    headline=_headline, settings=_settings, remark=_remark, reason_numbers=_reason_numbers, **words_of("serving")
)
