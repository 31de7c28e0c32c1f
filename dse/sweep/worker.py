"""A worker of a cluster: evaluates shards of a sweep into a folder that it shares with the driver."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from dse.errors import IncompleteError, InputError
from dse.spec.sweep import from_text
from dse.sweep.evaluation import Division, Earlier, Report, Stopwatch, divided
from dse.sweep.job import Job, RunOptions, prepared
from dse.sweep.progress import Progress
from dse.sweep.store.manifest import Shard
from dse.sweep.store.parts import parts_folder

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
