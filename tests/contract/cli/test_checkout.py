"""Commands that a program of the checkout finishes: ``dse bench``, and ``dse calibrate`` of kernels."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dse.cli import app
from dse.io import checkout

ROOT = Path(__file__).parents[3]
KERNELS = "system,dtype,m,n,k,latency_ms\nh100_sxm,bfloat16,4096,4096,4096,0.2\n"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a checkout whose program has this code, for both commands."""

    def written(code: str) -> Path:
        (tmp_path / "pyproject.toml").write_text("[tool.dse.checkout]\nbench = 'stand_in'\ncalibrate = 'stand_in'\n")
        (tmp_path / "stand_in.py").write_text(code)
        monkeypatch.setattr(checkout, "_PACKAGE", tmp_path / "dse")
        return tmp_path

    return written


def test_programs_of_this_checkout_are_there():
    programs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["dse"]["checkout"]
    for command, module in programs.items():
        assert checkout.program(command) == module
        assert importlib.util.find_spec(module) and (ROOT / module.replace(".", "/") / "__main__.py").is_file()


def test_rates_are_printed_as_the_program_measures_them(program):
    program("import json, sys; print(json.dumps({'flat_full': 2.0, 'cores': 2, 'arguments': sys.argv[1:]}))")
    ended = CliRunner().invoke(app, ["bench", "--json", "--no-starts"])
    assert ended.exit_code == 0
    assert json.loads(ended.stdout) == {"flat_full": 2.0, "cores": 2, "arguments": ["--fast"]}
    assert "flat_full" in CliRunner().invoke(app, ["bench"]).stdout


def test_the_exit_status_is_that_of_the_program(program, tmp_path, monkeypatch):
    program("import sys; sys.exit(3)")
    monkeypatch.chdir(tmp_path)
    Path("kernels.csv").write_text(KERNELS)
    for words in (["bench"], ["calibrate", "kernels.csv", "-o", "t.toml"]):
        assert CliRunner().invoke(app, words).exit_code == 3


def test_tables_that_the_package_does_not_fit_go_to_the_program(program, tmp_path, monkeypatch):
    program("import pathlib, sys; pathlib.Path('told').write_text(' '.join(sys.argv[1:]))")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("stand_in.py").write_text("raise AssertionError('a file of the folder is no program')")
    Path("kernels.csv").write_text(KERNELS)
    words = ["calibrate", "kernels.csv", "-o", "t.toml", "--folds", "3", "--catalog", ".", "--force"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert Path("told").read_text() == "-o t.toml --folds 3 --catalog . --force -- kernels.csv"


def test_without_a_checkout_both_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkout, "_PACKAGE", tmp_path / "dse")
    (tmp_path / "kernels.csv").write_text(KERNELS)
    for words in (["bench"], ["calibrate", str(tmp_path / "kernels.csv"), "-o", str(tmp_path / "t.toml")]):
        refused = CliRunner().invoke(app, words)
        assert (refused.exit_code == 2 and "a source checkout" in refused.output) or "from a checkout" in refused.output


def test_an_interrupted_command_ends_the_program_with_what_it_has_started(tmp_path):
    (tmp_path / "stand_in.py").write_text(
        "import os, pathlib, subprocess, sys\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('half').write_text(f'{os.getpid()} {started.pid}')\n"
        "os.rename('half', 'pids')\n"
        "started.wait()"
    )
    code = (
        "import pathlib, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from dse.io import checkout, interruption; interruption.arm()\n"
        "checkout._PACKAGE = pathlib.Path('dse').absolute(); checkout.run('stand_in', [])"
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, env=paths, stderr=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "pids").exists() and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, "interrupted; what is finished is kept\n")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    ends = time.monotonic() + 5.0
    while any(map(is_running, pids)):  # signals take a moment
        assert time.monotonic() < ends, "it still runs"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
