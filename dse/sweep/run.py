"""Runs a sweep: evaluates blocks, stores finished ones, writes results."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.io.interruption import complete, telling
from dse.io.outputs import disk_errors
from dse.spec.sweep import SweepSpec
from dse.sweep import cluster
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.programs import CompileClock
from dse.sweep.evaluation import Evaluated, evaluate_blocks, kept_parts, write_results
from dse.sweep.grid.grid import Grid
from dse.sweep.job import Job, RunOptions, prepared
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.collection import Collection
from dse.sweep.results import dataset as datasets
from dse.sweep.results import files as results
from dse.sweep.results import summary as summaries
from dse.sweep.results.files import Labelled
from dse.sweep.results.summary import Summary
from dse.sweep.shard import spent
from dse.sweep.store import manifest
from dse.sweep.store.parts import PartStore, clear_up, lock_output

if TYPE_CHECKING:
    import xarray as xr


def execute(
    spec: str | Path | SweepSpec | Grid, output: str | Path | bool | None = None, **options: Any
) -> tuple[xr.Dataset, Summary]:
    """Run a sweep and return its results and summary.

    Args:
        spec: path of a specification, a specification, or a grid.
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
    if labelled is None:
        with results.open_results(summary.written) as found:
            return found.load(), summary
    return results.to_xarray(labelled), summary


def perform(
    spec: str | Path | SweepSpec | Grid, output: str | Path | bool | None = None, **options: Any
) -> tuple[Labelled | None, Summary]:
    """Run a sweep like :func:`execute`, but without xarray, whose import takes a third of a second.

    Args:
        spec: path of a specification, a specification, or a grid.
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
    began = time.perf_counter()
    job = prepared(spec, RunOptions(output, **options))
    if summary := job.finished:
        complete(summary.written)
        clear_up(job.target)
        return None, summary
    damaged = job.found_whole is False
    opening = lock_output(job.target) if job.target else contextlib.nullcontext()
    with disk_errors(job.target), opening, contextlib.ExitStack() as stack:
        found = cluster.evaluated(job, stack) if job.options.on_workers else _evaluated(job, stack)
        evaluated = time.perf_counter()
        seconds = found.seconds
        numbers = {"seconds": seconds, "n_programs": found.n_programs, "output": job.target, "damaged": damaged}
        summary = summaries.of_part(job.grid, job.keep, found.part, **numbers, **found.earlier._asdict())
        attributes = summaries.attributes(job.grid, summary, found.identity)
        labelled = datasets.build(job.grid, job.keep, found.part, attributes, job.options.judge)
        if found.store:
            write_results(labelled, job.grid, found.store, seconds, job.options.force)
    ended = time.perf_counter()
    seconds |= {"write": ended - evaluated, "total": ended - began}
    return labelled, dataclasses.replace(summary, seconds=seconds)


def _evaluated(job: Job, stack: contextlib.ExitStack) -> Evaluated:
    """All blocks, evaluated in this process; until ``stack`` closes, an interruption reports the stored parts."""
    before, started = CompileClock.read(), time.perf_counter()
    engine = SweepEngine(job.grid, job.options.chunk)
    blocks = keeping.blocks(engine, job.keep)
    store = PartStore(job.target, manifest.key(job.identity, blocks)) if job.target else None
    if store and job.options.fresh:
        store.remove_parts()
    stack.enter_context(telling(lambda: kept_parts(blocks, store)))
    found = Collection(job.grid, job.keep)
    earlier = evaluate_blocks(job, engine, blocks, store, found.add)
    part = found.result()
    seconds, programs, _ = spent(before, started)
    return Evaluated(part, store, job.identity, earlier, seconds, programs)
