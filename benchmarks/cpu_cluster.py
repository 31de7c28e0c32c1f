"""Profiles of a tiny transformer on two processes of this CPU: ``make profiles``.

Needs PyTorch and nothing of dse. Each process is a device: a thread of its own, gradients averaged over gloo by
DistributedDataParallel. Of every batch the PyTorch profiler keeps a few steps, a file a rank, as it exports them; of
several rounds the one whose median step is the shortest is kept, since what else runs on a machine only slows it down.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F  # noqa: N812
from torch import nn

#: As ``config.json`` of a model has it.
CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
    "vocab_size": 2048,
    "tie_word_embeddings": False,
}
RANKS, TOKENS = 2, CONFIG["max_position_embeddings"]

#: Steps of a batch: before the profiler, under it but not kept, kept.
BEFORE, WARM, KEPT = 2, 1, 6


class Layer(nn.Module):
    """Attention and a gated feed-forward behind norms, as Llama's."""

    def __init__(self) -> None:
        super().__init__()
        hidden, ffn = CONFIG["hidden_size"], CONFIG["intermediate_size"]
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """Hidden states behind the layer; ``turn``: rotations of positions."""
        q, k, v = (
            part.unflatten(-1, (CONFIG["num_attention_heads"], -1)).transpose(1, 2)
            for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        q, k = (torch.view_as_real(torch.view_as_complex(p.unflatten(-1, (-1, 2))) * turn).flatten(-2) for p in (q, k))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """Decoder with embedding and head."""

    def __init__(self) -> None:
        super().__init__()
        hidden, vocab = CONFIG["hidden_size"], CONFIG["vocab_size"]
        self.embedding, self.head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab, bias=False)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"])), nn.RMSNorm(hidden)
        half = hidden // CONFIG["num_attention_heads"] // 2
        angles = torch.outer(torch.arange(TOKENS), 1e4 ** (-torch.arange(half) / half))
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.turn)
        return self.head(self.norm(x))


def train(rank: int, batches: list[int], rounds: int, folder: Path, port: int) -> None:
    """Profile the steps of each batch, sequences of a step over all ranks, as one rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    best = dict.fromkeys(batches, math.inf)
    for batch in batches * rounds:
        tokens = torch.randint(CONFIG["vocab_size"], (batch // RANKS, TOKENS + 1))
        kept = folder / f"batch-{batch}.rank-{rank}.json.gz"
        new = kept.with_name(f"new.{kept.name}")
        median = profiled(model, optimizer, tokens, new)
        if median < best[batch]:
            best[batch] = median
            new.replace(kept)
    dist.destroy_process_group()
    if not rank:
        print(f"seconds a step by sequences of a step: {best}")


def profiled(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor, path: Path) -> float:
    """Median seconds of a step by the slowest rank, with the profile of a rank at ``path``."""

    def step() -> None:
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(BEFORE):
        step()
    dist.barrier()
    ends = []
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=WARM, active=KEPT, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(WARM + KEPT):
            step()
            ends.append(time.perf_counter())
            profiler.step()
    median = torch.tensor(statistics.median(b - a for a, b in itertools.pairwise(ends)))
    dist.all_reduce(median, dist.ReduceOp.MAX)
    return float(median)


def main() -> None:
    """Write the files of all batches into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=29511)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    (asked.folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    mp.spawn(train, (asked.batches, asked.rounds, asked.folder, asked.port), nprocs=RANKS)
    for path in asked.folder.glob("new.*"):
        path.unlink()


if __name__ == "__main__":
    main()
