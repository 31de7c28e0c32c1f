"""Measured serving figures better than a perfect roofline, by bytes and FLOPs of the model on its devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from dse.doors.scalars import ScalarFunction
from dse.doors.study_serving import SERVING
from dse.io.quantities import quantity
from dse.measured.prediction import by_structure
from dse.measured.table import Measurement, Skip
from dse.model.serving.least import Least, least
from dse.types import Design

#: Reason to skip such a figure.
REFUSED = "beats a perfect roofline"

_FIRST = "time_to_first_token"
#: Metric → whether higher is better.
_BOUNDED = {
    "time_per_output_token": False,
    "inter_token_latency": False,
    _FIRST: False,
    "request_latency": False,
    "output_tokens_per_second": True,
    "output_tokens_per_second_per_device": True,
}

_least = ScalarFunction(lambda design: (least(design), None), None)


def unbeaten(designs: Sequence[Design]) -> list[Least]:
    """Lower bounds of latencies of every design."""
    found: dict[int, Least] = {}
    for members, stack in by_structure(designs):
        many = _least.over(len(members), stack)
        found |= {i: Least(*(float(values[n]) for values in many)) for n, i in enumerate(members)}
    return [found[i] for i in range(len(designs))]


def believed(figures: Sequence[Measurement], design: Design, bound: Least) -> Iterator[Measurement]:
    """Figures of a configuration; those better than the bound are refused."""
    firsts = [m.value for m in figures if m.meaning.metric == _FIRST and m.skip is None]
    for m in figures:
        limit = limit_of(m.meaning.metric, design, bound, *firsts[:1])
        if m.skip or math.isnan(limit):
            yield m
            continue
        is_rate = _BOUNDED[m.meaning.metric]
        beats = m.value > limit if is_rate else m.value < limit
        limit_text = f"no {'more' if is_rate else 'less'} than {quantity(limit, SERVING.units[m.meaning.metric])}"
        yield dataclasses.replace(m, skip=Skip(REFUSED, limit_text)) if beats else m


def limit_of(metric: str, design: Design, bound: Least, first: float = math.inf) -> float:
    """Upper bound of a rate or lower bound of a time, NaN for metrics without a bound.

    With ``n`` requests in flight, a request takes ``n`` times its device time (Little's law), from arrival to end, less
    the time to first token measured, ``first``, in metrics after it. The median inter-token latency may be that of
    steps with few sequences.
    """
    requests, m = design.workload.requests, design.mapping
    assert requests is not None
    later = max(float(requests.output_tokens) - 1.0, 0.0)
    whole, token, prompt = (float(x) for x in (bound.together * bound.request, bound.token, bound.prompt))
    rate = float(m.dp * requests.output_tokens / bound.request)
    return {
        "time_per_output_token": max(token, (whole - first) / later if later else 0.0),
        "inter_token_latency": token,
        _FIRST: prompt,
        "request_latency": max(whole, prompt + later * token),
        "output_tokens_per_second": rate,
        "output_tokens_per_second_per_device": rate / float(design.system.n_devices),
    }.get(metric, math.nan)
