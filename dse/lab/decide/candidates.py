"""What a machine at hand could measure for a decision in minutes: kernels, collectives, steps and engines.

Each candidate has the effects of the decision's factors on what it would show, so that its worth follows without a run
(:mod:`dse.lab.decide.worth`), the line that measures it, and the row that ``dse calibrate`` reads back.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.designs import leaf, leaves_of, replace
from dse.doors import Study
from dse.equations import ScalarFunction
from dse.io import counted
from dse.lab.decide.worth import MeasurementCandidate
from dse.measured.decisions.evidence import RUN_DEVIATION
from dse.measured.uncertainty.kernel_times import (
    MODEL_ERROR,
    TimedKernel,
    perturbed_times,
    timed_collective,
    timed_kernel,
)
from dse.measured.uncertainty.posterior import Choice, Posterior, posterior
from dse.measured.uncertainty.spreads import Spreads
from dse.model import generated
from dse.tools import TOOLS, launch, measuring
from dse.tools.runs import stack_tool
from dse.types import Design, MessageKind, OperatorKind, Precision, Recompute, Work, choice_name

#: Runs of designs, shapes of each kind of kernel, and designs whose kernels differ, at most.
_MAX_RUNS, _MAX_CASES, _MAX_KERNEL_DESIGNS = 12, 12, 4


class Machine(NamedTuple):
    """The machine at hand."""

    system: str  #: by its name in the catalogue
    accelerator: str
    devices: int


class MeasurementOffer(NamedTuple):
    """A decision's posterior, and the measurements that a machine could make for it."""

    posterior: Posterior
    candidates: list[MeasurementCandidate]


def measurement_offer(
    choices: Sequence[Choice], metric: str, study: Study, machine: Machine, extra_designs: Sequence[Choice] = ()
) -> MeasurementOffer:
    """Return the measurements that a machine could make for a decision, with the decision's posterior.

    Args:
        choices: the designs to decide on.
        metric: what is decided by.
        study: the study of the designs.
        machine: what is at hand.
        extra_designs: designs of that machine, to be run in addition.

    Returns:
        The posterior of the decision, and runs and kernels on the machine with their effects on its factors.
    """
    at_hand = [on_fewer_devices(c, machine.devices) for c in choices if c.accelerator == machine.accelerator]
    runs = _first_by(_numbers, [*filter(None, at_hand), *extra_designs])[:_MAX_RUNS]
    joint = posterior([*choices, *runs], metric, study)
    effects = {key: effect[: len(choices)] for key, effect in joint.effects.items() if effect[: len(choices)].any()}
    decision = joint._replace(
        logs=joint.logs[: len(choices)], effects=effects, choices=[*choices], spreads=joint.spreads[: len(choices)]
    )
    candidates = [_run_candidate(joint, len(choices) + i, run, decision, study) for i, run in enumerate(runs)]
    index = next((i for i, choice in enumerate(joint.choices) if choice.accelerator == machine.accelerator), None)
    if index is not None:
        candidates += kernels([*joint.choices], joint.spreads[index], decision, machine, study)
    return MeasurementOffer(decision, candidates)


def on_fewer_devices(choice: Choice, devices: int) -> Choice | None:
    """Return a design with fewer replicas of the same mapping, itself where it fits, None where no such one does.

    Args:
        choice: design with its names.
        devices: count of devices at hand.
    """
    design = choice.design
    design_devices, replicas = float(design.system.n_devices), float(design.mapping.dp)
    if design_devices <= devices:
        return choice
    n_replicas = next(
        (n for n in range(int(replicas), 0, -1) if replicas % n == 0 and design_devices * n / replicas <= devices), 0
    )
    if not n_replicas or (design.mapping.experts is not None and float(design.mapping.experts.ep) > n_replicas):
        return None
    share = n_replicas / replicas
    leaves = {"system.n_devices": design_devices * share, "mapping.dp": float(n_replicas)}
    if design.workload.requests is None:
        leaves["workload.global_batch"] = max(float(design.workload.global_batch) * share, 1.0)
    else:
        leaves["workload.requests.concurrency"] = float(design.workload.requests.concurrency) * share
    if float(design.mapping.dp_replicate) > n_replicas:
        leaves["mapping.dp_replicate"] = float(n_replicas)
    return choice._replace(
        name=f"{choice.name} on {counted(design_devices * share, 'device')}", design=replace(design, leaves)
    )


