"""``dse diff``: what changed between two results, and which exit status tells so."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.sweep import perform
from dse.views import compare
from dse.views.difference.side import Side
from tests.unit.sweep import toy

AXES = "tp = [1, 2, 4]\nmicro_batch = [1, 2]\nrecompute = ['none', 'full']"


def written(path, axes=AXES, keep="all", **texts):
    """Results of the made-up model, so that one program serves all of these tests."""
    perform(toy.sweep(axes, **texts), path, study=toy.STUDY, keep=keep)
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return written(tmp_path_factory.mktemp("first") / "a.nc")


def status(*arguments):
    done = CliRunner().invoke(app, ["diff", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_same_is_the_same(first, tmp_path):
    found = compare(first, first)
    assert found.same and not found.metrics and not found.circumstances and not found.winner_changed
    code, told = status(first, first)
    assert code == 0 and "\nthe same designs with the same numbers\n" in told
    with dse.open_results(first) as results:  # as xarray writes them
        results.load().to_netcdf(tmp_path / "again.nc")
    assert compare(first, tmp_path / "again.nc").same


def test_a_changed_value_and_one_more_degree(first, tmp_path):
    slower = 'n_devices = 16\n"memory.bandwidth" = "1 TB/s"'
    other = written(tmp_path / "b.nc", AXES.replace("4]", "4, 8]"), system=slower)
    found = compare(first, other)
    assert found.specification["axes.tp"] == ([1, 2, 4], [1, 2, 4, 8])
    assert found.values["memory.bandwidth"][1] == 1e12
    assert (found.common, found.only_count) == (found.designs[0], (0, found.designs[1] - found.designs[0]))
    assert all(labels["tp"] == 8 for labels in found.only[1])
    step = next(change for change in found.metrics if change.metric == "step_time")
    with dse.open_results(first) as a, dse.open_results(other) as b:
        ratio = (b.where(b.tp != 8, drop=True).step_time.values / a.step_time.values - 1).ravel()
        assert step.largest == pytest.approx(max(ratio, key=abs), rel=1e-5)
        assert step.changed == found.common
        best = found.winners[1]
        assert best is not None and best.objective[1] == pytest.approx(float(b.step_time.where(b.feasible).min()))
    code, told = status(first, other)
    assert code == 1 and "axes.tp" in told and "best of A" in told and "step_time" in told
    assert compare(first, other, tolerance=100.0).metrics == ()


def test_feasibility_comes_with_its_reasons(first, tmp_path):
    other = written(tmp_path / "b.nc", more="[constraints]\nall = ['tp <= step_time * 0 + 2']")
    lost = compare(first, other).feasibility["became_infeasible"]
    assert lost["count"] and set(lost["reasons"]) == {"constraint"} and lost["reasons"]["constraint"] == lost["count"]
    assert compare(other, first).feasibility["became_feasible"] == lost


def test_the_winner_moves_with_parts_of_its_time(first, tmp_path):
    other = written(tmp_path / "b.nc", AXES.replace("1, 2, 4", "1, 4"))
    winner = compare(first, other).winners[0]
    assert winner is not None and winner.labels["tp"] == 2
    assert winner.objective[1] is None and winner.feasible[1] is None
    told = json.loads(status(first, other, "--json")[1])
    assert told["winner_changed"] and told["winners"][0]["parts"]["step_time_forward"][0] > 0
    assert not told["same"]


def test_the_best_of_each_point(tmp_path):
    axes = AXES + '\n"memory.bandwidth" = ["1 TB/s", "2 TB/s"]'
    one = written(tmp_path / "a.nc", axes, keep="best")
    other = written(tmp_path / "b.nc", axes.replace("1, 2, 4", "1, 4"), keep="best")
    found = compare(one, other)
    assert found.designs == (2, 2) and found.common == 2 and found.mappings == 2
    assert found.winners[0].labels["tp"] == 2 != found.winners[1].labels["tp"]
    assert found.winners[0].objective[1] is None  # another mapping is the best of that point


def test_kept_designs_are_matched_by_label(first, tmp_path):
    kept = written(tmp_path / "b.nc", keep="top:3")
    found = compare(first, kept, tolerance=1e-5)  # of another program, which may round otherwise
    assert found.common == 3 and not found.metrics and found.only_count == (found.designs[0] - 3, 0)
    assert not found.winner_changed and found.circumstances["keep"] == ("all", "top:3")


def test_another_entry_of_the_catalogue_is_named(first, tmp_path, monkeypatch):
    folder = tmp_path / "mine" / "accelerators"
    folder.mkdir(parents=True)
    own = dse.catalog.catalog_root() / "accelerators" / "a100-sxm-80gb.toml"
    text = own.read_text()
    (folder / own.name).write_text(text.replace('bandwidth = "2039 GB/s"', 'bandwidth = "2000 GB/s"'))
    assert (folder / own.name).read_text() != text
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path / "mine"))
    found = compare(first, written(tmp_path / "b.nc"))
    assert [*found.entries] == ["accelerator/a100-sxm-80gb"]
    assert found.values == {"memory.bandwidth": (2039e9, 2000e9)} and not found.specification


def test_what_is_no_results_file_ends_in_2(first, tmp_path):
    xr.Dataset({"x": ("y", [1.0])}).to_netcdf(tmp_path / "other.nc")
    for second in ("absent.nc", tmp_path / "other.nc", __file__):
        code, told = status(first, second)
        assert code == 2 and all(part in told for part in ("where", "got", "allowed", "fix")), told
    assert status(first, first, "--tolerance", "-1")[0] == 2
    assert status(first, first, "--tolerance", "nan")[0] == 2


def batches(folder, **batch):
    """A catalogue in which workloads have these batches."""
    (folder / "workloads").mkdir(parents=True)
    for name, value in batch.items():
        file = f"{name.replace('_', '-')}.toml"
        text = (dse.catalog.catalog_root() / "workloads" / file).read_text()
        (folder / "workloads" / file).write_text(text.replace("seq_len =", f"global_batch = {value}\nseq_len ="))
    return str(folder)


def test_a_workload_of_another_batch_is_the_same_workload(tmp_path, monkeypatch):
    """The batch follows from the workload, so it does not tell designs apart: 3 workloads × 2 mappings in common."""
    axes = 'workload = ["gpt-3-125m", "gpt-3-350m", "gpt-3-13b"]\ntp = [1, 2]  # each workload has its global_batch'
    monkeypatch.setenv("DSE_CATALOG", batches(tmp_path / "a", gpt_3_125m=32, gpt_3_350m=64, gpt_3_13b=128))
    before = written(tmp_path / "a.nc", axes)
    monkeypatch.setenv("DSE_CATALOG", batches(tmp_path / "b", gpt_3_125m=96, gpt_3_350m=64, gpt_3_13b=128))
    after = written(tmp_path / "b.nc", axes)
    with dse.open_results(after) as results:
        assert results.global_batch.dims == ("workload",) and results.global_batch.values.tolist() == [96, 64, 128]
    found = compare(before, after)
    assert (found.designs, found.common, found.only_count) == ((6, 6), 6, (0, 0))
    assert [*found.entries] == ["workload/gpt-3-125m"]
    step = next(change for change in found.metrics if change.metric == "step_time")
    assert step.changed == 2 and step.at["workload"] == "gpt-3-125m"
    stated = written(tmp_path / "c.nc", axes.split("  #")[0] + "\nglobal_batch = [32, 64]")
    found = compare(after, stated)  # the axis of one side is a label: 64 of the second workload is in both
    assert (found.common, found.only_count, found.unmatched) == (2, (4, 10), (0, 0))


def test_two_parts_of_an_earlier_version_are_summed(first):
    """Both go into a third one, though the metrics are not read between the two sums."""
    with dse.open_results(first) as results:
        made = results.load()
    side = Side("a.nc", made)
    parts = [name for name in side.metrics if name.startswith("step_time_")][:3]
    for part in parts[1:]:
        side.add_up(part, parts[0])
    assert not {*parts[1:]} & {*side.metrics}
    expected = sum(made[part] for part in parts)
    np.testing.assert_allclose(side.results[parts[0]], expected, rtol=1e-6)
