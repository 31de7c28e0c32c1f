"""GenZ and LLM-Viewer at equal efficiencies: their published formulas, written again, and ours beside them.

``python -m benchmarks.serving.peers`` prints prefill and decode of Llama-2-7B by all three, and how many designs a
second each evaluates. Both peers add up ``max(FLOPs / rate, bytes / bandwidth)`` over the operators of one layer:

- GenZ (Bambhaniya et al. 2024, arXiv 2406.01698): products alone, scores and context in one kernel that keeps the
  square on the chip, no mask (the full square), no norms, one row of the head.
- LLM-Viewer (Yuan et al. 2024, arXiv 2402.16363): the same with norms, activation and residuals; its ``flash`` option.

Neither has costs of an engine, tiles, or waves; ours has them at zero here, and the causal half of the square.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

import dse
from benchmarks.serving.perfect import perfect
from dse.types import Design


class Shape(NamedTuple):
    """What the formulas ask of a model: plain numbers."""

    layers: float
    hidden: float
    heads: float
    kv_heads: float
    head_dim: float
    ffn: float
    vocab: float


class Device(NamedTuple):
    """Rates that a kernel reaches."""

    flops: float
    bandwidth: float
    cache: float


BYTES = 2.0  # of a weight, an activation and a cached value


def roof(flops: float, size: float, device: Device) -> float:
    """Seconds of an operator: the longer of its FLOPs and its bytes."""
    return max(flops / device.flops, size / device.bandwidth)


def linear(rows: float, depth: float, columns: float, device: Device) -> float:
    """Seconds of a product with weights, every matrix moved once."""
    return roof(2.0 * rows * depth * columns, BYTES * (rows * depth + depth * columns + rows * columns), device)


def genz(shape: Shape, device: Device, batch: float, queries: float, context: float) -> float:
    """Seconds of one pass of ``queries`` tokens of each sequence, which see ``context`` tokens."""
    rows = batch * queries
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    pairs = batch * shape.heads * queries * context
    attention = roof(4.0 * pairs * shape.head_dim, BYTES * batch * (2.0 * queries * q + 2.0 * context * kv), device)
    layer = (
        linear(rows, shape.hidden, q + 2.0 * kv, device)
        + attention
        + linear(rows, q, shape.hidden, device)
        + linear(rows, shape.hidden, 2.0 * shape.ffn, device)
        + linear(rows, shape.ffn, shape.hidden, device)
    )
    return shape.layers * layer + linear(batch, shape.hidden, shape.vocab, device)


def llm_viewer(shape: Shape, device: Device, batch: float, queries: float, context: float) -> float:
    """The same by LLM-Viewer's operators; its fused attention reads the keys once for each block of rows."""
    rows = batch * queries
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    width = rows * shape.hidden
    blocks = -(-queries // max(min(device.cache / (BYTES * shape.head_dim), shape.head_dim), 1.0))
    pairs = batch * shape.heads * queries * context
    attention = roof(
        (4.0 * shape.head_dim + 5.0) * pairs, BYTES * batch * (2.0 * queries * q + 2.0 * blocks * context * kv), device
    )
    norm, add = roof(7.0 * width, 2.0 * BYTES * width, device), roof(width, 2.0 * BYTES * width, device)
    layer = (
        linear(rows, shape.hidden, q, device)
        + 2.0 * linear(rows, shape.hidden, kv, device)
        + linear(rows, q, shape.hidden, device)
        + 2.0 * linear(rows, shape.hidden, shape.ffn, device)
        + linear(rows, shape.ffn, shape.hidden, device)
        + attention
        + 2.0 * norm
        + 2.0 * add
        + roof(2.0 * width, 3.0 * BYTES * width, device)
    )
    return shape.layers * layer + linear(batch, shape.hidden, shape.vocab, device)


#: Peer → its formula.
PEERS: dict[str, Callable[[Shape, Device, float, float, float], float]] = {"GenZ": genz, "LLM-Viewer": llm_viewer}

#: (sequences, tokens of a prompt) that are compared.
CASES = ((1.0, 2048.0), (1.0, 4096.0), (16.0, 1024.0), (64.0, 2048.0))

#: Efficiencies that all three have.
COMPUTE, MEMORY = 0.7, 0.8


def design(batch: float, prompt: float) -> Design:
    """Llama-2-7B on one A100 in 16 bits, a batch that starts together, with an engine that costs nothing."""
    made = dse.design(
        "llama-2-7b",
        "a100-sxm-80gb",
        "vllm",
        any_option=True,
        precision="bf16",
        load="static",
        concurrency=batch,
        prompt_tokens=prompt,
        output_tokens=2.0,
        chunk=1e9,
    )
    ideal = perfect(made)
    own = ideal.system.accelerator.kernels
    kernels = dataclasses.replace(
        own,
        matrix_efficiency=COMPUTE,
        flash_efficiency=COMPUTE,
        memory_efficiency=MEMORY,
        matrix_depth=0.0,
        wave_quantization=0.0,
        attention=own.attention and dataclasses.replace(own.attention, decode_memory=MEMORY),
    )
    accelerator = dataclasses.replace(ideal.system.accelerator, kernels=kernels)
    return dataclasses.replace(ideal, system=dataclasses.replace(ideal.system, accelerator=accelerator))


def peer_inputs(made: Design) -> tuple[Shape, Device]:
    """The same design as the peers have it."""
    w, device = made.workload, made.system.accelerator
    shape = Shape(
        *(float(x) for x in (w.n_layers, w.hidden, w.n_heads, w.n_kv_heads, w.head_dim, w.ffn_hidden, w.vocab))
    )
    rate = float(device.matrix_rate.bf16) * COMPUTE
    return shape, Device(rate, float(device.memory.bandwidth) * MEMORY, 192e3)  # an SM's share of a block of keys


class Compared(NamedTuple):
    """Seconds of a phase by one of the peers and by us."""

    peer: str
    phase: str
    batch: float
    prompt: float
    theirs: float
    ours: float

    @property
    def difference(self) -> float:
        """Ours over theirs, less one."""
        return self.ours / self.theirs - 1.0


def compare() -> list[Compared]:
    """Prefill and decode of every case by both peers."""
    found = []
    for batch, prompt in CASES:
        made = design(batch, prompt)
        ours = dse.serve(made)
        shape, device = peer_inputs(made)
        for name, formula in PEERS.items():
            prefill = formula(shape, device, batch, prompt, prompt)
            decode = formula(shape, device, batch, 1.0, prompt + 1.0)
            found += [
                Compared(name, "prefill", batch, prompt, prefill, float(ours.time_to_first_token_prefill)),
                Compared(name, "decode", batch, prompt, decode, float(ours.time_per_output_token)),
            ]
    return found


def rates(seconds: float = 1.0) -> dict[str, float]:
    """Designs (a prompt's pass and a decode step each) a second: peers in Python, ours by NumPy and in a grid."""
    made = design(16.0, 1024.0)
    shape, device = peer_inputs(made)
    found = {
        name: _rate(
            lambda f=formula: (f(shape, device, 16.0, 1024.0, 1024.0), f(shape, device, 16.0, 1.0, 1025.0)), seconds
        )
        for name, formula in PEERS.items()
    }
    dse.serve(made)
    found["dse, one by one"] = _rate(lambda: dse.serve(made), seconds)
    return found | {"dse, in a sweep": in_a_sweep()}


def _rate(call: Callable[[], object], seconds: float) -> float:
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - began)


