"""Measured serving figures better than a perfect roofline, by bytes and FLOPs of the model on its devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from dse.doors import SERVING
from dse.equations import ScalarFunction
from dse.io import quantity
from dse.measured.prediction import stack_designs
from dse.measured.table import Measurement, Skip, in_batches
from dse.model.serving.least import LatencyBounds, latency_bounds
from dse.types import Design
from dse.types.trees import Structure, tree_structure

#: Reason to skip such a figure.
REFUSED = "beats a perfect roofline"

_TIME_TO_FIRST_TOKEN = "time_to_first_token"
#: Metric → whether higher is better.
_IS_RATE = {
    "time_per_output_token": False,
    "inter_token_latency": False,
    _TIME_TO_FIRST_TOKEN: False,
    "request_latency": False,
    "output_tokens_per_second": True,
    "output_tokens_per_second_per_device": True,
}

_bound_function = ScalarFunction(lambda design: (latency_bounds(design), None), None)


def batch_latency_bounds(designs: Sequence[Design]) -> list[LatencyBounds]:
    """Return the lower bounds of latencies, s, of every design, in order."""
    return in_batches(designs, tree_structure, _batch_bounds)


def _batch_bounds(_: Structure, designs: Sequence[Design]) -> list[LatencyBounds]:
    """Return the lower bounds of designs of one structure."""
    bound_arrays = _bound_function.batch_values(len(designs), stack_designs(designs))
    return [LatencyBounds(*map(float, bounds)) for bounds in zip(*bound_arrays, strict=True)]


def refuse_implausible(figures: Sequence[Measurement], design: Design, bound: LatencyBounds) -> Iterator[Measurement]:
    """Yield the figures of a configuration, in order, with a skip where they are better than the bound."""
    first_token_times = [m.value for m in figures if m.meaning.metric == _TIME_TO_FIRST_TOKEN and m.skip is None]
    for m in figures:
        limit = metric_bound(m.meaning.metric, design, bound, *first_token_times[:1])
        if m.skip or math.isnan(limit):
            yield m
            continue
        is_rate = _IS_RATE[m.meaning.metric]
        is_implausible = m.value > limit if is_rate else m.value < limit
        limit_text = f"no {'more' if is_rate else 'less'} than {quantity(limit, SERVING.units[m.meaning.metric])}"
        yield dataclasses.replace(m, skip=Skip(REFUSED, limit_text)) if is_implausible else m


def metric_bound(metric: str, design: Design, bound: LatencyBounds, first_token_time: float = math.inf) -> float:
    """Return the upper bound of a rate or lower bound of a time in SI units, NaN for metrics without a bound.

    With ``n`` requests in flight, a request takes ``n`` times its device time (Little's law), from arrival to end, less
    the time to first token measured, ``first_token_time``, in metrics after it. The median inter-token latency may be
    that of steps with few sequences.
    """
    requests, m = design.workload.requests, design.mapping
    assert requests is not None
    n_later_tokens = max(float(requests.output_tokens) - 1.0, 0.0)
    request_time, token_time, prompt_time = (
        float(seconds) for seconds in (bound.together * bound.request, bound.token, bound.prompt)
    )
    rate = float(m.dp * requests.output_tokens / bound.request)
    return {
        "time_per_output_token": max(
            token_time, (request_time - first_token_time) / n_later_tokens if n_later_tokens else 0.0
        ),
        "inter_token_latency": token_time,
        _TIME_TO_FIRST_TOKEN: prompt_time,
        "request_latency": max(request_time, prompt_time + n_later_tokens * token_time),
        "output_tokens_per_second": rate,
        "output_tokens_per_second_per_device": rate / float(design.system.n_devices),
    }.get(metric, math.nan)
