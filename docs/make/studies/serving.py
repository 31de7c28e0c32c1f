"""Claims on serving."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator

import dse
from benchmarks.serving import peers, systems
from docs.make.serving_power import headroom
from docs.make.studies.claim import (
    ANY,
    IDENTITY,
    LAW,
    NO_FIGURE,
    NOT_CHECKED,
    SETTING,
    Claim,
    about,
    between,
    least,
    reached,
)
from dse.designs import leaf, replace
from dse.fleet.pools import match


@functools.cache
def _checks(system: Callable[[], Iterator[systems.Check]]) -> tuple[systems.Check, ...]:
    return tuple(system())


def _ours(system: Callable[[], Iterator[systems.Check]], part: str) -> tuple[float, ...]:
    """Our values of the checks of a system whose text has that part (docs/systems.md)."""
    return tuple(check.ours for check in _checks(system) if part in check.what)


# --- Optimus ----------------------------------------------------------------------------------------------------


def memories() -> tuple[float, ...]:
    """Latency of Llama-2-13B: GDDR6 over HBM3E, HBM3E over HBM6, and the most that links change."""
    found = dse.run("sweeps/dram_scaling_inference.toml", output=False)
    times = found.request_latency.sel(workload="llama-2-13b")
    old, usual, new = (float(times.sel(memory=name, scale_up="nvlink-4")) for name in ("gddr6-16", "hbm3e-8-0", "hbm6"))
    return old / usual, usual / new, float((times.max("scale_up") / times.min("scale_up")).max())


_PRODUCTS = ("qkv", "projection", "ffn_up", "ffn_down", "head")


def bounds() -> tuple[float, ...]:
    """Products bound by memory in decode and in prefill, of 15 each: Llama-2-13B on A100, H100 and B200."""
    counts = {"decode": 0, "prefill": 0}
    for device in ("a100", "h100", "b200"):
        design = dse.design(
            "llama-2-13b", device, precision="fp16", load="static", concurrency=1, prompt_tokens=200, output_tokens=200
        )
        for one in dse.explain(design, study="serving").operators:
            if one.section in counts and one.name in _PRODUCTS and one.forward_bound == "memory":
                counts[one.section] += 1
    return counts["decode"], counts["prefill"]


def _latencies() -> Iterator[Claim]:
    """A100 and H100; from memory, so that no test holds them."""
    for (model, tp), published in systems.OPTIMUS.items():
        name = f"{model}, tp {tp}"
        yield Claim(
            f"latency-{model.rpartition('-')[2]}-tp{tp}",
            "Optimus \\*",
            f"{name}: A100, H100",
            "{:,}, {:,} ms".format(*published),
            functools.partial(_ours, systems.optimus, f"{name},"),
            (ANY, ANY),
            "{:,.0f}, {:,.0f}",
            NOT_CHECKED,
            _from_memory,
            "dse run sweeps/llama2_latency.toml",
        )


def _from_memory() -> str:
    """How far ours lie from figures that have no source."""
    ours = [check.ours for check in _checks(systems.optimus)]
    theirs = [one for pair in systems.OPTIMUS.values() for one in pair]
    off = [100.0 * (mine / other - 1.0) for mine, other in zip(ours, theirs, strict=True)]
    near = sum(abs(one) <= 10.0 for one in off)
    return (
        f"From memory, so judged by nothing: {near} of {len(off)} lie within 10 %, all between {min(off):+.0f} and "
        f"{max(off):+.0f} %. With tp 8 most of a token of 7B is messages and host, by an engine fitted to A100 alone"
    )


# --- systems ----------------------------------------------------------------------------------------------------


def _peers() -> tuple[float, ...]:
    """Largest difference of prefill and decode from GenZ, in per cent."""
    found = [one for one in peers.compare() if one.peer == "GenZ"]
    return tuple(
        100.0 * max((one.difference for one in found if one.phase == phase), key=abs) for phase in ("prefill", "decode")
    )


def _nanoflow_engines() -> tuple[float, float]:
    """Least and most of the optimum, in per cent, with nano-batches on any engine of today."""
    shares = [
        100.0 * systems.nanoflow_with(*lengths, parts, engine)
        for lengths in systems.NANOFLOW_LENGTHS
        for parts in systems.NANOFLOW_PARTS
        for engine in systems.NANOFLOW_ENGINES
    ]
    return min(shares), max(shares)


def _nanoflow_release() -> tuple[float, float]:
    """Least and most of the optimum, in per cent, that the release after the study reaches without overlap."""
    return _span(
        tuple(100.0 * systems.nanoflow_share(*lengths, systems.NANOFLOW_AFTER) for lengths in systems.NANOFLOW_LENGTHS)
    )


def _span(values: tuple[float, ...]) -> tuple[float, float]:
    return min(values), max(values)


def _pools() -> tuple[float, ...]:
    """The mixed pool (prompts on H100, answers on A100) over engines that do both on H100: at equal price, at both."""
    found = match("sweeps/splitwise_pools.toml")
    (both,) = (one for one in found.together if one.parts[0].accelerator.startswith("h100"))
    (mixed,) = (one for one in found.pools if [p.accelerator[:4] for p in one.parts] == ["h100", "a100"])
    price, _, least_of_both = mixed.gain(both)
    return price, least_of_both


def _instinfer() -> tuple[float, ...]:
    """Gains by length, and by how much each is above the one before."""
    gains = _ours(systems.instinfer, "gain")
    return *gains, *(after - before for before, after in itertools.pairwise(gains))


def _provisioned() -> tuple[float, ...]:
    """Rating of a DGX A100 over its peak, and limits of devices and hosts over it."""
    found = headroom("a100-sxm-80gb", "llama-2-70b", 16, 1024, 256)
    return found.by_rating, found.by_limits


def faster_cores() -> tuple[float, ...]:
    """Gain of cores 100 times as fast at fixed memory: of training (bound by compute) and decoding (by memory)."""
    gains = []
    for made, of in (
        (dse.design("llama-3-8b", "h100", n_devices=8, tp=8, global_batch=64), "step_time"),
        (dse.design("llama-3-8b", "h100", "vllm", concurrency=1, prompt_tokens=1024), "time_per_output_token"),
    ):
        paths = [f"system.accelerator.{rate}" for rate in ("matrix_rate.bf16", "vector_rate")]
        fast = replace(made, {path: 100.0 * float(leaf(made, path)) for path in paths})
        run = dse.evaluate if of == "step_time" else dse.serve
        gains.append(float(getattr(run(made), of) / getattr(run(fast), of)))
    return tuple(gains)


def _of_optimus() -> Iterator[Claim]:
    yield Claim(
        "memories",
        "Optimus",
        "13B latency, GDDR6/HBM3E (≥ 2), HBM3E/HBM6 (1 to 1.5), links (≤ 1.1)",
        NO_FIGURE,
        memories,
        (least(2.0), (1.0, 1.5), (1.0, 1.1)),
        "{:.1f}, {:.2f}, {:.2f}",
        LAW,
        command="dse run sweeps/dram_scaling_inference.toml",
    )
    yield Claim(
        "products",
        "Optimus",
        "products bound by memory, decode (all), prefill (not all)",
        NO_FIGURE,
        bounds,
        ((15, 15), (0, 14)),
        "{:.0f}, {:.0f} of 15",
        LAW,
    )
    yield from _latencies()


def _of_nanoflow() -> Iterator[Claim]:
    of = functools.partial(_ours, systems.nanoflow)
    yield Claim(
        "nanoflow-before",
        "NanoFlow",
        "70B on 8 A100, of the optimum, without overlap",
        "31–38 %",
        lambda: _span(of("TensorRT-LLM of 2023")),
        (between(31.0, 38.0),) * 2,
        "{:.0f}–{:.0f} %",
        SETTING,
        lambda: (
            "The best engine compared, TensorRT-LLM (59–72 % over 1.91), in its release here before the study, fitted "
            "to other runs; that of 2025 reaches {:.0f} to {:.0f} %".format(*_nanoflow_release())
        ),
    )
    yield Claim(
        "nanoflow-with",
        "NanoFlow",
        "the same with overlap, 2 and 4 nano-batches",
        "59–72 %",
        lambda: _span(of("nano-batches")),
        (between(59.0, 72.0),) * 2,
        "{:.0f}–{:.0f} %",
        SETTING,
        lambda: (
            "Overlap follows from cores, bandwidth and links that kernels take from each other; the engine under it, "
            "vLLM of today with sums of its own at any size, is ours. Others of today: {:.0f} to {:.0f} %".format(
                *_nanoflow_engines()
            )
        ),
    )
    yield Claim(
        "nanoflow-gain",
        "NanoFlow",
        "gain over the best engine, mean of lengths",
        "1.91",
        lambda: (statistics.fmean(systems.nanoflow_gains()),),
        (about(1.91),),
        "{:.2f}",
        SETTING,
        lambda: "By lengths and nano-batches {:.2f} to {:.2f}; engines as in the rows above".format(
            *_span(systems.nanoflow_gains())
        ),
    )


def claims() -> Iterator[Claim]:
    """All of this file, in the order of the page."""
    yield from _of_optimus()
    of = functools.partial(_ours, systems.long_context)
    yield Claim(
        "long-cache",
        "Long context",
        "Yi-34B, cache at 50K, 4K",
        "12.3, 1.0 GB",
        lambda: of("cache"),
        (about(12.3, 0.02), about(1.0, 0.02)),
        "{:.1f}, {:.1f}",
        IDENTITY,
    )
    yield Claim(
        "long-decode",
        "Long context",
        "the same, 250 tokens, A100 at peak",
        "9.8, 8.5 s",
        lambda: of("250 tokens"),
        (about(9.8, 0.05), about(8.5, 0.05)),
        "{:.1f}, {:.1f}",
        IDENTITY,
    )
    yield Claim(
        "genz",
        "GenZ",
        "7B at equal efficiencies: largest difference, prefill, decode (≤ 10 %)",
        NO_FIGURE,
        _peers,
        ((-10.0, 10.0),) * 2,
        "{:+.1f}, {:+.1f} %",
        IDENTITY,
        "GenZ's formulas, written again, beside ours with the same rates",
        "python -m benchmarks.serving.peers",
    )
    yield from _of_nanoflow()
    yield Claim(
        "splitwise",
        "Splitwise",
        "pools over H100 at equal price; power too, ± 20 %",
        "1.75, 2.35",
        _pools,
        (about(1.75, 0.2), about(2.35, 0.2)),
        "{:.2f}, {:.2f}",
        SETTING,
        "Unverified: lengths, prices and limits are ours, the traces are not here. 1.75 is their 1.4 at 0.8 of the cost",
        "dse pools sweeps/splitwise_pools.toml",
    )
    yield Claim(
        "polca",
        "POLCA",
        "provisioned over peak of a DGX A100: by its rating alone, by limits of devices and hosts",
        "≥ 1.30",
        _provisioned,
        (reached(1.30), ANY),
        "{:.2f}, {:.2f}",
        SETTING,
        "By the rating of the server alone, taken to be what POLCA provisions by; limits of devices and hosts leave less",
    )
    yield Claim(
        "instinfer",
        "InstInfer",
        "gain at 128, 1,024, 16,384 tokens: grows",
        "≤ 11.1",
        _instinfer,
        ((1.0, 11.1),) * 3 + ((0.0, 11.1),) * 2,
        "{:.1f}, {:.1f}, {:.1f}",
        SETTING,
        "The drives are given 11.1 times the rate of the link",
    )
    yield Claim(
        "block-formats",
        "Block formats",
        "cache in MXFP8 over 16 bits, ± 6 %",
        "0.5",
        lambda: _ours(systems.block_formats, "MXFP8"),
        (about(0.5, 0.06),),
        "{:.3f}",
        IDENTITY,
        "Bytes of an element, and an exponent for 32",
    )
    yield Claim(
        "speculation",
        "Speculation",
        "tokens of a step, three settings",
        "1.7, 2.277, 5.695",
        lambda: _ours(systems.speculation, "drafts"),
        (about(1.7, 0.01), about(2.277, 0.01), about(5.695, 0.01)),
        "{:.4g}, {:.4g}, {:.4g}",
        IDENTITY,
        "Both are (1 − a^(k + 1)) / (1 − a)",
    )
    yield Claim(
        "tiers",
        "SN40L",
        "time by more weights in DDR (> 1)",
        NO_FIGURE,
        lambda: _ours(systems.three_tiers, "time of a token"),
        (least(1.0),) * 3,
        "{:.1f}, {:.1f}, {:.1f}",
        LAW,
        "H100 with a tier of DDR, not the SN40L",
    )
    yield Claim(
        "peer-memory",
        "EnergonAI",
        "runs alone (0), with peers' memory (1)",
        NO_FIGURE,
        lambda: _ours(systems.peer_memory, "can serve") + _ours(systems.peer_memory, "30 %"),
        ((0.0, 0.0), (1.0, 1.0)),
        "{:.0f}, {:.0f}",
        LAW,
        "BLOOM-176B on four A100, not the published model and devices",
    )
    yield Claim(
        "fast-cores",
        "Cryogenic cores",
        "cores × 100 at fixed memory: gain of training (≥ 1.2), of decode (→ 1)",
        NO_FIGURE,
        faster_cores,
        ((1.2, 100.0), (1.0, 1.1)),
        "{:.2f}, {:.2f}",
        LAW,
    )
