"""Ctrl-C and SIGTERM at many moments of real commands: the exit status, no traceback, and what is said is so.

Every command is killed at moments from its start to its end, with nothing kept and with everything compiled, and then
run again: the data are those of a run that nobody has touched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.workers import workers_of
from tests.conftest import SMALL_SWEEP, full_size
from tests.processes import data_of, start

NO_DASK = "needs the extra dist"

SEARCH = (
    SMALL_SWEEP.replace("a small sweep", "a small search")
    + """
[search]
method = "random"
evaluations = 20000
seeds = 2
"""
)

CASES = """
source,model,gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,seq_len,precision,recompute,iteration_ms_measured
Narayanan2021,gpt-3-13b,A100-SXM-80GB,16,8,1,2,1,64,2048,fp16,full,6000
""".lstrip()

#: Exit status and first word by signal.
TOLD = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated")}


def armed(running: subprocess.Popen[str]) -> bool:
    """Whether the process has come as far as to catch SIGTERM, which Python itself does not."""
    status = Path(f"/proc/{running.pid}/status")
    if not status.exists():  # no Linux: it has had time enough
        time.sleep(1.0)
        return True
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
    return bool(caught) and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def killed(arguments: list[object], kept: Path, after: float, number: signal.Signals) -> tuple[int, str]:
    """(exit status, standard error) of a command that gets a signal so many seconds after it can."""
    running = start(*arguments, kept=kept)
    while running.poll() is None and not armed(running):
        time.sleep(0.001)
    try:
        running.wait(after)
    except subprocess.TimeoutExpired:
        running.send_signal(number)
    try:
        _, err = running.communicate(timeout=30)
    finally:
        running.kill()
    return running.returncode, err


def ran(arguments: list[object], kept: Path) -> tuple[float, int]:
    """(seconds, exit status) of a command that nobody touches."""
    began = time.monotonic()
    running = start(*arguments, kept=kept)
    _, err = running.communicate()
    assert running.returncode in (0, 1), err
    return time.monotonic() - began, running.returncode


def assert_true(output: Path, err: str) -> None:
    """What the last line says is so."""
    said, parts = err.strip().splitlines()[-1], Path(f"{output}.parts")
    n_parts = len(list(parts.glob("*.npz")))
    if "complete" in said:
        assert str(output) in said and data_of(output)
        return
    assert not output.exists(), said
    if found := re.search(r"after ([\d,]+) of ([\d,]+) parts", said):
        assert int(found[1].replace(",", "")) == n_parts <= int(found[2].replace(",", "")), said
    elif "its steps are in" in said:
        assert n_parts, said
    else:
        assert ("nothing" in said or "finished is kept" in said) and not n_parts, said


@pytest.mark.parametrize("name", ["run", pytest.param("search", marks=pytest.mark.slow)])
def test_a_command_that_is_stopped_tells_what_is_kept_and_goes_on(tmp_path, name):
    document, output = tmp_path / "document.toml", tmp_path / "r.nc"
    document.write_text(SMALL_SWEEP if name == "run" else SEARCH)
    arguments = [name, document, "-o", output, *(["--chunk", "4"] if name == "run" else [])]
    if name == "run" and full_size(1, 0):
        arguments.append("--no-figure")  # figures take as long as all else
    warm = tmp_path / "warm"
    seconds = {"cold": ran(arguments, warm)[0]}
    whole = data_of(output)
    seconds["warm"] = ran([*arguments, "--fresh"], warm)[0]
    assert data_of(output) == whole
    moments = full_size(2, 60)
    for i in range(moments):
        kind, number = ("cold", "warm")[i % 2], (signal.SIGINT, signal.SIGTERM)[i // 2 % 2]
        output.unlink(missing_ok=True)
        shutil.rmtree(f"{output}.parts", ignore_errors=True)
        kept = warm if kind == "warm" else tmp_path / f"cold-{i}"
        status, err = killed(arguments, kept, seconds[kind] * (i + 0.5) / moments, number)
        assert "Traceback" not in err, err
        if status != 0:  # it was not through before
            assert (status, err.strip().splitlines()[-1].partition(" ")[0].rstrip(";")) in TOLD.values(), (status, err)
            assert_true(output, err)
        ran(arguments, kept)
        assert data_of(output) == whole
        assert name == "search" or not Path(f"{output}.parts").exists()


@pytest.mark.parametrize("name", ["evaluate", "predict", "catalog", "help"])
def test_other_commands_end_as_well(tmp_path, name):
    cases = tmp_path / "cases.csv"
    cases.write_text(CASES)
    arguments = {
        "evaluate": ["evaluate", "-w", "gpt-3-13b", "-s", "selene", "--set", "tp=8"],
        "predict": ["predict", cases, "-o", tmp_path / "predicted.csv"],
        "catalog": ["catalog", "list"],
        "help": ["--help"],
    }[name]
    kept = tmp_path / "kept"
    seconds, usual = ran(arguments, kept)
    moments = full_size(1, 40)
    for i in range(moments):
        number = (signal.SIGINT, signal.SIGTERM)[i % 2]
        status, err = killed(arguments, kept, seconds * i / moments, number)
        assert "Traceback" not in err, err
        assert status == usual or (status == TOLD[number][0] and err.startswith(TOLD[number][1])), (status, err)


def test_the_end_is_at_once_while_compiled_code_is_made(tmp_path):
    """Compiling the model takes seconds in one call, out of which no exception comes."""
    document, output = tmp_path / "document.toml", tmp_path / "r.nc"
    document.write_text(SMALL_SWEEP)
    by_xla = "from dse.sweep.engine import engine; engine.MAX_NUMPY_DESIGNS = 0"  # few designs need no compilation
    running = start("run", document, "-o", output, kept=tmp_path / "kept", first=by_xla)
    folder = Path(f"{output}.parts")
    while not folder.exists() and running.poll() is None:
        time.sleep(0.01)
    time.sleep(1.0)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130 and "Traceback" not in err
    assert time.monotonic() - began < 1.5


def test_signals_that_are_ignored_stay_ignored():
    code = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from dse.io.interruption import arm, end
arm()
os.kill(os.getpid(), signal.SIGINT)
end(7)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7


def test_from_python_nothing_is_armed():
    from dse.io import interruption

    assert not interruption.is_armed()


def test_workers_that_still_start_hear_no_interrupt(tmp_path):
    """A terminal sends it to all processes of a group, those that import among them: one line tells it."""
    pytest.importorskip("distributed", reason=NO_DASK)
    document, output = tmp_path / "document.toml", tmp_path / "r.nc"
    document.write_text(SMALL_SWEEP)
    arguments = ["run", document, "-o", output, "--workers", 2, "--no-figure"]
    for after in full_size([0.0], [0.05 * i for i in range(40)]):  # seconds since they were spawned
        running = start(*arguments, kept=tmp_path / "kept", group=True)
        while not (workers := workers_of(running.pid)) and running.poll() is None:
            time.sleep(0.001)
        time.sleep(after)
        if (status := Path(f"/proc/{workers[0]}/status")).exists():
            blocked = re.search(r"^SigBlk:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
            assert blocked and int(blocked[1], 16) >> (signal.SIGINT - 1) & 1
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=60)
        assert running.returncode == 130 and err.strip() == "interrupted; nothing was written", err
