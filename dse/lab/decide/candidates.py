"""What a machine at hand could measure for a decision in minutes: kernels, collectives, steps and engines.

Each candidate has the effects of the decision's factors on what it would show, so that its worth follows without a run
(:mod:`dse.lab.decide.worth`), the line that measures it, and the row that ``dse calibrate`` reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.designs.leaves import leaf, replace
from dse.doors.study import Study
from dse.io.quantities import counted
from dse.lab.decide.worth import Candidate
from dse.measured.decisions.evidence import RUN
from dse.measured.uncertainty.kernel_times import OWN_ERROR, collective, kernel, moved_times
from dse.measured.uncertainty.posterior import Choice, Posterior, posterior
from dse.measured.uncertainty.spreads import Spreads
from dse.model.machine.technology import generated
from dse.tools import TOOLS, launch, measuring
from dse.tools.runs import stack_tool
from dse.types import (
    Design,
    Message,
    MessageKind,
    OperatorKind,
    Precision,
    Scalar,
    System,
    Work,
    choice_name,
)

#: Runs of designs, and shapes of each kind of kernel, at most.
_RUNS, _SHAPES = 12, 12


class Machine(NamedTuple):
    """What is at hand."""

    system: str  #: by its name in the catalogue
    accelerator: str
    devices: int


class Offer(NamedTuple):
    """A decision's posterior and what could be measured for it."""

    known: Posterior
    candidates: list[Candidate]


def offered(
    choices: Sequence[Choice], metric: str, study: Study, machine: Machine, further: Sequence[Choice] = ()
) -> Offer:
    """What a machine could measure for a decision.

    Args:
        choices: the designs to decide on.
        metric: what is decided by.
        study: the study of the designs.
        machine: what is at hand.
        further: designs of that machine, to be run in addition.
    """
    runs = [run for one in choices if one.accelerator == machine.accelerator and (run := reduced(one, machine.devices))]
    runs = _distinct([*runs, *further])[:_RUNS]
    both = posterior([*choices, *runs], metric, study)
    kept = {key: effect[: len(choices)] for key, effect in both.effects.items() if effect[: len(choices)].any()}
    known = both._replace(
        logs=both.logs[: len(choices)], effects=kept, choices=[*choices], spreads=both.spreads[: len(choices)]
    )
    found = [_run(both, len(choices) + i, run, known, study) for i, run in enumerate(runs)]
    at = next((i for i, one in enumerate(both.choices) if one.accelerator == machine.accelerator), None)
    if at is not None:
        found += kernels([*both.choices], both.spreads[at], known, machine, study)
    return Offer(known, found)


def reduced(choice: Choice, devices: int) -> Choice | None:
    """A design on fewer devices: fewer replicas of the same mapping; None where one replica needs more."""
    design = choice.design
    needs, replicas = float(design.system.n_devices), float(design.mapping.dp)
    if needs <= devices:
        return choice
    keeps = next((n for n in range(int(replicas), 0, -1) if replicas % n == 0 and needs * n / replicas <= devices), 0)
    if not keeps or (design.mapping.experts is not None and float(design.mapping.experts.ep) > keeps):
        return None
    share = keeps / replicas
    changed = {"system.n_devices": needs * share, "mapping.dp": float(keeps)}
    if design.workload.requests is None:
        changed["workload.global_batch"] = max(float(design.workload.global_batch) * share, 1.0)
    else:
        changed["workload.requests.concurrency"] = float(design.workload.requests.concurrency) * share
    if float(design.mapping.dp_replicate) > keeps:
        changed["mapping.dp_replicate"] = float(keeps)
    return choice._replace(name=f"{choice.name} on {counted(needs * share, 'device')}", design=replace(design, changed))


def _distinct(runs: Sequence[Choice]) -> list[Choice]:
    known: dict[Any, Choice] = {}
    for one in runs:
        known.setdefault((one.stack, *map(float, jax.tree.leaves(one.design))), one)
    return [*known.values()]


def _run(both: Posterior, place: int, run: Choice, known: Posterior, study: Study) -> Candidate:
    """A run of a design: what it shows of the decision's factors; its own error is noise."""
    same = next((i for i, one in enumerate(known.choices) if one is run), place)
    effects = {key: float(effect[same]) for key, effect in both.effects.items() if effect[same]}
    own = sum(effect**2 for key, effect in effects.items() if key not in known.effects)
    shared = {key: effect for key, effect in effects.items() if key in known.effects}
    line, row = _line_and_row(run, both.metric, study)
    return Candidate(
        f"run {run.name}",
        "run",
        shared,
        float(np.hypot(RUN, own**0.5)),
        float(np.exp(both.logs[place])),
        line,
        row,
        600.0,
    )


