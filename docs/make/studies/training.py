"""Claims on training on clusters: time, mappings, partitions of the state, failures."""

from __future__ import annotations

import functools
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import dse
from calibration import cdna2
from docs.make.ablation import ABLATIONS, ON_EIGHT
from docs.make.accuracy.claims import CLAIMS
from docs.make.studies.claim import (
    AGREES,
    ANY,
    FITTED,
    IDENTITY,
    LAW,
    NO_FIGURE,
    SETTING,
    Case,
    Claim,
    about,
    least,
    most,
    reached,
)
from dse.designs import catalog, leaf, replace
from dse.measured.comparison import Comparison, compare
from dse.measured.prediction import evaluate_many
from dse.model import lay_out, training_work
from dse.model.accounts.failures import relative_slowdown
from dse.model.steps.training import StepTime
from dse.types import Accelerator, Design, LogicNode, MemoryTechnology, MessageKind, Reliability, Scope
from dse.views.trace.step import ScheduledStep, schedule_step

_CALIBRATION = Path("docs/calibration.json")

# --- published tables -------------------------------------------------------------------------------------------


@functools.cache
def _compared(table: str) -> list[Comparison]:
    return [one for one in compare([f"tests/published/{table}.csv"]) if one.skip is None]


def _errors(table: str, metric: str, source: str = "") -> list[float]:
    found = (one for one in _compared(table) if one.metric.startswith(metric) and one.source.startswith(source))
    return [abs(one.error) for one in found]


def _published(table: str, metric: str, source: str, scale: float = 1.0) -> str:
    """Least and most of the published figures of a table."""
    found = (one for one in _compared(table) if one.metric.startswith(metric) and one.source.startswith(source))
    figures = [one.measured / scale for one in found]
    return " to ".join(f"{one:,.0f}" if one >= 100.0 else f"{one:.3g}" for one in (min(figures), max(figures)))


def _in_sample_and_unseen(table: str, source: str) -> tuple[float, float]:
    """Mean errors of step times in per cent: of the catalogue's fit, and of fits that had not seen the row."""
    unseen = json.loads(_CALIBRATION.read_text(encoding="utf-8"))["sources"][source]["unseen"]
    return 100.0 * statistics.fmean(_errors(table, "step_time", source)), 100.0 * unseen


def _calculon() -> tuple[float, float]:
    found = [100.0 * error for error in _errors("calculon", "step_time")]
    return statistics.fmean(found), max(found)


def _petaflops() -> tuple[float, float]:
    """PFLOP/s of the run on 3,072 devices, published 502, by its step time; per cent of 312 TFLOP/s a device."""
    (run,) = (one for one in _compared("narayanan_2021") if one.measurement.row.get("n_gpus") == "3072")
    rate = 502.0 / (1.0 + run.error)
    return rate, 100.0 * rate / (3072 * 0.312)


#: Sequences of a batch, one a micro-batch, whose gain of interleaving is shown; stages of that pipeline.
_BATCHES_INTERLEAVED, _STAGES_INTERLEAVED = (12, 60), 12


def _interleaved() -> tuple[float, ...]:
    """Gain of two chunks a stage, by sequences of a batch (``docs/tables/studies_options.csv`` has the last)."""
    found = next(one for one in ABLATIONS if one.option.startswith("interleaved"))
    return tuple(
        found._replace(settings={**found.settings, "global_batch": batch}).ratio() for batch in _BATCHES_INTERLEAVED
    )


def _bubble_alone() -> tuple[float, ...]:
    """The same gain where nothing takes time but passes and their bubble, ``(1 + b) / (1 + b / 2)``."""
    bubbles = [(_STAGES_INTERLEAVED - 1) / batch for batch in _BATCHES_INTERLEAVED]
    return tuple((1.0 + b) / (1.0 + b / 2.0) for b in bubbles)


# --- A100 to B200 -----------------------------------------------------------------------------------------------


