"""Workers of this machine: what is told where they cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dse.errors import InputError
from dse.io import install_extra, workers
from tests.conftest import SMALL_SWEEP


@pytest.mark.parametrize("missing", ["distributed", "cryptography"])
def test_a_missing_library_is_told_with_the_extra_to_install(monkeypatch, missing):
    """Less workers would not start either."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError) as raised, workers.local_cluster(2):
        pass
    assert install_extra("dist") in raised.value.fix and "fewer" not in raised.value.fix
    assert raised.value.got == f"{missing} is not installed"


#: A script that the process spawned by it would run again.
UNGUARDED = "import sys, dse\ndse.run(sys.argv[1], output=sys.argv[2], workers=1)\n"


@pytest.mark.slow
def test_a_script_that_its_workers_run_again_is_told(tmp_path):
    """And ends: its workers cannot start."""
    pytest.importorskip("distributed", reason=install_extra("dist"))
    script, document = tmp_path / "script.py", tmp_path / "s.toml"
    script.write_text(UNGUARDED)
    document.write_text(SMALL_SWEEP)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, script, document, tmp_path / "r.nc"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 1
    assert "workers that do not start" in run.stderr and "__main__" in run.stderr.splitlines()[-1], run.stderr


def test_a_worker_that_fails_to_start_is_done_without():
    """Of a cluster of two, the other one is waited for."""
    waits = []

    def wait(count, timeout):
        waits.append(count)
        cluster.workers[1] = SimpleNamespace(status=SimpleNamespace(name="failed"))
        if len(waits) < 3:
            raise TimeoutError

    cluster = SimpleNamespace(worker_spec={0: {}, 1: {}}, workers={}, wait_for_workers=wait)
    workers.wait_for_start(cluster)
    assert waits == [2, 1, 1]
    cluster.workers[0] = cluster.workers[1]
    with pytest.raises(RuntimeError, match="end as they start"):
        workers.wait_for_start(cluster)
