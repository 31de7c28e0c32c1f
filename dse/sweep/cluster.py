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

from dse.doors.studies import STUDIES
from dse.errors import IncompleteError, InputError
from dse.io.interruption import telling
from dse.io.quantities import counted
from dse.io.workers import library, local_cluster, unreachable, wait_for_start
from dse.spec.sweep import from_text
from dse.sweep.evaluation import (
    Division,
    Earlier,
    Evaluated,
    Interrupted,
    Report,
    Stopwatch,
    divided,
    kept_parts,
    stoppable,
)
from dse.sweep.job import Job, RunOptions, prepared
from dse.sweep.merging import different, joined_parts
from dse.sweep.progress import Progress
from dse.sweep.reduce import keep as keeping
from dse.sweep.store.manifest import Shard
from dse.sweep.store.parts import parts_folder

#: Shards per worker: few for low overhead, enough for workers to finish at about the same time.
_SHARES_A_WORKER = 8

#: Minimum chunks per shard, if there are enough: the last chunk of a shard is not full.
_CHUNKS_A_SHARE = 8

#: Maximum number of shards of a sweep.
_MOST_SHARES = 4096

#: Timeouts in seconds: for a scheduler to answer; between checks for lost workers; without local workers.
_CONNECTING, _LOOK, _NO_WORKERS = 15.0, 2.0, 60.0


def evaluated(job: Job, stack: contextlib.ExitStack) -> Evaluated:
    """All blocks of a sweep, evaluated by workers; until ``stack`` closes, an interruption reports the stored parts."""
    began = time.perf_counter()
    with stoppable(), _client(job) as client:
        started, order = time.perf_counter(), _order(job)
        if job.options.scheduler:
            job = dataclasses.replace(job, identity=_identity_there(client, job, order))
        division = divided(job)
        store = division.shared_store
        if job.options.fresh:
            store.remove_parts()
        _meet(store.folder, order.token)
        n_workers = max(len(client.nthreads()), 1)
        shards = _shards(division, n_workers)
        blocks = [block for shard in shards for block in division.share(shard)]
        stack.enter_context(telling(lambda: kept_parts(blocks, store)))
        order = order._replace(identity=job.identity, key=store.key)
        outcomes = _Run(client, order, division, n_workers).outcomes(shards)
        computed = time.perf_counter()
    part = joined_parts(store, job.grid, job.keep)
    spent = {name: sum(one.seconds[name] for one in outcomes) / n_workers for name in ("trace", "compile")}
    seconds = {"start": started - began, **spent, "run": max(computed - started - sum(spent.values()), 0.0)}
    earlier = Earlier(*(sum(counts) for counts in zip(*(one.earlier for one in outcomes), strict=True)))
    return Evaluated(part, store, job.identity, earlier, seconds, sum(one.n_programs for one in outcomes))


def _order(job: Job) -> Order:
    """Description of a sweep for workers."""
    spec, token = job.grid.spec, f"driver.{secrets.token_hex(8)}.{os.getpid()}.tmp"
    study = None if spec.study in STUDIES.values() else spec.study
    output, chunk = Path(str(job.target)).absolute(), job.options.chunk
    options = RunOptions(output, str(job.keep), chunk, study=study, any_option=spec.any_option, force=True)
    return Order(token, spec.text, spec.file, options)


def _meet(folder: Path, token: str) -> None:
    """Write a file by which workers verify that they share this folder."""
    (folder / token).touch()


def _identity_there(client: Any, job: Job, order: Order) -> dict[str, str]:
    """Identity of the workers' computation: their device and versions may differ from the driver's."""
    if not client.nthreads():
        logging.getLogger("dse").warning("no workers yet at %s: waiting for the first", job.options.scheduler)
    future = client.submit(identity, order, pure=False)
    found: dict[str, str] = _checked(future, job).result()
    if differ := different(job.identity, found):
        raise InputError(
            _named(job),
            f"another {', '.join(differ)} than here",
            "the same code and catalogue",
            "start the workers in the environment of this command, with the same DSE_CATALOG",
        )
    return found


