"""Statistics of a simulation: percentiles of latency, throughput, use of engine and cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dse.lab.simulator.load import Floats
from dse.lab.simulator.run import Simulation

#: Percentiles of every latency.
PERCENTILES = (50, 90, 95, 99)


def latencies(simulation: Simulation) -> dict[str, Floats]:
    """Return seconds of every request by metric, NaN for the time per output token of a single token.

    Returns:
        Metric → [request] in the order of arrival.
    """
    arrival, first, finish = map(simulation.column, ("arrival", "first", "finish"))
    later_tokens = simulation.column("answer") - 1.0
    seconds_per_token = np.divide(
        finish - first, later_tokens, out=np.full_like(first, np.nan), where=later_tokens > 0.0
    )
    request_time = simulation.limits.request_time
    return {
        "time_to_first_token": first - arrival + request_time,
        "time_per_output_token": seconds_per_token,
        "request_latency": finish - arrival + request_time,
    }


def statistics(simulation: Simulation) -> dict[str, Any]:
    """Return figures of a simulation in SI units: of the requests within its span, and of all steps.

    ``mean_…`` and ``p50_…`` to ``p99_…`` of each latency; rates of the requests that end within the span.

    Args:
        simulation: of any load.

    Returns:
        Name → figure; shares of time and of cache are from 0 to 1.
    """
    arrival, finish, answer = map(simulation.column, ("arrival", "finish", "answer"))
    start, end = simulation.span or (float(arrival.min()), float(finish.max()))
    is_counted = (arrival >= start) & (arrival <= end)
    # Above capacity the queue outlasts the arrivals: rates are until the last of those that count.
    last = max(end, float(finish[is_counted].max())) if simulation.is_open and is_counted.any() else end
    has_ended = (finish > start) & (finish <= last)
    if not has_ended.any():  # too few to leave some out
        start, last, has_ended = float(arrival.min()), float(finish.max()), np.full(finish.shape, True)
    seconds = max(last - start, 1e-12)
    ranks, prompt = simulation.ranks, simulation.column("prompt")
    rank_seconds = sum(max(float(rank.finish.max() - rank.requests.arrival.min()), 1e-12) for rank in ranks)
    in_span = is_counted if is_counted.any() else np.full(finish.shape, True)
    busy = sum(rank.busy for rank in ranks)
    figures: dict[str, Any] = {
        "requests": int(is_counted.sum()),
        "requests_per_second": float(has_ended.sum()) / seconds,
        "output_tokens_per_second": float(answer[has_ended].sum()) / seconds,
        "busy": busy / rank_seconds,
        "decoding": sum(rank.decoding for rank in ranks) / max(busy, 1e-12),
        "steps": sum(rank.steps for rank in ranks),
        "prefill_share": sum(rank.steps_with_prompts for rank in ranks) / max(sum(rank.steps for rank in ranks), 1),
        "cache_use": sum(rank.block_seconds / rank.blocks for rank in ranks) / max(busy, 1e-12),
        "peak_cache_use": max(rank.most_used / rank.blocks for rank in ranks),
        "cache_hit_rate": float(simulation.column("hit")[in_span].sum() / prompt[in_span].sum()),
        "preemptions": int(simulation.column("preemptions").sum()),
    }
    if simulation.is_open:
        figures |= backlog(simulation)
    for name, values in latencies(simulation).items():
        finite = values[is_counted & np.isfinite(values)]
        finite = finite if finite.size else np.zeros(1)
        figures[f"mean_{name}"] = float(finite.mean())
        figures |= {f"p{p}_{name}": float(np.percentile(finite, p)) for p in PERCENTILES}
    return figures


def backlog(simulation: Simulation) -> dict[str, Any]:
    """Return name → figure: requests/s that arrive, and counts that wait at the median and the last arrival."""
    arrival, admitted = simulation.column("arrival"), simulation.column("admitted")
    median_arrival, last_arrival = (float(np.quantile(arrival, share)) for share in (0.5, 1.0))
    waiting = [int(np.sum((arrival <= time) & (admitted > time))) for time in (median_arrival, last_arrival)]
    seconds = last_arrival - float(arrival.min())
    rate = (arrival.size - 1.0) / seconds if seconds else math.inf
    return {"offered_requests_per_second": rate, "waiting_at_half": waiting[0], "waiting_at_end": waiting[1]}


def queue_grows(figures: dict[str, Any]) -> bool:
    """True where the queue of an open load is longer at the end by a fifth and 10 requests.

    Args:
        figures: of :func:`statistics`.
    """
    return bool(figures.get("waiting_at_end", 0) > 1.2 * figures.get("waiting_at_half", 0) + 10.0)
