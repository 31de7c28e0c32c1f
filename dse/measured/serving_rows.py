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
from dse.io.quantities import counted
from dse.measured import rules
from dse.measured.cells import Cells
from dse.measured.completion import Candidates, known_device, unknown_shape
from dse.measured.mappings import PRECISIONS, precision
from dse.measured.names import NEAREST, Lookup
from dse.measured.table import DEVICE, Case, Row, Skip
from dse.types import (
    AllToAll,
    Design,
    ExpertMapping,
    Load,
    Mapping,
    Precision,
    Requests,
    Serving,
    Software,
    Workload,
)
from dse.types.choices import WEIGHTS_ALONE
from dse.types.paths import build

#: InferenceX draws lengths uniformly between 0.8 and 1.0 of the stated ones, and sends ten times the concurrent
#: requests, the first of them together: a tenth of the mean.
_DRAWN, _OPENING = 0.9, 0.1
#: Sources with such clients.
_BURSTS = ("InferenceX", "aiconfigurator_silicon")

#: Sources of energy from device counters (NVML), without hosts and facility.
_COUNTERS = ("ML.ENERGY", "profile ")

#: Sources measured with ``trtllm-bench``, and whether its engine cuts no prompts: the PyTorch backend, of 1.0.
_BENCH = {"TensorRT-LLM_v0.17": False, "TensorRT-LLM_v1.0": True}

#: Step between sizes of captured graphs up to four of it, beyond powers of two (``llm_options.yml`` of the second).
_GRAPH_STEP = 128.0

_MLPERF = "MLPerf"
#: Assumed maximum share of memory for weights, of mappings that no row lists.
_MLPERF_WEIGHTS = 0.62

#: Drafts of rows with multi-token prediction, and their acceptance: 2.3 tokens per step.
_DRAFTS, _ACCEPTED = 3.0, 0.63

#: Sources whose engine kept and read the whole cache of windowed layers (as a long prompt of Mistral shows).
_WHOLE_CACHES = "TensorRT-LLM_v0"

#: Models with MXFP4 weights, whatever format a row states; they compute in 16 bits.
_MXFP4 = re.compile("gpt-oss", re.IGNORECASE)

#: Engines with an 8-bit cache for weights of 8 or 4 bits.
#: All have one for 4-bit weights.
_NARROW_CACHE = re.compile("trtllm|tensorrt", re.IGNORECASE)

#: Engines that quantise tokens to 4 bits before they are sent to experts.
_NARROW_DISPATCH = re.compile("trtllm|tensorrt|vllm", re.IGNORECASE)


def has_energy(row: Row) -> bool:
    """Whether a row of an energy table is a serving row."""
    return row.source.startswith(_COUNTERS[0])


