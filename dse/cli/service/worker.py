"""Answers in processes of their own, with limits of time and memory: what takes longer ends with its process."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from dse.cli.service.operations import operation, refuse_files
from dse.errors import InputError, Notice
from dse.io import toml
from dse.io.environment import processors

#: Seconds of work that an answer may take, and bytes that its process may have.
SECONDS, _BYTES = 60.0, 16 << 30

#: Requests that wait for a process, and seconds after which others may ask again.
WAITING, RETRY = 64, 5

#: Status of a request that got no answer: it took too long, found no place to wait, or dse is at fault.
FAILED = 3


def answer(name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request in this process: return the report of its capability as a JSON-ready dictionary.

    Args:
        name: of an operation.
        request: its options.

    Returns:
        ``status`` of the command, what it prints with ``--json`` as ``document``, and its ``notes``; or ``error`` in
        four parts.
    """
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):

        def without_folder(text: str) -> str:
            for path in (os.path.realpath(folder), folder):
                text = text.replace(f"{path}{os.sep}", "").replace(path, "")
            return text

        try:
            toml.check(request, name)
            asked = operation(name)
            refuse_files(request, name)
            with warnings.catch_warnings(record=True) as notices, contextlib.redirect_stdout(sys.stderr):
                warnings.simplefilter("always", Notice)
                report = asked.answer(request)
            notes = [str(notice.message) for notice in notices if issubclass(notice.category, Notice)]
            document, notes = report.to_dict(), [*notes, *report.notes]
        except InputError as error:
            return refusal(2, *map(without_folder, (error.where, error.got, error.allowed, error.fix)))
        text = without_folder(json.dumps({"status": report.status, "document": document, "notes": notes}))
    reply: dict[str, Any] = json.loads(text)
    return reply


def refusal(status: int, where: str, got: str, allowed: str, fix: str) -> dict[str, Any]:
    """Return the answer (``status``, ``error``) of an error in four parts."""
    return {"status": status, "error": {"where": where, "got": got, "allowed": allowed, "fix": fix}}


class Worker:
    """A process that answers one request at a time and is replaced when it takes too long or dies."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what :func:`answer` returns in the process; a refusal where it takes too long or dies."""
        try:
            payload = json.dumps([name, request]).encode()
        except (RecursionError, ValueError) as error:
            return refusal(2, name, str(error)[:200], "JSON of a few levels", "send plain values")
        with self._lock:
            pipe = self._connection()
            try:
                pipe.send_bytes(payload)
                if pipe.poll(self._seconds):
                    reply: dict[str, Any] = json.loads(pipe.recv_bytes())
                    return reply
                problem = (f"more than {self._seconds:g} s of work", "answers within it", "ask for less")
            except (EOFError, OSError):
                problem = ("an answer that ended the process", "what fits into memory", "ask for less")
            self.close()
            return refusal(FAILED, name, *problem)

    def _connection(self) -> Connection:
        """Return the pipe to the process, which is started if it does not run."""
        if self._pipe is None or self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._pipe, child_pipe = context.Pipe()
            self._process = context.Process(target=_serve, args=(child_pipe,), daemon=True)
            self._process.start()
            child_pipe.close()
        return self._pipe

    def close(self) -> None:
        """Kill the process; the next request starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


class WorkerPool:
    """As many workers as processors, and a queue of requests."""

    def __init__(self, seconds: float = SECONDS, count: int | None = None, waiting: int = WAITING) -> None:
        self._workers = [Worker(seconds) for _ in range(count or processors())]
        self.places = len(self._workers) + waiting  #: requests that are answered or wait
        self._free = threading.BoundedSemaphore(self.places)
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()  # the last one has its programs at hand
        for worker in self._workers:
            self._idle.put(worker)

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the first free worker; at once a refusal with ``retry_after`` s if too many wait."""
        if not self._free.acquire(blocking=False):
            got = f"{self.places} requests before it, of which {len(self._workers)} are answered"
            refusal_document = refusal(FAILED, name, got, "a place to wait", f"ask again after {RETRY} s")
            return refusal_document | {"retry_after": RETRY}
        try:
            worker = self._idle.get()
            try:
                return worker.ask(name, request)
            finally:
                self._idle.put(worker)
        finally:
            self._free.release()

    def close(self) -> None:
        """Kill all processes."""
        for worker in self._workers:
            worker.close()


def _serve(pipe: Connection) -> None:
    """Run in the process: answer requests from the pipe until its other end is closed."""
    from dse.io import fuse_outputs

    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_BYTES, _BYTES))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the standard output of a parent may be a protocol
    fuse_outputs()
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            name, request = json.loads(pipe.recv_bytes())
            try:
                reply = answer(name, request)
            except Exception:
                traceback.print_exc()
                fix = "report the request, with what the server printed"
                reply = refusal(FAILED, name, "a fault of dse", "answers", fix)
            pipe.send_bytes(json.dumps(reply).encode())
