"""One row of measured serving as a design, by the conventions of its source.

Sources differ in what they measure: lengths drawn below their nominal values, prompts that arrive together, concurrent
sequences rather than their limit. Each convention is stated here once, limits that ``trtllm-bench`` gives an engine
where its user states none included.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.io import counted
from dse.measured import rules
from dse.measured.cells import Cells
from dse.measured.completion import Candidates, accelerator_slug, unknown_model_skip
from dse.measured.mappings import PRECISIONS, precision_code
from dse.measured.names import NEAREST, Lookup
from dse.measured.table import DEVICE_COLUMNS, Case, Row, Skip
from dse.tools.runs import has_slices
from dse.types import (
    AllToAll,
    Design,
    ExpertMapping,
    Load,
    Mapping,
    Precision,
    Requests,
    Serving,
    Slices,
    Software,
)
from dse.types.choices import WEIGHTS_ALONE
from dse.types.paths import build

#: Step between sizes of captured graphs up to four of it, beyond powers of two (``llm_options.yml``, release 1.0).
_GRAPH_STEP = 128.0

#: Assumed maximum share of memory for weights, of mappings that no row lists.
_WEIGHTS_SHARE = 0.62

#: Drafts of rows with multi-token prediction, and their acceptance: 2.3 tokens per step.
_DRAFTS, _ACCEPTANCE = 3.0, 0.63

#: Options of training, which serving has none of.
_UNUSED_OPTIONS: dict[str, Any] = dict.fromkeys(
    ("cp", "micro_batch", "virtual_stages", "recompute_share"), 1.0
) | dict.fromkeys(("recompute", "sequence_parallel", "zero_stage", "overlap_dp", "overlap_tp", "placement"), 0.0)


def has_energy(row: Row) -> bool:
    """Return True for a serving row of an energy table."""
    return row.source.startswith("ML.ENERGY")


def complete_row(row: Row, lookup: Lookup, has_equal_row: bool | None = None) -> Candidates:
    """Return the design of a row as candidates with one mapping, or raise Skip.

    ``has_equal_row``: True where a row of DeepSeek-R1 has an equal row of DeepSeek-V3.

    Both have the same shape: an equal row counts once, and a different one drafts tokens.
    """
    rules.skip_if_excluded(row, "serving")
    if has_equal_row:
        raise Skip("counted once", "an equal row is listed as DeepSeek-V3")
    cells = Cells(row)
    slug = lookup.resolve("workload", cells.text("model", "workload"))
    if not slug:
        raise unknown_model_skip(cells, lookup)
    stack, workload, system = _stack(cells, lookup), lookup.workload(slug), _system(cells, lookup)
    software = lookup.software(stack)
    engine, is_mixture = software.engine, workload.experts is not None
    n_devices, tp, pp, dp = _degrees(cells)
    ep, etp = cells.count("ep") or 1.0, cells.count("etp")
    if cells.convention("mapping") and not cells.text("tp"):
        etp = 1.0
        tp, dp, ep = _fewest_devices(cells, is_mixture, float(system.accelerator.memory.capacity), n_devices)
    system = dataclasses.replace(system, n_devices=n_devices)
    if cells.convention("energy"):
        system = dataclasses.replace(system, host_power=0.0, pue=1.0)
    requests = _requests(cells)
    precision, expert_bytes, weight_bytes = _formats(cells, is_mixture)
    if engine is None:
        raise Skip("stack that does not serve", f"{stack} has no [engine]")
    is_4_bit = expert_bytes > 0.0 or precision == Precision.fp4
    is_8_bit = precision in (Precision.fp8, Precision.fp8_block) and bool(cells.convention("cache"))
    row_settings = {"cache_bytes": 1.0 if is_4_bit or is_8_bit else 2.0}
    if admission_steps := cells.convention("admission_steps"):
        row_settings["admission_steps"] = float(admission_steps)
    if cells.convention("chunk"):  # one prompt mixed into decode steps
        row_settings["chunk"] = (cells.number("isl") or 1.0) + (cells.number("batch", "concurrency") or 1.0)
    if has_equal_row is False:
        drafts = cells.number("drafts", least=0.0)
        drafts = cells.complete("drafts", _DRAFTS) if drafts is None else drafts
        row_settings |= {"drafts": drafts, "acceptance": _ACCEPTANCE}
    row_settings |= _settings(cells, float(engine.runtime_memory / system.accelerator.memory.capacity))
    serving = dataclasses.replace(
        build(Serving, lookup.serving_defaults(stack)),
        expert_bytes=expert_bytes,
        weight_bytes=weight_bytes,
        **row_settings,
    )
    is_engine_limit = cells.text("batch_kind") == "max_num_seqs"  # above the concurrency
    engine = dataclasses.replace(
        engine,
        most_sequences=cells.number("most_sequences")
        or max(engine.most_sequences, requests.concurrency if is_engine_limit else 0.0),
        request_time=float(engine.request_time) * client_slowdown(row),
        graph_tokens=cells.number("graph_tokens") or float(engine.graph_tokens),
    )
    software, experts, slices = dataclasses.replace(software, engine=engine), None, None
    if is_mixture:
        experts = _experts(cells, tp, dp, ep, etp)
        slices = _slices(stack, tp * dp) if dp > 1.0 and experts.ep * experts.etp > tp else None
        software = dataclasses.replace(software, experts=lookup.expert_kernels(stack))
    mapping = Mapping(
        tp=tp, pp=pp, dp=dp, precision=precision, experts=experts, serving=serving, slices=slices, **_UNUSED_OPTIONS
    )
    if cells.convention("windows"):
        workload = dataclasses.replace(workload, local_layers=0.0)
    workload = dataclasses.replace(workload, requests=requests)
    if bench := cells.convention("bench"):
        design = Design(workload=workload, system=system, software=software, mapping=mapping)
        mapping, software = _apply_bench_limits(cells, design, bench == "uncut prompts")
    is_nearest_stack = not row.get("software") and lookup.is_nearest(stack, row.source, row.get("framework"))
    note = NEAREST if is_nearest_stack else ""
    return Candidates(workload, system, software, (mapping,), cells.completed, stack, note)


def _apply_bench_limits(cells: Cells, design: Design, has_uncut_prompts: bool) -> tuple[Mapping, Software]:
    """Return mapping and stack with ``trtllm-bench``'s limits, to which 4-bit weights are half a byte each."""
    serving, engine = design.mapping.serving, design.software.engine
    assert serving is not None and engine is not None, "of a row of serving"
    bytes_per_weight = {"fp4": 0.5, "fp8": 1.0}.get(cells.text("precision").lower(), 2.0)
    engine_limits = bench_limits(design, bytes_per_weight * 1e9 * (cells.number("params_B") or 0.0), has_uncut_prompts)
    serving = dataclasses.replace(
        serving,
        chunk=engine_limits.tokens,
        whole_prompts=1.0 if has_uncut_prompts else None,
        graph_step=_GRAPH_STEP if has_uncut_prompts else None,
    )
    engine = dataclasses.replace(engine, most_sequences=engine_limits.sequences)
    return dataclasses.replace(design.mapping, serving=serving), dataclasses.replace(design.software, engine=engine)


