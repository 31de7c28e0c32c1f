"""Systems of the literature that serve: what they published, and what the model has for the same.

One list for the page of the docs and for the tests. A ``law`` is a direction or a bound; figures marked unverified are
printed and never judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dse
from benchmarks.serving.perfect import perfect
from dse.model.serving.intake import output_tokens_per_step
from dse.types import Serving, ServingMetrics


class Check(NamedTuple):
    """One figure: ours, what was published in words, and the interval in which ours must lie."""

    system: str
    what: str
    published: str
    ours: float
    low: float
    high: float
    unit: str = ""
    verified: bool = True

    @property
    def holds(self) -> bool:
        """Whether ours lies where it must; what is not verified always does."""
        return not self.verified or self.low <= self.ours <= self.high


def served(
    workload: str, system: str, software: str | None = None, ideal: bool = False, **settings: Any
) -> ServingMetrics:
    """Metrics of a design in 16 bits; ``ideal``: kernels at their rates, an engine that costs nothing."""
    stated = {"any_option": True, "precision": "fp16", "prompt_tokens": 1024, **settings}
    design = dse.design(workload, system, software, **stated)
    return dse.serve(perfect(design) if ideal else design)


#: One A100 answers 250 tokens at these contexts: (tokens, GB of cache, seconds of decoding as published).
LONG_CONTEXT = ((50_000, 12.3, 9.8), (4_000, 1.0, 8.5))


def long_context() -> Iterator[Check]:
    """Yi-34B: bytes of the cache, and the seconds in which weights and cache are read for each of 250 tokens."""
    for tokens, gigabytes, seconds in LONG_CONTEXT:
        found = served(
            "yi-34b",
            "a100-sxm-80gb",
            "vllm",
            ideal=True,
            load="static",
            concurrency=1,
            prompt_tokens=tokens,
            output_tokens=250,
        )
        cache, decode = float(found.peak_memory_cache) / 1e9, 250.0 * float(found.time_per_output_token)
        name = "long context (Fu 2024)"
        yield Check(
            name,
            f"Yi-34B at {tokens:,} tokens: cache",
            f"{gigabytes:g} GB",
            cache,
            0.98 * gigabytes,
            1.02 * gigabytes,
            "GB",
        )
        yield Check(
            name,
            f"Yi-34B at {tokens:,} tokens: 250 tokens on an A100",
            f"{seconds:g} s",
            decode,
            0.95 * seconds,
            1.05 * seconds,
            "s",
        )


#: Tokens a second of an A100 at which its matrix units bound Llama-2-70B: 260 TFLOP/s over 2 x 70e9 FLOPs a token.
NANOFLOW_OPTIMUM = 1857.0

#: Lengths of prompts and answers that are compared.
NANOFLOW_LENGTHS = ((512, 512), (1024, 512), (512, 1024))


def nanoflow_share(prompt: int, answer: int, software: str, **more: float) -> float:
    """Share of the optimum that Llama-2-70B on eight A100s reaches, prompts and answers counted."""
    found = served(
        "llama-2-70b",
        "a100-sxm-80gb",
        software,
        tp=8,
        load="offline",
        prompt_tokens=prompt,
        output_tokens=answer,
        chunk=2048,
        **more,
    )
    tokens = float(found.output_tokens_per_second_per_device) * (prompt + answer) / answer
    return tokens / NANOFLOW_OPTIMUM


#: Engine of the 31 to 38 % without overlap: 59 and 72 % over the gain of 1.91 over the best engine, TensorRT-LLM, are
#: 31 and 38 %. Its last release here before the study (2024); that after it is of 2025.
NANOFLOW_BEFORE, NANOFLOW_AFTER = "tensorrt-llm-2023", "tensorrt-llm-2025"

#: Engine that is cut into nano-batches here, and others of today.
NANOFLOW_ENGINE, NANOFLOW_ENGINES = "vllm", ("vllm-2025", "vllm", "tensorrt-llm-2025", "tensorrt-llm")

#: The study has two to four nano-batches.
NANOFLOW_PARTS = (2.0, 4.0)

#: Messages of any size are of its own kernels (MSCCL++).
_NANOFLOW = {"own_message_bytes": 1e12}


def nanoflow_with(prompt: int, answer: int, parts: float, software: str = NANOFLOW_ENGINE) -> float:
    """Share of the optimum with steps in nano-batches, on an engine of today."""
    return nanoflow_share(prompt, answer, software, nano_batches=parts, **_NANOFLOW)


def nanoflow() -> Iterator[Check]:
    """Engines of 2023 and 2024, whose operators follow each other, and one of today whose steps are in nano-batches."""
    for prompt, answer in NANOFLOW_LENGTHS:
        lengths = f"Llama-2-70B on 8 A100, {prompt} + {answer} tokens: share of the optimum"
        best, other, plain = (
            100.0 * nanoflow_share(prompt, answer, software)
            for software in (NANOFLOW_BEFORE, "vllm-2024", NANOFLOW_ENGINE)
        )
        name = "NanoFlow (Zhu et al. 2024)"
        yield Check(name, f"{lengths}, TensorRT-LLM of 2023", "31–38 %", best, 0.9 * 31.0, 1.1 * 38.0, "%")
        yield Check(name, f"{lengths}, vLLM of 2024", "law: below the best engine", other, 0.0, best, "%")
        with_parts = {parts: 100.0 * nanoflow_with(prompt, answer, parts) for parts in NANOFLOW_PARTS}
        yield Check(name, f"{lengths}, vLLM of today", "", plain, other, min(with_parts.values()), "%")
        for parts, ours in with_parts.items():
            yield Check(name, f"{lengths}, that in {parts:.0f} nano-batches", "59–72 %", ours, 57.0, 74.0, "%")


def nanoflow_gains() -> tuple[float, ...]:
    """Gains over the best engine, by lengths and number of nano-batches."""
    return tuple(
        nanoflow_with(*lengths, parts) / nanoflow_share(*lengths, NANOFLOW_BEFORE)
        for lengths in NANOFLOW_LENGTHS
        for parts in NANOFLOW_PARTS
    )


#: Rates of InstInfer's drives over that of the link to them, at most.
INSTINFER_GAIN = 11.1


def instinfer_gain(tokens: int) -> float:
    """Time of a token with the cache behind 16 GB/s over that with attention computed beside the drives."""
    link = 16e9
    tier = {"far.capacity": 4e12, "far.bandwidth": link, "far_cache": 1.0}
    asked = dict(load="static", concurrency=32, prompt_tokens=tokens, output_tokens=32)
    behind, beside = (
        served("opt-13b", "a100-pcie-80gb", **asked, **tier, **more)
        for more in ({}, {"far.near_bandwidth": INSTINFER_GAIN * link})
    )
    return float(behind.time_per_output_token / beside.time_per_output_token)


def instinfer() -> Iterator[Check]:
    """The gain grows with the length, up to the ratio of the rates."""
    least = 1.0
    for tokens in (128, 1024, 16384):
        gain = instinfer_gain(tokens)
        yield Check(
            "InstInfer (Pan et al. 2024)",
            f"OPT-13B, 32 sequences of {tokens:,} tokens: gain of attention beside the drives",
            "grows with length, at most 11.1",
            gain,
            least,
            INSTINFER_GAIN,
        )
        least = gain


#: Bytes of an element of formats whose blocks share an exponent: 32 of 8 bits, 16 of 4 bits.
BLOCK_FORMATS = {"MXFP8": 1.0 + 1.0 / 32.0, "NVFP4": 0.5 + 1.0 / 16.0}


def block_formats() -> Iterator[Check]:
    """Memory of the cache against 16 bits."""
    asked = dict(load="static", concurrency=8, prompt_tokens=4096)
    whole = served("llama-3-8b", "h100", **asked)
    for name, size in BLOCK_FORMATS.items():
        narrow = served("llama-3-8b", "h100", cache_bytes=size, **asked)
        share, half = float(narrow.peak_memory_cache / whole.peak_memory_cache), 0.5 if name == "MXFP8" else 0.25
        published = "0.5 ± 6 %" if half == 0.5 else "law: a quarter and its exponents"
        yield Check(
            "block formats",
            f"{name}: cache over that in 16 bits",
            published,
            share,
            half,
            half * (1.06 if half == 0.5 else 1.13),
        )


def peer_memory() -> Iterator[Check]:
    """A model that four devices do not hold runs with the memory of idle peers, and pays for the link."""
    asked = dict(tp=4, load="static", concurrency=1, prompt_tokens=128, output_tokens=32)
    peers = {"far.capacity": 100e9, "far.bandwidth": 300e9}
    alone, pooled = (served("bloom-176b", "a100-sxm-80gb", far_weights=w, **asked, **peers) for w in (0.0, 0.3))
    name = "EnergonAI (Du et al. 2022)"
    yield Check(name, "BLOOM-176B on 4 A100: can serve", "no", float(alone.feasible), 0.0, 0.0)
    yield Check(name, "the same with 30 % of the weights in peers' memory", "yes", float(pooled.feasible), 1.0, 1.0)
    longer = float(pooled.time_per_output_token / alone.time_per_output_token)
    yield Check(name, "its time of a token over that of four that held it", "law: above 1", longer, 1.0, 10.0)


def three_tiers() -> Iterator[Check]:
    """Weights in DDR under HBM: the more of them, the more room for the cache and the longer a token."""
    tier = {"far.capacity": 1.5e12, "far.bandwidth": 200e9}
    before = None
    for share in (0.0, 0.25, 0.5, 0.9):
        found = served("llama-2-70b", "h100", tp=4, load="static", concurrency=8, far_weights=share, **tier)
        seconds, room = float(found.time_per_output_token), float(found.concurrency_limit)
        if before is not None:
            name, what = "SN40L (Prabhakar et al. 2024)", f"{share:.0%} of Llama-2-70B's weights in DDR"
            for of, now, then in (("time of a token", seconds, before[0]), ("room for sequences", room, before[1])):
                yield Check(name, f"{what}: {of} over that with fewer", "law: above 1", now / then, 1.0, 1e3)
        before = seconds, room


def speculation() -> Iterator[Check]:
    """Expected tokens of a step with ``k`` drafts, ``(1 - a^(k + 1)) / (1 - a)`` (Leviathan et al. 2023)."""
    for drafts, alpha in ((1, 0.7), (3, 0.63), (7, 0.9)):
        expected = sum(alpha**i for i in range(drafts + 1))
        ours = float(output_tokens_per_step(Serving(drafts=float(drafts), acceptance=alpha)))
        yield Check(
            "speculation (Leviathan et al. 2023)",
            f"{drafts} drafts at {alpha:g}: tokens of a step",
            f"{expected:.3f}",
            ours,
            0.9999 * expected,
            1.0001 * expected,
        )


#: Llama-2, 200 + 200 tokens, one sequence in fp16: model, tp → milliseconds on A100 and H100, from memory.
OPTIMUS = {
    ("llama-2-7b", 1): (2190, 1440), ("llama-2-7b", 8): (1187, 828), ("llama-2-13b", 1): (3884, 2396),
    ("llama-2-70b", 8): (4735, 3202),
}  # fmt: skip


def optimus() -> Iterator[Check]:
    """Latencies of the Optimus study, printed beside ours: what they were measured with is not known here."""
    for (model, tp), published in OPTIMUS.items():
        for device, milliseconds in zip(("a100-sxm-80gb", "h100-sxm-80gb"), published, strict=True):
            found = served(
                model,
                device,
                "fastertransformer",
                tp=tp,
                load="static",
                concurrency=1,
                prompt_tokens=200,
                output_tokens=200,
            )
            ours = 1e3 * float(found.request_latency)
            yield Check(
                "Optimus (arXiv 2407.14645)",
                f"{model}, tp {tp}, {device}: 200 + 200 tokens",
                f"{milliseconds} ms",
                ours,
                0.0,
                1e9,
                "ms",
                verified=False,
            )


#: Every system, in the order of the page.
SYSTEMS: tuple[Callable[[], Iterator[Check]], ...] = (
    long_context,
    nanoflow,
    instinfer,
    block_formats,
    peer_memory,
    three_tiers,
    speculation,
    optimus,
)