# Kernels and collectives


class _Shape(NamedTuple):
    """A kernel or collective of some designs."""

    kind: str
    name: str
    time: Callable[[System], Scalar]  #: seconds on a system
    line: str
    row: dict[str, str]


def kernels(
    choices: Sequence[Choice], spreads: Spreads, known: Posterior, machine: Machine, study: Study
) -> list[Candidate]:
    """The kernels and collectives of designs that a machine has.

    Args:
        choices: the designs.
        spreads: of the leaves of its system, as drawn.
        known: the posterior of the decision.
        machine: what is at hand.
        study: the study of the designs.
    """
    base = next(one.design for one in choices if one.accelerator == machine.accelerator)
    shapes = [shape for one in _by_shape(choices) for shape in _shapes(one.design, base, machine, study)]
    shapes = list({shape.name: shape for shape in shapes}.values())
    shapes = [one for kind in OWN_ERROR for one in [s for s in shapes if s.kind == kind][:_SHAPES]]
    own = {path: factors for path, factors in spreads.items() if path.startswith("system.")}
    if not shapes or not own:
        return []
    logs, slopes = moved_times(base, own, [shape.time for shape in shapes])
    found = []
    for i, shape in enumerate(shapes):
        effects = {key: float(slope[i]) for key, slope in slopes.items() if slope[i]}
        outside = sum(effect**2 for key, effect in effects.items() if key not in known.effects)
        noise = (OWN_ERROR[shape.kind] ** 2 + outside) ** 0.5
        effects = {key: effect for key, effect in effects.items() if key in known.effects}
        found.append(
            Candidate(shape.name, shape.kind, effects, noise, float(np.exp(logs[i])), shape.line, shape.row, 60.0)
        )
    return found


def _by_shape(choices: Sequence[Choice]) -> list[Choice]:
    """Designs whose kernels differ, the first few."""
    known: dict[Any, Choice] = {}
    for one in choices:
        m = one.design.mapping
        known.setdefault((one.model, float(m.tp), float(m.micro_batch), float(m.precision), float(m.cp)), one)
    return [*known.values()][:4]


#: Number formats as tables of kernels name them.
_DTYPES = {Precision.bf16: "bfloat16", Precision.fp16: "float16", Precision.fp8: "fp8", Precision.fp8_block: "fp8"}


def _shapes(design: Design, base: Design, machine: Machine, study: Study) -> Iterator[_Shape]:
    """Products, attention and collectives of a design, the largest first."""
    precision, serves = float(design.mapping.precision), study.name == "serving"
    inside = study.inside(generated(design))
    listed = [o for operators in inside.sections.values() for o in operators if float(o.present)]
    for o in sorted(listed, key=lambda o: -float(o.forward.flops)):
        work = jax.tree.map(float, o.forward)
        sizes = (work.rows, work.columns, work.depth)
        if not np.all(np.isfinite(sizes)):
            continue
        code = float(Precision.bf16) if o.kind is OperatorKind.matrix_16 else precision
        if o.kind in (OperatorKind.matrix, OperatorKind.matrix_16) and work.batch == 1.0 and min(sizes) > 1.0:
            if (dtype := _DTYPES.get(Precision(int(code)))) is not None:
                yield _product(work, code, dtype, machine, serves)
        elif o.kind in (OperatorKind.flash, OperatorKind.context) and design.workload.latent is None:
            yield _attention(design, work, o.kind, code, machine, serves)
    yield from _messages(inside.messages, base, machine)


def _product(work: Work, code: float, dtype: str, machine: Machine, serves: bool) -> _Shape:
    m, n, k = (f"{one:g}" for one in map(round, (work.rows, work.columns, work.depth)))
    row = {"system": machine.accelerator, "dtype": dtype, "m": m, "n": n, "k": k, "latency_ms": ""}
    line = measuring.gemm(float(m), float(n), float(k), dtype)
    return _Shape("gemm", f"GEMM {m} x {n} x {k}, {dtype}", kernel(OperatorKind.matrix, work, code, serves), line, row)


def _attention(design: Design, work: Work, kind: OperatorKind, code: float, machine: Machine, serves: bool) -> _Shape:
    w, tp = design.workload, float(design.mapping.tp)
    heads, groups = float(w.n_heads) / tp, max(float(w.n_kv_heads) / tp, 1.0)
    tokens, size = float(work.rows), float(w.head_dim)
    batch = max(float(work.batch) / heads, 1.0)
    shape = {
        "batch_size": batch,
        "isl": tokens,
        "step": 0.0,
        "num_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": size,
    }
    row = {
        "system": machine.accelerator,
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16",
        **{name: f"{round(one):g}" for name, one in shape.items()},
        "latency_ms": "",
    }
    name = f"attention of {batch:g} x {counted(tokens, 'token')}, {counted(heads, 'head')} of {size:g}"
    line = measuring.attention(batch, tokens, heads, groups, size)
    return _Shape("attention", name, kernel(kind, work, code, serves), line, row)


