"""Command lines that are wrong end in 2 and four parts, change no file, and raise nothing.

All run in one process here; ``python -m tests.contract.fuzz.hand`` starts a process for each, and those that compute
too.
"""

from __future__ import annotations

import shutil
import time

import pytest
from typer.testing import CliRunner

from dse.cli import app
from tests.contract.fuzz import hand

#: Those that need not compute for seconds.
_CHEAP = {line: status for line, status in hand.MEANT.items() if line.partition(" ")[0] not in ("run", "plot")}


#: Commands with a test of their own; "" are the others.
_COMMANDS = ("run", "search", "evaluate", "predict", "validate", "calibrate", "plot", "merge", "trace", "")


@pytest.mark.parametrize("first", _COMMANDS)
def test_command_lines(first, tmp_path, small_results, monkeypatch):
    lines = {line: status for line, status in (dict.fromkeys(hand.REFUSED, 2) | _CHEAP).items() if _of(line) == first}
    assert lines
    found, folder, before = [], tmp_path / "here", None
    for line, status in lines.items():
        if before is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            hand.prepare(folder, small_results[1])
            monkeypatch.chdir(folder)
            before = hand.state(folder)
        began = time.monotonic()
        ended = CliRunner().invoke(app, hand.arguments(line))
        seconds, after = time.monotonic() - began, hand.state(folder)
        changed = {path for path, _ in after.items() ^ before.items()}
        fault = hand.fault_of(line, status, ended.exit_code, ended.stdout, ended.stderr, changed)
        if ended.exception and not isinstance(ended.exception, SystemExit):
            fault = f"{type(ended.exception).__name__}: {ended.exception}"[:300]
        if status == 2 and seconds > hand.LONGEST:
            fault += f"; took {seconds:.1f} s"
        found += [f"{line[:150]}\n    {fault}"] if fault else []
        before = None if changed else before
    assert not found, "\n".join(found)


def _of(line: str) -> str:
    """The command of a line that has a test of its own."""
    word = line.partition(" ")[0]
    return word if word in _COMMANDS else ""
