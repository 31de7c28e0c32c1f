"""How commands end: errors in words, exit status, no traceback for what the user can mend."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer

from dse.cli import show
from dse.errors import IncompleteError, InputError, Notice
from dse.io.interruption import BROKEN_PIPE

NOTHING_FEASIBLE = 1
BAD_INPUT = 2
INCOMPLETE = 3
INTERRUPTED = 130


def report_errors(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command that returns its exit status (None: 0) and prints its errors."""

    @functools.wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        status = _status(lambda: command(*arguments, **options))
        if status:
            raise typer.Exit(status)

    return call


def _status(command: Callable[[], int | None]) -> int:
    warnings.showwarning = _told
    try:
        return _told_status(command)
    except BrokenPipeError:
        return reader_gone()


def reader_gone() -> int:
    """The exit status where nobody reads any more (`| head`); Python is kept from complaining when it closes the pipe.

    It is neither 0 nor 1 whatever was found: a script under ``pipefail`` must not take what was not read for an answer.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
    return BROKEN_PIPE


def _told_status(command: Callable[[], int | None]) -> int:
    """The exit status of a command; errors are printed, unless the reader of the output has gone."""
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except InputError as error:
        show.error(error)
        return INCOMPLETE if isinstance(error, IncompleteError) else BAD_INPUT
    except BrokenPipeError:
        raise
    except OSError as error:
        if not error.filename:
            return _unwritable_output(error)
        show.error(
            InputError(str(error.filename), error.strerror or str(error), "a file that can be used", "check the path")
        )
        return BAD_INPUT
    except RuntimeError as error:
        if not str(error).startswith("NetCDF: "):  # a seal that fits and values that netCDF cannot read
            raise
        got = f"a damaged file: {error}"
        show.error(InputError("results", got, "results as dse wrote them", "run the sweep again"))
        return BAD_INPUT
    except KeyboardInterrupt as interruption:
        show.note(str(interruption) or "interrupted")
        return INTERRUPTED


def _told(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """A notice of dse as a line of its own; any other warning as Python prints it."""
    if issubclass(category, Notice):
        show.note(str(message))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _unwritable_output(error: OSError) -> int:
    """Standard output is a file on a full disk, say; Python is kept from writing to it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    show.error(InputError("standard output", error.strerror or str(error), "space to print to", "free some space"))
    return BAD_INPUT