def _first_by(key: Callable[[Choice], Any], choices: Sequence[Choice]) -> list[Choice]:
    """Return the first design of each key."""
    first_by_key: dict[Any, Choice] = {}
    for choice in choices:
        first_by_key.setdefault(key(choice), choice)
    return [*first_by_key.values()]


def _numbers(choice: Choice) -> tuple[Any, ...]:
    """Return the stack and all numbers of a design."""
    return choice.stack, *map(float, jax.tree.leaves(choice.design))


def _kernel_sizes(choice: Choice) -> tuple[Any, ...]:
    """Return what designs with the same kernels share."""
    m = choice.design.mapping
    return choice.model, float(m.tp), float(m.micro_batch), float(m.precision), float(m.cp)


def _shared_effects(
    effects: Mapping[str, float], deviation: float, decision: Posterior
) -> tuple[dict[str, float], float]:
    """Return the effects of factors of a decision on a measurement, and its noise: its own and that of other factors.

    Args:
        effects: of all factors.
        deviation: standard deviation of its own error.
        decision: the posterior of the decision.
    """
    shared = {key: effect for key, effect in effects.items() if effect and key in decision.effects}
    unshared = (effect for key, effect in effects.items() if key not in decision.effects)
    return shared, math.hypot(deviation, *unshared)


def _run_candidate(
    joint: Posterior, index: int, run: Choice, decision: Posterior, study: Study
) -> MeasurementCandidate:
    """Return a run of a design, at an index of the joint posterior, as a measurement, whose own error is noise."""
    same_index = next((i for i, choice in enumerate(decision.choices) if choice is run), index)
    effects = {key: float(effect[same_index]) for key, effect in joint.effects.items()}
    predicted = float(np.exp(joint.logs[index]))
    measured = _shared_effects(effects, RUN_DEVIATION, decision)
    return MeasurementCandidate(
        f"run {run.name}", "run", *measured, predicted, *_command_and_row(run, joint.metric, study), 600.0
    )


# Kernels and collectives


class _KernelCase(NamedTuple):
    """A kernel or collective of some designs, of one size."""

    kind: str
    name: str
    timed: TimedKernel
    line: str
    row: dict[str, str]


def kernels(
    choices: Sequence[Choice], spreads: Spreads, decision: Posterior, machine: Machine, study: Study
) -> list[MeasurementCandidate]:
    """Return the kernels and collectives of designs, on the machine at hand, as measurements; empty for none.

    Args:
        choices: the designs.
        spreads: of the leaves of its system, as drawn.
        decision: the posterior of the decision.
        machine: what is at hand.
        study: the study of the designs.
    """
    base = next(choice.design for choice in choices if choice.accelerator == machine.accelerator)
    designs = [choice.design for choice in _first_by(_kernel_sizes, choices)[:_MAX_KERNEL_DESIGNS]]
    by_name = {case.name: case for design in designs for case in _kernel_cases(design, base, machine, study)}
    cases = [case for kind in MODEL_ERROR for case in [s for s in by_name.values() if s.kind == kind][:_MAX_CASES]]
    system_spreads = {path: factors for path, factors in spreads.items() if path.startswith("system.")}
    if not cases or not system_spreads:
        return []
    logs, slopes = perturbed_times(base, system_spreads, [case.timed for case in cases])
    candidates = []
    for i, case in enumerate(cases):
        effects = {key: float(slope[i]) for key, slope in slopes.items()}
        measured = _shared_effects(effects, MODEL_ERROR[case.kind], decision)
        predicted = float(np.exp(logs[i]))
        candidates.append(MeasurementCandidate(case.name, case.kind, *measured, predicted, case.line, case.row, 60.0))
    return candidates


#: Number formats as tables of kernels name them.
_DTYPES = {Precision.bf16: "bfloat16", Precision.fp16: "float16", Precision.fp8: "fp8", Precision.fp8_block: "fp8"}


