"""Old names and older files are understood, with one warning that tells the new name."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs import catalog, renamed
from dse.designs.leaves import known_leaves, leaf_path
from dse.designs.renamed import Renamed
from dse.doors.study_serving import SERVING
from dse.doors.study_training import TRAINING
from dse.errors import InputError
from dse.measured.table import read_table
from dse.spec.sweep import from_text
from dse.sweep.results import schema

#: Written by a revision from before results had a version: 44 designs of a small sweep.
OLDER = Path(__file__).parent / "sweep" / "older" / "schema_0.nc.gz"


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    path = tmp_path_factory.mktemp("older") / "schema_0.nc"
    path.write_bytes(gzip.decompress(OLDER.read_bytes()))
    return path


def test_new_names_exist_and_old_ones_do_not():
    leaves, metrics = known_leaves(), {*TRAINING.units, *SERVING.units}
    for old, new in renamed.LEAVES.items():
        assert new.name in leaves and old not in leaves
    for old, new in renamed.METRICS.items():
        assert new.name in metrics and old not in metrics
    assert all(new.since for table in (renamed.LEAVES, renamed.METRICS, renamed.COLUMNS) for new in table.values())


@pytest.mark.parametrize("name", ["software.engine.iteration_time", "engine.iteration_time"])
def test_an_old_leaf_is_understood_with_a_warning(name):
    with pytest.warns(Renamed, match=f"{name} is called software.engine.host_step_time since"):
        assert leaf_path(name) == "software.engine.host_step_time"


def test_what_means_something_else_now_is_that():
    assert leaf_path("host_time") == "software.host_time"
    with pytest.raises(InputError):  # of other tools it is the time of a step
        leaf_path("iteration_time")


def test_old_names_in_sweeps_and_settings():
    text = '[workload]\nname = "gpt-3-13b"\n[system]\nname = "selene"\n[axes]\ntp = [1, 2]\n'
    with pytest.warns(Renamed, match="step_time_edge is called step_time_embedding_and_head"):
        spec = from_text(f'{text}[constraints]\nall = ["step_time_edge < 1"]')
    assert spec.constraints[0].names == ("step_time_embedding_and_head",)
    with pytest.warns(Renamed, match="emissions.memory is called"):
        made = dse.design("gpt-3-13b", "selene", tp=8, **{"emissions.memory": 1.0})
    assert made.system.emissions is not None and made.system.emissions.memory_intensity == 1.0


def test_old_fields_of_the_catalogue(tmp_path):
    own = (catalog.catalog_root() / "software" / "megatron-bridge.toml").read_text()
    folder = tmp_path / "software"
    folder.mkdir()
    (folder / "older.toml").write_text(own.replace("expert_host_time", "host_time"))
    with pytest.warns(Renamed, match="older.toml: experts.host_time is called experts.expert_host_time"):
        found = catalog.entry("software", "older", folder=tmp_path)
    assert "experts.expert_host_time" in found.values and "experts.host_time" not in found.values


def test_old_columns_of_tables(tmp_path, monkeypatch):
    monkeypatch.setitem(renamed.COLUMNS, "gpus_used", renamed.New("n_gpus", "9.9"))
    (tmp_path / "old.csv").write_text("model,gpus_used\ngpt-3-13b,16\n")
    with pytest.warns(Renamed, match=r"gpus_used is called n_gpus since 9\.9"):
        columns, rows = read_table(tmp_path / "old.csv")
    assert columns == ["model", "n_gpus"] and rows[0].get("n_gpus") == "16"
    (tmp_path / "both.csv").write_text("n_gpus,gpus_used\n8,16\n")
    assert read_table(tmp_path / "both.csv")[1][0].get("n_gpus") == "8"


def test_a_command_tells_each_old_name_once():
    line = ["list", "leaves", "tp"]
    assert CliRunner().invoke(app, line).exit_code == 0
    wanted = ["evaluate", "-w", "gpt-3-13b", "-s", "selene", "--set", "tp=8", "--set", "emissions.memory=1", "--json"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, wanted)
    assert done.exit_code == 0 and done.stderr.count("system.emissions.memory_intensity since") == 1, done.stderr


# --- older results ----------------------------------------------------------------------------------------


def test_results_say_their_version(small_results):
    with dse.open_results(small_results[1]) as results:
        assert schema.version(results.attrs) == schema.VERSION
    assert schema.version(small_results[0].attrs) == schema.VERSION


def test_an_older_file_is_read(older):
    with dse.open_results(older) as results:
        assert schema.version(results.attrs) == 0
        assert "step_time_embedding_and_head" in results and "step_time_edge" not in results
        assert not any(str(dim).startswith("by_") for dim in results.dims)
        assert float(results.step_time.where(results.feasible).min()) == pytest.approx(5.752516746520996)
        parts = [name for name in results if str(name).startswith("step_time_")]
        assert np.allclose(sum(results[name] for name in parts), results.step_time, rtol=1e-5)
        assert results.sel(tp=8, recompute="full").sizes["mapping"] == 6
        assert float(dse.overview(results).best_step_time_by_tp.sel(by_tp=2)) == pytest.approx(5.7525167)
    assert float(dse.overview(older).best_step_time_by_tp.sel(by_tp=2)) == pytest.approx(5.7525167)


def test_an_older_file_is_drawn_and_compared(older, small_results, tmp_path):
    from dse.views import plot

    with dse.open_results(older) as results:
        assert plot.suited(results) == ["breakdown"]
        plot.save(plot.KINDS["breakdown"](results), tmp_path / "older.png")
        plot.save(plot.KINDS["pareto"](results), tmp_path / "front.png")
    found = dse.compare(older, small_results[1])
    assert found.common == 44 and found.circumstances["dse_schema"] == (0, schema.VERSION) and not found.same
    assert any(change.metric == "step_time_embedding_and_head" for change in found.metrics)


def test_an_older_file_in_the_place_of_an_output_is_made_again(older, tmp_path):
    from tests.sweep import toy

    output = tmp_path / "r.nc"
    output.write_bytes(older.read_bytes())
    made = dse.sweep.perform(toy.sweep("tp = [1, 2]"), output, study=toy.STUDY, force=True)[1]
    assert not made.finished and schema.version(xr.open_dataset(output).attrs) == schema.VERSION


def test_a_file_of_the_future_is_refused(tmp_path, small_results):
    with xr.open_dataset(small_results[1]) as results:
        results.load().assign_attrs(dse_schema=99, source="dse 9.9").to_netcdf(tmp_path / "later.nc")
    with pytest.raises(InputError, match=r"version 99, written by dse 9\.9"):
        dse.open_results(tmp_path / "later.nc")
