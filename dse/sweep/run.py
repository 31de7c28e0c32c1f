"""Run a sweep: blocks through the engine, finished ones spooled, results written."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse import results
from dse.errors import InputError
from dse.results import Labelled
from dse.sweep import compose, manifest, writing
from dse.sweep import dataset as datasets
from dse.sweep import keep as keeping
from dse.sweep import summary as summaries
from dse.sweep.collection import Collection
from dse.sweep.engine import LONGEST_CHUNK, Engine
from dse.sweep.grid import Grid
from dse.sweep.keep import Part
from dse.sweep.manifest import Manifest, Shard
from dse.sweep.programs import CompileClock
from dse.sweep.progress import Progress
from dse.sweep.spec import Keep, SweepSpec, parse_keep, read
from dse.sweep.spool import Spool, opened
from dse.sweep.summary import Summary
from dse.types import Design, Metrics

if TYPE_CHECKING:
    import xarray as xr

_WHOLE = Shard()


class Interrupted(Exception):  # noqa: N818 - what happened, not an error
    """A sweep was stopped; what was finished is kept and a rerun goes on from there."""

    def __init__(self, done: int, total: int, parts: Path | None) -> None:
        self.done, self.total, self.parts = done, total, parts
        kept = f"what is finished is in {parts}; run again to go on" if parts else "without an output nothing is kept"
        super().__init__(f"interrupted after {done:,} of {total:,} designs; {kept}")


def run(
    spec: str | Path | SweepSpec,
    output: str | Path | bool | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> xr.Dataset:
    """Run a sweep and write its results; see :func:`execute` for the summary too.

    Args:
        spec: path of a specification, or one that was read.
        output: file of the results, by default what the specification says; False writes none.
        keep: ``all feasible best pareto top:K`` in place of the specification's.
        chunk: designs evaluated at once.
        fresh: compute again what is finished, a whole file or the parts of an interrupted run.
        progress: called after every block.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    return execute(spec, output, keep, chunk, fresh, progress)[0]


def plan(spec: str | Path | SweepSpec, keep: str | None = None) -> tuple[Grid, Keep]:
    """The grid of a sweep and what it keeps, checked against the limit; nothing large is allocated."""
    spec = spec if isinstance(spec, SweepSpec) else read(spec)
    grid = compose.build(spec)
    kept = parse_keep(keep, "keep") if keep else spec.keep
    if kept.mode == "pareto" and len(spec.objectives) < 2:
        raise InputError(
            f"{spec.file}: objective", "one objective", "two or more with keep = \"pareto\"",
            'write minimize = ["step_time", "peak_memory"]',
        )  # fmt: skip
    largest = {"all": grid.n_designs, "feasible": grid.n_designs, "best": grid.n_points, "top": kept.count, "pareto": 0}
    if largest[kept.mode] > spec.limit:
        raise InputError(
            f"{spec.file}: axes", f"{grid.describe()} with keep = {kept}", f"at most {spec.limit:,} kept",
            "shorten the axes, add constraints, use --keep best or --keep top:1000, or raise output.limit",
        )  # fmt: skip
    return grid, kept


def execute(
    spec: str | Path | SweepSpec,
    output: str | Path | bool | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    model: Callable[[Design], Metrics] | None = None,
) -> tuple[xr.Dataset, Summary]:
    """Run a sweep as :func:`run` does; ``model`` stands in for ``dse.evaluate``. Gives dataset and summary."""
    labelled, summary = perform(spec, output, keep, chunk, fresh, progress, model)
    if labelled is None:
        with results.open_results(summary.output) as found:
            return found.load(), summary
    return results.to_xarray(labelled), summary