def _kernel_cases(design: Design, base: Design, machine: Machine, study: Study) -> Iterator[_KernelCase]:
    """Yield the matrix products and attention of a design, the largest first, then its collectives."""
    precision, serves = float(design.mapping.precision), study.name == "serving"
    (operators, messages), (operator_kinds, message_kinds) = _ledger(study)(design)
    present_operators = [
        (kind, jax.tree.map(float, work))
        for kind, (present, work) in zip(operator_kinds, operators, strict=True)
        if float(present)
    ]
    for operator_kind, work in sorted(present_operators, key=lambda operator: -operator[1].flops):
        sizes = (work.rows, work.columns, work.depth)
        if not np.all(np.isfinite(sizes)):
            continue
        code = float(Precision.bf16) if operator_kind is OperatorKind.matrix_16 else precision
        if operator_kind in (OperatorKind.matrix, OperatorKind.matrix_16) and work.batch == 1.0 and min(sizes) > 1.0:
            if (dtype := _DTYPES.get(Precision(int(code)))) is not None:
                yield _product_case(work, code, dtype, machine, serves)
        elif operator_kind in (OperatorKind.flash, OperatorKind.context) and design.workload.latent is None:
            yield _attention_case(design, work, operator_kind, code, machine, serves)
    yield from _collective_cases(message_kinds, messages, base, machine)


@functools.cache
def _ledger(study: Study) -> ScalarFunction:
    """Return the function of a design that gives its operators and messages as numbers, and their kinds.

    Operators are (present, work of the forward), messages (times, members of the group, bytes of a piece).
    """

    def ledger(design: Design) -> tuple[Any, Any]:
        step = study.breakdown(generated(design))
        operators = [o for operators in step.sections.values() for o in operators]
        sizes = [
            (message.times, message.group.size, (message.size + message.inter_domain) / message.pieces)
            for message in step.messages
        ]
        kinds = [o.kind for o in operators], [message.kind for message in step.messages]
        return ([(o.present, o.forward) for o in operators], sizes), kinds

    return ScalarFunction(ledger, f"kernels of {study.name}" if study.is_builtin else None)


def _product_case(work: Work, code: float, dtype: str, machine: Machine, serves: bool) -> _KernelCase:
    """Return a matrix product as a case; ``code`` and ``dtype``: its number format, and as tables name it."""
    m, n, k = (f"{size:g}" for size in map(round, (work.rows, work.columns, work.depth)))
    row = {"system": machine.accelerator, "dtype": dtype, "m": m, "n": n, "k": k, "latency_ms": ""}
    line = measuring.gemm(float(m), float(n), float(k), dtype)
    return _KernelCase(
        "gemm", f"GEMM {m} x {n} x {k}, {dtype}", timed_kernel(OperatorKind.matrix, work, code, serves), line, row
    )


