"""Ctrl-C and SIGTERM at any time of a command: it ends at once, and reports what is kept.

An exception out of a signal handler goes astray: swallowed by a destructor or a callback, a traceback while modules
are imported or the interpreter shuts down, a crash amid compiled code; and it comes only when compiled code returns.
Nothing here needs one. What a command has finished is whole on disk at any time, because files are written under
another name and then renamed. So a thread waits for the signal, tells what is there and ends the process, without
unwinding anything; and a command that is through ends without the interpreter's shutdown (:func:`end`).

Only the command line does so, from :func:`arm` on; whoever calls from Python gets a ``KeyboardInterrupt``, which sweeps
and searches turn into their ``Interrupted``. Before :func:`arm`, while Python itself starts, a signal is Python's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, Protocol

#: Exit status of a command whose reader has gone (`| head`): that of a process that SIGPIPE ends, as a shell tells it.
BROKEN_PIPE = 128 + 13

#: Signal → its text, exit status.
_TOLD = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}

#: Exit statuses that tell of what was found; others tell of what went wrong.
_FOUND = (0, 1)

_UNKNOWN = "; what is finished is kept"

#: Seconds after a first signal in which a second one is no sign of impatience.
_PATIENCE = 2.0

#: Seconds that a file may take to get its name.
_LONGEST_CHANGE = 10.0


class _Process(Protocol):
    def kill(self) -> None: ...


#: Processes that end with this one.
CHILDREN: list[_Process] = []


class _State:
    """Of this process."""

    armed = False
    first: float | None = None  #: when the first signal came


_reports: list[Callable[[], str]] = []
_complete: list[Path] = []
_changing = threading.RLock()


def arm() -> None:
    """Let signals end this process as a command, from now on; those that its parent has had it ignore stay ignored."""
    if _State.armed:
        return
    _State.armed = True
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    threading.Thread(target=_wait, args=(receiving, sending), name="interruption", daemon=True).start()
    signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    for number in _TOLD:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _note)


def is_armed() -> bool:
    """Whether signals end this process."""
    return _State.armed


@contextlib.contextmanager
def telling(report: Callable[[], str]) -> Iterator[None]:
    """While this is on, ``report`` tells what of the work is on disk, in what follows the word "interrupted".

    It is asked once, when a signal has come, by another thread.
    """
    _reports.append(report)
    try:
        yield
    finally:
        _reports.remove(report)


@contextlib.contextmanager
def changing(output: Path | None = None) -> Iterator[None]:
    """No signal ends the process in here: for the renaming of a file. ``output`` is a result, complete afterwards."""
    with _changing:
        yield
        if output:
            complete(output)


def complete(output: Path) -> None:
    """A result of this command is whole on disk."""
    if output not in _complete:
        _complete.append(output)


def end(status: int) -> NoReturn:
    """End a command that is through, without the shutdown of the interpreter, which no signal should meet.

    Where the reader of its output has gone, what it has found was not all read: the status is ``BROKEN_PIPE`` then.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            status = BROKEN_PIPE if status in _FOUND else status
        except (OSError, ValueError):  # its meaning was reported before
            pass
    with _changing:
        os._exit(status)


# --- the end ----------------------------------------------------------------------------------------------


def _note(number: int, _: object) -> None:
    """In the main thread: the other thread does all there is to do, unless it hangs and the user knows it."""
    if _State.first is None:
        _State.first = time.monotonic()
    elif time.monotonic() - _State.first > _PATIENCE:
        os._exit(_TOLD[signal.Signals(number)][1])


def _wait(receiving: socket.socket, _: socket.socket) -> None:
    """Until a signal comes; both ends of the pair stay open with this call."""
    while True:
        number = receiving.recv(1)[0]
        if number in _TOLD:
            _stop(signal.Signals(number))


def _stop(number: signal.Signals) -> NoReturn:
    word, status = _TOLD[number]
    held = _changing.acquire(timeout=_LONGEST_CHANGE)
    try:
        text = _kept() if held else _UNKNOWN
    except Exception:  # whatever state the work is in, the process ends
        text = _UNKNOWN
    for process in CHILDREN:
        with contextlib.suppress(OSError):
            process.kill()
    for pid in _children():  # workers that still start would print that this process is gone
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{show_cursor}{word}{text}\n".encode())
    os._exit(status)


def _children() -> list[int]:
    """Processes that this one has started, where the system tells."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            found += map(int, path.read_text().split())
    return found


def _kept() -> str:
    """What is on disk now."""
    if _complete:
        names = ", ".join(map(str, _complete))
        return f"; {names} {'is' if len(_complete) == 1 else 'are'} complete"
    return _reports[-1]() if _reports else "; nothing was written"
