"""Running: limits, interruption and going on, what is written where, the summary."""

import os
import signal
import time

import numpy as np
import pytest
import xarray as xr

from dse import run
from dse.errors import InputError
from dse.sweep import Interrupted, Progress, execute, open_results, plan
from dse.sweep.engine.clock import CompileClock
from dse.sweep.results import writing
from dse.sweep.store.parts import PartStore, lock_output
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

CHUNK = 720


def toy_run(output, **options):
    return execute(sweep(), output=output, study=toy.STUDY, **({"chunk": CHUNK} | options))


def interrupt_after(count, how):
    """A progress callback that stops the run after so many blocks."""
    calls = []

    def progress(state):
        calls.append(state)
        if len(calls) == count:
            how()

    return progress


def raise_interrupt():
    raise KeyboardInterrupt


def send_sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("how", [raise_interrupt, send_sigterm])
@pytest.mark.parametrize("keep", ["all", "feasible", "top:5"])
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch, how, keep):
    monkeypatch.setattr("dse.sweep.reduce.keep._CHUNKS_PER_BLOCK", 1)
    whole, _ = toy_run(False, keep=keep)
    output = tmp_path / "out" / "r.nc"
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as raised:
        toy_run(output, keep=keep, progress=interrupt_after(2, how))
    assert signal.getsignal(signal.SIGTERM) is handler
    assert 0 < raised.value.done < raised.value.total and str(raised.value.parts) in str(raised.value)
    assert len(list(raised.value.parts.glob("*.npz"))) >= 2 and not output.exists()
    again, summary = toy_run(output, keep=keep)
    assert 0 < summary.resumed < summary.n_designs
    assert_identical(again, whole)
    assert names_in(output.parent) == ["r.nc", "r.nc.dse.json"], "parts are gone"


def assert_identical(one, other):
    xr.testing.assert_identical(one, other)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_broken_part_is_computed_again(tmp_path):
    output = tmp_path / "r.nc"
    with pytest.raises(Interrupted):
        toy_run(output, progress=interrupt_after(3, raise_interrupt))
    first, second, *_ = sorted((tmp_path / "r.nc.parts").glob("*.npz"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 0xFF
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:100])
    again, _ = toy_run(output)
    assert_identical(again, toy_run(False)[0])


@pytest.mark.parametrize("change", ["fresh", "spec", "keep", "chunk"])
def test_parts_of_another_run_are_not_taken(tmp_path, change):
    output = tmp_path / "r.nc"
    with pytest.raises(Interrupted):
        toy_run(output, progress=interrupt_after(2, raise_interrupt))
    options = {"fresh": dict(fresh=True), "keep": dict(keep="feasible"), "chunk": dict(chunk=1440)}.get(change, {})
    spec = sweep(system="n_devices = 8") if change == "spec" else sweep()
    _, summary = execute(spec, output=output, study=toy.STUDY, **({"chunk": CHUNK} | options))
    assert summary.resumed == 0


def test_a_full_disk_is_told_and_keeps_what_is_there(tmp_path, monkeypatch):
    save, saved = PartStore.save, []

    def failing(self, block, part):
        if len(saved) == 2:
            raise OSError(28, "No space left on device")
        saved.append(block)
        save(self, block, part)

    monkeypatch.setattr(PartStore, "save", failing)
    with pytest.raises(InputError, match="No space left"):
        toy_run(tmp_path / "r.nc")
    monkeypatch.undo()
    assert toy_run(tmp_path / "r.nc")[1].resumed > 0


