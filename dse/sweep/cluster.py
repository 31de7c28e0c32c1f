"""A sweep on the workers of a Dask cluster: local processes (``workers``) or those of a scheduler.

The unit of work is a shard as in ``dse run --shard``. Workers write complete parts to the folder next to the output,
which they share with the driver; the driver reports progress and joins the parts. The shard of a lost worker is
computed again; one whose workers are lost repeatedly is retried alone after all others, then reported.

What workers do is below :class:`Order`; they load this file as they start.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dse.doors import STUDIES
from dse.errors import IncompleteError, InputError
from dse.io import counted, local_cluster, reporting
from dse.io.workers import library, unreachable, wait_for_start
from dse.spec.sweep import from_text
from dse.sweep.evaluation import (
    Division,
    EarlierCounts,
    EvaluatedSweep,
    Interrupted,
    Report,
    Stopwatch,
    divide_into_blocks,
    stoppable,
    stored_parts_text,
)
from dse.sweep.job import Job, RunOptions, prepare_job
from dse.sweep.merging import identity_differences, join_parts
from dse.sweep.progress import Progress, ProgressReport
from dse.sweep.reduce import keep as keeping
from dse.sweep.store.manifest import Shard
from dse.sweep.store.parts import parts_folder

#: Shards per worker: few for low overhead, enough for workers to finish at about the same time.
_SHARDS_PER_WORKER = 8

#: Minimum chunks per shard, if there are enough: the last chunk of a shard is not full.
_CHUNKS_PER_SHARD = 8

#: Maximum number of shards of a sweep.
_MAX_SHARDS = 4096

#: Timeouts in seconds: for a scheduler to answer; between checks for lost workers; without local workers.
_CONNECT_SECONDS, _POLL_SECONDS, _NO_WORKER_SECONDS = 15.0, 2.0, 60.0


def evaluate_on_workers(job: Job, stack: contextlib.ExitStack) -> EvaluatedSweep:
    """Return a sweep evaluated by Dask workers, its parts joined.

    Until ``stack`` closes an interruption reports the parts that are stored.
    """
    start = time.perf_counter()
    with stoppable(), _client(job) as client:
        connected, order = time.perf_counter(), _order(job)
        if job.options.scheduler:
            job = dataclasses.replace(job, identity=_worker_identity(client, job, order))
        division = divide_into_blocks(job)
        store = division.shared_store
        if job.options.fresh:
            store.remove_parts()
        _write_token(store.folder, order.token)
        n_workers = max(len(client.nthreads()), 1)
        shards = _shards(division, n_workers)
        blocks = [block for shard in shards for block in division.shard_blocks(shard)]
        stack.enter_context(reporting(lambda: stored_parts_text(blocks, store)))
        order = order._replace(identity=job.identity, key=store.key)
        run = _Run(client, order, division, n_workers)
        outcomes = run.outcomes(shards)
        computed = time.perf_counter()
    part = join_parts(store, job.grid, job.keep)
    purposes = "trace", "compile"
    spent = {name: sum(outcome.seconds[name] for outcome in outcomes) / n_workers for name in purposes}
    seconds = {"start": connected - start, **spent, "run": max(computed - connected - sum(spent.values()), 0.0)}
    run.report.close(seconds["run"])
    earlier = EarlierCounts(*(sum(counts) for counts in zip(*(outcome.earlier for outcome in outcomes), strict=True)))
    return EvaluatedSweep(part, store, job.identity, earlier, seconds, sum(outcome.n_programs for outcome in outcomes))


def _order(job: Job) -> Order:
    """Return what workers need to prepare the same sweep: a new token, the specification's text, the options."""
    spec, token = job.grid.spec, f"driver.{secrets.token_hex(8)}.{os.getpid()}.tmp"
    study = None if spec.study in STUDIES.values() else spec.study
    output, chunk = Path(str(job.target)).absolute(), job.options.chunk
    options = RunOptions(output, str(job.keep), chunk, study=study, any_option=spec.any_option, force=True)
    return Order(token, spec.text, spec.file, options)


