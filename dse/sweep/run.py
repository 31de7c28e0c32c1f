"""Runs a sweep or a shard of one: evaluates blocks, stores finished ones, writes results."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.errors import InputError
from dse.io import disk_errors, reporting
from dse.io.interruption import complete
from dse.sweep import cluster
from dse.sweep.evaluation import (
    Division,
    EarlierCounts,
    EvaluatedSweep,
    Stopwatch,
    divide_into_blocks,
    stored_parts_text,
    write_results,
)
from dse.sweep.job import Job, RunOptions, Source, prepare_job
from dse.sweep.progress import ProgressReport
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.collection import Collection
from dse.sweep.reduce.keep import BlockResult
from dse.sweep.results import dataset as datasets, files as results, summary as summaries
from dse.sweep.results.labelled import Labelled
from dse.sweep.results.summary import Summary
from dse.sweep.store.manifest import Shard
from dse.sweep.store.parts import clear_up, lock_output, parts_folder

if TYPE_CHECKING:
    import xarray as xr


def execute(spec: Source, output: str | Path | bool | None = None, **options: Any) -> tuple[xr.Dataset, Summary]:
    """Run a sweep and return its results and summary.

    Args:
        spec: path of a specification, its sections as a dictionary, a specification, or a grid.
        output: results file, by default the specification's; False: none.
        **options: other fields of :class:`~dse.sweep.job.RunOptions`.

    Returns:
        The dataset (:func:`dse.run`), and the summary: counts by reason, best designs, time by purpose.

    Raises:
        InputError: for bad input, before any evaluation.
        Interrupted: when stopped; finished blocks are stored.

    >>> results, summary = execute("sweeps/megatron_1t_4096_a100.toml", output=False, keep="best")
    >>> summary.n_designs, results.step_time.attrs["units"]
    (34716, 's')
    """
    labelled, summary = perform(spec, output, **options)
    return results.dataset_of(labelled, summary.output), summary


def perform(spec: Source, output: str | Path | bool | None = None, **options: Any) -> tuple[Labelled | None, Summary]:
    """Run a sweep like :func:`execute`, but without xarray, whose import takes a third of a second.

    Args:
        spec: path of a specification, its sections as a dictionary, a specification, or a grid.
        output: results file, by default the specification's; False: none.
        **options: other fields of :class:`~dse.sweep.job.RunOptions`.

    Returns:
        Labelled arrays, or None if the file of an earlier run is complete; and the summary.

    Raises:
        InputError: for bad input, before any evaluation.
        Interrupted: when stopped; finished blocks are stored.

    >>> labelled, summary = perform("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3")
    >>> summary.n_designs
    34716
    """
    start = time.perf_counter()
    job = prepare_job(spec, RunOptions(output, **options))
    if summary := job.finished:
        complete(summary.written)
        clear_up(job.target)
        return None, summary
    damaged = job.is_target_intact is False
    lock = lock_output(job.target) if job.target else contextlib.nullcontext()
    with disk_errors(job.target), lock, contextlib.ExitStack() as stack:
        evaluation = (
            cluster.evaluate_on_workers(job, stack) if job.options.on_workers else _evaluate_in_process(job, stack)
        )
        evaluated_at = time.perf_counter()
        seconds = evaluation.seconds
        numbers = {"seconds": seconds, "n_programs": evaluation.n_programs, "output": job.target, "damaged": damaged}
        summary = summaries.of_part(job.grid, job.keep, evaluation.part, **numbers, **evaluation.earlier._asdict())
        attributes = summaries.attributes(job.grid, summary, evaluation.identity)
        labelled = datasets.build(job.grid, job.keep, evaluation.part, attributes, job.options.judge)
        if evaluation.store:
            write_results(labelled, job.grid, evaluation.store, seconds, job.options.force)
    end = time.perf_counter()
    seconds |= {"write": end - evaluated_at, "total": end - start}
    return labelled, dataclasses.replace(summary, seconds=seconds)


def labelled_designs(spec: Source, **options: Any) -> Labelled:
    """Run a sweep for its designs alone: labelled arrays without summary, cautions and attributes, and no file.

    Args:
        spec: path of a specification, its sections as a dictionary, a specification, or a grid.
        **options: other fields of :class:`~dse.sweep.job.RunOptions` than ``output``.

    Returns:
        Labelled arrays, as of :func:`perform`.

    Raises:
        InputError: for bad input, before any evaluation.

    >>> labelled_designs("sweeps/megatron_1t_4096_a100.toml", keep="top:3").sizes
    {'design': 3}
    """
    job = prepare_job(spec, RunOptions(False, **options))
    with contextlib.ExitStack() as stack:
        evaluation = _evaluate_in_process(job, stack)
    return datasets.build(job.grid, job.keep, evaluation.part, {}, job.options.judge)


def perform_shard(spec: Source, shard: Shard, output: str | Path | bool | None = None, **options: Any) -> Summary:
    """Evaluate one shard of a sweep and return its numbers; :func:`dse.sweep.merge` joins shards.

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
    start = time.perf_counter()
    job = prepare_job(spec, RunOptions(output, **options))
    if job.target is None:
        raise InputError("output", "none", "a file: shards are joined from what they write", "leave it out")
    if job.options.on_workers:
        raise InputError("shard", "a share, on workers", "one of them", "workers take all shares themselves")
    if summary := job.finished:
        return summary
    clock, report = Stopwatch(), ProgressReport(job.options.progress)
    counts = keeping.no_counts(job.grid.spec.study)
    with disk_errors(job.target), lock_output(job.target, shared=True), contextlib.ExitStack() as stack:
        division, earlier = _evaluate(job, stack, lambda part: counts.__iadd__(part.counts), report, clock, shard)
        seconds = clock.seconds()
        report.close(seconds["run"])
    seconds |= {"write": 0.0, "total": time.perf_counter() - start}
    numbers = {"seconds": seconds, "n_programs": clock.n_programs(), "output": parts_folder(job.target)}
    n_designs = division.n_designs(division.shard_blocks(shard))
    return summaries.of_shard(job.grid, counts, n_designs, shard, **numbers, **earlier._asdict())


def _evaluate_in_process(job: Job, stack: contextlib.ExitStack) -> EvaluatedSweep:
    """Return the sweep evaluated in this process: all parts, its store, seconds by purpose."""
    clock, report, collection = Stopwatch(), ProgressReport(job.options.progress), Collection(job.grid, job.keep)
    division, earlier = _evaluate(job, stack, collection.add, report, clock)
    part, seconds = collection.result(), clock.seconds()
    report.close(seconds["run"])
    return EvaluatedSweep(part, division.store, job.identity, earlier, seconds, clock.n_programs())


def _evaluate(
    job: Job,
    stack: contextlib.ExitStack,
    take: Callable[[BlockResult], object],
    report: ProgressReport,
    clock: Stopwatch,
    shard: Shard | None = None,
) -> tuple[Division, EarlierCounts]:
    """Evaluate all blocks, or those of a shard, and call ``take`` with the part of each.

    Returns the division and how many designs an earlier run had stored. Until ``stack`` closes an interruption reports
    the stored parts.
    """
    division = divide_into_blocks(job)
    store, blocks = division.store, division.shard_blocks(shard or Shard())
    if store and job.options.fresh:
        store.forget(blocks) if shard else store.remove_parts()
    stack.enter_context(reporting(lambda: stored_parts_text(blocks, store)))
    return division, division.evaluate(shard or Shard(), take, report, clock)