def _settings(cells: Cells, runtime_share: float) -> dict[str, float]:
    """Return field → what a row states of share of memory, bytes of the cache's numbers and limits, where it does.

    The share of memory is of all, or of weights and cache without the ``runtime_share``.

    Raises:
        Skip: for a share above 1.
    """
    settings = {name: cells.number(name) for name in ("memory_share", "cache_bytes", "chunk")}
    if static_share := cells.number("static_share"):
        settings["memory_share"] = min(static_share + runtime_share, 1.0)
    if (settings["memory_share"] or 0.0) > 1.0 or (static_share or 0.0) > 1.0:
        raise Skip("not a usable number", f"memory_share = {settings['memory_share']:g}")
    settings |= {name: cells.flag(name) for name in ("whole_prompts", "reserved_answer")}
    return {name: value for name, value in settings.items() if value is not None}


def client_slowdown(row: Row) -> float:
    """Return the time of a request outside the engine over that of a client on a host of its own, 1 by default."""
    return float(row.get("client_slowdown") or rules.source_value(row, "stated", "client_slowdown") or 1.0)


def _system(cells: Cells, lookup: Lookup) -> Any:
    """Return the system of a row, as named or of its accelerator, or raise Skip."""
    device, system_name = cells.text(*DEVICE_COLUMNS), cells.text("system")
    if not device and not system_name:
        raise Skip("no device stated", f"in none of the columns {', '.join(DEVICE_COLUMNS)}, system")
    try:
        return lookup.system(system_name or accelerator_slug(cells, lookup))
    except InputError as error:
        raise Skip("device not in the catalogue", str(error.got)) from None


