"""Draws of faults in traces of our own: what ran, what went wrong and what it cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dse
from benchmarks.diagnosis.replay import Event, Replay, is_message
from dse.errors import InputError
from dse.lab.exchange import kineto
from dse.types import Design
from dse.views.trace.kernels import device_step
from dse.views.trace.ledger import step_ledger
from dse.views.trace.step import schedule_step

#: Faults, and none.
FAULTS = ("link", "clock", "rank", "recompute", "host", "order", "kernels", "none")

#: Standard deviation of the logarithm of a kernel's duration; what predictions are off by, of kernels and of messages.
NOISE, OFF = 0.03, 0.03

#: A fault that costs less of the step than this is drawn again: nobody could see it.
LEAST = 0.04

#: Models, machines and stacks, each with few layers so that a trace is short.
MODELS = ("llama-3-8b", "gpt-3-13b", "llama-2-13b", "qwen3-8b", "mistral-7b")
SYSTEMS = ("h100", "selene", "h200", "b200")


class Draw(NamedTuple):
    """Files of a step with a fault."""

    fault: str
    about: str  #: which link, rank or family
    seconds: float  #: that the fault costs
    stated: Design  #: what is said to have run
    files: list[Path]
    described: str


def draw(fault: str, seed: int, folder: Path) -> Draw:
    """A step with a fault, as files of its ranks in ``folder``."""
    rng = np.random.default_rng((FAULTS.index(fault), seed))
    while True:
        if (found := _tried(fault, rng, folder)) is not None:
            return found


def _tried(fault: str, rng: np.random.Generator, folder: Path) -> Draw | None:
    values, ran = _mapping(fault, rng)
    model, system = rng.choice(MODELS), rng.choice(SYSTEMS)
    try:
        stated = dse.design(model, system, **values)
        actual = dse.design(model, system, **(values | ran))
        files, healthy = _files(actual, fault, rng), _files(stated, fault, None) if ran else {}
    except InputError:
        return None
    of_stage = kineto.rank_place(stated).ranks_per_stage
    replay, off = Replay(files, of_stage), _off(rng)
    noise = np.exp(rng.normal(0.0, NOISE, len(replay.nodes)))
    usual = float(replay.run(off, noise=noise)[1].max())
    factor, stalls, about = _fault(fault, rng, replay, actual, usual)
    start, end = replay.run(lambda rank, event: off(rank, event) * factor(rank, event), stalls, noise)
    seconds = 1e-6 * (float(end.max()) - usual)
    if ran:  # other kernels have other noise, so that without any is what the fault costs
        seconds = 1e-6 * float(replay.run(off)[1].max() - Replay(healthy, of_stage).run(off)[1].max())
    if fault != "none" and seconds < LEAST * 1e-6 * float(end.max()):
        return None
    paths = _write(replay.rewritten(files, start, end), actual, folder)
    described = f"{model} on {system}, " + ", ".join(f"{name} {value}" for name, value in values.items())
    return Draw(fault, about, seconds, stated, paths, described)


def _mapping(fault: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values of the design that is stated, and those that ran instead."""
    pp = int(rng.choice([2, 4] if fault == "order" else [1, 1, 2, 4]))
    tp = int(rng.choice([2, 4, 8] if fault == "rank" and pp > 1 else [1, 2, 4, 8]))
    dp = int(rng.choice([1, 2, 4])) if tp > 1 else int(rng.choice([2, 4, 8]))
    n = int(rng.choice([4, 8])) if pp > 1 else int(rng.choice([2, 4]))
    v = 2 if fault == "order" else int(rng.choice([1, 1, 2])) if pp > 1 else 1
    values: dict[str, Any] = {
        "n_layers": 4 * v if pp == 4 else 8,
        "n_devices": tp * pp * dp,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "micro_batch": 1,
        "global_batch": dp * n,
        "virtual_stages": v,
        "seq_len": int(rng.choice([2048, 4096])),
        "zero_stage": int(rng.choice([0, 1])) if pp > 1 else int(rng.choice([0, 1, 3])),
        "recompute": str(rng.choice(["none", "selective"] if fault == "recompute" else ["none", "selective", "full"])),
    }
    ran = {"recompute": {"recompute": "full"}, "order": {"virtual_stages": 1}}.get(fault, {})
    return values, ran


