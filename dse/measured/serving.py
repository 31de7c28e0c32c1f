"""Tables of measured serving, and their predictions (rows: :mod:`dse.measured.serving_rows`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax

from dse.doors.study import Study
from dse.doors.study_serving import SERVING
from dse.measured import rules
from dse.measured.cells import Cells
from dse.measured.completion import Candidates
from dse.measured.prediction import Prediction, TableKind, evaluate_many
from dse.measured.roofline import believed, unbeaten
from dse.measured.serving_rows import complete, twins_of
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, cases_of, measurement
from dse.model.serving.least import Least
from dse.types import Design, Load

#: Column that identifies tables of serving.
SIGN = "isl"

#: Metrics of a row.
METRICS = (
    "time_per_output_token",
    "inter_token_latency",
    "time_to_first_token",
    "request_latency",
    "output_tokens_per_second",
    "output_tokens_per_second_per_device",
    "concurrency_limit",
    "peak_memory",
    "energy_per_output_token",
    "average_power",
)

_TOKEN = "time_per_output_token"
_FIRST, _RATE = "time_to_first_token", "output_tokens_per_second"
#: Room for a cache, of the most loaded device of a rank, and of that in tokens; not metrics of the model.
_CACHE_BYTES, _CACHE_TOKENS = "cache_memory", "cache_tokens"
_ENERGY, _POWER = "energy_per_output_token", "average_power"

#: Measured name → meaning.
MEANINGS = {
    "tpot": Meaning(_TOKEN, _TOKEN, 0, "ms"),
    "tpot_mean": Meaning(_TOKEN, _TOKEN, 0, "ms"),
    "itl_mean": Meaning(_TOKEN, _TOKEN, 1, "ms"),
    "itl_median": Meaning("inter_token_latency", "inter_token_latency", 0, "ms"),
    "ttft": Meaning(_FIRST, _FIRST, 0, "ms"),
    "ttft_mean": Meaning(_FIRST, _FIRST, 0, "ms"),
    "latency_total": Meaning("request_latency", "request_latency", 0, "ms"),
    "output_throughput_total": Meaning(_RATE, _RATE, 0, "token/s"),
    "output_throughput_per_gpu": Meaning(_RATE, f"{_RATE}_per_device", 1, "token/s"),
    "memory_usage": Meaning("peak_memory", "peak_memory", 0, "GB"),
    "weight_memory": Meaning("peak_memory_weights", "peak_memory_weights", 0, "GiB"),
    _CACHE_BYTES: Meaning(_CACHE_BYTES, _CACHE_BYTES, 0, "GiB"),
    _CACHE_TOKENS: Meaning(_CACHE_TOKENS, _CACHE_TOKENS, 0, "token"),
    "graph_memory": Meaning("graph_memory", "graph_memory", skip="part of the memory of an engine's runtime"),
    _ENERGY: Meaning(_ENERGY, _ENERGY, 0, "J/token"),
    "energy_per_request": Meaning(_ENERGY, _ENERGY, 1, "J/request", skip="the energy of its tokens"),
    "avg_power_total": Meaning(_POWER, _POWER, 0, "W"),
    "mfu": Meaning("mfu", "mfu", skip="a utilisation, given with its time"),
}

#: Requests of a run of ML.ENERGY v2, from ramp and tail: throughput times TPOT falls below the concurrency by one per
#: this number of sequences. A run takes at most this multiple of a mean request: with all requests in flight from the
#: start, its longest one.
_RUN, _LONGEST = 800.0, 2.0


def read(columns: Sequence[str], rows: list[Row]) -> list[Case]:
    """Configurations of a table in order, marked where an equal one is listed under another model."""
    rows = [rules.corrected(row) for row in rows]
    cases = cases_of(rows, lambda row: [measurement(row, row.get("metric"), MEANINGS)], "serving")
    twins = twins_of(cases)
    return [dataclasses.replace(case, known=twins.get(id(case))) for case in cases]


def predict(known: Sequence[tuple[Case, Candidates]], study: Study) -> list[Prediction]:
    """Prediction of every configuration.

    Latencies below, or rates above, the roofline bound are refused (:mod:`dse.measured.roofline`): they are predicted
    but skipped.
    """
    designs = [one.design for _, one in known]
    metrics, best = evaluate_many(designs, study), unbeaten(designs)
    return [
        _prediction(case, one, {name: float(values[i]) for name, values in metrics.items()}, best[i])
        for i, (case, one) in enumerate(known)
    ]


def _prediction(case: Case, one: Candidates, metrics: dict[str, float], bound: Least) -> Prediction:
    """Prediction of a row: with a note where it exceeds memory; skipped where infeasible for another reason."""
    reason = int(metrics["infeasible_reason"])
    other = reason & ~int(SERVING.memory_reasons)
    if other:
        sentence = "; ".join(SERVING.reason_meanings[name] for name in SERVING.reasons_in(other))
        return Prediction(case, completed=one.completed, skip=Skip("infeasible as stated", sentence))
    if metrics["concurrency_limit"] < 1.0:
        return Prediction(case, completed=one.completed, skip=Skip("does not fit in memory"))
    figures = [steady_figure(m, one.design) for m in case.measurements]
    case = dataclasses.replace(case, measurements=tuple(believed(figures, one.design, bound)))
    note = "; ".join(filter(None, (one.note, "over capacity" if reason else "")))
    if {m.name for m in case.measurements} & {_CACHE_BYTES, _CACHE_TOKENS}:
        metrics |= cache_figures(one.design, Cells(case.row).number("longest") or 0.0)
    return Prediction(case, one.design, metrics, one.completed, note, stack=one.stack)


def steady_figure(measured: Measurement, design: Design) -> Measurement:
    """Steady-state figure of a measurement: ML.ENERGY v2 reports whole runs, with ramp and tail.

    With fewer sequences power is nearly equal, since each step reads all weights.
    """
    requests, kind = design.workload.requests, measured.meaning.kind
    if measured.row.source != "ML.ENERGY_v2" or kind not in (_RATE, _ENERGY) or requests is None:
        return measured
    longer = min(float(1.0 + requests.concurrency / _RUN), _LONGEST)
    return dataclasses.replace(measured, value=measured.value * (longer if kind == _RATE else 1.0 / longer))


def cache_figures(design: Design, longest: float = 0.0) -> dict[str, float]:
    """Predicted room of a rank's cache: B on its most loaded device, and in tokens.

    ``longest``: tokens of a sequence that engines count in, of which windows keep fewer; by default those of a request.
    """
    from dse.doors.serving import cache_room

    requests = design.workload.requests
    assert requests is not None
    tokens = longest or float(requests.prompt_tokens + requests.output_tokens)
    with jax.enable_x64(True):
        room, held = map(float, cache_room(design, tokens))
    return {_CACHE_BYTES: room, _CACHE_TOKENS: room / max(held, 1e-30) * tokens}


# Bytes over bandwidth


def bytes_over_bandwidth(design: Design, metric: str) -> float:
    """The figure if only reading the weights took time, up to one constant per source: the simplest model."""
    from dse.model.serving.memory import weight_bytes
    from dse.model.serving.work import cache_bytes, stage_of

    stage, mapping = stage_of(design), design.mapping
    requests, serving = design.workload.requests, mapping.serving
    assert requests is not None and serving is not None
    context = requests.prompt_tokens + 0.5 * requests.output_tokens
    a_sequence = stage.layout.layers * cache_bytes(stage.design, serving, context)
    held = float(weight_bytes(stage.design, stage.layout, serving))
    second = float(mapping.pp / design.system.accelerator.memory.bandwidth)  # per byte on each device
    weights, cache = second * held, second * float(a_sequence)
    sequences = float(requests.concurrency / mapping.dp)
    token = weights + sequences * cache
    offline = requests.load == float(Load.offline)
    rate = float(mapping.dp) * (1.0 / cache if offline else sequences / token)
    devices = float(design.system.n_devices)
    return {
        _FIRST: weights * float(requests.prompt_tokens),
        "request_latency": token * float(requests.output_tokens),
        "peak_memory": held,
        _RATE: rate,
        f"{_RATE}_per_device": rate / devices,
        "concurrency_limit": 1.0,
        _POWER: devices,
        _ENERGY: devices / rate,
    }.get(metric, token)


KIND = TableKind(
    "serving",
    SERVING,
    lambda columns: SIGN in columns,
    read,
    lambda case, lookup: complete(case.row, lookup, case.known),
    predict,
    lambda case: METRICS,
)