def complete(row: Row, lookup: Lookup, twin: bool | None = None) -> Candidates:
    """The design of a row. ``twin``: whether a row of DeepSeek-R1 has an equal row of DeepSeek-V3.

    Both have the same shape: an equal row counts once, and a different one drafts tokens.
    """
    rules.refuse(row, "serving")
    if twin:
        raise Skip("counted once", "an equal row is listed as DeepSeek-V3")
    cells = Cells(row)
    shape = lookup.resolve("workload", cells.text("model", "workload"))
    if not shape:
        raise unknown_shape(cells, lookup)
    stack = _stack(cells, lookup)
    workload = lookup.workload(shape)
    system = _system(cells, lookup)
    devices, tp, pp, dp = _degrees(cells)
    if row.source.startswith(_MLPERF):
        tp, dp = _of_mlperf(cells, workload.experts is not None, float(system.accelerator.memory.capacity), devices)
    system = dataclasses.replace(system, n_devices=devices)
    if row.source.startswith(_COUNTERS):
        system = dataclasses.replace(system, host_power=0.0, pue=1.0)
    requests = _requests(cells)
    code, expert_bytes, weight_bytes = _formats(cells, workload.experts is not None)
    narrow = code in (Precision.fp8, Precision.fp8_block, Precision.fp4) or expert_bytes > 0.0
    four = expert_bytes > 0.0 or code == Precision.fp4
    stated = {"cache_bytes": 1.0 if four or (narrow and _NARROW_CACHE.search(row.get("framework"))) else 2.0}
    if row.source.startswith("InferenceX"):
        stated |= _of_inferencex(cells, workload)
    if twin is False:
        drafts = cells.number("drafts", least=0.0)
        drafts = cells.complete("drafts", _DRAFTS) if drafts is None else drafts
        stated |= {"drafts": drafts, "acceptance": _ACCEPTED}
    serving = dataclasses.replace(
        build(Serving, lookup.serving_defaults(stack)), expert_bytes=expert_bytes, weight_bytes=weight_bytes, **stated
    )
    software, experts = lookup.software(stack), None
    engine = software.engine
    if engine is None:
        raise Skip("stack that does not serve", f"{stack} has no [engine]")
    if cells.text("batch_kind") == "max_num_seqs":  # limit of the engine, above the concurrency
        most = max(float(engine.most_sequences), float(requests.concurrency))
        engine = dataclasses.replace(engine, most_sequences=most)
    captured = cells.number("graph_tokens") or float(engine.graph_tokens)
    engine = dataclasses.replace(
        engine, request_time=float(engine.request_time) * client_slowdown(row), graph_tokens=captured
    )
    software = dataclasses.replace(software, engine=engine)
    if settings := _settings(cells, float(engine.runtime_memory / system.accelerator.memory.capacity)):
        serving = dataclasses.replace(serving, **settings)
    if workload.experts is not None:
        # Engines gather the tokens of ranks with attention of their own unless told otherwise.
        sent = AllToAll.gather if dp > 1.0 else AllToAll.pairwise
        experts = dataclasses.replace(
            _experts(cells, tp, dp), dispatch_precision=_dispatched(cells), all_to_all=float(sent)
        )
        if row.source.startswith(_MLPERF):
            experts = dataclasses.replace(experts, ep=tp * dp, etp=1.0)
        software = dataclasses.replace(software, experts=lookup.expert_kernels(stack))
    mapping = Mapping(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=1.0,
        micro_batch=1.0,
        virtual_stages=1.0,
        recompute=0.0,
        recompute_share=1.0,
        sequence_parallel=0.0,
        zero_stage=0.0,
        overlap_dp=0.0,
        overlap_tp=0.0,
        placement=0.0,
        precision=code,
        experts=experts,
        serving=serving,
    )
    if row.source.startswith(_WHOLE_CACHES):
        workload = dataclasses.replace(workload, local_layers=0.0)
    workload = dataclasses.replace(workload, requests=requests)
    if row.source in _BENCH:
        asked = Design(workload=workload, system=system, software=software, mapping=mapping)
        mapping, software = _with_limits(cells, asked)
    stands_in = not row.get("software") and lookup.is_nearest(stack, row.source, row.get("framework"))
    note = NEAREST if stands_in else ""
    return Candidates(workload, system, software, (mapping,), cells.completed, stack, note)


def _with_limits(cells: Cells, design: Design) -> tuple[Mapping, Software]:
    """Mapping and stack with the limits of ``trtllm-bench``, to which 4-bit weights are half a byte each."""
    whole, serving, engine = _BENCH[cells.row.source], design.mapping.serving, design.software.engine
    assert serving is not None and engine is not None, "of a row of serving"
    a_weight = {"fp4": 0.5, "fp8": 1.0}.get(cells.text("precision").lower(), 2.0)
    found = limits(design, a_weight * 1e9 * (cells.number("params_B") or 0.0), whole)
    serving = dataclasses.replace(
        serving, chunk=found.tokens, whole_prompts=1.0 if whole else None, graph_step=_GRAPH_STEP if whole else None
    )
    return (
        dataclasses.replace(design.mapping, serving=serving),
        dataclasses.replace(design.software, engine=dataclasses.replace(engine, most_sequences=found.sequences)),
    )


def _settings(cells: Cells, runtime: float) -> dict[str, float]:
    """What a row states of memory, its share in all or of weights and cache without the ``runtime``, and of a step.

    Raises:
        Skip: for a share above 1.
    """
    stated = {name: cells.number(name) for name in ("memory_share", "cache_bytes", "chunk")}
    if static := cells.number("static_share"):
        stated["memory_share"] = min(static + runtime, 1.0)
    if (stated["memory_share"] or 0.0) > 1.0 or (static or 0.0) > 1.0:
        raise Skip("not a usable number", f"memory_share = {stated['memory_share']:g}")
    return {name: value for name, value in stated.items() if value}


def client_slowdown(row: Row) -> float:
    """Time of a request outside the engine, over that of a client on a host of its own, by its source; 0: none."""
    return float(row.get("client_slowdown") or rules.stated(row, "stated", "client_slowdown") or 1.0)


def _of_inferencex(cells: Cells, workload: Workload) -> dict[str, float]:
    """Engine settings of InferenceX (its recipes, from memory).

    On B200 vLLM has an 8-bit cache for Llama-3-70B, and SGLang for DeepSeek's models: in 16 bits, 64 requests of the
    former on a device, and 256 of the latter on eight, would not fit, and none of them waited. For DeepSeek
    TensorRT-LLM mixes one prompt into decode steps; SGLang takes 82 % of the memory and admits requests every 10 steps,
    of 16 requests and more every 30.
    """
    batch, framework = cells.number("batch", "concurrency") or 1.0, cells.text("framework")
    is_8_bit = cells.text("gpu").startswith("B200") and cells.text("precision") == "fp8"
    narrow = {"cache_bytes": 1.0} if is_8_bit else {}
    if workload.latent is None:
        return narrow if framework.startswith("vllm") and workload.experts is None else {}
    if framework.startswith("sglang"):
        return narrow | {"memory_share": 0.82, "admission_steps": 30.0 if batch >= 16.0 else 10.0}
    return {"chunk": (cells.number("isl") or 1.0) + batch} if framework.startswith("trtllm") else {}


