"""Processes of this machine that compute: a Dask cluster that nobody else can talk to.

They start and import while the command that wants them does: this file needs neither JAX nor the sweep.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from dse.errors import InputError
from dse.io import interruption
from dse.io.distribution import install_extra

#: Workers of one machine.
MOST_WORKERS = 1024

#: How the names of folders of workers begin.
_SCRATCH = "dse-workers-"

#: Times that a worker may die over one share in one round.
_DEATHS = 2


def checked(count: int) -> int:
    """A number of workers that one machine may have; any other is an InputError."""
    if not 1 <= count <= MOST_WORKERS:
        allowed = f"1 to {MOST_WORKERS:,} processes of this machine"
        raise InputError("workers", str(count), allowed, "as many as it has processors, or less")
    return count


class LocalWorkers:
    """So many spawned workers that share the processors; within ``with`` they start, and they end with it.

    Args:
        count: how many, 1 to ``MOST_WORKERS``.

    Raises InputError for another count, where Dask distributed is missing, and where processes cannot be spawned.
    """

    def __init__(self, count: int) -> None:
        self.count = checked(count)
        self._stack = contextlib.ExitStack()
        self._cluster: Any = None

    def __enter__(self) -> LocalWorkers:
        """Have them spawned; it is not waited for them."""
        with contextlib.ExitStack() as stack:
            try:
                self._cluster = stack.enter_context(_cluster(self.count))
                self._cluster.scale(self.count)
            except InputError:  # a library that is not there
                raise
            except (OSError, ValueError, TypeError, RuntimeError) as error:
                raise unreachable(None, error) from error
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them."""
        self._stack.__exit__(kind, error, trace)

    def ready(self) -> Any:
        """The cluster, once all of them are there."""
        self._cluster.wait_for_workers(self.count)
        return self._cluster


@contextlib.contextmanager
def _cluster(count: int) -> Iterator[Any]:
    """A cluster without workers yet, for this number of them."""
    distributed = library()

    # One more than its share each: while a worker looks into what was found, the next chunk is computed.
    threads = str((os.cpu_count() or 1) // count + 1)
    _track_quietly()
    with _scratch() as folder, dask_settings(folder), contextlib.ExitStack() as stack:
        with _without_interrupts():
            cluster = stack.enter_context(distributed.LocalCluster(
                n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
                security=distributed.Security.temporary(), env={"PJRT_NPROC": threads, "NPROC": threads},
            ))  # fmt: skip
        yield cluster


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Threads that begin in here have Ctrl-C blocked, and so have, from birth, the processes that they start.

    A terminal sends it to the whole group, and a worker that still imports would print where it was; their driver ends
    them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def dask_settings(folder: str) -> Any:
    """What is asked of Dask for workers of this machine, whose files go into this folder, as a context."""
    import dask

    return dask.config.set({
        "temporary-directory": folder,
        "distributed.deploy.lost-worker-timeout": "10 days",  # its nanny starts another: do not give it up meanwhile
        "distributed.scheduler.allowed-failures": _DEATHS - 1,
        "distributed.scheduler.worker-saturation": 1.0,  # none waits at a worker that another share may kill
        # Processes that watch themselves a hundred times a second take a twentieth of two cores.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.tick.limit": "60s",
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.nanny.pre-spawn-environ": {},  # it has memory given back at once, which chunk after chunk asks for
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.worker.preload": [*dask.config.get("distributed.worker.preload", []), "dse.sweep.worker"],
    })  # fmt: skip


def _track_quietly() -> None:
    """Start Python's tracker of semaphores without its warning: an interrupted command leaves it to clean up."""
    from multiprocessing import resource_tracker

    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # by these the tracker's process is started
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


class _Scratch:
    """A folder of workers, named by their driver; a command that is interrupted removes it as it ends them."""

    def __init__(self) -> None:
        _remove_left(Path(tempfile.gettempdir()))
        self.path = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")

    def kill(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _remove_left(temporary: Path) -> None:
    """Remove what drivers of this user that were killed have left."""
    for path in temporary.glob(f"{_SCRATCH}*-*"):
        pid = path.name.removeprefix(_SCRATCH).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and path.stat().st_uid == os.getuid() and not _is_alive(int(pid)):
                shutil.rmtree(path, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """A folder of this user's own for what workers write for themselves: Python looks for modules there."""
    made = _Scratch()
    interruption.CHILDREN.append(made)
    try:
        yield made.path
    finally:
        interruption.CHILDREN.remove(made)
        made.kill()


@functools.cache
def library() -> Any:
    """Dask distributed with what it needs; where it is not installed, an InputError."""
    try:
        importlib.import_module("cryptography")
        return importlib.import_module("distributed")
    except ImportError as error:
        raise InputError(
            "--workers, --scheduler", f"{error.name} is not installed", "Dask distributed",
            f"install the extra: {install_extra('dist')}; --shard i/n needs none",
        ) from None  # fmt: skip


def unreachable(address: str | None, error: Exception) -> InputError:
    """The error of a scheduler that does not answer, or of local workers that do not start."""
    if address:
        return InputError(
            "--scheduler", f"{address}: {error}", "the address of a running Dask scheduler, as tcp://host:8786",
            "start one with `dask scheduler`, or use --workers on this machine",
        )  # fmt: skip
    return InputError(
        "--workers", f"workers that do not start: {error}", "processes that can be spawned",
        'fewer workers; a script of your own calls dse under `if __name__ == "__main__":`',
    )  # fmt: skip
