"""Worker processes on this machine: a Dask cluster closed to others.

They start and import while their command does: this file needs neither JAX nor the sweep.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
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


def check(count: int) -> None:
    """Raise InputError for a number of workers that is not 1 to ``MOST_WORKERS``."""
    if not 1 <= count <= MOST_WORKERS:
        allowed = f"1 to {MOST_WORKERS:,} processes of this machine"
        raise InputError("workers", str(count), allowed, "as many as it has processors, or less")


@contextlib.contextmanager
def local_cluster(count: int) -> Iterator[Any]:
    """Yield a Dask cluster of spawned workers that share the processors; they may still start.

    Args:
        count: number of workers, 1 to ``MOST_WORKERS``.

    Raises:
        InputError: for another count, without Dask distributed, and where processes cannot be spawned.
    """
    check(count)
    distributed = library()
    # One more than their share each: the next chunk is computed while a worker handles results.
    threads = str((os.cpu_count() or 1) // count + 1)
    _track_quietly()
    with _scratch() as folder, dask_settings(folder), contextlib.ExitStack() as stack:
        try:
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
            cluster.scale(count)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise unreachable(None, error) from error
        yield cluster


def wait_for_start(cluster: Any) -> None:
    """Wait for the workers of a local cluster but those that fail to start.

    Raises:
        RuntimeError: if all of them fail.
    """
    count = len(cluster.worker_spec)
    while True:
        failures = sum(worker.status.name == "failed" for worker in cluster.workers.values())
        if failures == count:
            raise RuntimeError("their processes end as they start")
        with contextlib.suppress(TimeoutError):
            return cluster.wait_for_workers(count - failures, timeout=1.0)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C in threads and processes that start in this context, where the system can.

    A terminal sends it to the whole group, and a worker during import would print a traceback; the driver ends workers.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signal_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)


def dask_settings(folder: str) -> Any:
    """Return the context manager of Dask's settings for workers of this machine; their files go to ``folder``."""
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
            "distributed.worker.preload": [*dask.config.get("distributed.worker.preload", []), "dse.sweep.cluster"],
        }
    )


def _track_quietly() -> None:
    """Start Python's tracker of semaphores without the warning that it prints when a command is interrupted."""
    from multiprocessing import resource_tracker

    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # inherited by the tracker's process
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


class _Scratch(tempfile.TemporaryDirectory[str]):
    """A private folder for files of workers, named by their driver; Python searches it for modules."""

    kill = tempfile.TemporaryDirectory.cleanup  #: what an interrupted command does to it


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """Yield the path of a new folder for files of workers, removed afterwards; those of killed drivers are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*-*"):
        pid = path.name.removeprefix(_SCRATCH).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and path.stat().st_uid == os.getuid() and not _is_alive(int(pid)):
                shutil.rmtree(path, ignore_errors=True)
    scratch = _Scratch(prefix=f"{_SCRATCH}{os.getpid()}-", ignore_cleanup_errors=True)
    interruption.CHILDREN.append(scratch)
    try:
        yield scratch.name
    finally:
        interruption.CHILDREN.remove(scratch)
        scratch.cleanup()


def _is_alive(pid: int) -> bool:
    """True where a process of this id runs, one of other users included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def library() -> Any:
    """Return the module ``distributed``; InputError where it or what it needs is not installed."""
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
    """Return the error for a scheduler that does not answer, or for local workers that do not start.

    Args:
        address: of the scheduler; None for local workers.
        error: what was raised.
    """
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