def _system(cells: Cells, lookup: Lookup) -> Any:
    device, named = cells.text(*DEVICE), cells.text("system")
    if not device and not named:
        raise Skip("no device stated", f"in none of the columns {', '.join(DEVICE)}, system")
    try:
        return lookup.system(named or known_device(cells, lookup))
    except InputError as error:
        raise Skip("device not in the catalogue", str(error.got)) from None


def _stack(cells: Cells, lookup: Lookup) -> str:
    """The engine: as named, else by source, else by the framework's name or its first word."""
    named, framework = cells.text("software"), cells.text("framework")
    if named:
        return lookup.resolve("software", named) or named
    found = lookup.by_source("software", cells.row.source, note=framework)
    words = [framework, framework.split(" ")[0]] if framework else []
    found = found or next((slug for word in words if (slug := lookup.resolve("software", word))), "")
    if not found and framework:
        raise Skip("framework not in the catalogue", lookup.suggestion("software", framework))
    return found or cells.complete("software", "vllm")


def _degrees(cells: Cells) -> tuple[float, float, float, float]:
    """Devices, tp, pp and data-parallel ranks of attention.

    With tp and dp of 1 on several devices, only the experts are stated, and attention is split over the devices.
    """
    tp, pp, dp, devices = (cells.count(name) for name in ("tp", "pp", "dp", "n_gpus"))
    pp = pp or 1.0
    if devices is None:
        devices = (tp or 1.0) * pp * (dp or 1.0)
    if tp is None or (tp == 1.0 and dp == 1.0 and pp == 1.0 and devices > 1.0):
        tp = cells.complete("tp", devices / (pp * (dp or 1.0)))
    dp = dp if dp and dp * tp * pp == devices else devices / (tp * pp)
    if dp != int(dp):
        raise Skip("tp x pp does not divide the devices", f"{tp:g} x {pp:g} of {counted(devices, 'device')}")
    return devices, tp, pp, dp


def _of_mlperf(cells: Cells, mixture: bool, capacity: float, devices: float) -> tuple[float, float]:
    """(tp, dp) of MLPerf rows, which list none: as few devices as hold the weights; mixtures with attention dp."""
    if mixture:
        return cells.complete("tp", 1.0), devices
    size = 1e9 * (cells.number("params_B") or 0.0) * (0.5625 if "fp4" in cells.text("precision").lower() else 1.0)
    tp = next((n for n in (1.0, 2.0, 4.0, 8.0, 16.0) if size <= _MLPERF_WEIGHTS * n * capacity), devices)
    return cells.complete("tp", tp), devices / tp


def _experts(cells: Cells, tp: float, dp: float) -> ExpertMapping:
    """Mapping of experts over the stated ranks; the remaining ranks split each expert."""
    ep = min(cells.count("ep") or 1.0, tp * dp)
    return ExpertMapping(ep=ep, etp=cells.count("etp") or tp * dp / ep)


def _dispatched(cells: Cells) -> float:
    """Format in which tokens are sent to experts: TensorRT-LLM and vLLM send 4-bit operands, others 16 bits.

    ``fused_moe_cutlass.py``: activations are quantised before they are gathered, but for scales of blocks; so does
    ``flashinfer_cutlass_prepare_finalize.py`` of vLLM for NVFP4.
    """
    is_narrow = _NARROW_DISPATCH.search(cells.row.get("framework")) and "fp4" in cells.text("precision").lower()
    return float(Precision.fp4 if is_narrow and not _MXFP4.search(cells.text("model")) else Precision.bf16)


def _formats(cells: Cells, mixture: bool) -> tuple[float, float, float]:
    """(precision, bytes per expert weight, bytes per weight), the latter two 0 without a separate format.

    4-bit checkpoints of mixtures quantise their experts; other weights of NVFP4 ones count as 8 bits, a mean over
    releases with attention in 16 bits and without.
    """
    text = cells.text("precision").lower().rstrip("?")
    four = {"fp4": 0.5625, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.53125, "uint4": 0.53125}
    if text in four and (mixture or text not in PRECISIONS):
        recipe = Precision.bf16 if text == "mxfp4" or _MXFP4.search(cells.text("model")) else Precision.fp8
        return float(recipe), four[text] if mixture else 0.0, 0.0
    if text in WEIGHTS_ALONE:
        return float(Precision.bf16), 0.0, WEIGHTS_ALONE[text]
    return precision(cells), 0.0, 0.0