def _rates(system: str, software: str, precision: str, batch: int, recompute: Iterable[str]) -> float:
    """Tokens per second and device of GPT-3 175B on 1,024 devices by the best of some hundred mappings."""
    designs = []
    for tp, pp, micro_batch, level, chunks in itertools.product((4, 8), (2, 4, 8, 16), (1, 2, 4), recompute, (1, 3, 6)):
        dp = 1024 // (tp * pp)
        if 96 % (pp * chunks) == 0 and batch % (dp * micro_batch) == 0 and batch // (dp * micro_batch) % pp == 0:
            designs.append(
                dse.design(
                    "gpt-3-175b",
                    system,
                    software,
                    n_devices=1024,
                    tp=tp,
                    pp=pp,
                    micro_batch=micro_batch,
                    virtual_stages=chunks,
                    recompute=level,
                    sequence_parallel=1,
                    zero_stage=1,
                    overlap_dp=1,
                    overlap_tp=1,
                    precision=precision,
                    global_batch=batch,
                    any_option=True,
                )
            )
    found = evaluate_many(designs)
    return float(found["tokens_per_second_per_device"][found["infeasible_reason"] == 0].max())


_ANY = ("none", "selective", "full")
_BATCHES = "Batches are ours: 256 sequences on the A100, 2,048 on the others"


@functools.cache
def generations() -> dict[str, float]:
    """Name of a machine → tokens per second and device: A100 with the stack of 2021, batch 256; others 2,048."""
    return {
        "A100, full recompute": _rates("selene", "megatron-2021", "bf16", 256, ("full",)),
        "A100": _rates("selene", "megatron-2021", "bf16", 256, _ANY),
        "H100": _rates("eos", "megatron-bridge", "fp8", 2048, _ANY),
        "B200": _rates("b200-sxm-180gb", "megatron-bridge", "fp8", 2048, _ANY),
        "B200, FP4": _rates("b200-sxm-180gb", "megatron-bridge", "nvfp4", 2048, _ANY),
    }


def _rate_and_gain(name: str) -> tuple[float, float]:
    """Tokens per second and device of a machine, and over those of the A100."""
    rate = generations()[name]
    return rate, rate / generations()["A100, full recompute"]


def thirty_five() -> str:
    """What the factor of the abstract is made of, ours."""
    g = generations()
    recompute, four = g["A100"] / g["A100, full recompute"], g["B200, FP4"] / g["B200"]
    old, new = (catalog.record(Accelerator, slug).matrix_rate for slug in ("a100-sxm-80gb", "b200-sxm-180gb"))
    return (
        f"The study's rates give 14.9, without FP4. Of ours, less recompute on the A100 is a factor {recompute:.2f}, "
        f"FP4 for FP8 {four:.2f}, the rest is chip, network, FP8, batch and stack, each a factor of "
        "notebooks/02_optimus_training.py. Peak rates, bf16 to FP4, give "
        f"{float(new.fp4 / old.bf16):.0f}; what gives 35 is not known"
    )


# --- nodes ------------------------------------------------------------------------------------------------------

_CHIP = "system.accelerator.chip."
_RATES = {
    "cores": (_CHIP + "clock_ratio",), "memory": (_CHIP + "memory.unit_bandwidth",),
    "network": ("system.scale_up.bandwidth", "system.scale_out.bandwidth"),
}  # fmt: skip


def bounds_by_node() -> tuple[float, ...]:
    """Share of a step (GPT-3 175B, 1,024 generated GPUs) that cores and network bound, in 12 nm and 5 A."""
    base = dse.design(
        "gpt-3-175b",
        "eos",
        "megatron-core-te",
        1024,
        tp=8,
        pp=8,
        micro_batch=1,
        global_batch=2048,
        recompute="selective",
        sequence_parallel=1,
        zero_stage=1,
        overlap_dp=1,
        precision="bf16",
    )
    base = replace(base, {"system.accelerator": catalog.record(Accelerator, "gpu")})
    base = replace(base, {_CHIP + "memory": catalog.record(MemoryTechnology, "hbm3-5-2")})
    shares = []
    for node in ("n12", "extrapolated-a5"):
        made = replace(base, {_CHIP + "node": catalog.record(LogicNode, node)})
        shares += [_elasticity(made, _RATES["cores"]), _elasticity(made, _RATES["network"])]
    return tuple(100.0 * share for share in (shares[0], shares[2], shares[1], shares[3]))


def _elasticity(made: Design, leaves: Iterable[str]) -> float:
    """Relative increase of the step time over the relative decrease of some rates."""
    slower = replace(made, {path: 0.98 * float(leaf(made, path)) for path in leaves})
    return (float(dse.evaluate(slower).step_time / dse.evaluate(made).step_time) - 1.0) / (1.0 / 0.98 - 1.0)


