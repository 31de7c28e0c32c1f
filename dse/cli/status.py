"""Exit status of commands: errors in words, without a traceback for what users can correct."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer

from dse.errors import IncompleteError, InputError, Notice, Stopped
from dse.io import install_extra
from dse.io.interruption import BROKEN_PIPE
from dse.reports.terminal import note, print_error

BAD_INPUT = 2
INCOMPLETE = 3
INTERRUPTED = 130


def report_errors(command: Callable[..., int | None]) -> Callable[..., None]:
    """Wrap a command that returns its exit status (None: 0) to print its errors and exit with the status.

    Args:
        command: function of the command.
    """

    @functools.wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        status = _status(lambda: command(*arguments, **options))
        if status:
            raise typer.Exit(status)

    return call


def _status(command: Callable[[], int | None]) -> int:
    """Run a command, print its errors and return its exit status, that of a closed pipe included."""
    warnings.showwarning = _show_warning
    try:
        return _reported_status(command)
    except BrokenPipeError:
        return reader_gone()


def reader_gone() -> int:
    """Return the exit status for a closed pipe (`| head`), without a complaint of Python.

    Neither 0 nor 1: a script under ``pipefail`` must not take unread output for an answer.
    """
    null_file = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(null_file, stream.fileno())
    return BROKEN_PIPE


def _reported_status(command: Callable[[], int | None]) -> int:
    """Run a command, print its errors and return its exit status; BrokenPipeError and faults of dse are raised."""
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except InputError as error:
        print_error(error)
        return INCOMPLETE if isinstance(error, IncompleteError) else BAD_INPUT
    except BrokenPipeError:
        raise
    except OSError as error:
        if not error.filename:
            return _unwritable_output(error)
        print_error(
            InputError(str(error.filename), error.strerror or str(error), "a file that can be used", "check the path")
        )
        return BAD_INPUT
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print_error(InputError("figures", str(error), "an installation with matplotlib", install_extra("plot")))
        return BAD_INPUT
    except RuntimeError as error:
        if not str(error).startswith("NetCDF: "):  # an intact seal, with values that netCDF cannot read
            raise
        got = f"a damaged file: {error}"
        print_error(InputError("results", got, "results as dse wrote them", "run the sweep again"))
        return BAD_INPUT
    except (KeyboardInterrupt, Stopped) as interruption:
        note(str(interruption) or "interrupted")
        return INTERRUPTED


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a notice of dse as one line, and any other warning as Python does."""
    if issubclass(category, Notice):
        note(str(message))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _unwritable_output(error: OSError) -> int:
    """Print that standard output cannot be written, as on a full disk, and return the exit status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print_error(InputError("standard output", error.strerror or str(error), "space to print to", "free some space"))
    return BAD_INPUT