def _requests(cells: Cells) -> Requests:
    """Requests of a row by the conventions of its source."""
    source, kind = cells.row.source, cells.text("batch_kind").lower()
    batch = cells.number("batch", "concurrency")
    prompt, answer = cells.number("isl", least=0.5), cells.number("osl", least=0.5)
    if source.startswith("InferenceX") and prompt and answer:
        prompt, answer = _DRAWN * prompt, _DRAWN * answer
    burst = _OPENING if source.startswith(_BURSTS) else 0.0
    running = re.search(r"mean running batch ([\d.]+)", cells.text("note"))
    if running:
        batch = cells.complete("batch", float(running[1]))
    if prompt is None:
        raise Skip("no length of prompts stated")
    if answer is None:
        raise Skip("no length of answers stated")
    load = _load(source, kind)
    if batch is None and load is not Load.offline:
        raise Skip("no concurrency stated")
    return Requests(
        prompt_tokens=prompt,
        output_tokens=max(answer, 1.0),
        concurrency=batch or 1.0,
        load=float(load),
        burst=burst,
        queue=cells.number("queue") or 0.0,
        longest_answer=cells.number("longest_answer") or 0.0,
        sampled=1.0 if cells.flag("sampled") else None,
    )


def _load(source: str, kind: str) -> Load:
    if source.startswith("lmdeploy") or "waves" in kind:
        return Load.waves
    if "static" in kind:
        return Load.static
    return Load.offline if "in-flight" in kind or "offline" in kind else Load.concurrency


# DeepSeek-R1 and -V3


def twins_of(cases: Sequence[Case]) -> dict[int, bool]:
    """Position of DeepSeek-R1 cases of InferenceX → whether a DeepSeek-V3 case has equal figures."""
    listed = [c for c in cases if c.source.startswith("InferenceX") and "listed as deepseek-ai/" in c.row.get("note")]
    of_r1 = [c for c in listed if "DeepSeek-R1" in c.row.get("note")]
    known = {_figures(c) for c in listed if "DeepSeek-R1" not in c.row.get("note")}
    return {id(c): _figures(c) in known for c in of_r1}


def _figures(case: Case) -> tuple[str, ...]:
    names = ("gpu", "n_gpus", "tp", "ep", "dp", "precision", "batch", "isl", "osl")
    figures = sorted(f"{m.name} {m.value:.4g}" for m in case.measurements)
    return (*map(case.row.get, names), *figures)


#: Share of the free memory for the cache; most requests of an engine, most and fewest tokens of a step.
_OF_FREE, _MOST_REQUESTS, _MOST_TOKENS, _FEWEST_TOKENS = 0.95, 4096.0, 32768.0, 2048.0


class Limits(NamedTuple):
    """Most requests of an engine and most tokens of a step, over all stages of a pipeline."""

    sequences: float
    tokens: float


def limits(design: Design, weights: float, whole: bool) -> Limits:
    """Limits by the cache that memory is estimated to hold: ``n = 0.95 (M - W) / (c (ISL + OSL))`` requests.

    A step has as many tokens as ``n`` requests have in steady state, ``n (1 + ISL / OSL)``; both are rounded up
    (``calc_engine_setting`` and ``finetune_setting`` of ``tensorrt_llm/bench/build/tuning.py``). Where prompts are not
    cut, a step holds one beside all requests (``get_settings`` of ``tensorrt_llm/bench/benchmark/utils/general.py``).

    Args:
        design: with requests, mapping and devices.
        weights: bytes of the weights.
        whole: whether prompts are not cut: the PyTorch backend by default.
    """
    w, m, requests, serving = design.workload, design.mapping, design.workload.requests, design.mapping.serving
    assert requests is not None and serving is not None, "a row of serving has both"
    prompt, answer = float(requests.prompt_tokens), float(requests.output_tokens)
    tp, pp = float(m.tp * m.dp), float(m.pp)
    a_token = 2.0 * float(w.n_layers * w.head_dim * serving.cache_bytes) * max(tp, float(w.n_kv_heads))
    free = float(design.system.accelerator.memory.capacity) * tp * pp - weights
    each = min(_OF_FREE * free / (a_token * (prompt + answer)), _MOST_REQUESTS) / pp
    tokens = min(each * (1.0 + prompt / answer), _MOST_TOKENS)
    sequences = max(_up(each, 32.0 if each < 256.0 else 128.0 if each < 1024.0 else 256.0), 64.0)
    tokens = max(_up(tokens, 256.0 if tokens < 4096.0 else 512.0 if tokens < 8192.0 else 1024.0), _FEWEST_TOKENS)
    return Limits(pp * sequences, pp * (max(tokens, prompt + sequences) if whole else tokens))


def _up(value: float, step: float) -> float:
    return step * math.ceil(value / step)
