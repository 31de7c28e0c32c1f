"""Answers in processes of their own, with limits of time and memory: what takes longer ends with its process.

Each answer of one design says what its predictions rest on (:func:`with_basis`).
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import queue
import tempfile
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dse.cli.service.operations import MOST_DESIGNS, OPERATIONS
from dse.errors import InputError, unknown_name
from dse.io import toml
from dse.io.environment import processors

#: Seconds of work that an answer may take, and bytes that its process may have.
SECONDS, _BYTES = 60.0, 16 << 30

#: Requests that wait for a process, and seconds after which others may ask again.
WAITING, RETRY = 64, 5

#: Status of a request that got no answer: it took too long, found no place to wait, or dse is at fault.
FAILED = 3


def answer(name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request in this process: run its command and return a JSON-ready dictionary.

    Args:
        name: of an operation.
        request: the options of its command.

    Returns:
        ``status`` of the command, what it prints as ``document`` and its ``notes``; or ``error`` in four parts.
    """
    stdout, stderr, remove_paths = io.StringIO(), io.StringIO(), _PathRemover(name)
    try:
        toml.check(request, name)
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            remove_paths.folder = folder
            status = _run(name, request, Path(folder))
        document = with_basis(name, request, json.loads(remove_paths(stdout.getvalue())))
        notes = [remove_paths(line.strip()) for line in stderr.getvalue().splitlines() if line.strip()]
        return {"status": status, "document": document, "notes": notes}
    except InputError as error:
        return refusal(2, *map(remove_paths, (error.where, error.got, error.allowed, error.fix)))


class _PathRemover:
    """Function that removes temporary paths from a text: a document is named as its field."""

    def __init__(self, name: str) -> None:
        documents = OPERATIONS[name].documents if name in OPERATIONS else {}
        self.folder, self._files = "", {f"{field}.{kind}": field for field, kind in documents.items()}

    def __call__(self, text: str) -> str:
        if self.folder:
            for folder in (os.path.realpath(self.folder), self.folder):
                text = text.replace(f"{folder}{os.sep}", "").replace(folder, "")
        for file, field in self._files.items():
            text = text.replace(file, field)
        return text


def refusal(status: int, where: str, got: str, allowed: str, fix: str) -> dict[str, Any]:
    """Return the answer (``status``, ``error``) of an error in four parts."""
    return {"status": status, "error": {"where": where, "got": got, "allowed": allowed, "fix": fix}}


def _run(name: str, request: Mapping[str, Any], folder: Path) -> int:
    """Run the command of a request and return its exit status; raise an InputError for an unknown operation."""
    if name not in OPERATIONS:
        raise unknown_name("request", name, OPERATIONS, "operations")
    operation = OPERATIONS[name]
    arguments = operation.arguments(request, folder)
    if name == "run":
        _check_size(arguments)
    command: Any = operation.command
    return command.__wrapped__(**arguments) or 0


def _check_size(arguments: Mapping[str, Any]) -> None:
    """Raise an InputError for a sweep of more than ``MOST_DESIGNS`` designs, before any is evaluated."""
    from dse.sweep import plan

    grid, _ = plan(arguments["sweep"], arguments.get("keep"), any_option=arguments.get("any_option", False))
    if (designs := grid.n_designs) > MOST_DESIGNS:
        raise InputError(
            "run", f"{designs:.3g} designs", f"up to {MOST_DESIGNS:.0e}", "ask for fewer values, or run it with dse run"
        )


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


def with_basis(name: str, request: Mapping[str, Any], document: Any) -> Any:
    """Return the document of one design with ``basis`` added: label of its predictions, reasons, sources of the fit.

    ``fitted``: within the rows that the stack was fitted to. ``extrapolated``: beyond them, for each reason given.
    ``uncalibrated``: nobody has fitted the stack. Money and carbon are ``estimated``: prices are not fitted. Values of
    the catalogue carry their confidence themselves.
    """
    if name not in ("evaluate", "serve"):
        return document
    from dse.designs.calibrated import ranges
    from dse.designs.catalog import default_software, entry
    from dse.measured.uncertainty.bills import METRICS

    serving, workload, system = name == "serve", request["workload"], request["system"]
    stack = request.get("software") or default_software(system, serving=serving, workload=workload)
    sources = list(entry("software", stack).value("calibrated.sources") or ())
    label = "uncalibrated" if not ranges(stack) else "extrapolated" if document["outside"] else "fitted"
    labels = {metric: "estimated" if metric in METRICS else label for metric in document["intervals"]}
    return document | {"basis": {"label": label, "why": document["outside"], "sources": sources, "numbers": labels}}