# --- pipelines and partitions -----------------------------------------------------------------------------------


def _pipeline(pp: int, chunks: int) -> Case:
    return Case(
        "gpt-3-175b",
        "selene",
        "megatron-2021",
        dict(n_devices=8 * pp, tp=8, pp=pp, virtual_stages=chunks, micro_batch=1, global_batch=64, recompute="full"),
    )


_PIPELINES = (_pipeline(8, 1), _pipeline(8, 3))


def bubbles() -> tuple[float, ...]:
    """Idle over busy time of the last stage, whose head makes it the slowest, event by event, in per cent."""
    found = []
    for case in _PIPELINES:
        line = schedule_step(case.design()).timeline
        found.append(100.0 * (line.makespan / line.busy(case.settings["pp"] - 1) - 1.0))
    return tuple(found)


def _closed_forms() -> tuple[float, ...]:
    """Step time event by event over that of the closed form."""
    return tuple(step.total / step.model_time for step in (schedule_step(case.design()) for case in _PIPELINES))


def _schedules() -> tuple[float, ...]:
    """Micro-batches in flight on the first stage, GPipe and 1F1B, the bubble of GPipe, critical path over makespan."""
    gpipe, usual = (schedule_step(_PIPELINES[0].design(schedule=name)) for name in ("gpipe", "1f1b"))
    in_flight = (step.timeline.in_flight(0) for step in (gpipe, usual))
    line = gpipe.timeline
    path = sum(event.end - event.start for event in line.critical_path(8))
    return *in_flight, 100.0 * (line.makespan / line.busy(7) - 1.0), path / line.makespan


_PLAN = "sweeps/megatron_1t_4096_a100.toml"
_COMPARED, _SEED = 300, 57


@functools.cache
def ballpark(count: int = _COMPARED) -> np.ndarray:
    """Step time event by event over that of the closed form, of mappings that are chosen at random from the sweep."""
    grid, _ = dse.sweep.plan(_PLAN)
    ordinals = np.random.default_rng(_SEED).choice(grid.n_designs, count, replace=False)
    values = grid.values(grid.indices(ordinals))
    ratios = []
    for i in range(count):
        made = replace(grid.base, {path: float(column[i]) for path, column in values.items()})
        ratios.append(_over_closed_form(schedule_step(made, most=10**7)))
    return np.array(ratios)


def _over_closed_form(step: ScheduledStep) -> float:
    return step.total / step.model_time


def _ballpark() -> tuple[float, float]:
    """Mean and largest difference in per cent."""
    differences = 100.0 * np.abs(ballpark() - 1.0)
    return float(differences.mean()), float(differences.max())


_STAGES = Case(
    "gpt-3-13b",
    "v100-sxm-32gb",
    "deepspeed-zero-2021",
    dict(n_devices=64, micro_batch=1, global_batch=64, recompute="full", precision="fp16"),
)


def _fits() -> tuple[float, ...]:
    """Whether 13B fits at stages 0 and 2."""
    return tuple(float(_STAGES.metrics(zero_stage=stage).feasible) for stage in (0, 2))


def _volumes() -> tuple[float, ...]:
    """Bytes of data parallelism at stages 1 to 3 over those at stage 0; an all-reduce is a scatter and a gather."""
    sent = []
    for stage in range(4):
        made = _STAGES.design(zero_stage=stage, recompute="none", gradient_message_bytes=2.0)
        messages = (one for one in training_work(made, lay_out(made)).messages if one.scope is Scope.weights)
        sent.append(sum(float(m.size * m.times) * (2.0 if m.kind is MessageKind.all_reduce else 1.0) for m in messages))
    return tuple(one / sent[0] for one in sent[1:])


# --- clusters ---------------------------------------------------------------------------------------------------

#: Model of the published steps on Frontier → workload, and the tp sizes and pipelines among which the best is sought.
FRONTIER = {
    "GPT-22B": ("megatron-22b", (1, 2, 4, 8), (1, 2, 4, 8)),
    "GPT-175B": ("gpt-3-175b", (2, 4, 8), (8, 16, 32)),
    "GPT-1T": ("megatron-1t", (4, 8), (32, 64)),
}  # fmt: skip


