"""What the model says where a user decides, beyond the rows: networks, pipelines, chips; and what it said before."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import dse
from docs.make.accuracy.breakdown import timed
from docs.make.markdown import filed, percent
from dse import types
from dse.designs import catalog
from dse.measured.comparison import Comparison
from dse.model import Route, generated
from dse.model.machine import collectives
from dse.types import Collective, Design, Group

_ABOUT = """\
Most decisions are about machines and mappings that no row covers: racks of 72, full meshes, hybrid sharding, clocks of
generated chips. The table has what the model says now, what it said before a fault was mended, and what is known; laws
in the tests hold the direction (`tests/laws/test_laws.py`):"""


def section(compared: Sequence[Comparison]) -> list[str]:
    """The section of the page; ``compared`` are its rows."""
    lines = [_domains(), *_meshes(), *_sharding(), _zero_2(), *_llama(), _clock(), *_memory(compared)]
    rows = filed("accuracy_decisions", ["what", "at", "before", "now", "known"], lines)
    return ["## Where a user decides", f"{_ABOUT}\n{rows}"]


def _step(workload: str, system: str, software: str | None = None, **values: Any) -> dse.Metrics:
    return dse.evaluate(dse.design(workload, system, software, **values))


def _domains() -> list[str]:
    """64 devices in a rack of 72 instead of one of 64."""
    shared = dict(n_devices=64, tp=16, dp=4, global_batch=256, zero_stage=1, sequence_parallel=1, recompute="full")
    times = [
        float(_step("llama-3-70b", "gb200-nvl72", **shared, **{"scale_up.domain": domain}).step_time)
        for domain in (64, 72)
    ]
    return [
        "step, domain of 72 over one of 64",
        "Llama-3-70B, 64 GB200, tp 16",
        "+56.5 %",
        percent(times[1] / times[0] - 1.0, "+"),
        "no slower",
    ]


def _meshes() -> list[list[str]]:
    """Bandwidth that members of a full mesh reach."""
    system, size, found = catalog.record(types.System, "mi300x"), 1e9, []
    for members in (2.0, 4.0, 8.0):
        time = float(collectives.all_gather(size, Route(Group(members, members), system), float(Collective.ring)))
        reached = size * (members - 1.0) / members / time / 1e9
        links = 64.0 * (members - 1.0)
        found.append(
            [
                "all-gather of 1 GB: GB/s a device",
                f"MI300X, {members:g} of 8 in a full mesh",
                "342",
                f"{reached:.0f}",
                f"at most {links:.0f}: {members - 1.0:g} x 64",
            ]
        )
    return found


def _sharding() -> list[list[str]]:
    """FSDP and hybrid sharding on a large cluster, against 64 devices."""

    def rate(dp: int, copies: int) -> float:
        shared = dict(n_devices=dp, dp=dp, global_batch=dp, seq_len=2048, recompute="full", zero_stage=3, overlap_dp=1)
        return float(_step("llama-3-70b", "eos", **shared, dp_replicate=copies).tokens_per_second_per_device)

    alone = rate(64, 1)
    return [
        [
            "tokens/s a device, 16,384 over 64 devices",
            f"Llama-3-70B on H100, one sequence of 2,048 each, {how}",
            before,
            percent(rate(16384, copies) / alone - 1.0, "+"),
            known,
        ]
        for how, copies, before, known in (
            ("FSDP", 1, "-67.8 %", "falls with the latency of rings"),
            ("hybrid sharding, 64 a copy", 256, "not expressible", "nearly flat: what large runs use"),
        )
    ]


def _zero_2() -> list[str]:
    step = _step(
        "megatron-1t",
        "selene",
        n_devices=4096,
        tp=8,
        pp=32,
        dp=16,
        virtual_stages=4,
        global_batch=3072,
        recompute="selective",
        sequence_parallel=1,
        zero_stage=2,
    )
    return [
        "step with ZeRO 2 under a pipeline",
        "Megatron-1T, 4,096 A100, pp 32, v 4",
        "203.1 s",
        f"{float(step.step_time):.1f} s",
        "that of ZeRO 1: gradients are reduced once a step",
    ]


class Run(NamedTuple):
    """A published run of Llama 3 405B and its utilisation (Llama team 2024, arXiv:2407.21783, table 4)."""

    devices: int
    tokens: int  # of a sequence
    cp: int
    dp: int
    batch: int  # sequences a step
    mfu: float


LLAMA = (
    Run(8192, 8192, 1, 64, 2048, 0.43), Run(16384, 8192, 1, 128, 2048, 0.41), Run(16384, 131072, 16, 8, 128, 0.38),
)  # fmt: skip


def llama(run: Run) -> Design:
    """Its design: 126 layers on 16 stages, one a chunk, the first of the embedding and the last of the loss alone.

    Meta's own stack is not in the catalogue: the one of Megatron-Core of that year stands for it, without overlap of
    tp messages. Its attention is taken to be FlashAttention-2, which PyTorch and xFormers had on H100 until July 2024,
    as many times slower than cuDNN's as in the stack whose context parallelism runs it.
    """
    usual, kernel = catalog.record(types.Software, "megatron-core"), catalog.record(types.Software, "nemo-24-03")
    return dse.design(
        "llama-3-1-405b",
        "eos",
        "megatron-core",
        n_devices=run.devices,
        tp=8,
        cp=run.cp,
        pp=16,
        dp=run.dp,
        virtual_stages=8,
        micro_batch=1,
        recompute="none",
        zero_stage=1,
        sequence_parallel=1,
        overlap_dp=1,
        overlap_tp=0,
        placement="tp_cp_pp_dp",
        cp_comm_type="all_gather",
        seq_len=run.tokens,
        global_batch=run.batch,
        **{
            "workload.window": run.tokens,
            "software.flash_slowdown": float(usual.flash_slowdown * kernel.cp_flash_slowdown),
        },
    )


def _llama() -> list[list[str]]:
    found = []
    for run in LLAMA:
        metrics = dse.evaluate(llama(run))
        runs = "" if bool(metrics.feasible) else f" ({float(metrics.peak_memory) / 2**30:.0f} GiB: too much)"
        found.append(
            [
                "MFU of a published mapping",
                f"Llama-3.1-405B, {run.devices:,} H100, {run.tokens:,} tokens, pp 16, v 8, cp {run.cp}",
                "refused",
                f"{percent(float(metrics.mfu))}{runs}",
                percent(run.mfu),
            ]
        )
    return found


def _clock() -> list[str]:
    chip = {"chip.die_area": 100e-6, "chip.power_budget": 700.0}
    design = dse.design("llama-3-70b", "gpu", n_devices=8, tp=8, recompute="full", **chip)
    clock = float(generated(design).system.accelerator.power.clock)
    return [
        "clock of a generated chip",
        "700 W on 100 mm²",
        "4.2 GHz",
        f"{clock / 1e9:.2f} GHz",
        "at most what the cooling takes away",
    ]


def _memory(compared: Sequence[Comparison]) -> list[list[str]]:
    """Peak memory of FSDP, and runs that are said not to fit though they ran."""
    errors = [abs(c.error) for c in compared if c.source.startswith("torchtitan") and c.metric == "peak_memory"]
    ran = [c for c in timed(compared) if "over capacity" in c.prediction.note]
    mean = percent(statistics.fmean(errors)) if errors else "–"
    return [
        ["peak memory, mean error", f"torchtitan, {len(errors)} rows", "36.7 %", mean, "at most 10 %"],
        [
            "measured steps that would not fit",
            ", ".join(sorted({c.source for c in ran})) or "none",
            "5",
            str(len(ran)),
            "none",
        ],
    ]
