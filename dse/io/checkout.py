"""Programs of a source checkout that finish a command: the wheel leaves them out, and nothing in it knows their names.

``[tool.dse.checkout]`` of the checkout's ``pyproject.toml`` has the module of each by command. It runs in a process of
its own, for which the checkout is on Python's path.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from dse.io import interruption

#: Folder of the package.
_PACKAGE = Path(__file__).parents[1]


def program(command: str) -> str | None:
    """Return the name of the module that finishes a command of dse; None for no such command, or outside a checkout."""
    try:
        project = tomllib.loads((_PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    module: str | None = project.get("tool", {}).get("dse", {}).get("checkout", {}).get(command)
    return module


def run(module: str, arguments: Sequence[object], output: int | None = None) -> tuple[int, str]:
    """Run a module in a process of its own, and return its exit status and output ("" where that is not read).

    In a session of its own the program hears no Ctrl-C: an interrupted command ends it, with what it has started.

    Args:
        module: name of the module.
        arguments: words after it.
        output: ``subprocess.PIPE`` to return its output, None for standard output.

    Returns:
        Exit status, and the output as text.
    """
    path = os.pathsep.join(filter(None, [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")]))
    sys.stdout.flush()
    words = [sys.executable, "-P", "-m", module, *map(str, arguments)]
    with subprocess.Popen(
        words, stdout=output, env=os.environ | {"PYTHONPATH": path}, text=True, start_new_session=True
    ) as process:
        session = _Session(process.pid)
        interruption.CHILDREN.append(session)
        try:
            with interruption.reporting(lambda: "; what is finished is kept"):
                text, _ = process.communicate()
        except BaseException:
            session.kill()
            raise
        finally:
            interruption.CHILDREN.remove(session)
    return process.returncode, text or ""


class _Session:
    """A process with all processes that it has started."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def kill(self) -> None:
        """Kill the process and all that it has started; nothing where they have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