def perform(
    spec: str | Path | SweepSpec,
    output: str | Path | bool | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    model: Callable[[Design], Metrics] | None = None,
) -> tuple[Labelled | None, Summary]:
    """Run a sweep as :func:`execute` does, without xarray; no results where they are in the file already."""
    began = time.perf_counter()
    job = _job(spec, output, keep, chunk, model)
    if not fresh and (summary := _finished(job)):
        return None, summary
    before, prepared = CompileClock.read(), time.perf_counter()
    with output_errors(job.target), opened(job.target) if job.target else contextlib.nullcontext():
        engine = Engine(job.grid, job.model, chunk)
        blocks = keeping.blocks(engine, job.keep)
        spool = Spool(job.target, manifest.key(job.identity, blocks)) if job.target else None
        if spool and fresh:
            spool.remove_parts()
        found = Collection(job.grid, job.keep)
        resumed = _evaluate_blocks(job, engine, blocks, spool, found.add, progress, began)
        part = found.result()
        seconds, programs, evaluated = _spent(before, prepared)
        numbers = {"seconds": seconds, "n_programs": programs, "resumed": resumed, "output": job.target}
        summary = summaries.of_part(job.grid, part, **numbers)
        attributes = summaries.attributes(job.grid, summary, job.identity, evaluated - began)
        labelled = datasets.build(job.grid, job.keep, part, attributes)
        if spool:
            write_results(labelled, job.grid, spool)
    ended = time.perf_counter()
    seconds |= {"write": ended - evaluated, "total": ended - began}
    return labelled, dataclasses.replace(summary, seconds=seconds)


def perform_shard(
    spec: str | Path | SweepSpec,
    shard: Shard,
    output: str | Path | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    model: Callable[[Design], Metrics] | None = None,
) -> Summary:
    """Evaluate one share of a sweep into the folder of its parts; :func:`dse.sweep.merge.merge` joins them."""
    began = time.perf_counter()
    job = _job(spec, output, keep, chunk, model)
    if not fresh and (summary := _finished(job)):
        return summary
    before, prepared = CompileClock.read(), time.perf_counter()
    counts = np.zeros(1 + len(manifest.REASONS), np.int64)

    def count(part: Part) -> None:
        counts.__iadd__(part.counts)

    with output_errors(job.target), opened(job.target, shared=True):
        engine = Engine(job.grid, job.model, chunk)
        whole = keeping.blocks(engine, job.keep)
        blocks = shard.share(whole)
        spool = Spool(job.target, manifest.key(job.identity, whole))
        if fresh:
            spool.forget(blocks)
        resumed = _evaluate_blocks(job, engine, blocks, spool, count, progress, began, shard)
    seconds, programs, evaluated = _spent(before, prepared)
    seconds |= {"write": 0.0, "total": evaluated - began}
    n_designs = sum(_designs_in(job.grid, block) for block in blocks)
    numbers = {"seconds": seconds, "n_programs": programs, "resumed": resumed, "output": spool.folder}
    return summaries.of_shard(job.grid, counts, n_designs, shard, **numbers)


class _Job(NamedTuple):
    """A sweep that is about to run: what, by what, where to."""

    grid: Grid
    keep: Keep
    model: Callable[[Design], Metrics]
    identity: dict[str, str]
    target: Path | None


def _job(
    spec: str | Path | SweepSpec, output: str | Path | bool | None, keep: str | None, chunk: int | None,
    model: Callable[[Design], Metrics] | None,
) -> _Job:  # fmt: skip
    if chunk is not None and not 1 <= chunk <= LONGEST_CHUNK:
        raise InputError("chunk", str(chunk), f"1 to {LONGEST_CHUNK:,} designs", "leave it out")
    grid, kept = plan(spec, keep)
    target = None if output is False else grid.spec.output if output in (None, True) else Path(str(output))
    if target:
        writing.usable(grid.spec.compression)
    model = model or _model()
    return _Job(grid, kept, model, manifest.identity(grid, kept, model), target)


def _finished(job: _Job) -> Summary | None:
    """The summary of an earlier run of the same sweep, if its file is there."""
    attributes = writing.attributes(job.target) if job.target else {}
    same = job.identity | {"title": job.grid.spec.title}
    if any(attributes.get(name) != value for name, value in same.items()):
        return None
    return summaries.of_file(job.grid, job.target, attributes)


