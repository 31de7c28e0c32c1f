"""Files of strangers that would take hours or gigabytes are refused within 2 s and 200 MB."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dse.errors import InputError
from dse.measured import profiles
from dse.measured.table import read_table
from dse.tools import read_arguments
from tests.unit.measured import hostile, profiles as files

#: Reads files in a process whose memory is bounded, and tells of each its processor time, peak memory and refusal.
_READ = """
import json, resource, sys, time
from dse.errors import InputError
from dse.measured import profiles

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

profiles.read(sys.argv[1:2])  # imports what readers need
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 30), held + (1 << 30)))
for path in sys.argv[2:]:
    began, before, error = time.process_time(), peak(), None
    try:
        profiles.read([path])
    except InputError as raised:
        error = [raised.where, raised.got, raised.allowed, raised.fix]
    print(json.dumps([path, time.process_time() - began, peak() - before, error]), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and peaks of memory as Linux has them")
def test_profiles_that_take_hours_or_gigabytes_are_refused_in_seconds(tmp_path):
    files.nsight(tmp_path / "good.sqlite")
    paths = [*hostile.databases(tmp_path), *hostile.packed(tmp_path)]
    words = [sys.executable, "-c", _READ, *map(str, (tmp_path / "good.sqlite", *paths))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one[0] for one in told] == [str(path) for path in paths], done.stderr
    for path, seconds, size, error in told:
        assert error is not None and all(error), path
        assert seconds < 2.0 and size < 200e6, (path, seconds, size)


def test_a_large_export_is_within_its_budget_of_work(tmp_path):
    files.nsight(tmp_path / "long.sqlite", steps=2000)
    (row, *_) = profiles.read([tmp_path / "long.sqlite"]).tables["steps"]
    assert float(row["gemm_ms"]) == pytest.approx(6.5)


def test_a_column_that_an_old_export_lacks_is_named(tmp_path):
    files.nsight(tmp_path / "old.sqlite", change=f"ALTER TABLE {hostile.KERNELS} DROP COLUMN start")
    with pytest.raises(InputError, match=f"table {hostile.KERNELS}: got no column start"):
        profiles.read([tmp_path / "old.sqlite"])


def test_a_packed_table_of_nothing_is_refused(tmp_path):
    (path,) = (one for one in hostile.packed(tmp_path) if one.name == "lines.log.gz")
    with pytest.raises(InputError, match="64 times as long"):
        read_table(path.rename(tmp_path / "rows.csv.gz"))


@pytest.mark.parametrize("level", ["<<: [{}]", "x: [{}]"])
def test_anchors_of_yaml_do_not_multiply(level):
    """Nine times the keys of the level before, eleven times: 2 x 9^11 keys."""
    lines = ["---", "a0: &a0 {k: 1, j: 2}"]
    for number in range(1, 12):
        many = level.format(", ".join(9 * [f"*a{number - 1}"]))
        lines.append(f"a{number}: &a{number} {{{many}, z{number}: 1}}")
    with pytest.raises(InputError, match="too many values"):
        read_arguments("vllm", "\n".join(lines))
