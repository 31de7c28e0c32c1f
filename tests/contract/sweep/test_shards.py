"""Shards and their merging, and runs that are killed: the file is that of one undisturbed run, byte for byte."""

import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dse.errors import InputError
from dse.sweep import Interrupted, Shard, merge, perform, perform_shard, plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.reduce import keep as keeping
from dse.sweep.store import manifest
from dse.sweep.store.manifest import lines
from tests.conftest import full_size
from tests.contract.sweep.test_run import raise_interrupt
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

CHUNK = 720
MORE = '[objective]\nminimize = ["step_time", "peak_memory"]\n[output]\nhistogram = 12'


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr("dse.sweep.reduce.keep._CHUNKS_PER_BLOCK", 1)


def spec(**options):
    return sweep(MAPPING_AXES + "matrix_slowdown = [1.0, 1.5]", more=MORE, **options)


def shard(output, number, of, **options):
    return perform_shard(spec(), Shard(number, of), output, study=toy.STUDY, **({"chunk": CHUNK} | options))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def undisturbed(folder, **options):
    perform(spec(), folder / "whole.nc", study=toy.STUDY, **({"chunk": CHUNK} | options))
    return (folder / "whole.nc").read_bytes()


@pytest.mark.parametrize("keep", ["all", "feasible", "best", "top:20", "pareto"])
def test_merged_shards_are_the_undisturbed_run(tmp_path, keep):
    output = tmp_path / "out" / "r.nc"
    found = [shard(output, i, 3, keep=keep) for i in (3, 1, 2)]
    assert not output.exists()
    _, merged = merge(output, toy.STUDY)
    assert output.read_bytes() == undisturbed(tmp_path, keep=keep)
    assert names_in(output.parent) == ["r.nc", "r.nc.dse.json"], "parts are gone"
    assert sum(one.n_designs for one in found) == merged.n_designs
    assert sum(one.n_feasible for one in found) == merged.n_feasible > 0
    assert all(one.shard and one.n_designs for one in found)


def test_more_shards_than_blocks(tmp_path):
    found = [shard(tmp_path / "r.nc", i, 4, chunk=1 << 20) for i in (1, 2, 3, 4)]
    sizes = [one.n_designs for one in found]
    assert max(sizes) < 1.1 * min(sizes), "none is empty, all are alike"
    merge(tmp_path / "r.nc", toy.STUDY)
    assert (tmp_path / "r.nc").read_bytes() == undisturbed(tmp_path, chunk=1 << 20)