def _attention_case(
    design: Design, work: Work, kind: OperatorKind, code: float, machine: Machine, serves: bool
) -> _KernelCase:
    """Return an attention operator as a case."""
    w, tp = design.workload, float(design.mapping.tp)
    heads, groups = float(w.n_heads) / tp, max(float(w.n_kv_heads) / tp, 1.0)
    tokens, size = float(work.rows), float(w.head_dim)
    batch = max(float(work.batch) / heads, 1.0)
    shape = {"batch_size": batch, "isl": tokens, "step": 0.0, "num_heads": heads, "num_key_value_heads": groups}
    row = {"system": machine.accelerator, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    row |= {name: f"{round(value):g}" for name, value in (shape | {"head_dim": size}).items()} | {"latency_ms": ""}
    name = f"attention of {batch:g} x {counted(tokens, 'token')}, {counted(heads, 'head')} of {size:g}"
    line = measuring.attention(batch, tokens, heads, groups, size)
    return _KernelCase("attention", name, timed_kernel(kind, work, code, serves), line, row)


def _collective_cases(
    kinds: Sequence[MessageKind], messages: Sequence[Sequence[Any]], base: Design, machine: Machine
) -> Iterator[_KernelCase]:
    """Yield the collectives whose groups fit on the machine and in a domain of it; messages as of :func:`_ledger`."""
    max_members = min(float(machine.devices), float(base.system.scale_up.domain))
    for kind, numbers in zip(kinds, messages, strict=True):
        times, members, size = map(float, numbers)
        name, members = _COLLECTIVES.get(kind, ""), min(members, max_members)
        if name and times > 0.0 and members > 1.0 and size > 1.0:
            size_text = f"{size / 2**20:.3g} MiB" if size >= 2**20 else f"{size / 2**10:.3g} KiB"
            text = f"{name.replace('_', ' ')} of {size_text} among {members:g} devices"
            row = {"system": machine.accelerator, "dtype": "bfloat16", "collective": name}
            row |= {"num_gpus": f"{members:g}", "bytes": f"{round(size):g}", "latency_ms": ""}
            line = measuring.collective(name, size, members)
            yield _KernelCase("collective", text, timed_collective(kind, size, members), line, row)


#: Collectives by their names in tables.
_COLLECTIVES: dict[MessageKind, str] = {
    MessageKind.all_reduce: "all_reduce",
    MessageKind.all_gather: "all_gather",
    MessageKind.reduce_scatter: "reduce_scatter",
    MessageKind.all_to_all: "alltoall",
}


# Runs as lines and rows

#: Metric of serving → (metric, unit) of tables, and by which its value in SI is multiplied.
SERVING_METRICS = {
    "time_per_output_token": ("tpot", "ms", 1e3), "time_to_first_token": ("ttft", "ms", 1e3),
    "output_tokens_per_second": ("output_throughput_total", "token/s", 1.0),
    "request_latency": ("latency_total", "s", 1.0),
}  # fmt: skip


def _command_and_row(run: Choice, metric: str, study: Study) -> tuple[str, dict[str, str]]:
    """Return the command of a run, and its row of the table of measurements: column → text, "" for the figure."""
    design, default_tool = run.design, next(tool for tool in TOOLS.values() if tool.study == study.name)
    tool = (stack_tool(run.stack, study.name) or default_tool).name
    command = launch(design, tool, study, run.model, run.stack, system=run.system)
    line = command.text + measuring.TEN_STEPS.get(tool, "")
    row = {"source": "own", "model": run.model, "gpu": run.accelerator, "system": run.system, "software": run.stack}
    row |= _cells(_COLUMNS, design)
    if (requests := design.workload.requests) is None:
        return line, row | _cells(_TRAINING_COLUMNS, design) | {"iteration_ms_measured": ""}
    name, unit, _ = SERVING_METRICS.get(metric, SERVING_METRICS["time_per_output_token"])
    row |= _cells(_SERVING_COLUMNS, design) | {"batch_kind": "concurrency", "metric": name, "value": "", "unit": unit}
    return f"{line} &\n{measuring.client(requests)}", row


#: Column of a row of a run → leaf: of every run, of training steps and of serving.
_COLUMNS = {
    "n_gpus": "system.n_devices", "tp": "mapping.tp", "pp": "mapping.pp", "dp": "mapping.dp",
    "precision": "mapping.precision", "ep": "mapping.experts.ep",
}  # fmt: skip
_TRAINING_COLUMNS = {
    "cp": "mapping.cp", "seq_len": "workload.seq_len", "global_batch": "workload.global_batch",
    "micro_batch": "mapping.micro_batch", "virtual_stages": "mapping.virtual_stages", "recompute": "mapping.recompute",
    "zero_stage": "mapping.zero_stage", "sequence_parallel": "mapping.sequence_parallel",
}  # fmt: skip
_SERVING_COLUMNS = {
    "isl": "workload.requests.prompt_tokens", "osl": "workload.requests.output_tokens",
    "batch": "workload.requests.concurrency",
}  # fmt: skip


def _cells(columns: Mapping[str, str], design: Design) -> dict[str, str]:
    """Return column → text of the leaves that a design has: numbers, and names of choices as tables write them."""
    values = {name: float(leaf(design, path)) for name, path in columns.items() if path in leaves_of(design)}
    names = {
        "precision": lambda code: choice_name(Precision(int(code))),
        "recompute": lambda code: choice_name(Recompute(int(code))).replace("-", "_"),
    }
    return {name: names.get(name, "{:.12g}".format)(value) for name, value in values.items()}
