"""What a worker of a cluster does: it computes shares of one sweep into a folder that it shares with the driver.

A share is what ``dse run --shard`` computes, into the same parts: the driver sends which, and gets numbers back.
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

#: Seconds between two reports of one share.
_REPORT_EVERY = 0.2


class Order(NamedTuple):
    """What the shares are of: all that a worker needs to know."""

    token: str  #: of this run of the driver; a file of this name in the folder of parts shows that the folder is shared
    text: str  #: of the specification
    file: str
    study: Study | None
    options: RunOptions
    identity: dict[str, str] | None = None  #: what every worker must compute with, once it is known
    key: str = ""  #: of the parts


class ShareOutcome(NamedTuple):
    """What became of a share."""

    earlier: Earlier
    seconds: dict[str, float]
    n_programs: int
    failure: IncompleteError | None  #: set where some of its blocks could not be computed


class _WorkerState:
    """Of this process: the sweep that it is at. Where a worker has several threads, shares wait for one another."""

    turn = threading.Lock()
    token = ""
    division: Division | None = None


def identity(order: Order) -> dict[str, str]:
    """What this worker would compute with."""
    with _WorkerState.turn:
        return _job(order).identity


def compute(order: Order, shard: Shard) -> ShareOutcome:
    """Compute a share; blocks that cannot be computed are reported, bad input is raised."""
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
    """The sweep of an order, cut into blocks once for all of its shares."""
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
            )  # fmt: skip
        _WorkerState.token, _WorkerState.division = order.token, division
    return _WorkerState.division


def _job(order: Order) -> Job:
    spec = from_text(order.text, order.file, order.study)
    return prepared(spec, dataclasses.replace(order.options, study=order.study))


def _check_folder(order: Order) -> None:
    folder = parts_folder(Path(str(order.options.output)))
    if not (folder / order.token).exists():
        raise InputError(
            f"worker on {socket.gethostname()}", f"{folder} is not there as the driver sees it",
            "an output in a folder that the driver and all workers share",
            "give --output a path on a shared file system",
        )  # fmt: skip


def _reporting(division: Division, token: str, shard: Shard) -> Division:
    """The sweep with its progress reported to the driver."""
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
