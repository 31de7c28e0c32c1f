"""Faults under real runs: what happens is told, and the rerun completes with the data of a run that nobody touched.

Every fault is a function that spoils one real ``dse run`` and asserts how it ended; :func:`assert_completes` then holds
the rerun. The short ones of the first part run in this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import pytest

from benchmarks.workers import workers_of
from dse.errors import IncompleteError
from dse.io import install_extra, local_cluster
from dse.sweep import perform
from dse.sweep.engine.chunks import ChunkPrograms
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.store.manifest import lines
from tests.conftest import SMALL_SWEEP
from tests.contract.sweep.test_damage import flipped
from tests.processes import assert_completes, data_of, start
from tests.unit.sweep import toy

TOY = dict(study=toy.STUDY, chunk=720)
NO_DASK = install_extra("dist")
BOTH = '[objective]\nminimize = ["step_time", "peak_memory"]'


def undisturbed(folder, **options):
    perform(toy.sweep(), folder / "whole.nc", **(TOY | options))
    return (folder / "whole.nc").read_bytes()


def noted(output):
    """Failures in the manifests of an output."""
    folder = output.with_name(f"{output.name}.parts")
    return [line["failure"] for path in folder.glob("*.jsonl") for line in lines(path) if "failure" in line]


# --- in this process --------------------------------------------------------------------------------------


def test_a_poisoned_block_is_noted_and_the_rest_finishes(tmp_path, monkeypatch):
    output, full = tmp_path / "r.nc", SweepEngine.full

    def poisoned(self, line, count):
        if line <= 40 < line + count:
            raise RuntimeError("poisoned")
        return full(self, line, count)

    with monkeypatch.context() as patched, pytest.raises(IncompleteError) as raised:
        patched.setattr(SweepEngine, "full", poisoned)
        perform(toy.sweep(), output, **TOY)
    assert "RuntimeError: poisoned" in raised.value.got and "the same command" in raised.value.fix
    assert noted(output) == ["RuntimeError: poisoned"], "the block before it, whose device worked ahead, is not"
    summary = perform(toy.sweep(), output, **TOY)[1]
    assert summary.resumed > 0.5 * summary.n_designs and output.read_bytes() == undisturbed(tmp_path)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("keep", ["all", "top:20"])
def test_chunks_that_do_not_fit_into_memory_are_halved(tmp_path, monkeypatch, caplog, keep):
    """Down to what fits; parts and results are the same."""
    expected, outer, sizes = undisturbed(tmp_path, keep=keep), ChunkPrograms.outer_range, []

    def short(self, first, count, stop):
        if count * self.nest.scores_per_outer > 200:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12345 bytes.")
        sizes.append(count)
        return outer(self, first, count, stop)

    with monkeypatch.context() as patched:
        patched.setattr(ChunkPrograms, "outer_range", short)
        perform(toy.sweep(), tmp_path / "r.nc", **TOY, keep=keep)
    assert sizes and (tmp_path / "r.nc").read_bytes() == expected
    assert 1 <= caplog.text.count("chunks half as long") <= 4 and "RESOURCE_EXHAUSTED" in caplog.text


@pytest.mark.parametrize("way", ["outer_range", "full"])  # compiled, by NumPy
def test_memory_that_never_suffices_ends_the_run(tmp_path, monkeypatch, request, way):
    def short(*_):
        raise MemoryError

    if way == "outer_range":
        request.getfixturevalue("compiled")
    monkeypatch.setattr(ChunkPrograms if way == "outer_range" else SweepEngine, way, short)
    with pytest.raises(IncompleteError, match=r"MemoryError.*kept in"):
        perform(toy.sweep(), tmp_path / "r.nc", **TOY)


@pytest.mark.parametrize("keep", ["all", "pareto"])
def test_designs_that_are_no_number_are_noted_and_never_win(tmp_path, keep):
    """A model that fails at some designs: they are counted, told, and ranked nowhere; the others are as they were."""

    def poisoned(design):
        metrics = toy.evaluate(design)
        broken = (design.mapping.tp == 2.0) & metrics.feasible
        return dataclasses.replace(metrics, step_time=jnp.where(broken, jnp.nan, metrics.step_time))

    study, output = dataclasses.replace(toy.STUDY, evaluate=poisoned), tmp_path / "r.nc"
    _, summary = perform(toy.sweep(more=BOTH), output, study=study, chunk=720, keep=keep)
    assert 0 < summary.n_unranked < summary.n_feasible and "not ranked" in summary.caution
    assert all(best.labels["tp"] != 2 and math.isfinite(best.value) for best in summary.best)
    again = perform(toy.sweep(more=BOTH), output, study=study, keep=keep, chunk=720)[1]
    assert again.finished and again.n_unranked == summary.n_unranked


def test_what_killed_drivers_left_for_their_workers_is_removed(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason=NO_DASK)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended_before = subprocess.Popen([sys.executable, "-c", ""])
    ended_before.wait()
    left, running = (tmp_path / f"dse-workers-{pid}-x" for pid in (ended_before.pid, os.getppid()))
    left.mkdir()
    running.mkdir()
    with local_cluster(1):
        assert not left.exists() and len(list(tmp_path.glob(f"dse-workers-{os.getpid()}-*"))) == 1
    assert list(tmp_path.iterdir()) == [running]


# --- real runs --------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A real run that is to be spoilt."""

    output: Path
    arguments: list[object]
    kept: Path
    slow: dict[str, str]  #: environment of workers whose blocks take half a second

    def begun(self, *options: object, parts: int = 2, **how) -> subprocess.Popen[str]:
        """A slow run that has finished some parts."""
        running = start(*self.arguments, *options, kept=self.kept, **(self.slow | how))
        deadline = time.monotonic() + 120
        while running.poll() is None and len(self.parts()) < parts and time.monotonic() < deadline:
            time.sleep(0.01)
        return running

    def parts(self) -> list[Path]:
        """The parts that are on disk."""
        return sorted(self.output.with_name(f"{self.output.name}.parts").glob("*.npz"))