def _files(design: Design, fault: str, rng: np.random.Generator | None) -> dict[int, list[Event]]:
    """Events of the first rank of each stage, and of a second one of a stage."""
    step, ledger, place = schedule_step(design), step_ledger(design), kineto.rank_place(design)
    ranks = [stage * place.ranks_per_stage for stage in range(int(design.mapping.pp))]
    if (
        place.ranks_per_stage > 1
        and rng is not None
        and (fault == "rank" or (design.mapping.tp > 1 and rng.random() < 0.5))
    ):
        ranks.append(int(rng.choice(ranks)) + 1)
    found = {rank: device_step(design, rank // place.ranks_per_stage, step, ledger) for rank in sorted(ranks)}
    return {rank: [*kineto.events(one, design, kineto.rank_place(design, rank))] for rank, one in found.items()}


def _off(rng: np.random.Generator) -> Callable[[int, Event], float]:
    """Factor of all kernels, and of all messages, over what is predicted."""
    off = {flag: float(np.exp(rng.uniform(-OFF, OFF))) for flag in (False, True)}
    return lambda _, event: off[is_message(event)]


def sort_of(event: Event) -> str:
    """Family of a kernel by its name."""
    name = str(event["name"])
    if is_message(event):
        return "message"
    for sign, sort in (("nvjet", "matrix"), ("flash", "attention"), ("adam", "optimizer"), ("Memcpy", "copy")):
        if sign.lower() in name.lower():
            return sort
    return "elementwise"


def _fault(
    fault: str, rng: np.random.Generator, replay: Replay, design: Design, usual: float
) -> tuple[Callable[[int, Event], float], dict[int, float], str]:
    """Factor of durations, stalls in µs before kernels, and what is concerned."""
    if fault == "clock":
        return lambda _, event: 1.0 / 0.9 if sort_of(event) in ("matrix", "attention") else 1.0, {}, ""
    if fault == "kernels":
        sort = str(rng.choice(["matrix", "attention", "elementwise"]))
        slower = float(rng.uniform(1.25, 1.8))
        return lambda _, event: slower if sort_of(event) == sort else 1.0, {}, sort
    if fault == "link":
        level = str(rng.choice(["scale-up", "scale-out"]))
        domain = float(design.system.scale_up.domain)
        return lambda _, event: 2.0 if is_message(event) and _level(event, domain) == level else 1.0, {}, level
    ranks = sorted({node.rank for node in replay.nodes})
    if fault == "rank":
        pairs = [rank for rank in ranks if rank - 1 in ranks or rank + 1 in ranks]
        slow, slower = int(rng.choice(pairs)), float(rng.uniform(1.1, 1.4))
        return lambda rank, event: slower if rank == slow and not is_message(event) else 1.0, {}, str(slow)
    if fault == "host":
        own = int(rng.choice(ranks))
        places = [i for i, node in enumerate(replay.nodes) if node.rank == own and sort_of(node.event) == "matrix"]
        chosen = rng.choice(places, size=min(int(rng.integers(4, 40)), len(places)), replace=False)
        parts = rng.dirichlet(np.full(len(chosen), 4.0)) * rng.uniform(0.05, 0.2) * usual
        return lambda *_: 1.0, dict(zip(map(int, chosen), map(float, parts), strict=True)), str(own)
    return lambda *_: 1.0, {}, ""


def _level(event: Event, domain: float) -> str:
    """Network of a message: of nodes, where its ranks are in one."""
    about = event["args"]
    if "Src Rank" in about:
        ranks = [about["Src Rank"], about["Dst Rank"]]
    else:
        listed = about["Process Group Ranks"].strip("[]").replace("...", "").split(",")
        ranks = [int(one) for one in listed if one.strip()]
    return "scale-up" if len({rank // int(domain) for rank in ranks}) == 1 else "scale-out"


def _write(files: Mapping[int, list[Event]], design: Design, folder: Path) -> list[Path]:
    """Files of the ranks, which say no more than those of a profiler."""
    paths = []
    for rank, events in files.items():
        about = {"backend": "nccl", "rank": rank, "world_size": int(design.system.n_devices)}
        device = {"id": 0, "name": "NVIDIA H100 80GB HBM3"}
        head = {"schemaVersion": 1, "deviceProperties": [device], "distributedInfo": about}
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(head | {"traceEvents": events}), encoding="utf-8")
        paths.append(path)
    return paths