def _spent(before: tuple[float, float, int], prepared: float) -> tuple[dict[str, float], int, float]:
    """Seconds by what they were spent on, programs compiled, and the time."""
    traced, compiled, programs = (now - then for now, then in zip(CompileClock.read(), before, strict=True))
    now = time.perf_counter()
    run = max(now - prepared - traced - compiled, 0.0)
    return {"trace": traced, "compile": compiled, "run": run}, programs, now


@contextlib.contextmanager
def output_errors(target: Path | None) -> Iterator[None]:
    """What the disk refuses is an InputError; finished parts stay."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"output {target}", error.strerror or str(error), "room and leave to write",
            "make room and run again: what is finished is kept",
        ) from error  # fmt: skip


def _model() -> Callable[[Design], Metrics]:
    from dse.evaluate import evaluate

    return evaluate


def _evaluate_blocks(
    job: _Job, engine: Engine, blocks: list[range], spool: Spool | None, take: Callable[[Part], None],
    progress: Callable[[Progress], None] | None, began: float, shard: Shard = _WHOLE,
) -> int:  # fmt: skip
    """Hand what is kept of each block to ``take``; how many designs an earlier run had finished."""
    grid = job.grid
    finished = {block for block in blocks if spool and spool.has(block)}
    resumed = sum(_designs_in(grid, block) for block in finished)
    total = sum(_designs_in(grid, block) for block in blocks)
    computed = keeping.parts(engine, job.keep, [block for block in blocks if block not in finished])
    record = Manifest(spool.folder, spool.key, shard) if spool else None
    if record:
        record.begin(grid, job.identity, blocks, shard)
    done = feasible = 0
    best = np.inf

    def save(block: range, part: Part) -> None:
        spool.save(block, part)
        record.finished(block, part)

    with _stoppable(), ThreadPoolExecutor(1) as writer:
        saving = None
        try:
            for block in blocks:
                if block in finished:
                    part = spool.load(block) or next(keeping.parts(engine, job.keep, [block]))
                else:
                    part = _next(computed, block, record)
                    if saving:
                        saving.result()  # so that no more than one part waits in memory
                    saving = writer.submit(save, block, part) if spool else None
                take(part)
                done += _designs_in(grid, block)
                feasible += int(part.counts[0])
                best = min(best, part.scores[0].min(initial=np.inf))
                if progress:
                    seconds = time.perf_counter() - began
                    progress(_progress(grid, done, total, feasible, best, resumed, seconds))
            if saving:
                saving.result()
        except KeyboardInterrupt:
            raise Interrupted(done, total, spool and spool.folder) from None
    return resumed


def _next(computed: Iterator[Part], block: range, record: Manifest | None) -> Part:
    """The next part; a failure is recorded before it ends the run."""
    try:
        return next(computed)
    except Exception as error:
        if record:
            record.failed(block, error)
        raise


def write_results(labelled: Labelled, grid: Grid, spool: Spool) -> None:
    """Write the results, then remove the parts; when stopped before that, all parts stay."""
    with _stoppable():
        try:
            writing.write(labelled, spool.output, grid.spec.compression)
        except KeyboardInterrupt:
            raise Interrupted(grid.n_designs, grid.n_designs, spool.folder) from None
    spool.remove()


def _designs_in(grid: Grid, block: range) -> int:
    return grid.first_design(block.stop) - grid.first_design(block.start)


def _progress(
    grid: Grid, done: int, total: int, feasible: int, best: float, resumed: int, seconds: float
) -> Progress:
    objective = grid.spec.objectives[0]
    value = objective.sign * float(best) if np.isfinite(best) else None
    return Progress(done, total, seconds, feasible, value, objective.expression.text, resumed)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM stops a sweep as Ctrl-C does; elsewhere than in the main thread signals are not ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