def _messages(messages: Sequence[Message], base: Design, machine: Machine) -> Iterator[_Shape]:
    """Collectives of the groups that fit on the machine and in a domain of it."""
    most = min(float(machine.devices), float(base.system.scale_up.domain))
    for name, kind, members, size in _sent(messages):
        members = min(members, most)
        if members > 1.0 and size > 1.0:
            row = {
                "system": machine.accelerator,
                "dtype": "bfloat16",
                "collective": name,
                "num_gpus": f"{members:g}",
                "bytes": f"{round(size):g}",
                "latency_ms": "",
            }
            yield _Shape(
                "collective",
                f"{name.replace('_', ' ')} of {_bytes(size)} among {members:g} devices",
                collective(kind, size, members),
                measuring.collective(name, size, members),
                row,
            )


def _bytes(size: float) -> str:
    return f"{size / 2**20:.3g} MiB" if size >= 2**20 else f"{size / 2**10:.3g} KiB"


#: Collectives by their names in tables.
_COLLECTIVES: dict[MessageKind, str] = {
    MessageKind.all_reduce: "all_reduce",
    MessageKind.all_gather: "all_gather",
    MessageKind.reduce_scatter: "reduce_scatter",
    MessageKind.all_to_all: "alltoall",
}


def _sent(messages: Sequence[Message]) -> Iterator[tuple[str, MessageKind, float, float]]:
    """Collective, kind, members and bytes of what a device sends, as the model has it."""
    for one in messages:
        if float(one.times) > 0.0 and (name := _COLLECTIVES.get(one.kind)):
            yield name, one.kind, float(one.group.size), float((one.size + one.inter_domain) / one.pieces)


# Runs as lines and rows

#: Metric of serving → (metric, unit) of tables, and by which its value in SI is multiplied.
SERVED = {
    "time_per_output_token": ("tpot", "ms", 1e3), "time_to_first_token": ("ttft", "ms", 1e3),
    "output_tokens_per_second": ("output_throughput_total", "token/s", 1.0),
    "request_latency": ("latency_total", "s", 1.0),
}  # fmt: skip


def _line_and_row(run: Choice, metric: str, study: Study) -> tuple[str, dict[str, str]]:
    design, usual = run.design, next(tool for tool in TOOLS.values() if tool.study == study.name)
    tool = (stack_tool(run.stack, study.name) or usual).name
    started = launch(design, tool, study, run.model, run.stack, system=run.system)
    line = started.text + measuring.TEN_STEPS.get(tool, "")
    m, w = design.mapping, design.workload
    row = {
        "source": "own", "model": run.model, "gpu": run.accelerator, "system": run.system,
        "software": run.stack, "n_gpus": _text(design.system.n_devices), "tp": _text(m.tp), "pp": _text(m.pp),
        "dp": _text(m.dp), "precision": choice_name(Precision(int(m.precision))),
    }  # fmt: skip
    if m.experts is not None:
        row["ep"] = _text(m.experts.ep)
    if w.requests is not None:
        name, unit, _ = SERVED.get(metric, SERVED["time_per_output_token"])
        row |= {
            "isl": _text(w.requests.prompt_tokens),
            "osl": _text(w.requests.output_tokens),
            "batch": _text(w.requests.concurrency),
            "batch_kind": "concurrency",
            "metric": name,
            "value": "",
            "unit": unit,
        }
        return f"{line} &\n{measuring.client(w.requests)}", row
    return line, row | {
        "cp": _text(m.cp),
        "seq_len": _text(w.seq_len),
        "global_batch": _text(w.global_batch),
        "micro_batch": _text(m.micro_batch),
        "virtual_stages": _text(m.virtual_stages),
        "recompute": _enum("mapping.recompute", design),
        "zero_stage": _text(m.zero_stage),
        "sequence_parallel": _text(m.sequence_parallel),
        "iteration_ms_measured": "",
    }


def _text(value: Any) -> str:
    return f"{float(value):.12g}"


def _enum(path: str, design: Design) -> str:
    from dse.designs.leaves import known_leaves

    enum = known_leaves()[path]["enum"]
    return choice_name(enum(int(leaf(design, path)))).replace("-", "_")
