"""A worker of a cluster: computes shards of one sweep into a folder that it shares with the driver.

The parts are those of ``dse run --shard``; the driver sends numbers of shards and receives counts.
"""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dse.doors.study import Study
from dse.errors import IncompleteError, InputError
from dse.spec.sweep import from_text
from dse.sweep.engine.programs import CompileClock
from dse.sweep.evaluation import Earlier
from dse.sweep.job import Job, RunOptions, prepared
from dse.sweep.progress import Progress
from dse.sweep.shard import Division, divided, spent
from dse.sweep.store.manifest import Shard
from dse.sweep.store.parts import parts_folder

#: Interval between progress reports of a shard, s.
_REPORT_EVERY = 0.2


class Order(NamedTuple):
    """Description of a sweep for a worker."""

    token: str  #: of this run of the driver; a file of this name in the folder of parts proves that it is shared
    text: str  #: of the specification
    file: str
    study: Study | None
    options: RunOptions
    identity: dict[str, str] | None = None  #: required identity of the workers' computation, once known
    key: str = ""  #: key of the parts


class ShareOutcome(NamedTuple):
    """Outcome of a shard."""

    earlier: Earlier
    seconds: dict[str, float]
    n_programs: int
    failure: IncompleteError | None  #: set if some blocks could not be computed


class _WorkerState:
    """The sweep of this process; shards in several threads run one after another."""

    turn = threading.Lock()
    token = ""
    division: Division | None = None


def identity(order: Order) -> dict[str, str]:
    """Identity of this worker's computation: device, versions and code."""
    with _WorkerState.turn:
        return _job(order).identity


def compute(order: Order, shard: Shard) -> ShareOutcome:
    """Compute a shard; failed blocks are part of the outcome, InputErrors are raised."""
    with _WorkerState.turn:
        before, started = CompileClock.read(), time.perf_counter()
        earlier, failure = Earlier(0, 0), None
        try:
            _, earlier = _reporting(_division(order), order.token, shard).evaluate(shard)
        except IncompleteError as error:
            failure = error
        seconds, programs, _ = spent(before, started)
        return ShareOutcome(earlier, seconds, programs, failure)


def _division(order: Order) -> Division:
    """The sweep of an order, divided into blocks; cached for all of its shards."""
    if _WorkerState.token != order.token or _WorkerState.division is None:
        _check_folder(order)
        job = _job(order)
        division = divided(job, Path(str(order.options.output)))
        differ = [name for name, value in (order.identity or {}).items() if job.identity[name] != value]
        if differ or division.store.key != order.key:
            raise InputError(
                f"worker on {socket.gethostname()}",
                f"another {', '.join(differ) or 'division into blocks'} than elsewhere",
                "the same dse, catalogue, JAX and kind of device everywhere",
                "start the workers in one environment, with the same DSE_CATALOG",
            )
        _WorkerState.token, _WorkerState.division = order.token, division
    return _WorkerState.division


def _job(order: Order) -> Job:
    spec = from_text(order.text, order.file, order.study)
    return prepared(spec, dataclasses.replace(order.options, study=order.study))


def _check_folder(order: Order) -> None:
    folder = parts_folder(Path(str(order.options.output)))
    if not (folder / order.token).exists():
        raise InputError(
            f"worker on {socket.gethostname()}",
            f"{folder} is not there as the driver sees it",
            "an output in a folder that the driver and all workers share",
            "give --output a path on a shared file system",
        )


def _reporting(division: Division, token: str, shard: Shard) -> Division:
    """The sweep with progress reports to the driver."""
    options = dataclasses.replace(division.job.options, progress=_reporter(token, shard))
    return division._replace(job=dataclasses.replace(division.job, options=options))


def _reporter(token: str, shard: Shard) -> Callable[[Progress], None]:
    from distributed import get_worker

    worker: Any = get_worker()
    last = [0.0]

    def report(state: Progress) -> None:
        if state.done == state.total or time.monotonic() - last[0] > _REPORT_EVERY:
            last[0] = time.monotonic()
            worker.log_event(token, [shard.number, dataclasses.asdict(state)])

    return report