def _write_token(folder: Path, token: str) -> None:
    """Write an empty file of this name, by which workers verify that they share this folder."""
    (folder / token).touch()


def _worker_identity(client: Any, job: Job, order: Order) -> dict[str, str]:
    """Return the identity of the workers' computation, attribute → text, from the first worker that answers.

    Their device and versions may differ from the driver's. Raises InputError where code or catalogue do.
    """
    if not client.nthreads():
        logging.getLogger("dse").warning("no workers yet at %s: waiting for the first", job.options.scheduler)
    future = client.submit(identity, order, pure=False)
    remote: dict[str, str] = _checked(future, job).result()
    if differ := identity_differences(job.identity, remote):
        raise InputError(
            _worker_name(job),
            f"another {', '.join(differ)} than here",
            "the same code and catalogue",
            "start the workers in the environment of this command, with the same DSE_CATALOG",
        )
    return remote


def _shards(division: Division, n_workers: int) -> list[Shard]:
    """Return all shards of a sweep, 1/n to n/n, for a number of workers; n of an earlier run's parts, if any fits."""
    chunks = keeping.count_chunks(division.engine, division.job.keep)
    least = min(n_workers, chunks)
    count = min(_SHARDS_PER_WORKER * n_workers, max(chunks // _CHUNKS_PER_SHARD, least), _MAX_SHARDS)
    # The same shards as in an earlier run with any number of workers: partial parts would be computed again.
    store = division.shared_store
    names = store.folder.glob(f"{store.key}-*-of-*.jsonl")
    count = max(
        (n_shards for n_shards in (int(path.stem.rpartition("-of-")[2]) for path in names) if n_shards >= least),
        default=count,
    )
    return [Shard(i, count) for i in range(1, count + 1)]


class _Run:
    """Shards in progress."""

    def __init__(self, client: Any, order: Order, division: Division, n_workers: int) -> None:
        self._client, self._order, self._division, self._n_workers = client, order, division, n_workers
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._states: dict[int, Progress] = {}
        self._failed: dict[Shard, InputError] = {}
        self._total = division.job.grid.n_designs
        self.report = ProgressReport(division.job.options.progress)

    def outcomes(self, shards: list[Shard]) -> list[ShareOutcome]:
        """Run all shards and return their outcomes, as they finish.

        Raises:
            IncompleteError: if some could not be computed, after all others.
            Interrupted: when stopped.
        """
        self._client.subscribe_topic(self._order.token, lambda event: self._news.put(event[1]))
        try:
            share_outcomes, killed = self._run_shards(shards)
            for shard in killed:  # alone: others may have caused the loss, through memory or a crash
                retried, lost = self._run_shards([shard])
                share_outcomes += retried
                if lost:
                    self._failed[shard] = _killer(shard, self._division)
        except KeyboardInterrupt:
            n_done = sum(state.done for state in self._states.values())
            raise Interrupted(n_done, self._total, self._division.shared_store.folder) from None
        finally:
            self._client.unsubscribe_topic(self._order.token)
        if self._failed:
            raise self._incomplete(len(shards))
        return share_outcomes

    def _run_shards(self, shards: list[Shard]) -> tuple[list[ShareOutcome], list[Shard]]:
        """Return the outcomes of shards that run concurrently, and the shards, ascending, whose workers were lost."""
        futures = {}
        for shard in shards:
            name = f"{self._order.token}-{shard.number}-of-{shard.of}-{secrets.token_hex(2)}"
            futures[self._client.submit(compute, self._order, shard, key=name, pure=False)] = shard
        for future in futures:
            future.add_done_callback(self._news.put)
        share_outcomes, killed = list[ShareOutcome](), list[Shard]()
        while futures:
            news = self._next_event()
            if isinstance(news, list | tuple):
                number, fields = news
                self._add(number, Progress(**fields))
            elif news in futures:
                shard = futures.pop(news)
                if news.status == "error" and isinstance(news.exception(), library().KilledWorker):
                    killed.append(shard)  # each of its workers died
                else:
                    share_outcomes.append(_checked(news, self._division.job).result())
                    if failure := share_outcomes[-1].failure:
                        self._failed[shard] = failure
        return share_outcomes, sorted(killed)

    def _next_event(self) -> Any:
        """Wait for the next event: (shard number, fields of its Progress), or the future of a finished shard.

        Raises IncompleteError where the scheduler or all local workers have gone.
        """
        idle_seconds = 0.0
        while True:
            try:
                return self._news.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                idle_seconds = 0.0 if self._client.nthreads() else idle_seconds + _POLL_SECONDS
                if self._client.status not in ("running", "newly-created"):
                    raise _disconnected(self._division.job, "the scheduler has gone") from None
                if self._division.job.options.workers and idle_seconds > _NO_WORKER_SECONDS:
                    raise _disconnected(self._division.job, "all workers have died and none starts") from None

    def _add(self, number: int, state: Progress) -> None:
        """Report the progress of the sweep, from shard ``number``'s new state and the last one of each other."""
        self._states[number] = state
        states, sign = self._states.values(), self._division.job.grid.spec.objectives[0].sign
        best = min((sign * progress.best for progress in states if progress.best is not None), default=None)
        sums = {name: sum(getattr(progress, name) for progress in states) for name in ("done", "feasible", "resumed")}
        self.report(
            dataclasses.replace(
                state,
                total=self._total,
                seconds=sum(progress.seconds for progress in states) / self._n_workers,
                best=None if best is None else sign * best,
                **sums,
            )
        )

    def _incomplete(self, n_shards: int) -> IncompleteError:
        """Return the error for shards that could not be computed, with the cause of the first."""
        first = min(self._failed)
        note = f"; so it is with {counted(len(self._failed) - 1, 'other shard')}" if len(self._failed) > 1 else ""
        error, n_finished = self._failed[first], n_shards - len(self._failed)
        return IncompleteError(
            f"shard {first} ({error.where}){note}",
            error.got,
            error.allowed,
            f"finished and kept: {counted(n_finished, 'other shard')}, in {self._division.shared_store.folder}: mend "
            "the cause (memory? fewer workers), then the same command computes what is missing",
        )


def _killer(shard: Shard, division: Division) -> IncompleteError:
    """Return the error for a shard that repeatedly loses its workers."""
    blocks = division.shard_blocks(shard)
    return IncompleteError(
        f"outer indices {blocks[0].start:,} to {blocks[-1].stop - 1:,}",
        "every worker that computes it dies",
        "a share that can be computed",
        "",
    )


# --- the cluster ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _client(job: Job) -> Iterator[Any]:
    """Yield the Dask client of the job's scheduler, or of local workers that stop with it.

    Raises InputError where none answers, IncompleteError where the scheduler goes later.
    """
    distributed, address, local = library(), job.options.scheduler, job.options.workers
    with contextlib.ExitStack() as stack:
        if isinstance(local, int):
            local = stack.enter_context(local_cluster(local))
        try:
            if local:
                wait_for_start(local)
            client = distributed.Client(local or address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise unreachable(address, error) from error
        try:
            yield stack.enter_context(client)
        except (distributed.comm.CommClosedError, asyncio.CancelledError) as error:
            raise _disconnected(job, "the scheduler has gone") from error


def _checked(future: Any, job: Job) -> Any:
    """Return a completed future that has a result or, for its ``result`` to raise, an InputError.

    Raises IncompleteError where the future is lost, and InputError for all other failures.
    """
    if future.status in ("cancelled", "lost"):
        raise _disconnected(job, "the scheduler has gone")
    error = future.exception()
    if error is None or isinstance(error, InputError):
        return future
    raise InputError(
        _worker_name(job),
        f"{type(error).__name__}: {error}",
        "workers that can compute a share of this sweep",
        "install the same dse where the workers run; what is finished is kept",
    ) from error


def _disconnected(job: Job, what: str) -> IncompleteError:
    """Return the error for workers or a scheduler that have gone; ``what``: in words."""
    return IncompleteError(
        _worker_name(job),
        what,
        "a scheduler and workers until the end",
        "start them again: what is finished is kept, and the same command goes on from there",
    )


def _worker_name(job: Job) -> str:
    """Return the name of a job's workers in errors: those of a scheduler's address or of this machine."""
    return f"workers of {job.options.scheduler}" if job.options.scheduler else "workers of this machine"


#: Interval between progress reports of a shard, s.
_REPORT_EVERY = 0.2

#: Held by the shard that is evaluated: several threads of a process would share its processors.
_SHARD_LOCK = threading.Lock()

#: Token of a run → its division; of the last run alone.
_DIVISIONS: dict[str, Division] = {}


class Order(NamedTuple):
    """Description of a sweep for a worker."""

    token: str  #: of this run of the driver; a file of this name in the folder of parts proves that it is shared
    text: str  #: of the specification
    file: str
    options: RunOptions
    identity: dict[str, str] | None = None  #: required identity of the workers' computation, once known
    key: str = ""  #: key of the parts


class ShareOutcome(NamedTuple):
    """Outcome of a shard."""

    earlier: EarlierCounts
    seconds: dict[str, float]
    n_programs: int
    failure: IncompleteError | None  #: set if some blocks could not be computed


def identity(order: Order) -> dict[str, str]:
    """Return the identity of this worker's computation, attribute → text: device, versions, code and all else."""
    with _SHARD_LOCK:
        return _job(order).identity


def compute(order: Order, shard: Shard) -> ShareOutcome:
    """Evaluate a shard into the shared store and return its outcome, failed blocks included; InputErrors are raised."""
    with _SHARD_LOCK:
        clock, earlier, failure = Stopwatch(), EarlierCounts(0, 0), None
        try:
            earlier = _division(order).evaluate(shard, lambda part: None, _reporter(order.token, shard))
        except IncompleteError as error:
            failure = error
        return ShareOutcome(earlier, clock.seconds(), clock.n_programs(), failure)


def _division(order: Order) -> Division:
    """Return the sweep of an order, divided into blocks; cached for all of its shards.

    Raises InputError where the folder of parts is not shared, or the computation is another than the order's.
    """
    if order.token not in _DIVISIONS:
        folder = parts_folder(Path(str(order.options.output)))
        if not (folder / order.token).exists():
            raise _refusal(
                f"{folder} is not there as the driver sees it",
                "an output in a folder that the driver and all workers share",
                "give --output a path on a shared file system",
            )
        division = divide_into_blocks(_job(order))
        computation = division.job.identity
        differ = [name for name, value in (order.identity or {}).items() if computation[name] != value]
        if differ or division.shared_store.key != order.key:
            raise _refusal(
                f"another {', '.join(differ) or 'division into blocks'} than elsewhere",
                "the same dse, catalogue, JAX and kind of device everywhere",
                "start the workers in one environment, with the same DSE_CATALOG",
            )
        _DIVISIONS.clear()
        _DIVISIONS[order.token] = division
    return _DIVISIONS[order.token]


def _refusal(got: str, allowed: str, fix: str) -> InputError:
    """Return an InputError whose place is this worker, by the name of its machine."""
    return InputError(f"worker on {socket.gethostname()}", got, allowed, fix)


def _job(order: Order) -> Job:
    """Return the job of an order: its specification, parsed from the text, with its options."""
    return prepare_job(from_text(order.text, order.file, order.options.study), order.options)


def _reporter(token: str, shard: Shard) -> Report:
    """Return a function that sends a shard's progress to the driver: every 0.2 s at most, and at the end."""
    from distributed import get_worker

    worker: Any = get_worker()
    last = 0.0

    def report(state: Progress) -> None:
        nonlocal last
        if state.done == state.total or time.monotonic() - last > _REPORT_EVERY:
            last = time.monotonic()
            worker.log_event(token, [shard.number, dataclasses.asdict(state)])

    return report
