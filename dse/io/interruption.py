"""Ctrl-C and SIGTERM: a command ends immediately, and reports the results on disk.

An exception from a signal handler may get lost: swallowed by a destructor or a callback, a traceback while modules are
imported or the interpreter shuts down, a crash amid compiled code; and it comes only when compiled code returns.
Finished results are complete on disk at any time, since files are written under another name and then renamed. So a
thread waits for the signal, reports the results and ends the process without unwinding; a finished command ends without
the interpreter's shutdown (:func:`end`).

Only the command line does so, after :func:`arm`; callers from Python get a ``KeyboardInterrupt``, which sweeps and
searches turn into their ``Interrupted``. Before :func:`arm`, while Python starts, signals are handled by Python.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol

from dse.errors import visible

#: Exit status of a command whose reader has closed the pipe (`| head`), as of a process ended by SIGPIPE.
BROKEN_PIPE = 128 + 13

#: Signal → its text and exit status.
_SIGNALS = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}

#: Exit statuses of results; all others are of errors.
_RESULT_STATUSES = (0, 1)

_UNKNOWN = "; what is finished is kept"

#: Seconds after a first signal in which a second one is ignored.
_PATIENCE_SECONDS = 2.0

#: Maximum seconds to rename a file.
_RENAME_SECONDS = 10.0


class _Process(Protocol):
    def kill(self) -> None: ...


#: Processes that end with this one.
CHILDREN: list[_Process] = []


class _SignalState:
    """State of this process."""

    armed = False
    first: float | None = None  #: time of the first signal


_reports: list[tuple[Callable[[], str], int]] = []  #: and how many results were complete when each began
_complete: list[Path] = []
_changing = threading.RLock()


def arm() -> None:
    """Let signals end this process as a command from now on; signals ignored by its parent stay ignored."""
    if _SignalState.armed:
        return
    _SignalState.armed = True
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    threading.Thread(target=_wait, args=(receiving, sending), name="interruption", daemon=True).start()
    signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _note)


def is_armed() -> bool:
    """True where signals end this process."""
    return _SignalState.armed


@contextlib.contextmanager
def reporting(report: Callable[[], str]) -> Iterator[None]:
    """Report the results on disk where a signal ends the process in this context.

    Args:
        report: returns the text after the word "interrupted". It is called once, by another thread, unless a result has
            become complete since.

    Yields:
        Nothing; the context lasts while its results are written.
    """
    report_and_count = report, len(_complete)
    _reports.append(report_and_count)
    try:
        yield
    finally:
        _reports.remove(report_and_count)


@contextlib.contextmanager
def uninterrupted(output: Path | None = None) -> Iterator[None]:
    """Hold back signals that end the process in this context, in which a file is renamed.

    Args:
        output: a result that is complete afterwards.
    """
    with _changing:
        yield
        if output:
            complete(output)


def complete(output: Path) -> None:
    """Record that a result of this command is complete on disk; once per path."""
    if output not in _complete:
        _complete.append(output)


def end(status: int) -> NoReturn:
    """End the process with a status, without the shutdown of the interpreter, which must not meet a signal.

    Where the reader has closed the output, the status is ``BROKEN_PIPE``, since not all was read.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            status = BROKEN_PIPE if status in _RESULT_STATUSES else status
        except (OSError, ValueError):  # its meaning was reported before
            pass
    with _changing:
        os._exit(status)


# End


def _note(number: int, _: object) -> None:
    """Record the first signal, in the main thread; end the process at a repeated one after some seconds.

    The other thread handles signals, unless it hangs.
    """
    if _SignalState.first is None:
        _SignalState.first = time.monotonic()
    elif time.monotonic() - _SignalState.first > _PATIENCE_SECONDS:
        os._exit(_SIGNALS[signal.Signals(number)][1])


def _wait(receiving: socket.socket, _: socket.socket) -> None:
    """Wait for signals for ever, and end the process at one that ends commands; ``_`` keeps the pair open."""
    while True:
        number = receiving.recv(1)[0]
        if number in _SIGNALS:
            _stop(signal.Signals(number))


def _stop(number: signal.Signals) -> NoReturn:
    """Print which results are on disk, kill all children, and end the process with the status of the signal."""
    word, status = _SIGNALS[number]
    acquired = _changing.acquire(timeout=_RENAME_SECONDS)
    try:
        text = _results_text() if acquired else _UNKNOWN
    except Exception:  # whatever state the work is in, the process ends
        text = _UNKNOWN
    show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{show_cursor}{word}{visible(text)}\n".encode())
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # threads that still work would tell of children that are gone
    _stop_children()
    os._exit(status)


def _stop_children() -> None:
    """Kill all children and let no thread start another, since starting workers would print that this one is gone."""
    with contextlib.suppress(ImportError):
        spawning: Any = importlib.import_module("_posixsubprocess")
        spawning.fork_exec = lambda *_: time.sleep(_RENAME_SECONDS)
    for process in CHILDREN:
        with contextlib.suppress(OSError):
            process.kill()
    killed: set[int] = set()
    while remaining := set(_children()) - killed:  # a list of the system may lack some
        for pid in remaining:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= remaining


def _children() -> list[int]:
    """Return the ids of child processes, empty where the system does not list them."""
    pids: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            pids += map(int, path.read_text().split())
    return pids


def _results_text() -> str:
    """Return the text behind "interrupted": which results are on disk."""
    report, n_complete = _reports[-1] if _reports else (lambda: "; nothing was written", 0)
    report_text = report() if len(_complete) == n_complete else ""
    names = ", ".join(map(str, _complete))
    return f"{report_text}; {names} {'is' if len(_complete) == 1 else 'are'} complete" if names else report_text
