"""Tables of measured serving, and their predictions (rows: :mod:`dse.measured.serving_rows`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax

from dse.doors import SERVING, Study
from dse.measured import rules
from dse.measured.cells import Cells
from dse.measured.completion import Candidates
from dse.measured.prediction import Prediction, TableKind, evaluate_many, reason_text
from dse.measured.roofline import batch_latency_bounds, refuse_implausible
from dse.measured.serving_rows import complete_row, deepseek_r1_duplicates
from dse.measured.table import Case, Measurement, Row, Skip, cases_of, joined_remarks, kind_rows
from dse.model.serving.least import LatencyBounds
from dse.types import Design, Load

#: Metrics of a row.
METRICS: Sequence[str] = kind_rows("serving")["metrics"]

_TIME_TO_FIRST_TOKEN, _RATE = "time_to_first_token", "output_tokens_per_second"
#: Room for a cache, of the most loaded device of a rank, and of that in tokens; not metrics of the model.
_CACHE_BYTES, _CACHE_TOKENS = "cache_memory", "cache_tokens"
_ENERGY, _POWER = "energy_per_output_token", "average_power"

#: Requests of a run of ML.ENERGY v2, from ramp and tail: throughput times TPOT falls below the concurrency by one per
#: this number of sequences. A run takes at most this multiple of a mean request: with all requests in flight from the
#: start, its longest one.
_SEQUENCES_PER_RUN, _MAX_STRETCH = 800.0, 2.0


def read(rows: list[Row]) -> list[Case]:
    """Return the configurations of a table in order; payload True where an equal one is listed under another model."""
    cases = cases_of([rules.corrected_row(row) for row in rows], "serving")
    has_equal_row = deepseek_r1_duplicates(cases)
    return [dataclasses.replace(case, payload=has_equal_row.get(id(case))) for case in cases]


def predict(configurations: Sequence[tuple[Case, Candidates]], study: Study) -> list[Prediction]:
    """Predict every configuration.

    Latencies below, or rates above, the roofline bound are refused (:mod:`dse.measured.roofline`): they are predicted
    but skipped.

    Args:
        configurations: configurations with the designs that a row leaves open.
        study: kind of study that is evaluated.

    Returns:
        One prediction a configuration, in order; SI units.
    """
    designs = [candidates.design for _, candidates in configurations]
    metrics, bounds = evaluate_many(designs, study), batch_latency_bounds(designs)
    return [
        _prediction(case, candidates, {name: float(values[i]) for name, values in metrics.items()}, bounds[i])
        for i, (case, candidates) in enumerate(configurations)
    ]


def _prediction(case: Case, candidates: Candidates, metrics: dict[str, float], bound: LatencyBounds) -> Prediction:
    """Return the prediction of a row, with a note where it exceeds memory and a skip where it cannot run otherwise."""
    reason = int(metrics["infeasible_reason"])
    if sentence := reason_text(reason, SERVING):
        return Prediction(case, completed=candidates.completed, skip=Skip("infeasible as stated", sentence))
    if metrics["concurrency_limit"] < 1.0:
        return Prediction(case, completed=candidates.completed, skip=Skip("does not fit in memory"))
    figures = [steady_figure(m, candidates.design) for m in case.measurements]
    case = dataclasses.replace(case, measurements=tuple(refuse_implausible(figures, candidates.design, bound)))
    note = joined_remarks(candidates.note, "over capacity" if reason else "")
    if {m.name for m in case.measurements} & {_CACHE_BYTES, _CACHE_TOKENS}:
        metrics |= cache_figures(candidates.design, Cells(case.row).number("longest") or 0.0)
    return Prediction(case, candidates.design, metrics, candidates.completed, note, stack=candidates.stack)


def steady_figure(figure: Measurement, design: Design) -> Measurement:
    """Return a measurement as the steady-state figure, where ML.ENERGY v2 has ramp and tail in it; others unchanged.

    With fewer sequences power is nearly equal, since each step reads all weights.
    """
    requests, kind = design.workload.requests, figure.meaning.kind
    if figure.row.source != "ML.ENERGY_v2" or kind not in (_RATE, _ENERGY) or requests is None:
        return figure
    stretch = min(float(1.0 + requests.concurrency / _SEQUENCES_PER_RUN), _MAX_STRETCH)
    return dataclasses.replace(figure, value=figure.value * (stretch if kind == _RATE else 1.0 / stretch))


def cache_figures(design: Design, sequence_tokens: float = 0.0) -> dict[str, float]:
    """Return predicted room of a rank's cache: ``cache_memory``, B on its most loaded device, and ``cache_tokens``.

    Engines count tokens of a sequence of ``sequence_tokens``, of which windows keep fewer, by default those of a
    request.
    """
    from dse.doors import cache_capacity

    requests = design.workload.requests
    assert requests is not None
    tokens = sequence_tokens or float(requests.prompt_tokens + requests.output_tokens)
    with jax.enable_x64(True):
        cache_bytes, sequence_bytes = map(float, cache_capacity(design, tokens))
    return {_CACHE_BYTES: cache_bytes, _CACHE_TOKENS: cache_bytes / max(sequence_bytes, 1e-30) * tokens}


# Bytes over bandwidth


def bytes_over_bandwidth(design: Design, metric: str) -> float:
    """Return a metric's figure if reading weights and cache alone took time, up to one constant per source."""
    from dse.model import cache_bytes, stage_of, weight_bytes

    stage, mapping = stage_of(design), design.mapping
    requests, serving = design.workload.requests, mapping.serving
    assert requests is not None and serving is not None
    context = requests.prompt_tokens + 0.5 * requests.output_tokens
    bytes_per_sequence = stage.layout.layers * cache_bytes(stage.design, serving, context)
    bytes_of_weights = float(weight_bytes(stage.design, stage.layout, serving))
    seconds_per_byte = float(mapping.pp / design.system.accelerator.memory.bandwidth)  # per byte on each device
    weight_time, cache_time = seconds_per_byte * bytes_of_weights, seconds_per_byte * float(bytes_per_sequence)
    sequences = float(requests.concurrency / mapping.dp)
    token_time = weight_time + sequences * cache_time
    is_offline = requests.load == float(Load.offline)
    rate = float(mapping.dp) * (1.0 / cache_time if is_offline else sequences / token_time)
    n_devices = float(design.system.n_devices)
    return {
        _TIME_TO_FIRST_TOKEN: weight_time * float(requests.prompt_tokens),
        f"p50_{_TIME_TO_FIRST_TOKEN}": weight_time * float(requests.prompt_tokens),
        "request_latency": token_time * float(requests.output_tokens),
        "peak_memory": bytes_of_weights,
        _RATE: rate,
        f"{_RATE}_per_device": rate / n_devices,
        "concurrency_limit": 1.0,
        _POWER: n_devices,
        _ENERGY: n_devices / rate,
    }.get(metric, token_time)


KIND = TableKind("serving", SERVING, predict, lambda case, lookup: complete_row(case.row, lookup, case.payload), read)
