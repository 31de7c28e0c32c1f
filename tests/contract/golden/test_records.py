"""What dse says is what is recorded: some documents in every run, the standard sweeps among the slow tests."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.golden import records
from tests.contract.golden.records.differences import differences

#: Relative changes that are none on another processor, whose XLA fuses other operations.
_PORTABLE = 1e-4


@pytest.mark.parametrize("name", records.QUICK)
def test_quick_records_are_equal(name, monkeypatch):
    monkeypatch.delenv("DSE_CATALOG", raising=False)
    assert [*records.moved(name, _PORTABLE)] == []


@pytest.mark.slow
def test_records_of_sweeps_are_equal():
    """In a process with the compilation of users; all records: ``python -m tests.contract.golden.records``, minutes."""
    hidden = ("XLA_FLAGS", "DSE_CATALOG")
    environment = {
        name: value for name, value in os.environ.items() if name not in hidden and not name.startswith("JAX_")
    }
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.contract.golden.records", "sweep/*", "--tolerance", str(_PORTABLE)]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_record_has_its_file_and_every_file_its_record():
    files = {path.relative_to(records.DATA).as_posix().removesuffix(".json.gz") for path in records.DATA.rglob("*.gz")}
    assert files == set(records.names())
    assert set(records.QUICK) <= files
    assert sum(path.stat().st_size for path in records.DATA.rglob("*.gz")) <= 1.6e6


@pytest.mark.parametrize(
    ("old", "new", "sizes"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-7}, []),
        ({"a": 1.0}, {"a": 1.01}, [0.01 / 1.01]),
        ({"a": math.nan, "b": math.inf}, {"a": math.nan, "b": math.inf}, []),
        ({"a": math.inf}, {"a": 1.0}, [math.inf]),
        ({"a": 10_000_000}, {"a": 10_000_001}, [1 / 10_000_001]),
        ({"a": 1}, {"a": True}, [math.inf]),
        ({"a": 1.0}, {"b": 1.0}, [math.inf, math.inf]),
        ([1.0, 1e-12], [1.0, 2e-12], []),
        ([1.0, 2.0], [1.0], [math.inf]),
        ("takes 10 s", "takes 20 s", [0.5]),
        ("takes 10 s", "takes 10 ms", [math.inf]),
        ("one\ntwo", "one", [math.inf]),
    ],
)
def test_differences_have_their_size(old, new, sizes):
    assert [one.size for one in differences(old, new)] == pytest.approx(sizes)