_SWEEP = """
[workload]
name = "llama-2-7b"

[system]
name = "a100-sxm-80gb"
n_devices = 8

[software]
name = "vllm"
any_option = true

[serving]
output_tokens = 256

[axes]
concurrency = { from = 1, to = 1000, count = 100 }
prompt_tokens = { from = 100, to = 4000, count = 100 }
memory.bandwidth = { from = "1 TB/s", to = "8 TB/s", count = 50 }
tp = [1, 2, 4, 8]

[output]
keep = "best"
"""


def in_a_sweep() -> float:
    """Designs a second of a grid of two million, best only (keep = "best"), its compilation left out."""
    from dse.spec.sweep import from_text
    from dse.sweep import execute

    _, summary = execute(from_text(_SWEEP), output=False)
    return summary.n_designs / max(summary.seconds["run"], 1e-9)


def main() -> None:
    """Print both tables."""
    print(f"{'peer':<12}{'phase':<9}{'batch':>6}{'prompt':>8}{'theirs ms':>11}{'ours ms':>9}{'difference':>12}")
    for c in compare():
        print(
            f"{c.peer:<12}{c.phase:<9}{c.batch:>6g}{c.prompt:>8g}{1e3 * c.theirs:>11.2f}{1e3 * c.ours:>9.2f}"
            f"{c.difference:>+12.1%}"
        )
    print()
    for name, rate in rates().items():
        print(f"{name:<18}{rate:>14,.0f} designs/s")


if __name__ == "__main__":
    main()
