"""Evaluate the blocks of a sweep: finished ones are stored and reported, and a signal stops in good order."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from dse import interruption
from dse.errors import InputError
from dse.sweep.engine.engine import Engine
from dse.sweep.engine.programs import CompileClock
from dse.sweep.grid.grid import Grid
from dse.sweep.job import Job
from dse.sweep.progress import Progress
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.keep import Part
from dse.sweep.results import writing
from dse.sweep.results.files import Labelled
from dse.sweep.store.manifest import Manifest, Shard
from dse.sweep.store.parts import PartStore, ranges

_WHOLE = Shard()


class Interrupted(Exception):  # noqa: N818 - what happened, not an error
    """A sweep was stopped; what was finished is kept and a rerun goes on from there."""

    def __init__(self, done: int, total: int, parts: Path | None) -> None:
        self.done, self.total, self.parts = done, total, parts
        kept = f"what is finished is in {parts}; run again to go on" if parts else "without an output nothing is kept"
        super().__init__(f"interrupted after {done:,} of {total:,} designs; {kept}")


def kept_parts(blocks: list[range], store: PartStore | None) -> str:
    """What a command that ends now leaves of its blocks, after the word "interrupted": what is on disk."""
    if not store:
        return "; without an output nothing is kept"
    found = ranges(store.folder).get(store.key, [])
    done = sum(blocks[0].start <= one.start and one.stop <= blocks[-1].stop for one in found) if blocks else 0
    kept = f"they are in {store.folder}; the same command goes on from there" if done else "nothing is kept"
    return f" after {done:,} of {len(blocks):,} parts; {kept}"


@contextlib.contextmanager
def output_errors(target: Path | None) -> Iterator[None]:
    """What the disk refuses is an InputError; finished parts stay."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"output {target}", error.strerror or str(error), "space and write permission",
            "free some space and run again: what is finished is kept",
        ) from error  # fmt: skip


def evaluate_blocks(
    job: Job, engine: Engine, blocks: list[range], store: PartStore | None, take: Callable[[Part], None],
    shard: Shard = _WHOLE,
) -> int:  # fmt: skip
    """Hand what is kept of each block to ``take``; how many designs an earlier run had finished."""
    finished = {block for block in blocks if store and store.has(block)}
    computed = keeping.parts(engine, job.keep, [block for block in blocks if block not in finished])
    kept = _Kept(store, Manifest(store.folder, store.key, shard)) if store else None
    if kept:
        kept.record.begin(job.grid, job.identity, blocks, shard)
    tally = _Tally(job, sum(designs_in(job.grid, block) for block in blocks))

    with stoppable(), ThreadPoolExecutor(1) as writer:
        saving = None
        try:
            for block in blocks:
                if kept and block in finished:
                    part = kept.store.load(block) or next(keeping.parts(engine, job.keep, [block]))
                else:
                    part = _next(computed, block, kept)
                    if saving:
                        saving.result()  # so that no more than one part waits in memory
                    saving = writer.submit(kept.save, block, part) if kept else None
                take(part)
                tally.add(designs_in(job.grid, block), part, block in finished)
            if saving:
                saving.result()
        except KeyboardInterrupt:
            raise Interrupted(tally.done, tally.total, store.folder if store else None) from None
    return tally.resumed


@dataclasses.dataclass(frozen=True)
class _Kept:
    """Where finished blocks go, and the record of them."""

    store: PartStore
    record: Manifest

    def save(self, block: range, part: Part) -> None:
        """Keep the part of a block."""
        self.store.save(block, part)
        self.record.finished(block, part)


class _Tally:
    """What progress is reported of."""

    def __init__(self, job: Job, total: int) -> None:
        self.total = total
        self.done = self.resumed = self._feasible = 0
        self._best = np.inf
        self._report, self._objective = job.options.progress, job.grid.spec.objectives[0]
        self._began, self._compiled = time.perf_counter(), _compiling()

    def add(self, n_designs: int, part: Part, resumed: bool) -> None:
        """Count a block and report it."""
        self.done += n_designs
        self.resumed += n_designs * resumed
        self._feasible += int(part.counts[0])
        self._best = min(self._best, part.scores[0].min(initial=np.inf))
        if self._report:
            best = self._objective.sign * float(self._best) if np.isfinite(self._best) else None
            text = self._objective.expression.text
            self._report(Progress(self.done, self.total, self._seconds(), self._feasible, best, text, self.resumed))

    def _seconds(self) -> float:
        return max(time.perf_counter() - self._began - (_compiling() - self._compiled), 1e-9)


def _compiling() -> float:
    """Seconds that this process has traced and compiled."""
    traced, compiled, _ = CompileClock.read()
    return traced + compiled


def _next(computed: Iterator[Part], block: range, kept: _Kept | None) -> Part:
    """The next part; a failure is recorded before it ends the run."""
    try:
        return next(computed)
    except Exception as error:
        if kept:
            kept.record.failed(block, error)
        raise


def write_results(labelled: Labelled, grid: Grid, store: PartStore) -> None:
    """Write the results, then remove the parts; when stopped before that, all parts stay."""
    with stoppable():
        try:
            writing.write(labelled, store.output, grid.spec.compression)
        except KeyboardInterrupt:
            raise Interrupted(grid.n_designs, grid.n_designs, store.folder) from None
    store.remove()


def designs_in(grid: Grid, block: range) -> int:
    """Designs of a block of outer indices."""
    return grid.first_design(block.stop) - grid.first_design(block.start)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM stops a sweep as Ctrl-C does; in a command, and but in the main thread, signals are not ours."""
    if interruption.is_armed() or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
