"""Run a sweep: blocks through the engine, finished ones stored, results written."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.errors import InputError
from dse.interruption import complete, telling
from dse.outputs import disk_errors
from dse.spec.sweep import SweepSpec
from dse.sweep.engine.engine import Engine
from dse.sweep.engine.programs import CompileClock
from dse.sweep.evaluation import evaluate_blocks, kept_parts, write_results
from dse.sweep.grid.grid import Grid
from dse.sweep.job import Options, finished, prepared
from dse.sweep.progress import Progress
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.collection import Collection
from dse.sweep.reduce.keep import Part
from dse.sweep.results import dataset as datasets
from dse.sweep.results import files as results
from dse.sweep.results import summary as summaries
from dse.sweep.results.files import Labelled
from dse.sweep.results.summary import Summary
from dse.sweep.store import manifest
from dse.sweep.store.manifest import Shard
from dse.sweep.store.parts import PartStore, clear_up, opened

if TYPE_CHECKING:
    import xarray as xr


def run(
    spec: str | Path | SweepSpec | Grid,
    output: str | Path | bool | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    any_option: bool = False,
) -> xr.Dataset:
    """Run a sweep and write its results; see :func:`execute` for the summary too.

    Args:
        spec: path of a specification, one that was read, or a grid that was planned.
        output: file of the results, by default what the specification says; False writes none.
        keep: ``all feasible best pareto top:K`` in place of the specification's.
        chunk: designs evaluated at once.
        fresh: compute again what is finished, a whole file or the parts of an interrupted run.
        progress: called after every block.
        any_option: offer options that the stack lacks too; without it they are left out.

    Returns:
        One variable a metric, with ``units`` and ``long_name``. Its dimensions are the orthogonal axes and
        ``mapping``, or ``design`` where single designs are kept (``feasible``, ``top:K``, ``pareto``), or the
        orthogonal axes alone for ``best``.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.

    >>> results = run("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3")
    >>> results.sizes["design"], results.step_time.attrs["units"]
    (3, 's')
    """
    return execute(spec, output, keep=keep, chunk=chunk, fresh=fresh, progress=progress, any_option=any_option)[0]


def execute(
    spec: str | Path | SweepSpec | Grid, output: str | Path | bool | None = None, **options: Any
) -> tuple[xr.Dataset, Summary]:
    """Run a sweep as :func:`run` does and tell what was found.

    Args:
        spec: path of a specification, one that was read, or a grid that was planned.
        output: file of the results, by default what the specification says; False writes none.
        **options: the other fields of :class:`~dse.sweep.job.Options`.

    Returns:
        The dataset of :func:`run`, and the summary: counts by reason, the best designs, seconds by what they were
        spent on.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    labelled, summary = perform(spec, output, **options)
    if labelled is None:
        with results.open_results(summary.written) as found:
            return found.load(), summary
    return results.to_xarray(labelled), summary


def perform(
    spec: str | Path | SweepSpec | Grid, output: str | Path | bool | None = None, **options: Any
) -> tuple[Labelled | None, Summary]:
    """Run a sweep as :func:`execute` does, without xarray, whose import takes a third of a second.

    Returns:
        Labelled arrays in place of the dataset, None where an earlier run has left them in the file; and the summary.
    """
    began = time.perf_counter()
    job = prepared(spec, Options(output, **options))
    if summary := finished(job):
        complete(summary.written)
        clear_up(job.target)
        return None, summary
    damaged = job.found_whole is False
    before, started = CompileClock.read(), time.perf_counter()
    opening = opened(job.target) if job.target else contextlib.nullcontext()
    with disk_errors(job.target), opening, contextlib.ExitStack() as stack:
        engine = Engine(job.grid, job.options.chunk)
        blocks = keeping.blocks(engine, job.keep)
        store = PartStore(job.target, manifest.key(job.identity, blocks)) if job.target else None
        if store and job.options.fresh:
            store.remove_parts()
        stack.enter_context(telling(lambda: kept_parts(blocks, store)))
        found = Collection(job.grid, job.keep)
        earlier = evaluate_blocks(job, engine, blocks, store, found.add)
        part = found.result()
        seconds, programs, evaluated = _spent(before, started)
        numbers = {"seconds": seconds, "n_programs": programs, "output": job.target, "damaged": damaged}
        summary = summaries.of_part(job.grid, job.keep, part, **numbers, **earlier._asdict())
        attributes = summaries.attributes(job.grid, summary, job.identity)
        labelled = datasets.build(job.grid, job.keep, part, attributes)
        if store:
            write_results(labelled, job.grid, store, seconds, job.options.force)
    ended = time.perf_counter()
    seconds |= {"write": ended - evaluated, "total": ended - began}
    return labelled, dataclasses.replace(summary, seconds=seconds)


def perform_shard(
    spec: str | Path | SweepSpec | Grid, shard: Shard, output: str | Path | None = None, **options: Any
) -> Summary:
    """Evaluate one share of a sweep; :func:`dse.sweep.merge.merge` joins them.

    Args:
        spec: path of a specification, or one that was read; the same for all shards.
        shard: which share of how many.
        output: the file that is to hold the results; parts go to ``<output>.parts/``.
        **options: the other fields of :class:`~dse.sweep.job.Options`.

    Returns:
        The numbers of this share: designs, feasible ones, counts by reason, seconds.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    began = time.perf_counter()
    job = prepared(spec, Options(output, **options))
    if job.target is None:
        raise InputError("output", "none", "a file: shards are joined from what they write", "leave it out")
    if summary := finished(job):
        return summary
    before, started = CompileClock.read(), time.perf_counter()
    counts = keeping.no_counts(job.grid.spec.study)

    def count(part: Part) -> None:
        counts.__iadd__(part.counts)

    with disk_errors(job.target), opened(job.target, shared=True), contextlib.ExitStack() as stack:
        engine = Engine(job.grid, job.options.chunk)
        whole = keeping.blocks(engine, job.keep)
        blocks = _within(whole, keeping.share(engine, job.keep, *shard))
        store = PartStore(job.target, manifest.key(job.identity, whole))
        if job.options.fresh:
            store.forget(blocks)
        stack.enter_context(telling(lambda: kept_parts(blocks, store)))
        earlier = evaluate_blocks(job, engine, blocks, store, count, shard)
    seconds, programs, evaluated = _spent(before, started)
    seconds |= {"write": 0.0, "total": evaluated - began}
    n_designs = sum(keeping.designs_in(engine, job.keep, block) for block in blocks)
    numbers = {"seconds": seconds, "n_programs": programs, "output": store.folder}
    return summaries.of_shard(job.grid, counts, n_designs, shard, **numbers, **earlier._asdict())


def _within(blocks: list[range], wanted: range) -> list[range]:
    """What of these blocks lies within a range."""
    pieces = (range(max(block.start, wanted.start), min(block.stop, wanted.stop)) for block in blocks)
    return [piece for piece in pieces if piece]


def _spent(before: tuple[float, float, int], started: float) -> tuple[dict[str, float], int, float]:
    """Seconds by what they were spent on, programs compiled, and the time."""
    (trace, compile_, programs), (traced, compiled, known) = CompileClock.read(), before
    seconds, now = {"trace": trace - traced, "compile": compile_ - compiled}, time.perf_counter()
    run = max(now - started - sum(seconds.values()), 0.0)
    return seconds | {"run": run}, programs - known, now