#: A process in which every block takes a while, as those of slow workers do.
SLOW = "from tests.contract.sweep import deadly; deadly.dask_setup()\n"


@pytest.fixture(scope="module")
def undisturbed_run(tmp_path_factory):
    """(specification, data, kept programs) of a real run that nobody has touched."""
    folder = tmp_path_factory.mktemp("undisturbed")
    document, output, kept = folder / "s.toml", folder / "r.nc", folder / "kept"
    document.write_text(SMALL_SWEEP)
    running = start("run", document, "-o", output, "--chunk", 4, "--no-figure", kept=kept)
    _, err = running.communicate()
    assert running.returncode == 0, err
    return document, data_of(output), kept


@pytest.fixture
def case(tmp_path, undisturbed_run):
    document, _, kept = undisturbed_run
    (tmp_path / "slow").write_text("0 1000000 slow\n")
    preload = "['tests.contract.sweep.deadly']"
    slow = {"DSE_TEST_DEADLY": str(tmp_path / "slow"), "DASK_DISTRIBUTED__WORKER__PRELOAD": preload}
    output = tmp_path / "out" / "r.nc"
    output.parent.mkdir()
    return Case(output, ["run", document, "-o", output, "--chunk", 4, "--no-figure"], kept, slow)


def ended(running, status, told=""):
    """A run that ended so, with no traceback, told in these words."""
    _, err = running.communicate(timeout=300)
    assert running.returncode == status and "Traceback" not in err and told in err, (running.returncode, err)
    assert "leaked" not in err


def scratch_of(driver):
    """What a driver keeps for its workers."""
    return list(Path(tempfile.gettempdir()).glob(f"dse-workers-{driver.pid}-*"))


def worker_killed(case):
    running = case.begun("--workers", 2)
    os.kill(workers_of(running.pid)[0], signal.SIGKILL)
    ended(running, 0)
    case.output.unlink()


def driver_killed(case):
    running = case.begun("--workers", 2)
    workers = workers_of(running.pid)
    running.kill()
    ended(running, -signal.SIGKILL)
    assert len(workers) == 2 and case.parts() and not case.output.exists()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers), "workers end with their driver"


def worker_and_driver_killed(case):
    running = case.begun("--workers", 2)
    for pid in (*workers_of(running.pid), running.pid):
        os.kill(pid, signal.SIGKILL)
    ended(running, -signal.SIGKILL)


def killed_alone(case):
    running = case.begun(first=SLOW)
    running.kill()
    ended(running, -signal.SIGKILL)
    assert case.parts()


def interrupted(case):
    running = case.begun("--workers", 2, group=True)
    os.killpg(running.pid, signal.SIGINT)
    ended(running, 130, "the same command continues from there")
    assert not scratch_of(running)


def terminated(case):
    running = case.begun("--workers", 2, group=True)
    running.terminate()
    ended(running, 143, "the same command continues from there")
    assert not scratch_of(running)