@functools.cache
def frontier(model: str) -> float:
    """Highest hardware FLOP utilisation of the mappings of a model on Frontier that fit, the published one among them.

    Devices and batch are those of the published step (Dash et al. 2023, arXiv 2312.12705).
    """
    step, (workload, sizes, pipelines) = cdna2.steps()[model], FRONTIER[model]
    mapped, batch = step.design, int(step.design.workload.global_batch)
    devices = int(mapped.system.n_devices)
    designs = [
        dse.design(
            workload,
            "frontier",
            n_devices=devices,
            n_heads=int(mapped.workload.n_heads),
            n_kv_heads=int(mapped.workload.n_heads),
            head_dim=int(mapped.workload.head_dim),
            tp=tp,
            pp=pp,
            micro_batch=micro_batch,
            recompute="full",
            global_batch=batch,
            precision="fp16",
            zero_stage=1,
            any_option=True,
        )
        for tp, pp, micro_batch in itertools.product(sizes, pipelines, (1, 2))
        if devices % (tp * pp) == 0 and batch % (devices // (tp * pp) * micro_batch) == 0
    ]
    found = evaluate_many([mapped, *designs])
    return float(found["hfu"][found["infeasible_reason"] == 0].max())


def _at_its_mapping() -> list[float]:
    """Utilisation of each published step in its mapping, in per cent of the peak."""
    steps = cdna2.steps()
    return [
        100.0 * step.utilisation / math.exp(e) for step, e in zip(steps.values(), cdna2.log_errors(steps), strict=True)
    ]


def _unseen() -> list[float]:
    """Error of each step by the fit to the other two, in per cent of its time."""
    return [100.0 * abs(unseen.error) for unseen in cdna2.unseen_steps().values()]


_PARTITION = next(one for one in ABLATIONS if one.source.startswith("Xu et al. 2025"))


def _partition(**settings: int) -> tuple[float, float]:
    """Gain of the partition over ZeRO++ and over ZeRO 3, with other settings."""
    plain = _PARTITION._replace(settings={**_PARTITION.settings, **settings})
    zero_3 = {name: value for name, value in plain.settings.items() if name not in ON_EIGHT}
    return plain.ratio(), plain._replace(settings=zero_3).ratio()


def _partition_settings() -> str:
    """What of the gain is ours, with the gain in another setting."""
    over, _ = _partition(micro_batch=2)
    return (
        f"Batch and micro-batch are ours, 16 times 1: of 2, behind which ZeRO++ hides more of its messages, {over:.2f} is "
        "left. Gathers of DeepSpeed have the rate of one link, as six steps on A100 say"
    )


#: MegaScale's run and its baseline: Jiang et al., NSDI 2024, tables 1 and 2, and the vocabulary of section 6.
MEGASCALE = Case(
    "gpt-3-175b",
    "nemo-a100",
    "megatron-core-te",
    dict(
        n_devices=12288,
        tp=8,
        pp=8,
        virtual_stages=6,
        micro_batch=1,
        global_batch=6144,
        sequence_parallel=2,
        zero_stage=1,
        recompute="none",
        vocab=64000,
    ),
)

#: What it adds to Megatron-LM (sections 3.1 and 3.2): attention and feed-forward of one input, messages of tensor
#: parallelism and of replicas that hide, the latter chunk by chunk. Its batch is that of LAMB. The window of its
#: sliding attention is not published, nor how fast its own operators are: neither is in this design.
CO_DESIGNED = dict(parallel_block=1, overlap_tp=1, overlap_dp=1, dp_by_chunk=1)


@functools.cache
def megascale() -> dict[str, float]:
    """Model FLOP utilisation on 12,288 A100: of the baseline, with all parts, with all parts but one.

    The baseline runs on whatever nodes there are, so it waits for slow ones; MegaScale takes them out (section 5.1).
    """
    plain = dict.fromkeys(CO_DESIGNED, 0)
    parts = {"baseline": plain, "all": CO_DESIGNED} | {name: CO_DESIGNED | {name: 0} for name in CO_DESIGNED}
    found = evaluate_many([MEGASCALE.design(**part) for part in parts.values()])
    if found["infeasible_reason"].any():
        raise ValueError("MegaScale: infeasible")
    waits = 1.0 + found["run_time_with_failures_stragglers"][0] / found["run_time"][0]
    utilisation = dict(zip(parts, map(float, found["mfu"]), strict=True))
    plain_share = utilisation["baseline"]
    return utilisation | {"baseline": plain_share / float(waits), "without waits": plain_share}


def _megascale_gain() -> tuple[float, float]:
    """Gain over a baseline that waits for slow nodes, and over one that does not."""
    found = megascale()
    return found["all"] / found["baseline"], found["all"] / found["without waits"]


def holmes() -> np.ndarray:
    """Time lost to slow links over the step time without them, by mapping, ratio, and what crosses: stages, replicas.

    Two clusters of 256 devices, whose NICs are 8 or 32 times as fast within as between them (Yang et al. 2023).
    """
    mappings = [
        dict(tp=tp, pp=pp, micro_batch=1, recompute="full", zero_stage=zero, overlap_dp=hidden)
        for tp, pp, zero, hidden in itertools.product((4, 8), (2, 4, 8), (0, 1), (0, 1))
    ]
    slowed = [
        {"pods.size": 256, "pods.oversubscription": ratio, "pods.pooled": 0, "placement": placement}
        for ratio in (1, 8, 32)
        for placement in ("tp-cp-dp-pp", "tp-cp-pp-dp")
    ]
    designs = [
        dse.design("megatron-39-1b", "nemo-a100", n_devices=512, any_option=True, **mapping, **links)
        for mapping in mappings
        for links in slowed
    ]
    times = evaluate_many(designs)["step_time"].reshape(len(mappings), 3, 2)
    return times[:, 1:] / times[:, :1] - 1.0


def _holmes() -> tuple[float, float]:
    """Least and most time lost of stages across slow links over that of replicas across them."""
    lost = holmes()
    ratios = lost[:, :, 0] / lost[:, :, 1]
    return float(ratios.min()), float(ratios.max())


#: NVIDIA's performance summary of NeMo 25.02; the stack is the one that `dse validate` chooses for it.
_MIXTRAL = Case(
    "mixtral-8x7b",
    "b200-sxm-180gb",
    "megatron-bridge",
    dict(
        n_devices=64,
        ep=8,
        micro_batch=2,
        global_batch=256,
        seq_len=4096,
        precision="fp8",
        zero_stage=1,
        overlap_dp=1,
        recompute="none",
    ),
)

# --- failures ---------------------------------------------------------------------------------------------------

_GOVERNED = Case("megatron-1t", "frontier", None, dict(tp=8, pp=64, run_tokens=20e12))
_LLAMA = Case(
    "llama-3-1-405b",
    "eos",
    "megatron-core",
    dict(
        n_devices=16384,
        tp=8,
        pp=16,
        zero_stage=1,
        sequence_parallel=1,
        global_batch=2048,
        run_tokens=15.6e12,
        checkpoint="in-memory",
        copy_interference=1.0,
        device_mtbf=1e9,
    ),
)
#: Polaris: a file system of 650 GB/s (Maurya et al., HPDC 2024, section 6; from memory).
_DATASTATES = Case(
    "llama-13b",
    "selene",
    None,
    dict(
        n_devices=16,
        tp=4,
        pp=4,
        global_batch=16,
        checkpoint_every=1e-3,
        storage_bandwidth=650e9,
    ),
)


def _young() -> tuple[float]:
    """Interval between checkpoints over √(2 C MTBF)."""
    found = _LLAMA.metrics()
    young = (2.0 * float(found.checkpoint_stall) * float(found.time_between_failures)) ** 0.5
    return (float(found.checkpoint_interval) / young,)


def _datastates() -> tuple[float, float]:
    """Stall and run time of synchronous checkpoints over those of asynchronous ones, one a step."""
    waits, hides = (_DATASTATES.metrics(checkpoint=kind) for kind in ("synchronous", "asynchronous"))
    run = waits.run_time_with_failures / hides.run_time_with_failures
    return float(waits.checkpoint_stall / hides.checkpoint_stall), float(run)


def _congested() -> tuple[float]:
    """Per cent more time of a step of which 13 % are exposed messages, by messages 2.15 times as long."""
    parts = {"forward": 0.87, "data_parallel": 0.10, "pipeline_parallel": 0.03}
    step = StepTime(**(dict.fromkeys(StepTime._fields, 0.0) | parts))
    return (100.0 * float(relative_slowdown(Reliability(slow_nodes=0.0, congestion=1.15), 1024.0, step)),)


#: Seconds to detect a failure: the old default timeout of PyTorch's collectives, and tens of seconds (from memory).
_DETECTION = (1800.0, 30.0)


def _detected() -> tuple[float]:
    """Per cent less time lost to failures, of 405B on 16,384 H100 that save to memory."""
    lost = []
    for seconds in _DETECTION:
        found = _LLAMA.metrics(detection_time=seconds)
        lost.append(float(found.run_time_with_failures - found.run_time_with_failures_training))
    return (100.0 * (1.0 - lost[1] / lost[0]),)


# --- the claims -------------------------------------------------------------------------------------------------


def claims() -> Iterator[Claim]:
    """All of this file, in the order of the page."""
    yield from _of_tables()
    yield from _of_generations()
    yield from _of_pipelines()
    yield from _of_clusters()
    yield from _of_failures()


def _of_tables() -> Iterator[Claim]:
    study = "Optimus"
    for one in (claim for claim in CLAIMS if claim.source in ("Korthikanti2022_table5", "Narayanan2021_table1")):
        yield Claim(
            f"steps-{one.table.partition('_')[0]}",
            study,
            f"{one.rows} step times on A100: mean error, fitted, unseen (≤ {100.0 * one.mean:g} %)",
            f"{_published(one.table, 'step_time', one.source)} s",
            functools.partial(_in_sample_and_unseen, one.table, one.source),
            ((0.0, 100.0 * one.mean),) * 2,
            "{:.1f}, {:.1f} %",
            FITTED,
            "The stack is fitted to these rows; unseen is the error of fits without the row, but with others of its table",
            command=f"dse validate tests/published/{one.table}.csv",
        )
    yield Claim(
        "memory",
        study,
        "memory by recompute: largest error (≤ 0.1 %)",
        f"{_published('korthikanti_2022', 'peak_memory', '', 1e9)} GB",
        lambda: (100.0 * max(_errors("korthikanti_2022", "peak_memory")),),
        (most(0.1),),
        "{:.2f} %",
        IDENTITY,
        "The paper's figures are of its own formulas",
        "dse validate tests/published/korthikanti_2022.csv",
    )


def _of_generations() -> Iterator[Claim]:
    study = "Optimus"
    yield Claim(
        "a100",
        study,
        "GPT-3 175B on A100, tokens/s a GPU",
        "107",
        lambda: (generations()["A100, full recompute"],),
        (about(107.0),),
        "{:.0f}",
        SETTING,
        _BATCHES,
    )
    yield Claim(
        "h100-gain",
        study,
        "H100 in FP8, tokens/s a GPU; over A100",
        "866, 8.1",
        lambda: _rate_and_gain("H100"),
        (about(866.0), about(8.1)),
        "{:.0f}, {:.1f}",
        SETTING,
        _BATCHES,
    )
    yield Claim(
        "b200-gain",
        study,
        "B200 in FP8, the same",
        "1,600, 14.9",
        lambda: _rate_and_gain("B200"),
        (about(1600.0), about(14.9)),
        "{:,.0f}, {:.1f}",
        why="The stack, fitted to steps on B200, loses more of its peak than the published 1,600 tokens/s do",
    )
    yield Claim(
        "b200-abstract",
        study,
        "A100 to B200, abstract; ours with FP4",
        "≈ 35",
        lambda: _rate_and_gain("B200, FP4")[1:],
        (about(35.0),),
        "{:.1f}",
        why=thirty_five,
    )
    yield Claim(
        "nodes",
        study,
        "12 nm → 5 Å: share bound by cores (≥ 60→≤ 30), network (≤ 30→≥ 40)",
        NO_FIGURE,
        bounds_by_node,
        (least(60.0), most(30.0), most(30.0), least(40.0)),
        "{:.0f}→{:.0f}, {:.0f}→{:.0f} %",
        LAW,
    )


def _of_pipelines() -> Iterator[Claim]:
    study = "GraphCulon"
    yield Claim(
        "configurations",
        study,
        "Megatron-1T to 4,096 A100: configurations",
        "> 25,000",
        lambda: (dse.sweep.plan(_PLAN)[0].n_designs,),
        (reached(25_000, 1.0),),
        "{:,.0f}",
        SETTING,
        "The axes are ours, so that a count of the same order, up to twice theirs, is all it says",
        f"dse run {_PLAN}",
    )
    yield Claim(
        "bubble",
        study,
        "bubble of the slowest stage, v 1, 3",
        "10.9, 3.6 %",
        bubbles,
        (about(10.94), about(3.65)),
        "{:.1f}, {:.1f} %",
        IDENTITY,
        "Theirs is (p − 1) / (v m); ours plays the same order of passes",
        cases=_PIPELINES,
    )
    yield Claim(
        "closed-form",
        study,
        "the same: step event by event over closed form, ± 2 %",
        NO_FIGURE,
        _closed_forms,
        (about(1.0, 0.02),) * 2,
        "{:.3f}, {:.3f}",
        IDENTITY,
        cases=_PIPELINES,
    )
    yield Claim(
        "schedules",
        study,
        "micro-batches in flight, GPipe, 1F1B; bubble of GPipe; critical path over makespan",
        "64, 8, 10.9 %, –",
        _schedules,
        (about(64.0, 0.01), about(8.0, 0.01), about(10.94), about(1.0, 0.01)),
        "{:.0f}, {:.0f}, {:.1f} %, {:.2f}",
        IDENTITY,
        cases=_PIPELINES[:1],
    )
    yield Claim(
        "ballpark",
        study,
        f"the sweep's mappings, {_COMPARED} at random, event by event over closed form: difference, mean, worst (≤ 2, 10 %)",
        NO_FIGURE,
        _ballpark,
        (most(2.0), most(10.0)),
        "{:.1f}, {:.1f} %",
        LAW,
        "“In the same ballpark”, says the talk of 25,000 configurations",
    )
    yield Claim(
        "calculon",
        "Calculon",
        "24 step times: difference, mean (≤ 10 %), worst",
        f"{_published('calculon', 'step_time', '')} s",
        _calculon,
        ((0.0, 10.0), ANY),
        "{:.1f}, {:.0f} %",
        why="Model against model: on Calculon's own efficiencies and links, nothing fitted",
        command="dse validate tests/published/calculon.csv",
    )
    yield Claim(
        "petaflops",
        "Megatron",
        "1T on 3,072 A100, of peak, ± 3 %",
        "502 PFLOP/s, 52 %",
        _petaflops,
        (about(502.0, 0.03), about(52.0, 0.03)),
        "{:.0f}, {:.1f} %",
        FITTED,
        "The stack is fitted to this row and nine more of its table",
        command="dse validate tests/published/narayanan_2021.csv",
    )
    yield Claim(
        "interleaving",
        "Megatron",
        "interleaving, batch 12, 60; at most what the bubble gives",
        "≥ 1.10",
        _interleaved,
        tuple((1.10, 1.01 * most_of) for most_of in _bubble_alone()),
        "{:.2f}, {:.2f}",
        why=lambda: (
            "Two chunks halve the bubble of 12 stages: with passes alone a gain of "
            "{:.2f} and {:.2f}, so that at 60 sequences none can reach 1.10".format(*_bubble_alone())
        ),
    )
    yield Claim(
        "zero-volumes",
        "ZeRO",
        "bytes sent at stages 1, 2, 3 over 0",
        "1, 1, 1.5",
        _volumes,
        (about(1.0, 0.01), about(1.0, 0.01), about(1.5, 0.01)),
        "{:.2f}, {:.2f}, {:.2f}",
        IDENTITY,
        cases=(_STAGES,),
    )
    yield Claim(
        "zero-fits",
        "ZeRO",
        "13B on 64 V100: fits at stage 0, at 2",
        "0, 1",
        _fits,
        ((0.0, 0.0), (1.0, 1.0)),
        "{:.0f}, {:.0f}",
        cases=(_STAGES,),
    )


def _of_clusters() -> Iterator[Claim]:
    steps = cdna2.steps()
    for index, (name, step) in enumerate(steps.items()):
        percent = 100.0 * step.utilisation
        yield Claim(
            f"frontier-{name.lower().removeprefix('gpt-')}",
            "Frontier",
            f"{name} in its mapping, % of peak, ± 15 %",
            f"{percent:.1f}",
            lambda index=index: (_at_its_mapping()[index],),
            (about(percent, 0.15),),
            "{:.1f}",
            FITTED if name in cdna2.FITTED else AGREES,
            "One number of the chip, the efficiency of its products, is fitted to 22B and 175B",
            "dse validate tests/published/frontier_2023.csv",
        )
    published = [100.0 * step.utilisation for step in steps.values()]
    figures = "{:.1f}, {:.1f}, {:.1f}".format(*published)
    yield Claim(
        "frontier-unseen",
        "Frontier",
        "error of 22B, 175B, 1T, each by the fit to the others",
        "–",
        _unseen,
        (most(15.0),) * 3,
        "{:.1f}, {:.1f}, {:.1f} %",
        LAW,
    )
    yield Claim(
        "frontier-peak",
        "Frontier",
        "22B, 175B, 1T: best mapping, % of peak",
        "≥ " + figures,
        lambda: [100.0 * frontier(model) for model in FRONTIER],
        tuple(map(least, published)),
        "{:.1f}, {:.1f}, {:.1f}",
        LAW,
    )
    yield Claim(
        "frontier-partition",
        "Frontier",
        "partition over ZeRO++, ZeRO 3, ± 25 %",
        "1.71, –",
        _partition,
        (about(1.71, 0.25), ANY),
        "{:.2f}, {:.2f}",
        SETTING,
        _partition_settings,
    )
    yield Claim(
        "megascale",
        "MegaScale",
        "12,288 A100, MFU ± 3.6 %",
        "55.2 %",
        lambda: (100.0 * megascale()["all"],),
        (about(55.2, 0.036),),
        "{:.1f} %",
        why="With what the paper names and its stack of Megatron-Core; no row of MegaScale was fitted. Its window of "
        "attention and its own operators are not published, and not in ours",
        cases=(MEGASCALE,),
    )
    yield Claim(
        "megascale-gain",
        "MegaScale",
        "over Megatron-LM, ± 5 %: it waits for slow nodes, it does not",
        "1.34",
        _megascale_gain,
        (about(1.34, 0.05), ANY),
        "{:.2f}, {:.2f}",
        SETTING,
        "That slow nodes hold up the baseline alone, since MegaScale takes them out, and by how much, is ours",
    )
    yield Claim(
        "holmes",
        "Holmes",
        "time lost across slow links, pp over dp: least, most (< 1)",
        NO_FIGURE,
        _holmes,
        ((-0.01, 1.0),) * 2,
        "{:.2f}, {:.2f}",
        LAW,
    )
    yield Claim(
        "mixtral",
        "NeMo",
        "Mixtral-8x7B on 64 B200, tokens/s a GPU",
        "15,457",
        lambda: (float(_MIXTRAL.metrics().tokens_per_second_per_device),),
        (about(15457.0),),
        "{:,.0f}",
        SETTING,
        "NeMo 25.02 has no stack of its own: that of Megatron-Bridge on B200 stands in, fitted to dense models of this "
        "and later releases",
        cases=(_MIXTRAL,),
    )


def _of_failures() -> Iterator[Claim]:
    yield Claim(
        "datastates",
        "DataStates",
        "asynchronous checkpoints: stall, run",
        "≤ 48, ≤ 2.2",
        _datastates,
        ((1.0, 48.0), (1.0, 2.2)),
        "{:.1f}, {:.2f}",
        LAW,
        "The file system's 650 GB/s are from memory",
        cases=(_DATASTATES,),
    )
    yield Claim(
        "reft",
        "REFT",
        "best interval over √(2 C MTBF), ± 5 %",
        NO_FIGURE,
        _young,
        (about(1.0, 0.05),),
        "{:.3f}",
        IDENTITY,
        cases=(_LLAMA,),
    )
    yield Claim(
        "c4-congestion",
        "C4",
        "congestion, 13 % of a step exposed",
        "15 %",
        _congested,
        (about(15.0),),
        "{:.1f} %",
        SETTING,
        "Messages 2.15 times as long were chosen to give 15 %",
    )
    yield Claim(
        "c4-detection",
        "C4",
        "failures found in 30 s for 30 minutes: time lost to them, less (> 0)",
        "30 %",
        _detected,
        ((1e-3, 100.0),),
        "{:.0f} %",
        LAW,
        "Its cluster and its times of detection before and after are not known: 405B on 16,384 H100, from the default "
        "timeout of PyTorch's collectives",
        cases=(_LLAMA,),
    )
    yield Claim(
        "governance",
        "Governance",
        "1T, 20 T tokens: FLOPs, ± 3 %",
        "1.2e26",
        lambda: (float(_GOVERNED.metrics().run_flops),),
        (about(1.2e26, 0.03),),
        "{:.3g}",
        IDENTITY,
        cases=(_GOVERNED,),
    )
