"""Sweeps on the workers of a Dask cluster: the file is that of one process, byte for byte, whoever dies meanwhile."""

import ast
import inspect
import os
import re
import sys
from pathlib import Path

import pytest
import typer

import dse
from dse.cli import app
from dse.errors import IncompleteError, InputError
from dse.io import install_extra, workers
from dse.sweep import Interrupted, RunOptions, Shard, cluster, perform, perform_shard, plan
from dse.sweep.evaluation import divide_into_blocks
from dse.sweep.job import prepare_job
from dse.sweep.reduce import keep
from dse.sweep.store.manifest import lines
from tests.contract.sweep.test_run import interrupt_after, names_in, raise_interrupt
from tests.contract.sweep.test_shards import spec
from tests.unit.sweep import toy

pytest.importorskip("distributed", reason=install_extra("dist"))


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """(address of a scheduler with two workers, the file that tells what kills them)."""
    import distributed

    folder = tmp_path_factory.mktemp("workers")
    deadly = folder / "deadly"
    os.environ["DSE_TEST_DEADLY"] = str(deadly)
    with (
        workers.dask_settings(str(folder)),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
            local_directory=str(folder),
            preload=["tests.contract.sweep.deadly"],
        ) as running,
    ):
        yield running.scheduler_address, deadly


def chunk(keep):
    """Designs a chunk, for a dozen blocks."""
    return 720 if keep == "all" else 48


def on_workers(scheduler, output, keep="pareto", **options):
    return perform(spec(), output, study=toy.STUDY, scheduler=scheduler[0], keep=keep, chunk=chunk(keep), **options)


def undisturbed(folder, keep="pareto"):
    perform(spec(), folder / "whole.nc", study=toy.STUDY, keep=keep, chunk=chunk(keep))
    return (folder / "whole.nc").read_bytes()


def middle():
    """An outer index in the middle of the sweep."""
    return plan(spec(), study=toy.STUDY)[0].n_outer // 2


def test_the_file_is_that_of_one_process_though_a_worker_dies(tmp_path, scheduler):
    """In the middle of a share, which is computed again."""
    output, states = tmp_path / "out" / "r.nc", []
    scheduler[1].write_text(f"{middle()} {middle()} once")
    _, summary = on_workers(scheduler, output, progress=states.append)
    assert not scheduler[1].exists() and output.read_bytes() == undisturbed(tmp_path)
    assert names_in(output.parent) == ["r.nc", "r.nc.dse.json"]
    assert states[-1].done == states[-1].total == summary.n_designs and states[-1].feasible == summary.n_feasible
    assert states[-1].best == summary.best[0].value and states[-1].rate == summary.rate > 0
    assert on_workers(scheduler, output)[1].finished


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["all", "feasible", "best", "top:9"])
def test_whatever_is_kept_the_file_is_that_of_one_process(tmp_path, scheduler, keep):
    on_workers(scheduler, tmp_path / "r.nc", keep)
    assert (tmp_path / "r.nc").read_bytes() == undisturbed(tmp_path, keep)


@pytest.mark.slow
def test_a_share_that_kills_every_worker_is_named_and_the_rest_kept(tmp_path, scheduler):
    output, first = tmp_path / "r.nc", middle()
    scheduler[1].write_text(f"{first} {first} kill")
    with pytest.raises(IncompleteError) as raised:
        on_workers(scheduler, output)
    error = raised.value
    assert re.fullmatch(r"shard \d+/\d+ \(outer indices [\d,]+ to [\d,]+\)", error.where), error
    assert "every worker" in error.got
    assert "finished and kept: 12 other shards" in error.fix and "the same command" in error.fix
    scheduler[1].unlink()
    summary = on_workers(scheduler, output)[1]
    assert output.read_bytes() == undisturbed(tmp_path)
    assert summary.n_designs > summary.resumed > 0.7 * summary.n_designs