@contextlib.contextmanager
def tmpfs(folder, options):
    """A small disk of its own."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def disk_full(case):
    for options in ([], ["--workers", 2]):
        with tmpfs(case.output.parent, "size=96k"):
            ended(start(*case.arguments, *options, kept=case.kept), 2, "No space left on device")
            assert not case.output.exists()
            subprocess.run(["mount", "-o", "remount,size=64m", case.output.parent], check=True)
            ended(start(*case.arguments, *options, kept=case.kept), 0)


def read_only_output(case):
    with tmpfs(case.output.parent, "ro"):
        for options in ([], ["--workers", 2], ["--shard", "1/2"]):
            ended(start(*case.arguments, *options, kept=case.kept), 2, "a folder that can be written to")
    with tmpfs(case.output.parent, "size=64m"):  # what is finished is shown all the same
        ended(start(*case.arguments, kept=case.kept), 0)
        subprocess.run(["mount", "-o", "remount,ro", case.output.parent], check=True)
        ended(start(*case.arguments[:-1], kept=case.kept), 0, "no figures")
        ended(start(*case.arguments, "--fresh", kept=case.kept), 2, "a folder that can be written to")


def read_only_cache(case):
    folder = case.output.parent.with_name("cache")
    folder.mkdir()
    with tmpfs(folder, "ro"):
        ended(start(*case.arguments, kept=folder), 0, "no programs are kept")
    case.output.unlink()


def part_truncated(case):
    killed_alone(case)
    case.parts()[0].write_bytes(case.parts()[0].read_bytes()[:100])
    case.parts()[1].write_bytes(b"")


def part_bit_flipped(case):
    import random

    killed_alone(case)
    flipped(case.parts()[0], random.Random(5))


def part_bit_flipped_under_workers(case):
    part_bit_flipped(case)
    ended(start(*case.arguments, "--workers", 2, kept=case.kept), 0)
    case.output.unlink()


def two_runs(case):
    running = case.begun("--workers", 2)
    waits = Path(case.slow["DSE_TEST_DEADLY"])
    waits.write_text("0 1000000 wait\n")  # until the others have been
    for options in ([], ["--workers", 2], ["--shard", "1/2"]):
        ended(start(*case.arguments, *options, kept=case.kept), 2, "another run that is writing it")
    waits.unlink()
    ended(running, 0)
    case.output.unlink()


def poisoned_block(case):
    (Path(case.slow["DSE_TEST_DEADLY"])).write_text("2 2 fail\n")
    for how in ({"first": SLOW}, {"workers": True}):
        options = ["--workers", 2] if how.pop("workers", False) else []
        ended(start(*case.arguments, *options, kept=case.kept, **case.slow, **how), 3, "RuntimeError: poisoned")
        assert case.parts() and set(noted(case.output)) == {"RuntimeError: poisoned"}


def out_of_memory(case):
    short = """
from dse.sweep.engine.engine import SweepEngine
full = SweepEngine.full
def short(self, line, count):
    if count > 4:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12345 bytes.")
    return full(self, line, count)
SweepEngine.full = short
"""
    ended(start(*case.arguments[:4], "--no-figure", kept=case.kept, first=short), 0, "chunks half as long")
    case.output.unlink()


#: The clock on the wall goes back an hour with every look at it.
BACKWARDS = """
import datetime, time
told, looks = time.time, [0]
def back(*_):
    looks[0] += 1
    return told() - 3600.0 * looks[0]
time.time = back
"""


def clock_set_back(case):
    """During a run that is killed, and parts from the future are taken all the same."""
    running = case.begun(first=BACKWARDS + SLOW)
    running.kill()
    ended(running, -signal.SIGKILL)
    future = datetime.datetime.now().timestamp() + 1e6
    for part in case.parts():
        os.utime(part, (future, future))
    running = start(*case.arguments, kept=case.kept, first=BACKWARDS)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0 and "from an interrupted run" in out, (out, err)
    case.output.unlink()


def cache_of_others(case):
    """Kept programs that are damaged, in one another's place, or pickles that would run a command."""
    files = sorted(path for path in case.kept.rglob("?" * 64))
    saved = {path: path.read_bytes() for path in files}
    sprung = case.output.with_name("sprung")
    for i, path in enumerate(files):
        wrong = (saved[path][:-9], saved[files[i - 1]], b"cos\nsystem\n(S'touch %s'\ntR." % bytes(sprung))
        path.write_bytes(wrong[i % 3])
    ended(start(*case.arguments, kept=case.kept), 0, "is damaged or was not written by you")
    assert files and not sprung.exists()
    for path, content in saved.items():
        path.write_bytes(content)
    case.output.unlink()


FAULTS = (
    worker_killed, driver_killed, worker_and_driver_killed, killed_alone, interrupted, terminated, disk_full,
    read_only_output, read_only_cache, part_truncated, part_bit_flipped, part_bit_flipped_under_workers, two_runs,
    poisoned_block, out_of_memory, clock_set_back, cache_of_others,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_after_a_fault_the_rerun_completes(case, undisturbed_run, fault):
    pytest.importorskip("distributed", reason=NO_DASK)
    fault(case)
    assert_completes(case.arguments, case.kept, case.output, undisturbed_run[1])
