"""One shard of a sweep, evaluated by a job of an array or by a worker of a cluster."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.io.interruption import telling
from dse.io.outputs import disk_errors
from dse.spec.sweep import SweepSpec
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.programs import CompileClock
from dse.sweep.evaluation import Earlier, evaluate_blocks, kept_parts
from dse.sweep.grid.grid import Grid
from dse.sweep.job import Job, RunOptions, prepared
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.keep import Part
from dse.sweep.results import summary as summaries
from dse.sweep.results.summary import Summary
from dse.sweep.store import manifest
from dse.sweep.store.manifest import Shard
from dse.sweep.store.parts import PartStore, lock_output


class Division(NamedTuple):
    """A sweep divided into blocks, with the store of their parts."""

    job: Job
    engine: SweepEngine
    blocks: list[range]
    store: PartStore

    def share(self, shard: Shard) -> list[range]:
        """The blocks of a shard, divided at its ends."""
        return _within(self.blocks, keeping.share(self.engine, self.job.keep, *shard))

    def evaluate(self, shard: Shard) -> tuple[np.ndarray, Earlier]:
        """Evaluate a shard into the store: its counts by reason, and the numbers found from an earlier run."""
        counts = keeping.no_counts(self.job.grid.spec.study)

        def count(part: Part) -> None:
            counts.__iadd__(part.counts)

        earlier = evaluate_blocks(self.job, self.engine, self.share(shard), self.store, count, shard)
        return counts, earlier


def divided(job: Job, target: Path) -> Division:
    """A sweep divided into the same blocks in every run."""
    engine = SweepEngine(job.grid, job.options.chunk)
    blocks = keeping.blocks(engine, job.keep)
    return Division(job, engine, blocks, PartStore(target, manifest.key(job.identity, blocks)))


def perform_shard(
    spec: str | Path | SweepSpec | Grid, shard: Shard, output: str | Path | None = None, **options: Any
) -> Summary:
    """Evaluate one shard of a sweep; :func:`dse.sweep.merge` joins them.

    Args:
        spec: path of a specification, or a specification; the same for all shards.
        shard: number of the shard and number of shards.
        output: the final results file; parts are written to ``<output>.parts/``.
        **options: other fields of :class:`~dse.sweep.job.RunOptions`.

    Returns:
        Numbers of this shard: designs, feasible designs, counts by reason, time in seconds.

    Raises:
        InputError: for bad input, before any evaluation.
        Interrupted: when stopped; finished blocks are stored.
    """
    began = time.perf_counter()
    job = prepared(spec, RunOptions(output, **options))
    if job.target is None:
        raise InputError("output", "none", "a file: shards are joined from what they write", "leave it out")
    if job.options.on_workers:
        raise InputError("shard", "a share, on workers", "one of them", "workers take all shares themselves")
    if summary := job.finished:
        return summary
    before, started = CompileClock.read(), time.perf_counter()
    with disk_errors(job.target), lock_output(job.target, shared=True), contextlib.ExitStack() as stack:
        division = divided(job, job.target)
        blocks = division.share(shard)
        if job.options.fresh:
            division.store.forget(blocks)
        stack.enter_context(telling(lambda: kept_parts(blocks, division.store)))
        counts, earlier = division.evaluate(shard)
    seconds, programs, evaluated = spent(before, started)
    seconds |= {"write": 0.0, "total": evaluated - began}
    n_designs = sum(keeping.designs_in(division.engine, job.keep, block) for block in blocks)
    numbers = {"seconds": seconds, "n_programs": programs, "output": division.store.folder}
    return summaries.of_shard(job.grid, counts, n_designs, shard, **numbers, **earlier._asdict())


def _within(blocks: list[range], wanted: range) -> list[range]:
    """The parts of these blocks within a range."""
    pieces = (range(max(block.start, wanted.start), min(block.stop, wanted.stop)) for block in blocks)
    return [piece for piece in pieces if piece]


def spent(before: tuple[float, float, int], started: float) -> tuple[dict[str, float], int, float]:
    """Time by purpose in seconds, number of compiled programs, and the total time."""
    (trace, compile_, programs), (traced, compiled, known) = CompileClock.read(), before
    seconds, now = {"trace": trace - traced, "compile": compile_ - compiled}, time.perf_counter()
    run = max(now - started - sum(seconds.values()), 0.0)
    return seconds | {"run": run}, programs - known, now
