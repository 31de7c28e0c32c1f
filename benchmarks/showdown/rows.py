"""Measured rows in words that any tool understands, with dse's error by fits that had not seen them.

What a row leaves open is completed as dse completes it, for all tools alike.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calibration import engines, left_out
from calibration.left_out import LeftOut, key
from dse.measured.comparison import Comparison, compare, is_timed, step_time
from dse.measured.names import accelerator_of
from dse.measured.prediction import peak_rate
from dse.types import Design, Load, Precision, Recompute, choice_name

Row = dict[str, Any]

#: Tables whose measured figures the project carries, and those that the other tools were not run on yet.
PUBLISHED = Path("tests/published")
NOT_RUN = ("frontier_2023.csv",)

_ENERGY = ("energy_per_output_token", "average_power")
#: What may be left out, best first: a pod's generation has no other source, some rows are in no fit.
_WAYS = ("source", "chip", "never fitted")


class Rows(NamedTuple):
    """Rows, and the processor seconds in which dse completes and predicts one."""

    rows: list[Row]
    seconds: float


def read(training: Sequence[Path], serving: Sequence[Path]) -> Rows:
    """All rows that are measured times, rates or latencies and that dse has an unseen error of.

    ``error`` is dse's, log(predicted / measured), ``way`` what was left out of the fit; ``row`` names file and
    line, of `tests/published` where the row is among those.
    """
    before = time.process_time()
    compared = [compare(tables) if tables else [] for tables in (training, serving)]
    seconds = time.process_time() - before
    found = _joined(compared[0], left_out.training(training)) if training else []
    found += _joined(compared[1], left_out.serving(serving)) if serving else []
    return Rows(found, seconds / max(sum(c.skip is None for part in compared for c in part), 1))


def published() -> list[Row]:
    """The rows of the project's own tables, without an error of dse's: its fits need more than these."""
    compared = compare(_tables())
    return [{**_row(c), "row": _name(c)} for c in compared if _is_measured_time(c)]


def _tables() -> list[Path]:
    return [table for table in sorted(PUBLISHED.glob("*.csv")) if table.name not in NOT_RUN]


def _joined(compared: Sequence[Comparison], unseen: Sequence[LeftOut]) -> list[Row]:
    errors: dict[tuple[str, int, str], tuple[int, float]] = {}
    for one in unseen:
        if one.by in _WAYS and one.figure != "memory":
            rank = _WAYS.index(one.by)
            if one.row not in errors or rank < errors[one.row][0]:
                errors[one.row] = rank, one.error
    carried = _published()
    return [
        {**_row(c), "row": carried.get(_what(c), _name(c)), "way": _WAYS[errors[key(c)][0]], "error": errors[key(c)][1]}
        for c in compared
        if key(c) in errors and _is_measured_time(c)
    ]


def _is_measured_time(c: Comparison) -> bool:
    """Whether a figure is a time, rate or latency that was measured: Calculon's are another model's."""
    served = engines.is_of_fit(c) and c.metric not in _ENERGY
    return not c.source.startswith("Calculon") and (is_timed(c) or served)


def _published() -> dict[tuple, str]:
    return {_what(c): _name(c) for c in compare(_tables()) if _is_measured_time(c)}


def _name(c: Comparison) -> str:
    return f"{c.measurement.row.file}:{c.measurement.row.line}"


def _what(c: Comparison) -> tuple:
    """A row by what was measured: the same in a table of the project and in a longer one."""
    cells = (c.measurement.row.get(name) for name in ("model", "case", "n_gpus", "global_batch", "precision"))
    return c.source, c.metric, c.measurement.value, *cells


def _format(word: str) -> str:
    """A source's word for a format as dse has it; a question mark is the table's, for what is assumed."""
    plain = word.lower().rstrip("?")
    return {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(plain, plain)


def _row(c: Comparison) -> Row:
    """A row as a design of plain numbers, its measured figure in SI: a step as a time, whatever the source states."""
    design, own = c.prediction.chosen, c.measurement.row
    timed = is_timed(c)
    simulated = own.get("iteration_ms_simumax")
    return {
        "kind": "training" if timed else "serving",
        "source": c.source,
        "model": own.get("model") or "",
        "chip": accelerator_of(own),
        "framework": own.get("framework") or "",
        "stated_precision": _format(own.get("precision")),
        "metric": "step_time" if timed else c.metric,
        "measured": step_time(c) if timed else c.measured,
        "parameters": c.prediction.metrics["parameters"],
        "simumax": float(simulated) / 1e3 if simulated else None,
        **_machine(design),
        **_model(design),
        **_mapping(design),
        **_requests(design),
    }


def _machine(design: Design) -> Row:
    accelerator = design.system.accelerator
    devices = float(design.system.n_devices)
    return {
        "peak": peak_rate(design) / devices,
        "bandwidth": float(accelerator.memory.bandwidth),
        "capacity": float(accelerator.memory.capacity),
        "devices": devices,
    }


def _model(design: Design) -> Row:
    workload, experts = design.workload, design.workload.experts
    names = (
        "n_layers",
        "hidden",
        "n_heads",
        "n_kv_heads",
        "head_dim",
        "ffn_hidden",
        "gated",
        "vocab",
        "tied_embeddings",
        "seq_len",
        "global_batch",
    )
    expert = ("n_experts", "top_k", "expert_ffn", "shared_ffn", "first_dense")
    return {
        **{name: float(getattr(workload, name)) for name in names},
        **{name: float(getattr(experts, name)) if experts is not None else 0.0 for name in expert},
        "kinds": [
            name
            for name in ("latent", "recurrent", "sparse", "adapters", "packing")
            if getattr(workload, name) is not None
        ]
        + (["windows"] if workload.local_layers else []),
    }


def _mapping(design: Design) -> Row:
    mapping = design.mapping
    names = ("tp", "pp", "cp", "dp", "micro_batch", "virtual_stages", "zero_stage", "sequence_parallel")
    return {
        **{name: float(getattr(mapping, name)) for name in names},
        "ep": float(mapping.experts.ep) if mapping.experts is not None else 1.0,
        "recompute": choice_name(Recompute(int(mapping.recompute))),
        "precision": choice_name(Precision(int(mapping.precision))),
        "cache_bytes": float(mapping.serving.cache_bytes) if mapping.serving is not None else 2.0,
        "weight_bytes": float(mapping.serving.weight_bytes) if mapping.serving is not None else 0.0,
    }


def _requests(design: Design) -> Row:
    requests = design.workload.requests
    if requests is None:
        return {}
    return {
        "isl": float(requests.prompt_tokens),
        "osl": float(requests.output_tokens),
        "concurrency": float(requests.concurrency),
        "load": choice_name(Load(int(requests.load))),
    }