@pytest.mark.parametrize("name", ["file/r.nc", "folder"])
def test_an_output_that_cannot_be_written_is_told_before_anything_is_computed(tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    traces = len(toy.TRACES)
    with pytest.raises(InputError, match=name):
        execute(sweep("tp = [1, 2]\ncp = [1, 2]"), output=tmp_path / name, study=toy.STUDY)
    assert len(toy.TRACES) == traces


def test_too_large_a_sweep_says_how_to_narrow_it(tmp_path):
    axes = (
        MAPPING_AXES
        + "matrix_slowdown = { from = 1, to = 2, count = 1000 }\nhost_time = { from = 0, to = 1, count = 1000 }"
    )
    spec = sweep(axes.replace("from = 0, to = 1,", 'from = "0 s", to = "1 s",'))
    for keep in ("all", "feasible"):
        with pytest.raises(
            InputError, match=r"1,000 matrix_slowdown x 1,000 host_time x [\d,]+ mappings = [\d,]+ designs"
        ):
            run(spec, output=tmp_path / "r.nc", keep=keep)
    assert list(tmp_path.iterdir()) == []
    assert plan(spec, "top:10")[0].n_designs > 1e9
    assert plan(spec, "best")[0].n_points == 1_000_000


@pytest.mark.parametrize("chunk", [0, 1 << 22])
def test_bad_chunk(chunk):
    with pytest.raises(InputError, match="chunk"):
        run(sweep(), output=False, chunk=chunk)


def test_progress_and_summary():
    states: list[Progress] = []
    dataset, summary = toy_run(False, progress=states.append)
    assert [state.done for state in states] == sorted({state.done for state in states})
    assert states[-1].done == states[-1].total == summary.n_designs == dataset.feasible.size
    assert states[-1].feasible == summary.n_feasible == int(dataset.feasible.sum())
    np.testing.assert_allclose(states[-1].best, dataset.step_time.where(dataset.feasible).min())
    assert summary.best[0].metrics["step_time"] == states[-1].best
    assert "designs/s" in str(states[-1])
    assert states[-1].rate == summary.rate == summary.n_designs / summary.seconds["run"]
    assert set(summary.seconds) == {"trace", "compile", "run", "write", "total"} and summary.rate > 0
    assert len(summary.best) == 10
    times = [best.metrics["step_time"] for best in summary.best]
    assert times == sorted(times)
    one = summary.best[3]
    np.testing.assert_array_equal(dataset.sel(**one.labels).step_time, np.float32(one.metrics["step_time"]))


def test_constraints_that_no_design_meets_are_told_apart(tmp_path):
    """Each with the designs that miss it of those that can run otherwise, and how near the best comes."""
    axes = 'tp = "divisors"\npp = "divisors"\nmicro_batch = "divisors"\nmemory.capacity = ["1 GB", "40 GB"]'
    every, _ = execute(sweep(axes), output=False, study=toy.STUDY)
    runs = np.flatnonzero(every.feasible.values.reshape(-1))
    times = every.step_time.values.reshape(-1)[runs]
    limit = float(np.sort(times)[len(times) // 2])
    more = f"[constraints]\nall = ['step_time < 1e-3', 'step_time >= {limit}', '2 * mfu > 0 or tp < 3']"
    _, summary = execute(sweep(axes, more=more), output=tmp_path / "r.nc", study=toy.STUDY)
    assert summary.n_feasible == 0 and 0 < len(runs) < summary.n_designs
    head, first, second, third = summary.unmet
    assert head == f"{len(runs):,} of {summary.n_designs:,} designs can run but for the constraints:"
    assert first.startswith(f"step_time < 1e-3: {len(runs):,} miss it; the least step_time is ")
    assert f": {np.count_nonzero(times < np.float32(limit)):,} miss it; the largest step_time is " in second
    assert third.endswith(": 0 miss it")
    assert execute(sweep(axes, more=more), output=tmp_path / "r.nc", study=toy.STUDY)[1].unmet == summary.unmet
    impossible = sweep(axes, more="[constraints]\nall = ['step_time < 1e-3']", workload="hidden = 400000000")
    assert execute(impossible, output=False, study=toy.STUDY)[1].unmet[0].endswith("can run but for the constraints")


def test_the_rate_is_of_what_this_run_evaluates(tmp_path):
    with pytest.raises(Interrupted):
        toy_run(tmp_path / "r.nc", progress=interrupt_after(3, raise_interrupt))
    states: list[Progress] = []
    compiled = CompileClock.read()
    began = time.perf_counter()
    _, summary = toy_run(tmp_path / "r.nc", progress=states.append)
    assert states[0].resumed == states[0].done and states[0].rate == 0
    assert states[-1].resumed == summary.resumed > 0 and states[-1].rate > 0
    assert states[-1].rate == summary.rate == (summary.n_designs - summary.resumed) / summary.seconds["run"]
    spec = sweep(more='[constraints]\nall = ["step_time < 1234"]')  # which compiles
    execute(spec, output=False, chunk=CHUNK, study=toy.STUDY, progress=states.append)
    spent = sum(now - then for now, then in zip(CompileClock.read()[:2], compiled[:2], strict=True))
    assert spent > 0 and states[-1].seconds <= time.perf_counter() - began - spent


def test_run_from_a_path_with_the_model(small_sweep, tmp_path):
    dataset = run(small_sweep, output=tmp_path / "r.nc")
    assert dataset.sizes["mapping"] == 44
    xr.testing.assert_allclose(dataset.step_time, open_results(tmp_path / "r.nc").step_time)


def test_interrupted_while_writing_keeps_all_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("dse.sweep.results.writing._fill", lambda *_: raise_interrupt())
    with pytest.raises(Interrupted) as raised:
        toy_run(tmp_path / "r.nc")
    assert raised.value.done == raised.value.total
    monkeypatch.undo()
    _, summary = toy_run(tmp_path / "r.nc")
    assert summary.resumed == summary.n_designs
    assert names_in(tmp_path) == ["r.nc", "r.nc.dse.json"]


def test_a_finished_file_is_not_computed_again(tmp_path):
    first, before = toy_run(tmp_path / "r.nc")
    made = (tmp_path / "r.nc").stat().st_mtime_ns
    (tmp_path / "r.nc.parts").mkdir()  # of a run that was killed when its results had their name
    (tmp_path / "r.nc.parts" / f"{0:016x}-{0:015d}-{1:015d}.npz").touch()
    again, summary = toy_run(tmp_path / "r.nc")
    assert names_in(tmp_path) == ["r.nc", "r.nc.dse.json"]
    assert_identical(again, first)
    assert summary.finished == writing.created(tmp_path / "r.nc") and not before.finished
    assert (summary.best, summary.reasons, summary.n_feasible) == (before.best, before.reasons, before.n_feasible)
    assert (tmp_path / "r.nc").stat().st_mtime_ns == made
    for options in (dict(fresh=True), dict(keep="feasible")):
        assert not toy_run(tmp_path / "r.nc", **options)[1].finished
    assert not execute(sweep(system="n_devices = 8"), output=tmp_path / "r.nc", study=toy.STUDY)[1].finished


def test_a_finished_file_is_shown_while_another_run_works_beside_it(tmp_path):
    toy_run(tmp_path / "r.nc")
    with lock_output(tmp_path / "r.nc"):
        assert toy_run(tmp_path / "r.nc")[1].finished
        assert (tmp_path / "r.nc.parts").is_dir()


@pytest.mark.parametrize("keep", ["feasible", "best", "top:20", "pareto"])
def test_the_best_designs_are_read_from_a_finished_file(tmp_path, keep):
    more = '[objective]\nminimize = ["step_time", "peak_memory"]'
    spec = sweep(MAPPING_AXES + "matrix_slowdown = [1.0, 1.5]", more=more)
    (_, before), (_, after) = (execute(spec, tmp_path / "r.nc", keep=keep, study=toy.STUDY) for _ in range(2))
    assert after.finished and after.best == before.best


def test_two_runs_of_one_output_do_not_meet(tmp_path):
    output = tmp_path / "r.nc"

    def second(state):
        with pytest.raises(InputError, match="another run that is writing it"):
            toy_run(output)

    first, _ = toy_run(output, progress=second)
    assert_identical(first, toy_run(False)[0])
    assert names_in(tmp_path) == ["r.nc", "r.nc.dse.json"]