def _stack(cells: Cells, lookup: Lookup) -> str:
    """Return the slug of the engine: as named, else by source, else by the framework's name or its first word.

    Where an engine that states no vendor was not named, that of its tool for the chip's vendor is taken.
    """
    software_name, framework = cells.text("software"), cells.text("framework")
    if software_name:
        return lookup.resolve("software", software_name) or software_name
    chip = cells.text("system") or lookup.resolve("accelerator", cells.text(*DEVICE_COLUMNS))
    chip = chip if lookup.resolve("system", chip) or lookup.resolve("accelerator", chip) else ""
    stack = lookup.slug_of_source("software", cells.row.source, note=framework, chip=chip)
    names = [framework, framework.split(" ")[0]] if framework else []
    stack = stack or next((slug for name in names if (slug := lookup.resolve("software", name))), "")
    if not stack and framework:
        raise Skip("framework not in the catalogue", lookup.suggestion("software", framework))
    stack = stack or cells.complete("software", "vllm")
    return lookup.engine_of_vendor(stack, chip) if chip else stack


def _degrees(cells: Cells) -> tuple[float, float, float, float]:
    """Return (devices, tp, pp, data-parallel ranks of attention), or raise Skip where tp pp does not divide devices.

    With tp and dp of 1 on several devices, only the experts are stated, and attention is split over the devices.
    """
    tp, pp, dp, n_devices = (cells.count(name) for name in ("tp", "pp", "dp", "n_gpus"))
    pp = pp or 1.0
    if n_devices is None:
        n_devices = (tp or 1.0) * pp * (dp or 1.0)
    if tp is None or (tp == 1.0 and dp == 1.0 and pp == 1.0 and n_devices > 1.0):
        tp = cells.complete("tp", n_devices / (pp * (dp or 1.0)))
    dp = dp if dp and dp * tp * pp == n_devices else n_devices / (tp * pp)
    if dp != int(dp):
        raise Skip("tp x pp does not divide the devices", f"{tp:g} x {pp:g} of {counted(n_devices, 'device')}")
    return n_devices, tp, pp, dp


def _fewest_devices(cells: Cells, is_mixture: bool, capacity_bytes: float, n_devices: float) -> tuple[float, ...]:
    """Return (tp, dp, ep) of rows that list no mapping: as few devices as hold the weights.

    A mixture that one device does not hold has attention of its own on each device, and experts over all.
    """
    weight_bytes = (
        1e9 * (cells.number("params_B") or 0.0) * (0.5625 if "fp4" in cells.text("precision").lower() else 1.0)
    )
    tp = next((n for n in (1.0, 2.0, 4.0, 8.0, 16.0) if weight_bytes <= _WEIGHTS_SHARE * n * capacity_bytes), n_devices)
    if is_mixture and tp > 1.0:
        return cells.complete("tp", 1.0), n_devices, n_devices
    return cells.complete("tp", tp), n_devices / tp, tp


def _experts(cells: Cells, tp: float, dp: float, ep: float, etp: float | None) -> ExpertMapping:
    """Return the mapping of experts over ``ep`` ranks at most; without ``etp`` the remaining ranks split each expert.

    Engines gather the tokens of ranks with attention of their own unless told otherwise.
    """
    ep = min(ep, tp * dp)
    return ExpertMapping(
        ep=ep,
        etp=etp or tp * dp / ep,
        dispatch_precision=float(Precision[cells.convention("dispatch") or "bf16"]),
        all_to_all=float(AllToAll.gather if dp > 1.0 else AllToAll.pairwise),
    )


def _slices(stack: str, ranks: float) -> Slices | None:
    """Return the slices that a stack has over the ranks of attention unless told otherwise, None for whole parts."""
    return Slices(dense_tp=ranks, shared_tp=ranks, head_tp=ranks) if has_slices(stack) else None


def _formats(cells: Cells, is_mixture: bool) -> tuple[float, float, float]:
    """Return (precision code, bytes per expert weight, bytes per weight), the latter two 0 without their own format.

    4-bit checkpoints of mixtures quantise their experts; other weights of NVFP4 ones count as 8 bits, a mean over
    releases with attention in 16 bits and without.
    """
    text = cells.text("precision").lower().rstrip("?")
    bytes_by_format = {"fp4": 0.5625, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.53125, "uint4": 0.53125}
    if text in bytes_by_format and (is_mixture or text not in PRECISIONS):
        recipe = Precision.bf16 if text == "mxfp4" or cells.convention("recipe") else Precision.fp8
        return float(recipe), bytes_by_format[text] if is_mixture else 0.0, 0.0
    if text in WEIGHTS_ALONE:
        return float(Precision.bf16), 0.0, WEIGHTS_ALONE[text]
    return precision_code(cells), 0.0, 0.0


