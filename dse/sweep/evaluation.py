"""A sweep in blocks, and their evaluation: finished blocks are stored and reported; a signal stops after storing.

One process, the shards of a job array and the workers of a cluster all evaluate a sweep by :meth:`Division.evaluate`.
A block that fails does not end the others, and where memory is short, chunks are halved.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.errors import IncompleteError, InputError, Stopped
from dse.io import counted, interruption
from dse.spec import Objective
from dse.spec.output import Keep
from dse.sweep.engine.clock import CompileClock
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.grid.grid import Grid
from dse.sweep.job import Job
from dse.sweep.progress import Progress
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.keep import BlockResult
from dse.sweep.results import writing
from dse.sweep.results.labelled import Labelled
from dse.sweep.store import manifest
from dse.sweep.store.manifest import Manifest, Shard
from dse.sweep.store.parts import PartStore, stored_ranges

Report = Callable[[Progress], None]

#: Number of failed blocks after which a run stops: with a common cause all would fail.
_MAX_FAILED = 8


class Interrupted(Stopped):
    """A sweep was stopped; finished blocks are stored and the next run resumes from them."""

    def __init__(self, done: int, total: int, parts: Path | None) -> None:
        self.done, self.total, self.parts = done, total, parts
        hint = (
            f"what is finished is in {parts}; run again to continue" if parts else "without an output nothing is kept"
        )
        super().__init__(f"interrupted after {done:,} of {counted(total, 'design')}; {hint}")


class EarlierCounts(NamedTuple):
    """Numbers of designs found from an earlier run."""

    resumed: int  #: with intact parts
    redone: int  #: with damaged parts: computed again


class EvaluatedSweep(NamedTuple):
    """A sweep with all blocks evaluated."""

    part: BlockResult  #: the kept designs and the counts of the whole sweep
    store: PartStore | None
    identity: dict[str, str]  #: device, versions and code of the computation
    earlier: EarlierCounts
    seconds: dict[str, float]  #: time by purpose, s
    n_programs: int  #: number of compiled programs


class Division(NamedTuple):
    """A sweep divided into the same blocks in every run, with the store of their parts."""

    job: Job
    engine: SweepEngine
    blocks: list[range]
    store: PartStore | None

    @property
    def shared_store(self) -> PartStore:
        """The store of a sweep that has an output."""
        assert self.store
        return self.store

    def shard_blocks(self, shard: Shard) -> list[range]:
        """Return the ranges of outer indices of a shard: blocks, the first and last cut at the shard's ends."""
        if shard.of == 1:
            return self.blocks
        ends = keeping.share_range(self.engine, self.job.keep, *shard)
        ranges_in_shard = (range(max(block.start, ends.start), min(block.stop, ends.stop)) for block in self.blocks)
        return [block_range for block_range in ranges_in_shard if block_range]

    def n_designs(self, blocks: list[range]) -> int:
        """Return the number of designs of these blocks together."""
        return sum(keeping.designs_in(self.engine, self.job.keep, block) for block in blocks)

    def evaluate(
        self,
        shard: Shard,
        take: Callable[[BlockResult], object],
        report: Report | None = None,
        clock: Stopwatch | None = None,
    ) -> EarlierCounts:
        """Evaluate a shard into the store and return how many designs an earlier run had stored.

        Args:
            shard: which of the blocks.
            take: called with the part of each block, in order.
            report: called with the progress of this shard after every block.
            clock: started with the run; by default now.

        Returns:
            Numbers of designs found from an earlier run.

        Raises:
            IncompleteError: if some blocks could not be computed, after all others.
            Interrupted: when stopped.
        """
        job, store = self.job, self.store
        blocks = store.aligned_blocks(self.shard_blocks(shard)) if store else self.shard_blocks(shard)
        finished = {block for block in blocks if store and store.has(block)}
        computed = Computation(self.engine, job.keep, [block for block in blocks if block not in finished])
        failed: list[tuple[range, Exception]] = []
        record = Manifest(store.folder, store.key, shard) if store else None
        if record:
            record.begin(job.grid, job.identity, blocks, shard)
        tally = _Tally(job.grid.spec.objectives[0], self.n_designs(blocks), report, clock or Stopwatch())

        with stoppable(), ThreadPoolExecutor(1) as writer:
            saving = None
            try:
                for block in blocks:
                    stored_part = store.load(block) if store and block in finished else None
                    is_redone = stored_part is None and block in finished
                    try:
                        part = stored_part or computed.part(block)
                    except InputError:
                        raise
                    except Exception as error:
                        failed.append((block, error))
                        if record:
                            record.failed(block, error)
                        if len(failed) == _MAX_FAILED:
                            break
                        continue
                    if stored_part is None:
                        if saving:
                            saving.result()  # limits the parts that wait in memory to one
                        saving = writer.submit(_save, store, record, block, part) if store and record else None
                    take(part)
                    tally.add(self.n_designs([block]), part, stored_part is not None, is_redone)
                if saving:
                    saving.result()
            except KeyboardInterrupt:
                raise Interrupted(tally.done, tally.total, store.folder if store else None) from None
        if failed:
            raise _incomplete(failed, len(blocks), store) from failed[0][1]
        return EarlierCounts(tally.resumed, tally.redone)


def divide_into_blocks(job: Job) -> Division:
    """Return a sweep divided into blocks, with a store next to its output if it has one."""
    engine = SweepEngine(job.grid, job.options.chunk)
    blocks = keeping.block_ranges(engine, job.keep)
    store = PartStore(job.target, manifest.key(job.identity, blocks)) if job.target else None
    return Division(job, engine, blocks, store)


