"""A second process of a command compiles nothing, and imports no library of datasets or figures that it does not use.

Seconds of each, in imports of JAX: docs/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

#: Runs a command of dse with the arguments, and prints what was compiled and imported on the way.
SCRIPT = """
import json, sys, jax
compiled = []
def note(event, seconds, **about):
    if event.endswith("backend_compile_duration"):
        compiled.append(about.get("fun_name", ""))
jax.monitoring.register_event_duration_secs_listener(note)
from dse.cli import app
try:
    app(sys.argv[1:], standalone_mode=False)
except SystemExit as ended:
    assert not ended.code, ended.code
imported = [name for name in ("xarray", "pandas", "matplotlib", "dask") if name in sys.modules]
print(json.dumps({"compiled": compiled, "imported": imported}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        "plan --serving -w llama-3-8b --rate 4 --on h100 --max-devices 2 --tpot 30ms",
        "plan -w llama-3-8b --on h100 --max-devices 64 --tokens 200B --in 60d",
        "pools example:splitwise_pools",
        "simulate -w llama-3-8b -s h100 --set concurrency=16 --requests 100",
        "measure h100 mi300x --serving -w llama-3-70b --set tp=4 --set concurrency=64 --on mi300x",
        "page -w llama-3-8b -s h100 -o page.html",
    ],
)
def test_a_second_process_compiles_nothing(command, tmp_path):
    environment = os.environ | {"DSE_CACHE": str(tmp_path / "cache")}
    words = [sys.executable, "-c", SCRIPT, *shlex.split(command)]
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        done = subprocess.run(words, cwd=tmp_path / place, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1]) == {"compiled": [], "imported": []}


def test_a_second_plan_of_post_training_compiles_nothing(tmp_path):
    """Its steps are columns; a dataset of them is made for a file alone."""
    environment = os.environ | {"DSE_CACHE": str(tmp_path / "cache")}
    plan = """
from dse.lab.rl import RlDemand, plan_rl
def app(*_, **__):
    demand = RlDemand("llama-3-8b", "h100", 8, 32, 4, 256.0, 512.0, 0.5, modes=("colocated", "split"))
    assert [row["mode"] for row in plan_rl(demand).rows] == ["colocated", "split"]
"""
    script = SCRIPT.replace("from dse.cli import app\n", plan)
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1]) == {"compiled": [], "imported": []}