def _shards(division: Division, n_workers: int) -> list[Shard]:
    """Shards of a sweep for a number of workers."""
    chunks = keeping.most_shares(division.engine, division.job.keep)
    least = min(n_workers, chunks)
    count = min(_SHARES_A_WORKER * n_workers, max(chunks // _CHUNKS_A_SHARE, least), _MOST_SHARES)
    # The same shards as in an earlier run with any number of workers: partial parts would be computed again.
    store = division.shared_store
    names = store.folder.glob(f"{store.key}-*-of-*.jsonl")
    count = max((of for of in (int(path.stem.rpartition("-of-")[2]) for path in names) if of >= least), default=count)
    return [Shard(i, count) for i in range(1, count + 1)]


class _Run:
    """Shards in progress."""

    def __init__(self, client: Any, order: Order, division: Division, n_workers: int) -> None:
        self._client, self._order, self._division, self._n_workers = client, order, division, n_workers
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._states: dict[int, Progress] = {}
        self._failed: dict[Shard, InputError] = {}
        self._total = division.job.grid.n_designs

    def outcomes(self, shards: list[Shard]) -> list[ShareOutcome]:
        """Outcomes of all shards; IncompleteError if some could not be computed."""
        self._client.subscribe_topic(self._order.token, lambda event: self._news.put(event[1]))
        try:
            found, killed = self._round(shards)
            for shard in killed:  # alone: others may have caused the loss, through memory or a crash
                done, again = self._round([shard])
                found += done
                if again:
                    self._failed[shard] = _killer(shard, self._division)
        except KeyboardInterrupt:
            raise Interrupted(self._done(), self._total, self._division.shared_store.folder) from None
        finally:
            self._client.unsubscribe_topic(self._order.token)
        if self._failed:
            raise self._incomplete(len(shards))
        return found

    def _round(self, shards: list[Shard]) -> tuple[list[ShareOutcome], list[Shard]]:
        """Outcomes of shards that run concurrently, and the shards whose workers were lost each time."""
        futures = {}
        for shard in shards:
            name = f"{self._order.token}-{shard.number}-of-{shard.of}-{secrets.token_hex(2)}"
            futures[self._client.submit(compute, self._order, shard, key=name, pure=False)] = shard
        for future in futures:
            future.add_done_callback(self._news.put)
        found, killed = list[ShareOutcome](), list[Shard]()
        while futures:
            news = self._next()
            if isinstance(news, list | tuple):
                self._tell(news[0], Progress(**news[1]))
            elif news in futures:
                shard = futures.pop(news)
                if _is_killed(news):
                    killed.append(shard)
                else:
                    found.append(_checked(news, self._division.job).result())
                    if failure := found[-1].failure:
                        self._failed[shard] = failure
        return found, sorted(killed)

    def _next(self) -> Any:
        """Next event: a progress report or a finished shard."""
        alone = 0.0
        while True:
            try:
                return self._news.get(timeout=_LOOK)
            except queue.Empty:
                alone = 0.0 if self._client.nthreads() else alone + _LOOK
                if self._client.status not in ("running", "newly-created"):
                    raise _gone(self._division.job, "the scheduler has gone") from None
                if self._division.job.options.workers and alone > _NO_WORKERS:
                    raise _gone(self._division.job, "all workers have died and none starts") from None

    def _tell(self, number: int, state: Progress) -> None:
        """Report the progress of the sweep from the last state of each shard."""
        self._states[number] = state
        report, states = self._division.job.options.progress, self._states.values()
        if report:
            sign = self._division.job.grid.spec.objectives[0].sign
            best = min((sign * one.best for one in states if one.best is not None), default=None)
            sums = {name: sum(getattr(one, name) for one in states) for name in ("done", "feasible", "resumed")}
            report(
                dataclasses.replace(
                    state,
                    total=self._total,
                    seconds=sum(one.seconds for one in states) / self._n_workers,
                    best=None if best is None else sign * best,
                    **sums,
                )
            )

    def _done(self) -> int:
        return sum(state.done for state in self._states.values())

    def _incomplete(self, of: int) -> IncompleteError:
        """The error for shards that could not be computed, with the cause of the first."""
        first = min(self._failed)
        others = f"; so it is with {counted(len(self._failed) - 1, 'other shard')}" if len(self._failed) > 1 else ""
        error, kept = self._failed[first], of - len(self._failed)
        return IncompleteError(
            f"shard {first} ({error.where}){others}",
            error.got,
            error.allowed,
            f"finished and kept: {counted(kept, 'other shard')}, in {self._division.shared_store.folder}: mend "
            "the cause (memory? fewer workers), then the same command computes what is missing",
        )


def _killer(shard: Shard, division: Division) -> IncompleteError:
    """The error for a shard that repeatedly loses its workers."""
    blocks = division.share(shard)
    return IncompleteError(
        f"outer indices {blocks[0].start:,} to {blocks[-1].stop - 1:,}",
        "every worker that computes it dies",
        "a share that can be computed",
        "",
    )


# --- the cluster ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _client(job: Job) -> Iterator[Any]:
    """Client of the requested scheduler, or of local workers that stop with it."""
    distributed, address, local = library(), job.options.scheduler, job.options.workers
    with contextlib.ExitStack() as stack:
        if isinstance(local, int):
            local = stack.enter_context(local_cluster(local))
        try:
            if local:
                wait_for_start(local)
            client = distributed.Client(local or address, timeout=_CONNECTING, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise unreachable(address, error) from error
        try:
            yield stack.enter_context(client)
        except (distributed.comm.CommClosedError, asyncio.CancelledError) as error:
            raise _gone(job, "the scheduler has gone") from error


def _is_killed(future: Any) -> bool:
    return future.status == "error" and isinstance(future.exception(), library().KilledWorker)


def _checked(future: Any, job: Job) -> Any:
    """A completed future; InputErrors are raised again, other failures become an IncompleteError."""
    if future.status in ("cancelled", "lost"):
        raise _gone(job, "the scheduler has gone")
    error = future.exception()
    if error is None or isinstance(error, InputError):
        return future
    raise InputError(
        _named(job),
        f"{type(error).__name__}: {error}",
        "workers that can compute a share of this sweep",
        "install the same dse where the workers run; what is finished is kept",
    ) from error


def _gone(job: Job, what: str) -> IncompleteError:
    return IncompleteError(
        _named(job),
        what,
        "a scheduler and workers until the end",
        "start them again: what is finished is kept, and the same command goes on from there",
    )


def _named(job: Job) -> str:
    return f"workers of {job.options.scheduler}" if job.options.scheduler else "workers of this machine"


#: Interval between progress reports of a shard, s.
_REPORT_EVERY = 0.2

#: Held by the shard that is evaluated: several threads of a process would share its processors.
_TURN = threading.Lock()

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

    earlier: Earlier
    seconds: dict[str, float]
    n_programs: int
    failure: IncompleteError | None  #: set if some blocks could not be computed


def identity(order: Order) -> dict[str, str]:
    """Identity of this worker's computation: device, versions and code."""
    with _TURN:
        return _job(order).identity


def compute(order: Order, shard: Shard) -> ShareOutcome:
    """Compute a shard; failed blocks are part of the outcome, InputErrors are raised."""
    with _TURN:
        clock, earlier, failure = Stopwatch(), Earlier(0, 0), None
        try:
            earlier = _division(order).evaluate(shard, lambda part: None, _reporter(order.token, shard))
        except IncompleteError as error:
            failure = error
        return ShareOutcome(earlier, clock.seconds(), clock.n_programs(), failure)


def _division(order: Order) -> Division:
    """The sweep of an order, divided into blocks; cached for all of its shards."""
    if order.token not in _DIVISIONS:
        folder = parts_folder(Path(str(order.options.output)))
        if not (folder / order.token).exists():
            raise _refusal(
                f"{folder} is not there as the driver sees it",
                "an output in a folder that the driver and all workers share",
                "give --output a path on a shared file system",
            )
        division = divided(_job(order))
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
    return InputError(f"worker on {socket.gethostname()}", got, allowed, fix)


def _job(order: Order) -> Job:
    return prepared(from_text(order.text, order.file, order.options.study), order.options)


def _reporter(token: str, shard: Shard) -> Report:
    """A report of progress to the driver, some times a second."""
    from distributed import get_worker

    worker: Any = get_worker()
    last = 0.0

    def report(state: Progress) -> None:
        nonlocal last
        if state.done == state.total or time.monotonic() - last > _REPORT_EVERY:
            last = time.monotonic()
            worker.log_event(token, [shard.number, dataclasses.asdict(state)])

    return report
