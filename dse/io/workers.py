"""Worker processes on this machine: a Dask cluster closed to others.

They start and import while their command does: this file needs neither JAX nor the sweep.
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

#: Maximum number of workers per machine.
MOST_WORKERS = 1024

#: Prefix of the names of worker folders.
_SCRATCH = "dse-workers-"

#: Maximum number of worker deaths per share and round.
_DEATHS = 2


def checked(count: int) -> int:
    """A valid number of workers for one machine; InputError for any other."""
    if not 1 <= count <= MOST_WORKERS:
        allowed = f"1 to {MOST_WORKERS:,} processes of this machine"
        raise InputError("workers", str(count), allowed, "as many as it has processors, or less")
    return count


class LocalWorkers:
    """``count`` spawned workers that share the processors; they start and end with the ``with`` block.

    Args:
        count: number of workers, 1 to ``MOST_WORKERS``.

    Raises:
        InputError: for another count, without Dask distributed, and where processes cannot be spawned.
    """

    def __init__(self, count: int) -> None:
        self.count = checked(count)
        self._stack = contextlib.ExitStack()
        self._cluster: Any = None

    def __enter__(self) -> LocalWorkers:
        """Start spawning, without waiting."""
        with contextlib.ExitStack() as stack:
            try:
                self._cluster = stack.enter_context(_cluster(self.count))
                self._cluster.scale(self.count)
            except InputError:  # a missing library
                raise
            except (OSError, ValueError, TypeError, RuntimeError) as error:
                raise unreachable(None, error) from error
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers."""
        self._stack.__exit__(kind, error, trace)

    def ready(self) -> Any:
        """The cluster, once all workers are there."""
        self._cluster.wait_for_workers(self.count)
        return self._cluster


@contextlib.contextmanager
def _cluster(count: int) -> Iterator[Any]:
    """A cluster for this number of workers, without any yet."""
    distributed = library()

    # One more than their share each: the next chunk is computed while a worker handles results.
    threads = str((os.cpu_count() or 1) // count + 1)
    _track_quietly()
    with _scratch() as folder, dask_settings(folder), contextlib.ExitStack() as stack:
        with _without_interrupts():
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=0,
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    security=distributed.Security.temporary(),
                    env={"PJRT_NPROC": threads, "NPROC": threads},
                )
            )
        yield cluster


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Context in which new threads block Ctrl-C, and so do the processes that they start.

    A terminal sends it to the whole group, and a worker during import would print a traceback; the driver ends workers.
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
    """Settings of Dask for workers of this machine with files in this folder, as a context manager."""
    import dask

    return dask.config.set(
        {
            "temporary-directory": folder,
            "distributed.deploy.lost-worker-timeout": "10 days",  # its nanny starts another one in the meantime
            "distributed.scheduler.allowed-failures": _DEATHS - 1,
            "distributed.scheduler.worker-saturation": 1.0,  # no share waits at a worker that another one may kill
            # Self-monitoring a hundred times a second takes a twentieth of two cores.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.interval": "1s",
            "distributed.admin.tick.limit": "60s",
            "distributed.admin.system-monitor.interval": "10s",
            "distributed.nanny.pre-spawn-environ": {},  # its default returns memory that the next chunk needs
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            "distributed.worker.multiprocessing-method": "spawn",
            "distributed.worker.preload": [*dask.config.get("distributed.worker.preload", []), "dse.sweep.worker"],
        }
    )


def _track_quietly() -> None:
    """Start Python's tracker of semaphores without the warning that an interrupted command would print."""
    from multiprocessing import resource_tracker

    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # inherited by the tracker's process
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


class _Scratch:
    """A folder of workers, named by their driver, which an interrupted command removes."""

    def __init__(self) -> None:
        _remove_left(Path(tempfile.gettempdir()))
        self.path = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")

    def kill(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


def _remove_left(temporary: Path) -> None:
    """Remove folders left by killed drivers of this user."""
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
    """A private folder for files of workers; Python searches it for modules."""
    made = _Scratch()
    interruption.CHILDREN.append(made)
    try:
        yield made.path
    finally:
        interruption.CHILDREN.remove(made)
        made.kill()


@functools.cache
def library() -> Any:
    """Dask distributed with its dependencies; InputError if it is not installed."""
    try:
        importlib.import_module("cryptography")
        return importlib.import_module("distributed")
    except ImportError as error:
        raise InputError(
            "--workers, --scheduler",
            f"{error.name} is not installed",
            "Dask distributed",
            f"{install_extra('dist')}; --shard i/n needs none",
        ) from None


def unreachable(address: str | None, error: Exception) -> InputError:
    """InputError for a scheduler that does not answer, or for local workers that do not start."""
    if address:
        return InputError(
            "--scheduler",
            f"{address}: {error}",
            "the address of a running Dask scheduler, as tcp://host:8786",
            "start one with `dask scheduler`, or use --workers on this machine",
        )
    return InputError(
        "--workers",
        f"workers that do not start: {error}",
        "processes that can be spawned",
        'fewer workers; a script of your own calls dse under `if __name__ == "__main__":`',
    )