def _requests(cells: Cells) -> Requests:
    """Return the requests of a row by the conventions of its source, or raise Skip without lengths or concurrency."""
    batch = cells.number("batch", "concurrency")
    prompt_tokens, output_tokens = cells.number("isl", least=0.5), cells.number("osl", least=0.5)
    if running_match := re.search(r"mean running batch ([\d.]+)", cells.text("note")):
        batch = cells.complete("batch", float(running_match[1]))
    if prompt_tokens is None:
        raise Skip("no length of prompts stated")
    if output_tokens is None:
        raise Skip("no length of answers stated")
    load = Load[cells.convention("load") or "concurrency"]
    if batch is None and load is not Load.offline:
        raise Skip("no concurrency stated")
    length_share = float(cells.convention("length_share") or 1.0)
    return Requests(
        prompt_tokens=length_share * prompt_tokens,
        output_tokens=max(length_share * output_tokens, 1.0),
        concurrency=batch or 1.0,
        load=float(load),
        burst=float(cells.convention("burst") or 0.0),
        queue=cells.number("queue") or 0.0,
        longest_answer=cells.number("longest_answer") or 0.0,
        sampled=1.0 if cells.flag("sampled") else None,
    )


# DeepSeek-R1 and -V3


def deepseek_r1_duplicates(cases: Sequence[Case]) -> dict[int, bool]:
    """Return ``id`` of InferenceX's DeepSeek-R1 case → True where a DeepSeek-V3 case has equal figures."""
    deepseek_cases = [
        c for c in cases if c.source.startswith("InferenceX") and "listed as deepseek-ai/" in c.row.get("note")
    ]
    r1_cases = [c for c in deepseek_cases if "DeepSeek-R1" in c.row.get("note")]
    v3_keys = {_figures_key(c) for c in deepseek_cases if "DeepSeek-R1" not in c.row.get("note")}
    return {id(c): _figures_key(c) in v3_keys for c in r1_cases}


def _figures_key(case: Case) -> tuple[str, ...]:
    """Return the configuration and the figures, to four digits, by which cases are equal."""
    names = ("gpu", "n_gpus", "tp", "ep", "dp", "precision", "batch", "isl", "osl")
    figures = sorted(f"{m.name} {m.value:.4g}" for m in case.measurements)
    return (*map(case.row.get, names), *figures)


#: Share of the free memory for the cache; most requests of an engine, most and fewest tokens of a step.
_CACHE_SHARE, _MAX_REQUESTS, _MAX_TOKENS, _MIN_TOKENS = 0.95, 4096.0, 32768.0, 2048.0


class BenchLimits(NamedTuple):
    """Most requests of an engine and most tokens of a step, over all stages of a pipeline."""

    sequences: float
    tokens: float


def bench_limits(design: Design, weight_bytes: float, has_uncut_prompts: bool) -> BenchLimits:
    """Return limits by the cache that memory is estimated to hold: ``n = 0.95 (M - W) / (c (ISL + OSL))``.

    A step has as many tokens as ``n`` requests have in steady state, ``n (1 + ISL / OSL)``; both are rounded up
    (``calc_engine_setting`` and ``finetune_setting`` of ``tensorrt_llm/bench/build/tuning.py``). Where prompts are not
    cut, a step holds one beside all requests (``get_settings`` of ``tensorrt_llm/bench/benchmark/utils/general.py``).

    Args:
        design: with requests, mapping and devices.
        weight_bytes: bytes of the weights.
        has_uncut_prompts: whether prompts are not cut: the PyTorch backend by default.
    """
    w, m, requests, serving = design.workload, design.mapping, design.workload.requests, design.mapping.serving
    assert requests is not None and serving is not None, "a row of serving has both"
    prompt, answer = float(requests.prompt_tokens), float(requests.output_tokens)
    tp, pp = float(m.tp * m.dp), float(m.pp)
    cache_bytes_per_token = 2.0 * float(w.n_layers * w.head_dim * serving.cache_bytes) * max(tp, float(w.n_kv_heads))
    free_bytes = float(design.system.accelerator.memory.capacity) * tp * pp - weight_bytes
    requests_per_stage = (
        min(_CACHE_SHARE * free_bytes / (cache_bytes_per_token * (prompt + answer)), _MAX_REQUESTS) / pp
    )
    tokens = min(requests_per_stage * (1.0 + prompt / answer), _MAX_TOKENS)
    sequences = max(
        _round_up(
            requests_per_stage, 32.0 if requests_per_stage < 256.0 else 128.0 if requests_per_stage < 1024.0 else 256.0
        ),
        64.0,
    )
    tokens = max(_round_up(tokens, 256.0 if tokens < 4096.0 else 512.0 if tokens < 8192.0 else 1024.0), _MIN_TOKENS)
    return BenchLimits(pp * sequences, pp * (max(tokens, prompt + sequences) if has_uncut_prompts else tokens))


def _round_up(value: float, step: float) -> float:
    """Return the least multiple of ``step`` that is not below a value."""
    return step * math.ceil(value / step)