@pytest.mark.slow
def test_blocks_that_fail_are_noted_and_the_rest_is_kept(tmp_path, scheduler):
    output = tmp_path / "r.nc"
    scheduler[1].write_text("0 0 fail")
    with pytest.raises(IncompleteError, match=r"shard 1/\d+ \(outer indices 0 to .*RuntimeError: poisoned"):
        on_workers(scheduler, output)
    scheduler[1].unlink()
    noted = [line for path in (tmp_path / "r.nc.parts").glob("*.jsonl") for line in lines(path) if "failure" in line]
    assert [line["failure"] for line in noted] == ["RuntimeError: poisoned"]
    assert on_workers(scheduler, output)[1].resumed > 0 and output.read_bytes() == undisturbed(tmp_path)


def designs_cut(output, shard):
    """Designs in parts of a shard that shares of the workers end within: those are computed again."""
    options = RunOptions(output, keep="pareto", chunk=chunk("pareto"), study=toy.STUDY)
    division = divide_into_blocks(prepare_job(spec(), options))
    ends = {block.start for share in cluster._shards(division, 2) for block in division.shard_blocks(share)[:1]}
    cut = [part for part in division.shard_blocks(shard) if any(part.start < end < part.stop for end in ends)]
    return sum(keep.designs_in(division.engine, division.job.keep, part) for part in cut)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_shards_of_its_own_are_taken(tmp_path, scheduler):
    output = tmp_path / "r.nc"
    with pytest.raises(Interrupted):
        on_workers(scheduler, output, progress=interrupt_after(4, raise_interrupt))
    shared = perform_shard(spec(), Shard(1, 3), output, study=toy.STUDY, keep="pareto", chunk=chunk("pareto"))
    assert on_workers(scheduler, output)[1].resumed >= shared.n_designs - designs_cut(output, Shard(1, 3))
    assert output.read_bytes() == undisturbed(tmp_path)


@pytest.mark.parametrize(("options", "told"), [
    ({"workers": 2}, "both workers and a scheduler"),
    ({"workers": 0, "scheduler": None}, "0; allowed 1 to 1,024"),
    ({"output": False}, "workers write their parts"),
    ({"scheduler": "tcp://127.0.0.1:9"}, "running Dask scheduler"),
    ({"scheduler": "nonsense"}, "running Dask scheduler"),
])  # fmt: skip
def test_what_cannot_be_is_told(tmp_path, scheduler, monkeypatch, options, told):
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 0.3)
    options = {"scheduler": scheduler[0], "output": tmp_path / "r.nc"} | options
    with pytest.raises(InputError, match=told):
        perform(spec(), study=toy.STUDY, **options)
    assert not (tmp_path / "r.nc").exists()


def test_workers_of_other_code_or_without_the_folder_are_refused(tmp_path, scheduler, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(InputError, match="another code_digest than here"):
        patched.setattr("dse.sweep.store.manifest.code_digest", lambda: "other")
        on_workers(scheduler, tmp_path / "r.nc")
    with monkeypatch.context() as patched, pytest.raises(InputError, match=r"worker on .* is not there as the driver"):
        patched.setattr(cluster, "_write_token", lambda *_: None)
        on_workers(scheduler, tmp_path / "r.nc")


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=re.escape(install_extra("dist"))):
        perform(spec(), tmp_path / "r.nc", study=toy.STUDY, workers=2)


def test_what_the_page_says_exists():
    """Commands of the page have the options that it names, its Python compiles and calls what there is."""
    page = (Path(__file__).parents[3] / "docs" / "many_machines.md").read_text(encoding="utf-8")
    known = {option for name in ("run", "merge") for option in options_of(name)}
    named = set(re.findall(r"--[a-z][\w-]*", " ".join(re.findall(r"dse (?:run|merge) [^`\n|]*", page))))
    assert {"--workers", "--scheduler", "--shard"} <= named <= known
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    calls = [call for call in found if ast.unparse(call.func) == "dse.run"]
    assert calls
    for call in calls:
        assert {keyword.arg for keyword in call.keywords} <= set(inspect.signature(dse.run).parameters)


def options_of(name):
    return {option for known in typer.main.get_command(app).commands[name].params for option in known.opts}