@pytest.mark.parametrize("keep", ["all", "best", "top:20"])
def test_shares_are_equal_and_whole(keep):
    """To within a line, the least that can be evaluated; every design is in one share; none is empty without need."""
    grid, kept = plan(spec(), keep, study=toy.STUDY)
    engine = SweepEngine(grid)
    lines = keeping.share_range(engine, kept, 1, 10**6).stop  # one line: no share could be smaller
    largest = max(keeping.designs_in(engine, kept, range(i, i + lines)) for i in range(0, grid.n_outer, lines))
    for of in (1, 2, 3, 4, 7, grid.n_outer // lines, grid.n_outer // lines + 3):
        shares = [keeping.share_range(engine, kept, i, of) for i in range(1, of + 1)]
        sizes = [keeping.designs_in(engine, kept, one) for one in shares]
        assert shares[0].start == 0 and shares[-1].stop == grid.n_outer and sum(sizes) == grid.n_designs
        assert all(one.stop == other.start for one, other in itertools.pairwise(shares))
        assert sum(size > 0 for size in sizes) == min(of, grid.n_outer // lines)
        assert max(sizes) - min(sizes) <= 2 * largest


@pytest.mark.parametrize(("first", "then"), [(2, 3), (3, 2)])
def test_shards_of_two_divisions_are_one_sweep(tmp_path, first, then):
    """Parts of a division that was given up stay of use, and never count twice."""
    shard(tmp_path / "r.nc", 1, first)
    for i in range(1, then + 1):
        shard(tmp_path / "r.nc", i, then)
    merge(tmp_path / "r.nc", toy.STUDY)
    assert (tmp_path / "r.nc").read_bytes() == undisturbed(tmp_path)


def test_a_run_of_the_whole_goes_on_from_shards(tmp_path):
    done = shard(tmp_path / "r.nc", 2, 3)
    _, summary = perform(spec(), tmp_path / "r.nc", chunk=CHUNK, study=toy.STUDY)
    assert summary.resumed == done.n_designs
    assert (tmp_path / "r.nc").read_bytes() == undisturbed(tmp_path)
    assert shard(tmp_path / "r.nc", 1, 3).finished


def test_an_interrupted_shard_goes_on(tmp_path):
    with pytest.raises(Interrupted):
        shard(tmp_path / "r.nc", 1, 1, progress=lambda state: state.done > 5000 and raise_interrupt())
    summary = shard(tmp_path / "r.nc", 1, 1)
    assert 0 < summary.resumed < summary.n_designs
    assert shard(tmp_path / "r.nc", 1, 1, fresh=True).resumed == 0


def test_a_missing_shard_is_told(tmp_path):
    output = tmp_path / "r.nc"
    with pytest.raises(InputError, match="no parts"):
        merge(output, toy.STUDY)
    shard(output, 1, 3)
    shard(output, 3, 3)
    told = r"nothing for the outer indices [\d,]+ to [\d,]+; shards that have not run: 2/3;"
    with pytest.raises(InputError, match=told):
        merge(output, toy.STUDY)
    assert not output.exists() and shard(output, 2, 3).resumed == 0
    shutil.copy(sorted(output.with_name("r.nc.parts").glob("*.npz"))[0], tmp_path / "kept")
    first = sorted(output.with_name("r.nc.parts").glob("*.npz"))[0]
    first.write_bytes(first.read_bytes()[:100])
    with pytest.raises(InputError, match=r"damaged part.*incomplete: 1/3"):
        merge(output, toy.STUDY)
    shutil.copy(tmp_path / "kept", first)
    merge(output, toy.STUDY)


@pytest.mark.parametrize(("other", "told"), [({"keep": "feasible"}, "keep"), ({"chunk": 1440}, "chunk")])
def test_parts_of_different_sweeps_are_not_mixed(tmp_path, other, told):
    shard(tmp_path / "r.nc", 1, 2)
    shard(tmp_path / "r.nc", 2, 2, **other)
    with pytest.raises(InputError, match=f"2 different sweeps, which differ in .*{told}.*--fresh"):
        merge(tmp_path / "r.nc", toy.STUDY)
    for i in (1, 2):
        shard(tmp_path / "r.nc", i, 2, fresh=True)
    merge(tmp_path / "r.nc", toy.STUDY)


def test_parts_of_other_code_are_not_merged(tmp_path, monkeypatch):
    monkeypatch.setattr("dse.sweep.store.manifest.code_digest", lambda: "other")
    shard(tmp_path / "r.nc", 1, 1)
    monkeypatch.undo()
    with pytest.raises(InputError, match="made with another code_digest"):
        merge(tmp_path / "r.nc", toy.STUDY)


def test_manifest(tmp_path):
    summary = shard(tmp_path / "r.nc", 1, 2)
    (path,) = (tmp_path / "r.nc.parts").glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"block": [1')  # as a killed process may leave it
    shard(tmp_path / "r.nc", 1, 2)
    header, *blocks, again = lines(path)
    assert header["sweep"] == again["sweep"] and header["shard"] == "1/2"
    assert {"specification_hash", "catalog_digest", "code_version", "jax_version", "device", "dtype"} <= set(
        header["sweep"]
    )
    assert [blocks[0]["block"][0], blocks[-1]["block"][1]] == header["blocks"]
    assert sum(block["feasible"] for block in blocks) == summary.n_feasible
    assert all(block["seconds"] >= 0 and "infeasible_by_reason" in block for block in blocks)


def test_failures_are_recorded(tmp_path, monkeypatch):
    def failing(*_):
        raise RuntimeError("out of memory")
        yield

    monkeypatch.setattr("dse.sweep.reduce.keep.block_results", failing)
    with pytest.raises(RuntimeError):
        shard(tmp_path / "r.nc", 1, 1)
    (path,) = (tmp_path / "r.nc.parts").glob("*.jsonl")
    assert "out of memory" in lines(path)[-1]["failure"]


def test_shards_run_at_once_but_not_with_a_merge(tmp_path):
    shard(tmp_path / "r.nc", 2, 2)

    def meanwhile(state):
        assert shard(tmp_path / "r.nc", 2, 2).resumed > 0
        with pytest.raises(InputError, match="another run"):
            merge(tmp_path / "r.nc", toy.STUDY)

    shard(tmp_path / "r.nc", 1, 2, progress=meanwhile)
    merge(tmp_path / "r.nc", toy.STUDY)


#: A slowed sweep; each of its blocks and the writing of its results take a while.
SLOWED = """
import sys, time
import dse.sweep.reduce.keep, dse.sweep.results.writing
from dse.sweep import perform
from dse.sweep.store.parts import PartStore
from tests.contract.sweep import test_shards
from tests.unit.sweep import toy
dse.sweep.reduce.keep._CHUNKS_PER_BLOCK = 1
save, put = PartStore.save, dse.sweep.results.writing._put
def slow_save(self, block, part):
    time.sleep(0.01)
    save(self, block, part)
def slow_put(*arguments):
    time.sleep(0.01)
    put(*arguments)
PartStore.save, dse.sweep.results.writing._put = slow_save, slow_put
print("ready", flush=True)
_, summary = perform(test_shards.spec(), sys.argv[1], chunk=test_shards.CHUNK, study=toy.STUDY)
print(summary.resumed)
"""


def parts_of(output):
    try:
        return sorted(output.with_name("r.nc.parts").glob("*.npz"))
    except FileNotFoundError:  # the folder was removed that moment
        return []


def test_killed_at_any_moment(tmp_path):
    """SIGKILL loses at most the running block; no half-written file ever has a final name; the file is the same."""
    expected = undisturbed(tmp_path)
    output = tmp_path / "out" / "r.nc"
    moments = random.Random(7)
    killed = 0
    for attempt in range(12):
        running = subprocess.Popen([sys.executable, "-c", SLOWED, str(output)], stdout=subprocess.PIPE, text=True)
        assert running.stdout.readline() == "ready\n"
        if attempt < full_size(2, 4):
            before = parts_of(output)
            deadline = time.monotonic() + 60
            while parts_of(output) == before and time.monotonic() < deadline:
                time.sleep(0.001)  # until it has gone on from where it was
            time.sleep(moments.uniform(0.0, 0.3))
            running.send_signal(signal.SIGKILL)
        told, _ = running.communicate(timeout=60)
        for part in parts_of(output):
            with np.load(part) as arrays:
                assert all(arrays[name] is not None for name in arrays), "whole, checksums and all"
        if running.returncode == 0:
            break
        killed += 1
        assert not output.exists() or output.read_bytes() == expected
    assert running.returncode == 0 and output.read_bytes() == expected
    assert killed and (int(told) > 0)
    assert names_in(output.parent) == ["r.nc", "r.nc.dse.json"]


@pytest.mark.parametrize("change", [
    {"sweep": 3}, {"sweep": {}}, {"specification": None}, {"shard": "1"}, {"shard": 7}, {"blocks": "all"},
    {"blocks": [0.5, "x"]}, {"file": ["a"]}, {"sweep": {"keep": 1}},
])  # fmt: skip
def test_a_manifest_that_somebody_else_has_made_is_none(tmp_path, change):
    """Its lines have their checksums, and say nothing that a shard says."""
    output = tmp_path / "r.nc"
    for number in (1, 2):
        perform_shard(toy.sweep(), Shard(number, 2), output, study=toy.STUDY)
    for path in (tmp_path / "r.nc.parts").glob("*.jsonl"):
        changed = [line | change if "sweep" in line else line for line in lines(path)]
        path.write_text("".join(json.dumps(line | {"check": manifest._checksum(line)}) + "\n" for line in changed))
    with pytest.raises(InputError, match="parts without their manifest"):
        merge(output, study=toy.STUDY)