def stored_parts_text(blocks: list[range], store: PartStore | None) -> str:
    """Return the text after "interrupted": how many of these blocks are stored on disk, where, how to go on."""
    if not store:
        return "; without an output nothing is kept"
    blocks = store.aligned_blocks(blocks)
    ranges_on_disk = stored_ranges(store.folder).get(store.key, []) if blocks else []
    n_stored = sum(blocks[0].start <= stored.start and stored.stop <= blocks[-1].stop for stored in ranges_on_disk)
    text = f"they are in {store.folder}; the same command continues from there" if n_stored else "nothing is kept"
    return f" after {n_stored:,} of {counted(len(blocks), 'part')}; {text}"


def _incomplete(failed: list[tuple[range, Exception]], n_blocks: int, store: PartStore | None) -> IncompleteError:
    """Return the error for blocks that could not be computed."""
    (block, error), times = failed[0], f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    abort_note = f": after {_MAX_FAILED} of them no more were tried" if len(failed) == _MAX_FAILED else ""
    hint = f"what is finished is kept in {store.folder}" if store else "without an output nothing is kept"
    return IncompleteError(
        f"outer indices {block.start:,} to {block.stop - 1:,}{times}, of {n_blocks:,} blocks{abort_note}",
        f"{type(error).__name__}: {error}",
        "blocks that can be computed",
        f"{hint}: mend the cause, then the same command computes what is missing",
    )


def _save(store: PartStore, record: Manifest, block: range, part: BlockResult) -> None:
    """Store the part of a block, and record it in the manifest."""
    store.save(block, part)
    record.finished(block, part)


class _Tally:
    """Counts behind the progress reports."""

    def __init__(self, objective: Objective, total: int, report: Report | None, clock: Stopwatch) -> None:
        self.total = total
        self.done = self.resumed = self.redone = self._feasible = 0
        self._best = np.inf
        self._report, self._objective, self._clock = report, objective, clock

    def add(self, n_designs: int, part: BlockResult, resumed: bool, redone: bool) -> None:
        """Add a block of ``n_designs`` and report progress; ``resumed``, ``redone``: whether they count as such."""
        self.done += n_designs
        self.resumed += n_designs * resumed
        self.redone += n_designs * redone
        self._feasible += int(part.counts[0])
        self._best = min(self._best, part.scores[0].min(initial=np.inf))
        if self._report:
            best = self._objective.sign * float(self._best) if np.isfinite(self._best) else None
            expression, seconds = self._objective.expression, max(self._clock.seconds()["run"], 1e-9)
            state = self.done, self.total, seconds, self._feasible, best, expression.text, self.resumed
            self._report(Progress(*state, expression.display_units))


class Stopwatch:
    """Time by purpose in this process since it was started."""

    def __init__(self) -> None:
        self._start, self._compiled = time.perf_counter(), CompileClock.read()

    def seconds(self) -> dict[str, float]:
        """Return purpose → seconds since the start: ``trace``, ``compile`` and, for all else, ``run``."""
        trace, compiled, _ = (now - start for now, start in zip(CompileClock.read(), self._compiled, strict=True))
        run = max(time.perf_counter() - self._start - trace - compiled, 0.0)
        return {"trace": trace, "compile": compiled, "run": run}

    def n_programs(self) -> int:
        """Return the number of programs compiled since the start."""
        return CompileClock.read()[2] - self._compiled[2]


def write_results(
    labelled: Labelled, grid: Grid, store: PartStore, seconds: dict[str, float], force: bool = False
) -> None:
    """Write the results and their note, then delete the parts; if interrupted before that, all parts remain."""
    start = time.perf_counter()
    with stoppable():
        try:
            writing.write(labelled, store.output, grid.spec.compression, force, [grid.spec.file])
        except KeyboardInterrupt:
            raise Interrupted(grid.n_designs, grid.n_designs, store.folder) from None
    writing.write_making(store.output, seconds | {"write": time.perf_counter() - start}, force)
    store.remove()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM too, as on Ctrl-C, while the context lasts.

    No effect in commands, which handle signals, and outside of the main thread.
    """
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


class Computation:
    """The parts of blocks, asked for in their order; the device works on the next one meanwhile."""

    def __init__(self, engine: SweepEngine, keep: Keep, blocks: list[range]) -> None:
        self._engine, self._keep, self._ahead = engine, keep, blocks
        self._parts = self._from_here()

    def part(self, block: range) -> BlockResult:
        """Return the part of a block.

        A block that fails is tried again alone: the next one, begun meanwhile, may have failed.
        Where the device has no memory left, its chunks are halved until they fit; the part is the same.
        """
        if self._ahead and block == self._ahead[0]:
            self._ahead = self._ahead[1:]
            try:
                return next(self._parts)
            except Exception as error:
                self._parts = self._from_here()
                self._shorter_chunks(error)
        while True:
            try:
                return next(keeping.block_results(self._engine, self._keep, [block]))
            except Exception as error:
                if not self._shorter_chunks(error):
                    raise

    def _from_here(self) -> Iterator[BlockResult]:
        """Return the results of the blocks ahead, in order; each is computed when it is read."""
        return keeping.block_results(self._engine, self._keep, self._ahead)

    def _shorter_chunks(self, error: Exception) -> bool:
        """Halve chunks if the error is of memory; return False for other errors, or when halved too often."""
        is_of_memory = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)  # XLA's has no own class
        halved = is_of_memory and self._engine.halve()
        if halved:
            logging.getLogger("dse").warning("out of memory: %s; going on with chunks half as long", _first_line(error))
        return halved


def _first_line(error: Exception) -> str:
    """Return the first line of an error, at most 200 characters; the name of its type where it has no text."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
